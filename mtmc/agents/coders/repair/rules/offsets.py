"""Offsets of addresses: whole numbers."""

from __future__ import annotations

import libcst as cst

from mtmc.agents.coders.repair.accesses import accesses
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import kernel_at
from mtmc.agents.coders.repair.program import New, Program
from mtmc.outcome import Diagnosis


def float_offset(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """An offset that is a float from a division of whole numbers, `pid / 4`: the division rounds down instead.

    Only a division without a float or a loaded number in it is surely one of whole numbers.
    """
    kernel = kernel_at(program, diagnosis.line)
    if kernel is None or "invalid operands of type pointer<" not in diagnosis.message:
        return None
    here = set(program.at(cst.Call, diagnosis.line))
    pointers: list[cst.BaseExpression] = [a.pointer for a in accesses(program, kernel) if a.call in here]
    names = {name.value for pointer in pointers for name in program.find(cst.Name, pointer)}
    values = [program.value(name, kernel) for name in sorted(names)]
    changes: dict[cst.CSTNode, New] = {}
    for place in [*pointers, *(value for value in values if value is not None)]:
        if not program.find(cst.Float, place) and not program.calls("triton.language.load", place):
            divisions = [node.operator for node in program.find(cst.BinaryOperation, place)]
            changes |= {one: cst.FloorDivide() for one in divisions if isinstance(one, cst.Divide)}
    return Fixed(program.changed(changes), "offsets in whole numbers, rounded down") if changes else None
