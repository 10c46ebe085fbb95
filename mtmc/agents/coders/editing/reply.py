"""reply: from what a model answered to the whole new file, or the reason why there is none.

`mtmc.agents.coders.editing.prompt` asks for one of two forms: the whole file in a code fence, or SEARCH/REPLACE blocks.
Models answer in many more. What can be meant in one way only is taken, with a note; the rest is `Unusable`.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.agents.coders.editing.fences import Block, before_fences, find_blocks
from mtmc.agents.coders.editing.patches import apply_patches, find_patches
from mtmc.agents.coders.editing.reading import (
    CLASS,
    File,
    Reader,
    bound,
    bound_at_top,
    defines,
    is_same,
    tree_of,
    used,
    why_broken,
)
from mtmc.agents.coders.editing.unusable import Unusable

__all__ = ["REPLY_LIMIT", "Parsed", "Unusable", "is_same", "parse_reply", "without_reasoning"]

REPLY_LIMIT = 1 << 20
"""Characters of a reply that is read at all: the audit refuses larger files."""

_PYTHON = ("", "python", "py", "python3", "triton")
_REASONING = re.compile(r"<(/?)(?:think|thinking|reasoning|thought)>", re.IGNORECASE)
_ELLIPSIS = re.compile(r"[ \t]*(?:\.\.\.[ \t]*$|# ?(?:\.\.\.|\u2026))")
_START = re.compile(r"import \w|from \S+ import |r?\"\"\"|r?'''")


@dataclass(frozen=True)
class Parsed:
    """What a reply gives. source: the whole new file. notes: what had to be put right or chosen on the way."""

    source: str
    notes: tuple[str, ...]


def parse_reply(text: str, base: str, truncated: bool = False) -> Parsed:
    """The whole file that a reply gives.

    base: the file that the model was shown, to which SEARCH/REPLACE blocks apply. truncated: whether the reply was cut
    because it reached the limit of tokens.

    Raises: Unusable, with the reason in a form fit to be given back to the model.
    """
    if len(text) > REPLY_LIMIT:
        raise Unusable("too long", f"the reply has {len(text)} characters; at most {REPLY_LIMIT} are read")
    text = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    answer, unfinished = without_reasoning(text)
    if not answer.strip():
        raise _nothing(bool(text.strip()), truncated)
    patches, rest = find_patches(answer.split("\n"))
    reader = Reader(len(answer))
    blocks = [block for block in find_blocks(rest, reader.is_whole) if block.tag in _PYTHON or CLASS in block.text]
    found = _from_blocks(reader, blocks, base, truncated)
    if found is None and patches:
        if truncated:
            raise Unusable("truncated", "the reply was cut at the limit of its length, so blocks may be missing")
        found = _checked(*apply_patches(patches, base))
    elif found is None:
        found = _without_fence(reader, rest, blocks, truncated, unfinished)
    gap = _gap(found.source)
    if gap and _gap(base) != gap:
        raise Unusable("abbreviated", f"the file leaves something out ({gap!r}): write out all of it")
    if is_same(found.source, base):
        raise Unusable("unchanged", "the file given is the one that was to be changed, but for comments and blanks")
    return found


def without_reasoning(text: str) -> tuple[str, bool]:
    """A reply without what stands between reasoning tags, and whether the last of them was left open.

    A closing tag without an opening one ends reasoning that began with the reply.
    """
    kept: list[str] = []
    at, inside = 0, False
    for mark in _REASONING.finditer(text):
        closing = bool(mark.group(1))
        if closing and not inside:
            kept.clear()
        elif not closing and not inside:
            kept.append(text[at : mark.start()])
        inside = not closing
        at = mark.end()
    if not inside:
        kept.append(text[at:])
    return "".join(kept), inside


def _nothing(reasoned: bool, truncated: bool) -> Unusable:
    if truncated:
        return Unusable("truncated", "the reply was cut at the limit of its length before any code came: think shorter")
    if reasoned:
        return Unusable("no code", "the reply has reasoning but no answer: give the code after it")
    return Unusable("empty", "the reply is empty")


def _from_blocks(reader: Reader, blocks: Sequence[Block], base: str, truncated: bool) -> Parsed | None:
    """The whole file among the code blocks: the last one that defines ModelNew and is not the old file quoted."""
    files = [each for block in blocks if (each := reader.read(block.text, block.closed)) is not None]
    whole = [each for each in files if each.defines and (each.closed or not truncated)]
    if not whole:
        return None
    broken = any(f"class {CLASS}" in block.text and reader.read(block.text) is None for block in blocks)
    new = [each for each in whole if not is_same(each.source, base)]
    if not new and broken:
        return None  # the old file was quoted, and what is new is not whole
    chosen = (new or whole)[-1]
    notes = []
    if len({each.source for each in new}) > 1:
        notes.append(f"{len(new)} files define {CLASS}; the last one is taken")
    if not chosen.closed:
        notes.append("the code fence was never closed")
    joined = _joined(reader, chosen, files)
    if joined is not None:
        return Parsed(joined, (*notes, "put together from several code blocks"))
    return Parsed(chosen.source, tuple(notes))


def _joined(reader: Reader, chosen: File, files: Sequence[File]) -> str | None:
    """The file with the other blocks before it that define names which it uses and lacks; None where there is none."""
    lacking = used(chosen.tree) - bound(chosen.tree) - set(dir(builtins))
    parts = dict.fromkeys(other.source for other in files if not other.defines and bound_at_top(other.tree) & lacking)
    if not parts:
        return None
    joined = reader.read("\n\n".join([*parts, chosen.source]))
    return None if joined is None else joined.source


def _without_fence(
    reader: Reader, rest: Sequence[str], blocks: Sequence[Block], truncated: bool, unfinished: bool
) -> Parsed:
    """A file that stands in the reply without any fence, or before one that only closes. Raises: Unusable."""
    whole = not truncated and any(CLASS in line for line in rest)
    texts = [list(rest), before_fences(rest)] if whole else []
    for lines in texts:
        starts = [at for at, line in enumerate(lines) if _START.match(line.lstrip())][:1]
        for start in (0, *starts):
            found = reader.read("\n".join(lines[start:]))
            if found is not None and found.defines:
                return Parsed(found.source, ("the file came without a code fence",))
    raise _no_file(reader, "\n".join(rest), blocks, truncated, unfinished)


def _no_file(reader: Reader, text: str, blocks: Sequence[Block], truncated: bool, unfinished: bool) -> Unusable:
    """Why a reply without SEARCH/REPLACE blocks gives no file."""
    if truncated:
        return Unusable("truncated", "the reply was cut at the limit of its length: answer shorter, best in blocks")
    meant = [block for block in blocks if CLASS in block.text] or list(blocks)
    broken = [block for block in meant if reader.read(block.text) is None]
    if broken and not broken[-1].closed:
        return Unusable("truncated", f"the code fence is never closed, and {why_broken(broken[-1].text)}")
    if broken:
        return Unusable("does not parse", why_broken(broken[-1].text))
    if blocks:
        return Unusable(
            "no ModelNew", f"the code defines no class {CLASS}: give the whole file, or SEARCH/REPLACE blocks"
        )
    if f"class {CLASS}" in text:
        return Unusable("does not parse", f"{why_broken(text)}; put the file, and nothing else, into a code fence")
    cause = "the reasoning is never ended" if unfinished else "the reply has no code"
    return Unusable("no code", f"{cause}: give the whole file in a code fence, or SEARCH/REPLACE blocks")


def _checked(source: str, notes: Sequence[str]) -> Parsed:
    """The file that the blocks made. Raises: Unusable where it does not parse or has lost ModelNew."""
    found = tree_of(source)
    if found is None:
        raise Unusable("does not parse", f"after the SEARCH/REPLACE blocks {why_broken(source)}")
    if not defines(found):
        raise Unusable("no ModelNew", f"after the SEARCH/REPLACE blocks the file defines no class {CLASS}")
    return Parsed(source, tuple(notes))


def _gap(source: str) -> str:
    """The first line that stands for code that was left out: a bare `...`, or a comment that begins with it."""
    return next((line.strip() for line in source.split("\n") if _ELLIPSIS.match(line)), "")
