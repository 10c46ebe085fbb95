"""Lanes: which expressions of a kernel are whole tiles, as far as the text tells."""

from __future__ import annotations

import libcst as cst

from mtmc.agents.coders.repair.program import Program

_SCALARS = ("max", "min", "sum", "argmax", "argmin", "program_id", "num_programs", "cdiv")
_MOST = 20
"""Names that are followed back."""


def tiles(program: Program, kernel: cst.FunctionDef, node: cst.BaseExpression) -> bool:
    """Whether an expression surely has a tile in it: one of `tl.arange`, or what is loaded at one."""
    return _tiles(program, kernel, node, set())


def _tiles(program: Program, kernel: cst.FunctionDef, node: cst.CSTNode, seen: set[str]) -> bool:
    if isinstance(node, cst.Call):
        name = (program.path(node.func) or "").rpartition(".")[2]
        if name == "arange":
            return True
        if name in _SCALARS:
            return False
    if isinstance(node, cst.Attribute):
        return False
    if isinstance(node, cst.Name):
        if node.value in seen or len(seen) >= _MOST:
            return False
        values = program.values(node.value, kernel)
        known = [value for value in values if value is not None]
        return any(_tiles(program, kernel, value, seen | {node.value}) for value in known)
    return any(_tiles(program, kernel, part, seen) for part in node.children)
