"""Loads and stores of a kernel: which lanes their addresses hang on, and how far those may go."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from mtmc.agents.coders.repair.edits import argument
from mtmc.agents.coders.repair.kernels import given, launches
from mtmc.agents.coders.repair.program import Program, parameters

MASK_AT = {"load": 1, "store": 2, "atomic_add": 2, "atomic_max": 2, "atomic_min": 2, "atomic_xchg": 2}
"""Position of the mask in the calls that have one."""


@dataclass(frozen=True)
class Access:
    """One `tl.load`, `tl.store` or atomic. mask, other: None where it has none. name: "load", ..."""

    call: cst.Call
    name: str
    pointer: cst.BaseExpression
    mask: cst.BaseExpression | None
    other: cst.BaseExpression | None


def accesses(program: Program, kernel: cst.FunctionDef) -> list[Access]:
    """All accesses of a kernel by pointers."""
    found = []
    for call in program.find(cst.Call, kernel):
        name = (program.path(call.func) or "").removeprefix("triton.language.")
        pointer = argument(call, "pointer", 0)
        if name not in MASK_AT or pointer is None:
            continue
        mask = argument(call, "mask", MASK_AT[name])
        other = argument(call, "other", 2) if name == "load" else None
        found.append(Access(call, name, pointer.value, mask.value if mask else None, other.value if other else None))
    return found


def terms(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What a sum is made of."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        yield from terms(node.left)
        yield from terms(node.right)
    else:
        yield node


def lane_names(program: Program, kernel: cst.FunctionDef) -> dict[str, cst.BaseExpression]:
    """Names that are bound once, to a sum with a `tl.arange` in it: one number for each lane."""
    found: dict[str, list[cst.BaseExpression | None]] = {}
    for name, value in program.bindings(kernel):
        found.setdefault(name, []).append(value)
    given_names = {parameter.name.value for parameter in parameters(kernel)}
    return {
        name: values[0]
        for name, values in found.items()
        if len(values) == 1 and values[0] is not None and name not in given_names and _has_arange(program, values[0])
    }


def _has_arange(program: Program, value: cst.BaseExpression) -> bool:
    return any(arange_of(program, part) is not None for part in terms(value))


def arange_of(program: Program, node: cst.BaseExpression) -> cst.Call | None:
    """The node, or what it is a subscript of, if that is a call of `tl.arange`."""
    if isinstance(node, cst.Subscript):
        node = node.value
    return node if isinstance(node, cst.Call) and program.path(node.func) == "triton.language.arange" else None


def lanes_of(
    program: Program, pointer: cst.BaseExpression, lanes: dict[str, cst.BaseExpression]
) -> dict[str, str] | None:
    """Lane name -> its text in an address ("rows[:, None]"); None where lanes come in by another way than by name."""
    found: dict[str, str] = {}
    for name in program.find(cst.Name, pointer):
        if name.value in lanes:
            above = program.parent(name)
            text = program.code(above) if isinstance(above, cst.Subscript) and above.value is name else name.value
            if found.setdefault(name.value, text) != text:
                return None
    return None if any(arange_of(program, call) for call in program.find(cst.Call, pointer)) else found


def bound_of(program: Program, kernel: cst.FunctionDef, lane: str, lanes: dict[str, cst.BaseExpression]) -> str | None:
    """What a lane's number must stay below: what the kernel's own masks say of it, or else what its launches say."""
    known = set()
    for comparison in program.find(cst.Comparison, kernel):
        left = comparison.left.value if isinstance(comparison.left, cst.Subscript) else comparison.left
        target = comparison.comparisons[0] if len(comparison.comparisons) == 1 else None
        below = target is not None and isinstance(target.operator, cst.LessThan)
        if target is None or not below or not isinstance(left, cst.Name) or left.value != lane:
            continue
        if not any(name.value in lanes for name in program.find(cst.Name, target.comparator)):
            known.add(program.code(target.comparator))
    if known:
        return known.pop() if len(known) == 1 else None
    return _row_length(program, kernel, lane, lanes) or _tensor_length(program, kernel, lane, lanes)


def _row_length(
    program: Program, kernel: cst.FunctionDef, lane: str, lanes: dict[str, cst.BaseExpression]
) -> str | None:
    """`cols` where the lane is a bare `tl.arange` and is added to `row * cols`, the length of a tensor's rows."""
    if arange_of(program, lanes[lane]) is None:
        return None
    found = set()
    for access in accesses(program, kernel):
        parts = list(terms(access.pointer))
        if not any(isinstance(part, cst.Name) and part.value == lane for part in parts):
            continue
        factors = {name.value for part in parts for name in _factors(part)}
        found.add(
            frozenset(name for name in factors if _always(program, kernel, name, r"\.shape\[-?1\]|\.size\(-?1\)"))
        )
    names = {name for one in found for name in one}
    return names.pop() if len(names) == 1 and len(found) == 1 else None


def _factors(node: cst.BaseExpression) -> list[cst.Name]:
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Multiply):
        return []
    return [side for side in (node.left, node.right) if isinstance(side, cst.Name)]


def _tensor_length(
    program: Program, kernel: cst.FunctionDef, lane: str, lanes: dict[str, cst.BaseExpression]
) -> str | None:
    """`n` where the lane counts all elements, `tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)`, and `n` is how many
    a tensor of the launch has."""
    counts = "program_id" in program.code(lanes[lane]) or any(
        "program_id" in program.code(value)
        for part in terms(lanes[lane])
        for name in program.find(cst.Name, part)
        if (value := program.value(name.value, kernel)) is not None
    )
    flat = all(
        {part.value for part in terms(access.pointer) if isinstance(part, cst.Name)} >= {lane}
        and len(list(terms(access.pointer))) == 2
        for access in accesses(program, kernel)
        if lane in (lanes_of(program, access.pointer, lanes) or {})
    )
    names = [p.name.value for p in parameters(kernel) if _always(program, kernel, p.name.value, r"\.numel\(\)")]
    return names[0] if counts and flat and len(names) == 1 else None


def _always(program: Program, kernel: cst.FunctionDef, name: str, pattern: str) -> bool:
    """Whether every launch gives a parameter something whose text ends with `pattern`, or the last of a shape's parts."""
    here = launches(program, kernel.name.value)
    if name not in {parameter.name.value for parameter in parameters(kernel)}:
        return False
    for launch in here:
        value = given(kernel, launch.call, name)
        text = "" if value is None else program.code(value)
        if isinstance(value, cst.Name):
            source = program.value(value.value, launch.function)
            text = program.code(source) if source is not None else _unpacked(program, launch.function, value.value)
        if not re.search(rf"\w(?:{pattern})$", text):
            return False
    return bool(here)


def _unpacked(program: Program, function: cst.CSTNode, name: str) -> str:
    """ "x.shape[1]" for `cols` in `rows, cols = x.shape`; "" where it is no such."""
    for assign in program.find(cst.Assign, function):
        target = assign.targets[0].target
        if isinstance(target, cst.Tuple) and len(program.values(name, function)) == 1:
            names = [program.code(element.value) for element in target.elements]
            if name in names and program.code(assign.value).endswith(".shape"):
                last = names.index(name) == len(names) - 1
                return f"{program.code(assign.value)}[{-1 if last else names.index(name)}]"
    return ""
