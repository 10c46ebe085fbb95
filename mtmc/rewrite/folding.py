"""folding: lines of generated text that are too long, broken where a formatter would break them."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence

LONGEST = 120
"""Characters of a line, as far as its parts allow."""
INDENT = "    "
_OPEN, _CLOSE = "([{", ")]}"


def folded(line: str) -> list[str]:
    """A line as one or several. Lines with a comment or a docstring stay, and so do those of a bracket that is open."""
    if len(line) <= LONGEST or "#" in line or line.lstrip().startswith('"""'):
        return [line]
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    if any(depth < 0 for _, _, depth in _depths(text)) or _ends_open(text):
        return [line]
    start, end = _widest(text)
    head, equals, right = text.partition(" = ")
    terms = _parts(right, " + ") if equals and head.isidentifier() else []
    if len(terms) > 1 and end - start < len(text) / 2:
        return [f"{indent}{head} = (", *_sum(indent + INDENT, terms), f"{indent})"]
    if end <= start:
        return [line]
    items = _parts(text[start + 1 : end], ", ")
    comma = "," if len(items) > 1 or text[end - 1] == "," else ""
    lines = [f"{indent}{text[: start + 1]}"]
    for item in items:
        lines += _item(indent + INDENT, item.removesuffix(","), comma)
    return [*lines, *folded(f"{indent}{text[end:]}")]


def docstring(text: str) -> list[str]:
    """The lines of a function's docstring."""
    return textwrap.wrap(
        f'"""{text}"""',
        LONGEST,
        initial_indent=INDENT,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def wrapped(head: str, items: Sequence[str], tail: str) -> list[str]:
    """head + items + tail on one line, or one item a line where that is too long."""
    line = head + ", ".join(items) + tail
    if len(line) <= 116:
        return [line]
    inner = " " * (len(head) - len(head.lstrip())) + INDENT
    return [head, *[f"{inner}{item}," for item in items], head[: len(head) - len(head.lstrip())] + tail]


def _item(indent: str, item: str, comma: str) -> list[str]:
    """One item within a bracket, over several lines where it is a long sum."""
    whole = f"{indent}{item}{comma}"
    terms = _parts(item, " + ")
    if len(whole) <= LONGEST or len(terms) < 2:
        return folded(whole)
    lines = _sum(indent, terms)
    return [*lines[:-1], lines[-1] + comma]


def _sum(indent: str, terms: list[str]) -> list[str]:
    return [f"{indent}{terms[0]}", *(f"{indent}+ {term}" for term in terms[1:])]


def _depths(text: str) -> Iterator[tuple[int, str, int]]:
    """Place, character and how many brackets are open behind it, of each character outside of quotes."""
    depth, quote = 0, ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
            continue
        if character in "'\"":
            quote = character
        depth += (character in _OPEN) - (character in _CLOSE)
        yield place, character, depth


def _ends_open(text: str) -> bool:
    """Whether a bracket is open at the end."""
    return next((depth for _, _, depth in reversed(list(_depths(text)))), 0) != 0


def _widest(text: str) -> tuple[int, int]:
    """Places of the brackets around the longest outermost group; (0, 0) without any."""
    found, start = (0, 0), 0
    for place, character, depth in _depths(text):
        if character in _OPEN and depth == 1:
            start = place
        elif character in _CLOSE and depth == 0 and place - start > found[1] - found[0]:
            found = start, place
    return found


def _parts(text: str, between: str) -> list[str]:
    """The text cut at a separator outside of all brackets and quotes."""
    cuts = [place for place, _, depth in _depths(text) if depth == 0 and text.startswith(between, place)]
    edges = [-len(between), *cuts, len(text)]
    return [text[first + len(between) : last] for first, last in itertools.pairwise(edges)]
