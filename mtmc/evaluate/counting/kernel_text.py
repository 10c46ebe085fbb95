"""What a kernel's text may hold where it is interpreted as Python: Triton's language, and nothing that leads out of it.

The compiler refuses most of what is no Triton, but it does not read branches that a constant rules out, and does not know
what the interpreter's values are made of.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from typing import Any

from mtmc.evaluate.counting.program import UncountableError
from mtmc.evaluate.loading.jitted import is_jitted, is_module

_REFUSED: tuple[type[ast.AST], ...] = (
    ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ClassDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try,
    ast.Await, ast.Yield, ast.YieldFrom, ast.Delete, ast.AsyncFor, ast.AsyncWith, ast.GeneratorExp,
)  # fmt: skip
_WORDS = "handle data fn rewriter rewritten_fn rewrite run pre_run_hooks add_pre_run_hook kwargs format format_map"
_INSIDE = frozenset(_WORDS.split())
"""Attributes of the interpreter's values and functions that compiled ones do not have, or that lead anywhere."""
_RUNTIME = ("triton.runtime", "triton.backends", "triton.compiler")
_OF_TRITON = ("language", "cdiv", "next_power_of_2", "constexpr")
"""What a kernel may use of triton itself."""


def refuse_host_code(node: ast.FunctionDef, names: Mapping[str, Any]) -> None:
    """Raises: UncountableError for a function that could do more where it is interpreted than Triton's compiler sees.

    names: what the file's names stand for in it.
    """
    known = names.keys() | _bound(node)
    bases = {id(each.value) for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    for each in ast.walk(node):
        if isinstance(each, ast.expr) and id(each) not in bases and _module(each, names) is not None:
            raise _refused(node, f"the module {ast.unparse(each)} as a value", each)
        if isinstance(each, _REFUSED) or (isinstance(each, ast.FunctionDef) and each is not node):
            raise _refused(node, f"a {type(each).__name__}", each)
        if isinstance(each, ast.Attribute):
            _check(node, each, names)
        if isinstance(each, ast.Name) and each.id.startswith(("_", "interpreter")) and each.id not in known:
            raise _refused(node, f"the name {each.id}", each)


def attribute(owner: Any, name: str) -> str:
    """The name, where a kernel may look it up on a value. Raises: UncountableError."""
    found = getattr(owner, name, None)
    refused = not isinstance(name, str) or name.startswith("_") or name in _INSIDE or _leads_out(owner, name, found)
    if refused or isinstance(found, types.ModuleType):
        raise UncountableError(f"the attribute {str(name)[:100]!r} is nothing that a kernel needs")
    return name


def _check(node: ast.FunctionDef, each: ast.Attribute, names: Mapping[str, Any]) -> None:
    if not isinstance(each.ctx, ast.Load):
        raise _refused(node, f"an assignment to .{each.attr}", each)
    if each.attr.startswith("_") or each.attr in _INSIDE:
        raise _refused(node, f".{each.attr}", each)
    owner = _module(each.value, names)
    if owner is not None and _leads_out(owner, each.attr, getattr(owner, each.attr, None)):
        raise _refused(node, f"{ast.unparse(each)}", each)


def _leads_out(owner: Any, name: str, found: Any) -> bool:
    """Whether an attribute of a module is one that kernels do not use: another module, or a part of the runtime."""
    if not isinstance(owner, types.ModuleType):
        return False
    if isinstance(found, types.ModuleType):
        return not is_module(found.__name__)
    if owner.__name__ == "triton" and name not in _OF_TRITON:
        return True
    return type(found).__module__.startswith(_RUNTIME) and not is_jitted(found)


def _module(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The module that an expression stands for, or None."""
    if isinstance(node, ast.Name):
        found = names.get(node.id)
    elif isinstance(node, ast.Attribute):
        owner = _module(node.value, names)
        found = None if owner is None else getattr(owner, node.attr, None)
    else:
        found = None
    return found if isinstance(found, types.ModuleType) else None


def _bound(node: ast.FunctionDef) -> set[str]:
    """Names that a function binds."""
    stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return stored | {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}


def _refused(node: ast.FunctionDef, what: str, where: ast.AST) -> UncountableError:
    line = getattr(where, "lineno", node.lineno)
    return UncountableError(
        f"kernel {node.name} has {what} in line {line}, which is no part of Triton's language; write the kernel without it"
    )
