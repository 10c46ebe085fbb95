"""Lanes: which expressions of a kernel are whole tiles, as far as the text tells."""

from __future__ import annotations

import libcst as cst

from mtmc.agents.coders.repair.program import Program

_SCALARS = ("max", "min", "sum", "argmax", "argmin", "program_id", "num_programs", "cdiv")
_MOST = 20
"""Names that are followed back, one from the other."""


def tiles(program: Program, kernel: cst.FunctionDef, node: cst.BaseExpression) -> bool:
    """Whether an expression surely has a tile in it: one of `tl.arange`, or what is loaded at one.

    Each name is followed once, the nearest first: by each of the paths that lead to it, they would be too many.
    """
    at: list[cst.CSTNode] = [node]
    followed: set[str] = set()
    for _ in range(_MOST + 1):
        names: set[str] = set()
        if any(_shows(program, each, names) for each in at):
            return True
        names -= followed
        followed |= names
        at = [value for name in names for value in program.values(name, kernel) if value is not None]
    return False


def _shows(program: Program, node: cst.CSTNode, names: set[str]) -> bool:
    """Whether an expression has a tile in it without following names: those are added to `names`."""
    if isinstance(node, cst.Call):
        name = (program.path(node.func) or "").rpartition(".")[2]
        if name == "arange":
            return True
        if name in _SCALARS:
            return False
    if isinstance(node, cst.Attribute):
        return False
    if isinstance(node, cst.Name):
        names.add(node.value)
        return False
    return any(_shows(program, part, names) for part in node.children)
