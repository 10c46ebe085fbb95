"""Accesses out of bounds that miss a mask, and tiles of a size that is no power of two."""

from __future__ import annotations

import re
from collections.abc import Callable

import libcst as cst

from mtmc.agents.coders.repair.accesses import (
    MASK_AT,
    Access,
    accesses,
    arange_of,
    bound_of,
    lane_names,
    lanes_of,
    terms,
)
from mtmc.agents.coders.repair.edits import PLAIN, argument, with_argument
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import given, kernel_at, launches
from mtmc.agents.coders.repair.program import New, Program, number
from mtmc.agents.coders.repair.rules.masked_lanes import cleaned
from mtmc.outcome import Diagnosis

_LENGTH = re.compile(r"\.size\(|\.numel\(|^int\(|^len\(")
_SHAPED = ("zeros", "full", "arange")


def mask(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """An unmasked access out of bounds: it, and all of its kernel that are like it, get the mask of their lanes.

    How far a lane may go is told by the kernel's other masks, or by what its launches give. An access that has a mask
    already goes wrong in another way.
    """
    kernel = kernel_at(program, diagnosis.line)
    if diagnosis.kind != "OutOfBoundsError" or kernel is None:
        return None
    lanes = lane_names(program, kernel)
    masks: dict[Access, str | None] = {}
    for access in accesses(program, kernel):
        if access.mask is None:
            masks[access] = _mask_for(program, kernel, access, lanes)
    here = [access for access in masks if access.call in program.at(cst.Call, diagnosis.line)]
    if not here or masks[here[0]] is None:
        return None
    changes: dict[cst.CSTNode, New] = {
        access.call: _masked(access.name, text) for access, text in masks.items() if text is not None
    }
    texts = sorted({text for text in masks.values() if text is not None})
    return _with_clean_lanes(program.changed(changes), kernel.name.value, f"mask={', '.join(texts)} where none was")


def arange(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`tl.arange` over a number that is no power of two: the next one, and a mask for the lanes that are too many."""
    found = re.search(r"range must be a power of 2|must be a power of (2|two)", diagnosis.message)
    kernel = kernel_at(program, diagnosis.line)
    calls = [c for c in program.at(cst.Call, diagnosis.line) if arange_of(program, c)]
    if (
        found is None
        or kernel is None
        or len(calls) != 1
        or len(calls[0].args) != 2
        or number(calls[0].args[0].value) != 0
    ):
        return None
    end = calls[0].args[1].value
    triton = program.module_name("triton")
    if not isinstance(end, cst.Name | cst.Integer) or (isinstance(end, cst.Name) and triton is None):
        return None
    if any(
        isinstance(value, cst.Call) and not _LENGTH.search(program.code(value))
        for value in _sizes(program, kernel, end)
    ):
        return None  # not the number of elements, but what was computed from it
    size = program.code(end)
    wider = f"{triton}.next_power_of_2({size})" if isinstance(end, cst.Name) else str(1 << (int(size) - 1).bit_length())
    lanes = {n: v for n, v in lane_names(program, kernel).items() if _counts(program, v, size)}
    changes = _widened(program, kernel, size, wider)
    for access in accesses(program, kernel):
        here = lanes_of(program, access.pointer, lanes)
        if here is None:
            return None
        limits = [f"{text} < {_limit(program, lanes[lane], size)}" for lane, text in here.items()]
        limits = [
            one for lane, one in zip(here, limits, strict=True) if not _bounded(program, kernel, access, lane, size)
        ]
        if limits:
            own = [] if access.mask is None else [program.code(access.mask)]
            whole = limits[0] if not own and len(limits) == 1 else " & ".join(f"({one})" for one in own + limits)
            changes[access.call] = _masked(access.name, whole)
    return _with_clean_lanes(program.changed(changes), kernel.name.value, f"{wider} lanes, of which {size} are used")


def _sizes(program: Program, kernel: cst.FunctionDef, end: cst.BaseExpression) -> list[cst.BaseExpression | None]:
    """What the launches of a kernel give for the end of a range."""
    found = []
    for launch in launches(program, kernel.name.value):
        value = given(kernel, launch.call, program.code(end))
        found.append(program.value(value.value, launch.function) if isinstance(value, cst.Name) else value)
    return found


def _with_clean_lanes(source: str, kernel: str, what: str) -> Fixed | None:
    """Lanes that were not masked before must not poison what is reduced."""
    program = Program.parse(source)
    if program is None:
        return None
    program, notes = cleaned(program, kernel)
    return Fixed(program.source, "; ".join([what, *notes]))


def _mask_for(
    program: Program, kernel: cst.FunctionDef, access: Access, lanes: dict[str, cst.BaseExpression]
) -> str | None:
    """The mask that an access should have; None where that is not sure."""
    here = lanes_of(program, access.pointer, lanes)
    if not here:
        return None
    limits = []
    for lane, text in here.items():
        bound = bound_of(program, kernel, lane, lanes)
        if bound is None:
            return None
        limits.append(f"{text} < {bound}")
    text = limits[0] if len(limits) == 1 else " & ".join(f"({limit})" for limit in limits)
    line = program.lines(access.call)[0]
    for node in program.find(cst.Assign, kernel):
        target = node.targets[0].target
        known = isinstance(target, cst.Name) and len(program.values(target.value, kernel)) == 1
        if known and program.code(node.value) == text and program.lines(node)[1] < line:
            return program.code(target)
    return text


def _counts(program: Program, value: cst.BaseExpression, size: str) -> bool:
    """Whether a sum has `tl.arange(0, size)` in it."""
    calls = [arange_of(program, part) for part in terms(value)]
    return any(call is not None and program.code(call.args[-1].value) == size for call in calls)


def _limit(program: Program, value: cst.BaseExpression, size: str) -> str:
    """What a lane's number stays below: where its `tl.arange` would have ended."""
    before = [program.code(part) for part in terms(value) if arange_of(program, part) is None]
    return " + ".join([*before, size])


def _bounded(program: Program, kernel: cst.FunctionDef, access: Access, lane: str, size: str) -> bool:
    """Whether an access's mask keeps a lane's number below `size` already: literally, or by a number that all launches
    give the same value."""
    if access.mask is None:
        return False
    mask = program.value(access.mask.value, kernel) if isinstance(access.mask, cst.Name) else access.mask
    found = re.search(rf"\b{lane}(?:\[[^\]]*\])? < (\w+)", program.code(mask) if mask is not None else "")
    here = launches(program, kernel.name.value)
    if found is None or not here:
        return False
    pairs = [[given(kernel, launch.call, name) for name in (found[1], size)] for launch in here]
    same = all(a is not None and b is not None and program.code(a) == program.code(b) for a, b in pairs)
    return found[1] == size or same


def _widened(program: Program, kernel: cst.FunctionDef, size: str, wider: str) -> dict[cst.CSTNode, New]:
    """`size` exchanged in all shapes of tiles."""
    changes: dict[cst.CSTNode, New] = {}
    for name in _SHAPED:
        for call in program.calls(f"triton.language.{name}", kernel):
            place = call.args[1].value if name == "arange" and len(call.args) == 2 else _shape(call)
            for node in [] if place is None else program.find(cst.BaseExpression, place):  # type: ignore[type-abstract]
                if isinstance(node, cst.Name | cst.Integer) and program.code(node) == size:
                    changes[node] = cst.parse_expression(wider)
    return changes


def _shape(call: cst.Call) -> cst.BaseExpression | None:
    found = argument(call, "shape", 0)
    return None if found is None else found.value


def _masked(name: str, text: str) -> Callable[[cst.Call], cst.Call]:
    """The change that gives an access a mask, by keyword also where it was given by position."""

    def change(call: cst.Call) -> cst.Call:
        at = MASK_AT[name]
        names = {at: "mask", at + 1: "other"} if name == "load" else {at: "mask"}
        if any(arg.keyword is not None for arg in call.args[: at + 1]):
            names = {}
        args = [
            arg.with_changes(keyword=cst.Name(names[i]), equal=PLAIN) if i in names and arg.keyword is None else arg
            for i, arg in enumerate(call.args)
        ]
        return with_argument(call.with_changes(args=args), "mask", text)

    return change
