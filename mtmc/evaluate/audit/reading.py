"""What a text means to those who read it again: names that nobody defines, and functions whose beginning is doubtful.

Triton takes a kernel by the text of its file. It finds a function's beginning by its line, the interpreter by the last line
that begins with `def`; a line of a string that does so would be a function which no reader of the tree has seen. And its
interpreter leaves names of its own behind in the module of a kernel, so that a name which the file does not have is found
once a kernel has run. Both are refused by the text, for the same answer whatever ran before. (What a text
binds on a way that is never taken counts as there; `mtmc.evaluate.interpreter.names` sees to that.)
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import symtable
from collections.abc import Iterator

_DEFINITION = re.compile(r"\s*(async\s+)?def\b")
_GIVEN = frozenset(
    {name for name in dir(builtins) if not name.startswith("_")}
    | {"__name__", "__file__", "__doc__", "__debug__", "__build_class__", "__module__", "__qualname__", "__class__"}
)
"""Names that a file has without defining them; the last three are those of a class."""
STARRED = ("math", "typing")
"""Modules whose names may be imported all at once: they are the same everywhere."""


def undefined(text: str, tree: ast.Module) -> list[tuple[int, str]]:
    """(line, name) of the names that are looked up in the file or in Python itself and stand in neither.

    Names of a function that are assigned later count as there, wherever the assignment stands. text: that of `tree`.
    """
    top = symtable.symtable(text, "<version>", "exec")
    # From Python 3.12 on a comprehension is no scope of the table: what it binds outside of itself is read off the tree.
    defined = _GIVEN | _starred(tree) | {node.target.id for node in ast.walk(tree) if isinstance(node, ast.NamedExpr)}
    wanted: set[str] = set()
    for scope in _scopes(top):
        for symbol in scope.get_symbols():
            everywhere = scope is top or symbol.is_declared_global()
            if everywhere and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()):
                defined |= {symbol.get_name()}
            if symbol.is_referenced() and (scope is top or symbol.is_global()):
                wanted.add(symbol.get_name())
    return sorted((_line(tree, name), name) for name in wanted - defined)


def doubtful_beginnings(text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) of the lines in functions that begin like a function's and are none."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    known = {node.lineno for node in functions}
    inside: set[int] = set()
    for node in functions:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        inside.update(range(first, (node.end_lineno or first) + 1))
    for at, line in enumerate(text.split("\n"), 1):
        if at in inside and at not in known and _DEFINITION.match(line):
            yield (
                at,
                "a line in a function that begins with `def` and is none (Triton takes it for the kernel's beginning)",
            )


def _scopes(scope: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield scope
    for child in scope.get_children():
        yield from _scopes(child)


def _starred(tree: ast.Module) -> frozenset[str]:
    """Names that come with `from math import *`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in STARRED and any(a.name == "*" for a in node.names):
            module = importlib.import_module(node.module)
            found.update(getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")]))
    return frozenset(found)


def _line(tree: ast.Module, name: str) -> int:
    """Where a name is looked up first."""
    lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    return min(lines, default=1)
