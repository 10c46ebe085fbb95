"""reply: from what a model answered to the whole new file, or the reason why there is none.

`mtmc.agents.coders.editing.prompt` asks for one of two forms: the whole file in a code fence, or SEARCH/REPLACE blocks.
Models answer in many more. What can be meant in one way only is taken, with a note; the rest is `Unusable`.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.agents.coders.editing.fences import Block, before_fences, find_blocks
from mtmc.agents.coders.editing.patches import apply_patches, find_patches, unnumbered
from mtmc.agents.coders.editing.unusable import Unusable
from mtmc.syntax import parse
from mtmc.tree import source_hash

__all__ = ["REPLY_LIMIT", "Parsed", "Unusable", "is_same", "parse_reply", "without_reasoning"]

CLASS = "ModelNew"

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


@dataclass(frozen=True)
class _File:
    """A text that parses. defines: whether it has ModelNew at its top level. closed: whether its fence was closed."""

    source: str
    tree: ast.Module
    defines: bool
    closed: bool


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
    blocks = [block for block in find_blocks(rest, _is_whole) if block.tag in _PYTHON or CLASS in block.text]
    found = _from_blocks(blocks, base, truncated)
    if found is None and patches:
        if truncated:
            raise Unusable("truncated", "the reply was cut at the limit of its length, so blocks may be missing")
        found = _checked(*apply_patches(patches, base))
    elif found is None:
        found = _without_fence(rest, blocks, truncated, unfinished)
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


def _from_blocks(blocks: Sequence[Block], base: str, truncated: bool) -> Parsed | None:
    """The whole file among the code blocks: the last one that defines ModelNew and is not the old file quoted."""
    files = [each for block in blocks if (each := _read(block.text, block.closed)) is not None]
    whole = [each for each in files if each.defines and (each.closed or not truncated)]
    if not whole:
        return None
    broken = any(f"class {CLASS}" in block.text and _read(block.text) is None for block in blocks)
    new = [each for each in whole if not is_same(each.source, base)]
    if not new and broken:
        return None  # the old file was quoted, and what is new is not whole
    chosen = (new or whole)[-1]
    notes = []
    if len({each.source for each in new}) > 1:
        notes.append(f"{len(new)} files define {CLASS}; the last one is taken")
    if not chosen.closed:
        notes.append("the code fence was never closed")
    joined = _joined(chosen, files)
    if joined is not None:
        return Parsed(joined, (*notes, "put together from several code blocks"))
    return Parsed(chosen.source, tuple(notes))


def _joined(chosen: _File, files: Sequence[_File]) -> str | None:
    """The file with the other blocks before it that define names which it uses and lacks; None where there is none."""
    lacking = _used(chosen.tree) - _bound(chosen.tree) - set(dir(builtins))
    parts: list[str] = []
    for other in files:
        if not other.defines and other.source not in parts and _bound_at_top(other.tree) & lacking:
            parts.append(other.source)
    if not parts:
        return None
    joined = _read("\n\n".join([*parts, chosen.source]))
    return None if joined is None else joined.source


def _without_fence(rest: Sequence[str], blocks: Sequence[Block], truncated: bool, unfinished: bool) -> Parsed:
    """A file that stands in the reply without any fence, or before one that only closes. Raises: Unusable."""
    whole = not truncated and any(CLASS in line for line in rest)
    texts = [list(rest), before_fences(rest)] if whole else []
    for lines in texts:
        starts = [at for at, line in enumerate(lines) if _START.match(line.lstrip())][:1]
        for start in (0, *starts):
            found = _read("\n".join(lines[start:]))
            if found is not None and found.defines:
                return Parsed(found.source, ("the file came without a code fence",))
    raise _no_file("\n".join(rest), blocks, truncated, unfinished)


def _no_file(text: str, blocks: Sequence[Block], truncated: bool, unfinished: bool) -> Unusable:
    """Why a reply without SEARCH/REPLACE blocks gives no file."""
    if truncated:
        return Unusable("truncated", "the reply was cut at the limit of its length: answer shorter, best in blocks")
    meant = [block for block in blocks if CLASS in block.text] or list(blocks)
    broken = [block for block in meant if _read(block.text) is None]
    if broken and not broken[-1].closed:
        return Unusable("truncated", f"the code fence is never closed, and {_why_broken(broken[-1].text)}")
    if broken:
        return Unusable("does not parse", _why_broken(broken[-1].text))
    if blocks:
        return Unusable(
            "no ModelNew", f"the code defines no class {CLASS}: give the whole file, or SEARCH/REPLACE blocks"
        )
    if f"class {CLASS}" in text:
        return Unusable("does not parse", f"{_why_broken(text)}; put the file, and nothing else, into a code fence")
    cause = "the reasoning is never ended" if unfinished else "the reply has no code"
    return Unusable("no code", f"{cause}: give the whole file in a code fence, or SEARCH/REPLACE blocks")


def _checked(source: str, notes: Sequence[str]) -> Parsed:
    """The file that the blocks made. Raises: Unusable where it does not parse or has lost ModelNew."""
    found = _tree(source)
    if found is None:
        raise Unusable("does not parse", f"after the SEARCH/REPLACE blocks {_why_broken(source)}")
    if not _defines(found):
        raise Unusable("no ModelNew", f"after the SEARCH/REPLACE blocks the file defines no class {CLASS}")
    return Parsed(source, tuple(notes))


def _read(text: str, closed: bool = True) -> _File | None:
    """A text as a file: as it stands, without common indentation, or without line numbers; None if nothing parses."""
    for reading in (text, textwrap.dedent(text), "\n".join(unnumbered(text.split("\n")))):
        tree = _tree(reading)
        if tree is not None and tree.body:
            return _File(reading.strip("\n").rstrip() + "\n", tree, _defines(tree), closed)
    return None


def _is_whole(text: str) -> bool:
    return _read(text) is not None


def _tree(text: str) -> ast.Module | None:
    try:
        return parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _why_broken(text: str) -> str:
    """What is wrong with a text that does not parse."""
    try:
        parse(textwrap.dedent(text))
    except SyntaxError as error:
        lines = text.split("\n")
        line = lines[error.lineno - 1].strip()[:200] if error.lineno and error.lineno <= len(lines) else ""
        return f"the file does not parse: line {error.lineno}: {error.msg}: {line!r}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"the file does not parse: {error or type(error).__name__}"
    return "the file has no code"


def _defines(tree: ast.Module) -> bool:
    """Whether ModelNew is a class or an assignment at the top level, as the audit wants it."""
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return CLASS in classes or any(isinstance(target, ast.Name) and target.id == CLASS for target in targets)


def _bound_at_top(tree: ast.Module) -> set[str]:
    """Names that the statements of a module bind, functions' own names not looked into."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names |= {
                each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
    return names


def _bound(tree: ast.Module) -> set[str]:
    """All names that are bound anywhere in a file."""
    names = _bound_at_top(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def _used(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _gap(source: str) -> str:
    """The first line that stands for code that was left out: a bare `...`, or a comment that begins with it."""
    return next((line.strip() for line in source.split("\n") if _ELLIPSIS.match(line)), "")


def is_same(source: str, base: str) -> bool:
    """Whether two files are the same but for comments, blanks and the way in which they are laid out."""
    if source_hash(source) == source_hash(base):
        return True
    ours, theirs = _tree(source), _tree(base)
    if ours is None or theirs is None:
        return False
    try:
        return ast.dump(ours) == ast.dump(theirs)
    except RecursionError:
        return False
