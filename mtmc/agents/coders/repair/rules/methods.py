"""Methods of torch's tensors that those of a kernel have not."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import kernel_at, kernel_named
from mtmc.agents.coders.repair.program import New, Program
from mtmc.agents.coders.repair.steps import Change, innermost, repeated
from mtmc.agents.coders.repair.vocabulary import positional, renamed_keywords, written
from mtmc.outcome import Diagnosis

_MISSING = re.compile(r"'tensor' object has no attribute '(\w+)'")
_DIM = re.compile(r"unexpected keyword argument \\?'(dim|keepdims?)\\?'")


def method(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`x.pow(2)`, `x.tanh()`, `x.t()`: the function of Triton that computes the same."""
    found, kernel = _MISSING.search(diagnosis.message), kernel_at(program, diagnosis.line)
    if found is None or kernel is None:
        return None
    name, own = found[1], kernel.name.value

    def step(current: Program) -> Change | None:
        for call in innermost(current, kernel_named(current, own)):
            target, values = call.func, positional(call)
            of_tensor = isinstance(target, cst.Attribute) and current.path(target) is None
            if of_tensor and isinstance(target, cst.Attribute) and target.attr.value == name and values is not None:
                new = written(current, name, [target.value, *values])
                return None if new is None else {call: cst.parse_expression(new.text), **new.changes}
        return None

    return repeated(program, step, "{new} instead of {old}")


def method_keyword(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`x.max(dim=0)`: Triton's name for the keyword."""
    if _DIM.search(diagnosis.message) is None or kernel_at(program, diagnosis.line) is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for call in program.at(cst.Call, diagnosis.line):
        if isinstance(call.func, cst.Attribute) and program.path(call.func) is None:
            new = renamed_keywords(call)
            changes |= {a: b for a, b in zip(call.args, new.args, strict=True) if a is not b}
    return Fixed(program.changed(changes), "axis and keep_dims instead of torch's keywords") if changes else None
