"""Reductions that take what lanes outside of a mask hold."""

from __future__ import annotations

import math

import libcst as cst

from mtmc.agents.coders.repair.accesses import accesses
from mtmc.agents.coders.repair.edits import with_argument
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import kernel_named, kernels
from mtmc.agents.coders.repair.program import Program
from mtmc.agents.coders.repair.rest import NEUTRAL, Sink, sinks
from mtmc.outcome import Diagnosis

_MOST = 12
"""Reductions of one kernel that are fixed; a kernel with more is not of the kind that rules read well."""
_TEXTS = {0.0: "0.0", -math.inf: '-float("inf")', math.inf: 'float("inf")'}


def masked_lanes(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Wrong results: every reduction over masked lanes is given its neutral number there."""
    if diagnosis.kind not in ("WrongValues", "NaN", "Infinity"):
        return None
    current, notes = program, []
    for kernel in kernels(program):
        current, said = cleaned(current, kernel.name.value)
        notes += said
    return Fixed(current.source, "; ".join(notes)) if notes else None


def cleaned(program: Program, name: str) -> tuple[Program, list[str]]:
    """A program whose kernel `name` reduces nothing from outside of masks, as far as that is sure, and what was done."""
    notes: list[str] = []
    for _ in range(_MOST):
        kernel = kernel_named(program, name)
        found = [] if kernel is None else sinks(program, kernel)
        bad = next((sink for sink in found if sink.poisoned), None)
        fixed = None if bad is None or kernel is None else _fixed(program, kernel, bad, found)
        changed = None if fixed is None else Program.parse(fixed.source)
        if fixed is None or changed is None:
            break
        program = changed
        notes.append(fixed.what)
    return program, notes


def _fixed(program: Program, kernel: cst.FunctionDef, sink: Sink, found: list[Sink]) -> Fixed | None:
    neutral = _TEXTS[NEUTRAL[sink.kind]]
    load, other = sink.rest.load, sink.rest.value
    if other is not None and math.isinf(other) and other == -NEUTRAL[sink.kind]:
        return None  # the neutral number of the opposite reduction: this one may be what is wrong
    if load is not None:
        kinds = {NEUTRAL[one.kind] for one in found if one.rest.load is load}
        bare = next(access for access in accesses(program, kernel) if access.call is load).other is None
        if bare or len(kinds) == 1:
            source = program.changed({load: with_argument(load, "other", neutral)})
            return Fixed(source, f"other={neutral} for masked lanes that tl.{sink.kind} takes in")
    language = program.module_name("triton.language")
    mask = _shortest(program, kernel, sink.rest.mask or "")
    if language is None:
        return None
    text = f"{language}.where({mask}, {program.code(sink.argument)}, {neutral})"
    source = program.changed({sink.argument: cst.parse_expression(text)})
    return Fixed(source, f"{neutral} in masked lanes that tl.{sink.kind} takes in")


def _shortest(program: Program, kernel: cst.FunctionDef, mask: str) -> str:
    """The name that a kernel has for a mask, or its text."""
    for node in program.find(cst.Assign, kernel):
        target = node.targets[0].target
        if isinstance(target, cst.Name) and program.code(node.value) == mask:
            return target.value
    return mask
