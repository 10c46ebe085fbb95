"""reading: texts of a reply as files of Python, each parsed once, and no more of them than some times its own length.

Where a code block ends is tried out (`fences`), and a reply is up to a million characters long: without a limit each try
would parse most of it again.
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass, replace

from mtmc.agents.coders.editing.patches import unnumbered
from mtmc.syntax import parse
from mtmc.tree import source_hash

CLASS = "ModelNew"
PARSED_MOST, PARSED_LEAST = 3, 200_000
"""Text that one reply may have parsed: so many times its length, and so many characters in any case."""


@dataclass(frozen=True)
class File:
    """A text that parses. defines: whether it has ModelNew at its top level. closed: whether its fence was closed."""

    source: str
    tree: ast.Module
    defines: bool
    closed: bool


class Reader:
    """Reads the texts of one reply."""

    def __init__(self, length: int) -> None:
        """length: of the reply in characters."""
        self._left = max(PARSED_MOST * length, PARSED_LEAST)
        self._known: dict[str, File | None] = {}

    def read(self, text: str, closed: bool = True) -> File | None:
        """A text as a file: as it stands, without common indentation, or without line numbers; None if nothing parses,
        or too much was parsed already."""
        if text not in self._known:
            self._known[text] = self._read(text)
        found = self._known[text]
        return found if found is None or found.closed == closed else replace(found, closed=closed)

    def is_whole(self, text: str) -> bool:
        """Whether a text is complete code."""
        return self.read(text) is not None

    def _read(self, text: str) -> File | None:
        for reading in dict.fromkeys((text, textwrap.dedent(text), "\n".join(unnumbered(text.split("\n"))))):
            if len(reading) > self._left:
                return None
            self._left -= len(reading)
            tree = tree_of(reading)
            if tree is not None and tree.body:
                return File(reading.strip("\n").rstrip() + "\n", tree, defines(tree), True)
        return None


def tree_of(text: str) -> ast.Module | None:
    """The syntax tree of a text, None where it has none."""
    try:
        return parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def why_broken(text: str) -> str:
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


def defines(tree: ast.Module) -> bool:
    """Whether ModelNew is a class or an assignment at the top level, as the audit wants it."""
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return CLASS in classes or any(isinstance(target, ast.Name) and target.id == CLASS for target in targets)


def bound_at_top(tree: ast.Module) -> set[str]:
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


def bound(tree: ast.Module) -> set[str]:
    """All names that are bound anywhere in a file."""
    names = bound_at_top(tree)
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


def used(tree: ast.Module) -> set[str]:
    """Names that are read anywhere in a file."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def is_same(source: str, base: str) -> bool:
    """Whether two files are the same but for comments, blanks and the way in which they are laid out."""
    if source_hash(source) == source_hash(base):
        return True
    ours, theirs = tree_of(source), tree_of(base)
    return ours is not None and theirs is not None and same_trees(ours, theirs)


def same_trees(one: ast.AST, other: ast.AST) -> bool:
    """Whether two syntax trees are equal, places in their files left out. It ends at the first difference."""
    pairs: list[tuple[object, object]] = [(one, other)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            pairs += [(getattr(left, name, None), getattr(right, name, None)) for name in left._fields]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif repr(left) != repr(right):
            return False
    return True
