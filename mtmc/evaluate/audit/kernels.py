"""What a kernel's own text must not ask: whether it is compiled or interpreted.

Python's questions about an object have other answers in Triton's compiler than in its interpreter, where numbers are arrays.
A kernel that asks takes one way where it is checked and another one on a GPU, and the compiler never sees the first. A
function of constants (`@triton.constexpr_function`) is Python in both, and must not ask what the kernels are either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mtmc.evaluate.audit.tracking import Tracking

ASKING = ("isinstance", "issubclass", "getattr", "hasattr", "type", "callable", "id", "repr", "str", "hash", "dir")
"""Built-in functions; `len`, `min`, `max`, `int`, `float` and the like ask for numbers."""
INSIDE = ("handle",)
"""Attributes of a tensor that hold what it is made of."""
_KERNEL, _OF_CONSTANTS = "jit", "constexpr_function"


def questions(tree: ast.Module, names: Tracking) -> Iterator[tuple[int, str]]:
    """(line, what is refused) of what kernels and functions of constants ask."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    kinds = _given(tree, names)
    made = {node.name: kinds.get(node.name, "") or _kind(node, names) for node in functions}
    for node in functions:
        kind = kinds.get(node.name, "") or _kind(node, names)
        own = _bound(node) if kind else frozenset()
        for part in ast.walk(node) if kind else ():
            what = _question(part, own)
            if what is None and kind == _OF_CONSTANTS:
                what = _of_constants(part, made)
            if what is not None:
                yield part.lineno, f"{what} in {'a kernel' if kind == _KERNEL else 'a function of constants'}"  # type: ignore[attr-defined]


def _bound(node: ast.FunctionDef) -> frozenset[str]:
    """Names that a function gives a meaning of its own."""
    stored = (part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    return frozenset((*stored, *(part.arg for part in ast.walk(node) if isinstance(part, ast.arg))))


def _question(part: ast.AST, own: frozenset[str]) -> str | None:
    if isinstance(part, ast.Name) and part.id in ASKING and part.id not in own:
        return f"use of {part.id}"
    if isinstance(part, ast.Attribute) and (part.attr in INSIDE or part.attr.startswith("__")):
        return f"use of .{part.attr}"
    return None


def _of_constants(part: ast.AST, made: dict[str, str]) -> str | None:
    if isinstance(part, ast.Name) and made.get(part.id) == _KERNEL:
        return f"use of the kernel {part.id}"
    return "try" if isinstance(part, ast.Try) else None


def _kind(node: ast.FunctionDef, names: Tracking) -> str:
    """ "jit", "constexpr_function" or "", by the decorators of a function."""
    paths = (names.path(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list)
    return next((kind for path in paths if path and (kind := _of_path(path))), "")


def _given(tree: ast.Module, names: Tracking) -> dict[str, str]:
    """The same of functions that are handed to such a decorator by name."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    kinds = [(call, _of_path(names.path(call.func) or "")) for call in calls]
    return {each.id: kind for call, kind in kinds if kind for each in call.args if isinstance(each, ast.Name)}


def _of_path(path: str) -> str:
    root, _, name = path.rpartition(".")
    return name if root.startswith("triton") and name in (_KERNEL, _OF_CONSTANTS) else ""
