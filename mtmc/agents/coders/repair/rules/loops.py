"""Loops of kernels: what they carry from turn to turn must keep its type."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.edits import argument, with_value
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import kernel_at
from mtmc.agents.coders.repair.program import Program
from mtmc.outcome import Diagnosis

_CARRIED = re.compile(
    r"Loop-carried variable (\w+) has initial type <(\[[^\]]*\]), (fp16|bf16)> but is re-assigned to <(\[[^\]]*\]), fp32>"
)
_AT = {"zeros": 1, "full": 2}


def loop_type(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A sum that begins in 16 bits and goes on in fp32: it begins in fp32."""
    found = _CARRIED.search(diagnosis.message)
    kernel, language = kernel_at(program, diagnosis.line), program.module_name("triton.language")
    if found is None or found[2] != found[4] or kernel is None or language is None:
        return None
    for call in program.find(cst.Call, kernel):
        name = (program.path(call.func) or "").removeprefix("triton.language.")
        above = program.parent(call)
        target = above.targets[0].target if isinstance(above, cst.Assign) else None
        kind = argument(call, "dtype", _AT.get(name))
        if name in _AT and isinstance(target, cst.Name) and target.value == found[1] and kind is not None:
            source = program.changed({call: with_value(call, kind, f"{language}.float32")})
            return Fixed(source, f"{found[1]} in float32 from the start, as the loop leaves it")
    return None
