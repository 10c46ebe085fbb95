"""What the documentation consists of: its pages, their snippets, links and sentences. A helper of the tests beside it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = tuple(
    str(path.relative_to(ROOT))
    for path in (
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
        *sorted((ROOT / "docs").glob("*.md")),
        ROOT / "results" / "README.md",
    )
)
"""Pages that people read from beginning to end; records of measurements are none."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def snippets(page: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return [text for found, text in _FENCE.findall(read(page)) if found == language]


def commands(snippet: str) -> list[list[str]]:
    """The words of each command of a shell snippet, lines that go on joined, comments left out."""
    lines = snippet.replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def links(page: str) -> list[str]:
    """Targets of links and pictures that are not on the web."""
    text = _FENCE.sub("", read(page))
    return [target for target in _LINK.findall(text) if not re.match(r"https?:|mailto:", target)]


def anchors(page: Path) -> set[str]:
    """What a link to a heading of this page may name, as GitHub makes it."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def sentences(page: str) -> list[list[str]]:
    """The words of each sentence of a page's prose: no code, headings, tables or captions; items of lists stand alone."""
    prose = _FENCE.sub("\n\n", read(page))
    prose = re.sub(r"^( {4}.*|#.*|\|.*|:::.*|!\[.*| +\|.*)$", "", prose, flags=re.MULTILINE)
    prose = re.sub(r"`[^`\n]*`", "code", _LINK.sub("]", prose))
    prose = re.sub(r"^\s*(-|\d+\.) ", "\n\n", prose, flags=re.MULTILINE)
    found = []
    for paragraph in re.split(r"\n\s*\n", prose):
        for sentence in re.split(r"(?<=[.!?])\**\s+", " ".join(paragraph.split())):
            words = re.findall(r"[^\W_][\w'.,%-]*", sentence)
            if words:
                found.append(words)
    return found


def fewer(words: Sequence[str], one_in: int) -> list[str]:
    """A command with one of so many evaluations, two at least."""

    def less(found: re.Match[str]) -> str:
        return f"{found[1]}{max(2, -(-int(found[2]) // one_in))}"

    return [re.sub(r"^(budget(?:\.evaluations)?=)(\d+)$", less, word) for word in words]
