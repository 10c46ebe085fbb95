"""numbers: the part of a text that deals with numbers only, computed without running anything else."""

from __future__ import annotations

import ast
import math
from typing import Any

Env = dict[str, Any]
"""Values by name."""
UNKNOWN = object()
"""What `value_of` gives for an expression that needs more than numbers."""
KEPT = 8
"""Integers up to this are kernel sizes, strides and dimensions, not sizes of tensors (as in `mtmc.task.shapes`)."""

_FUNCTIONS = {each.__name__: each for each in (abs, bool, float, int, len, list, max, min, range, round, sum, tuple)}
_ATTRIBUTES = ("append",)


def run(statement: ast.stmt, env: Env) -> bool:
    """Execute a statement in `env`. False, with nothing done, where it is not about numbers alone."""
    changed = dict(env)
    if not _numeric(statement, changed):
        return False
    module = ast.fix_missing_locations(ast.Module([statement], []))
    try:
        exec(compile(module, "<numbers>", "exec"), {"__builtins__": _FUNCTIONS, "math": math}, changed)
    except Exception:  # whatever it raises: it is left as it stands, and fails again where it is run
        return False
    env.update(changed)
    return True


def value_of(expression: ast.expr, env: Env) -> Any:
    """The value of an expression, `UNKNOWN` where it is not about numbers alone."""
    if not _numeric(expression, env):
        return UNKNOWN
    code = compile(ast.fix_missing_locations(ast.Expression(expression)), "<numbers>", "eval")
    try:
        return eval(code, {"__builtins__": _FUNCTIONS, "math": math}, dict(env))
    except Exception:  # as above
        return UNKNOWN


def is_size(value: Any) -> bool:
    """Whether a value is, or holds, an integer that may be a tensor's size."""
    if isinstance(value, list | tuple):
        return any(is_size(each) for each in value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) > KEPT


def targets(statement: ast.stmt) -> list[str]:
    """The names that an assignment or a loop sets, those in tuples too."""
    found = [statement.target] if isinstance(statement, ast.AnnAssign | ast.AugAssign | ast.For) else []
    found += statement.targets if isinstance(statement, ast.Assign) else []
    nested = [name for each in getattr(statement, "body", []) for name in targets(each)]
    nested += [name for each in getattr(statement, "orelse", []) for name in targets(each)]
    plain = [each for target in found for each in ast.walk(target) if isinstance(each, ast.Name)]
    return [each.id for each in plain if isinstance(each.ctx, ast.Store)] + nested


def _numeric(node: ast.AST, env: Env) -> bool:
    """Whether a text names nothing but numbers that are known, what it sets itself, and plain functions of numbers."""
    bound = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            owner = each.value
            if not isinstance(owner, ast.Name) or not (owner.id == "math" or each.attr in _ATTRIBUTES):
                return False
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            if each.id not in env and each.id not in bound and each.id not in _FUNCTIONS and each.id != "math":
                return False
        elif isinstance(each, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.With | ast.Return):
            return False
    return True
