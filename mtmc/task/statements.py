"""A task's file compiled a statement at a time, so that at other sizes only the statements that hold them are compiled anew.

A network of some hundred operators is one long class, whose text is the same at all shapes: compiling it takes longer than
running it at small ones.
"""

from __future__ import annotations
import __future__

import ast
import functools
import types
from collections.abc import Iterable

from mtmc.syntax import KEPT_TEXTS, tree_of
from mtmc.task.constants import apply_constants


def compiled(source: str, constants: Iterable[tuple[str, int]], filename: str) -> tuple[types.CodeType, ...]:
    """The code of a file with these constants, to be executed in order. Every line has its number in the file.

    Raises: SyntaxError or ValueError if the text is no Python, TaskError if it has no such constant.
    """
    ends, flags = _layout(source)
    lines = apply_constants(source, constants).split("\n")
    return tuple(
        _statement("\n".join(lines[first:last]), first, filename, flags)
        for first, last in zip((0, *ends), ends, strict=False)
    )


@functools.lru_cache(maxsize=KEPT_TEXTS)
def _layout(source: str) -> tuple[tuple[int, ...], int]:
    """The last lines of the statements at the top level, and what the file imports from __future__ as compile() takes it."""
    body = tree_of(source).body
    ends = [node.end_lineno or node.lineno for node in body]
    starts = [min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) for node in body]
    apart = [end for end, following in zip(ends, starts[1:], strict=False) if end < following]
    names = [
        alias.name
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    ]
    flags = 0
    for name in names:
        flags |= getattr(__future__, name).compiler_flag
    return (*apart, *ends[-1:]), flags


@functools.lru_cache(maxsize=256)
def _statement(text: str, first: int, filename: str, flags: int) -> types.CodeType:
    """The code of the lines after line `first`."""
    return compile("\n" * first + text, filename, "exec", flags, dont_inherit=True)
