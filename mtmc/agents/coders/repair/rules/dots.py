"""`tl.dot`: operands of two types, tiles that are too small, products in too low a precision."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.accesses import accesses
from mtmc.agents.coders.repair.edits import argument, integer, operand, with_argument, with_value, without_argument
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import kernel_at, kernels, settings, step_names
from mtmc.agents.coders.repair.program import New, Program, each
from mtmc.outcome import LOW_PRECISION, Diagnosis

_DOT = "triton.language.dot"
_WIDTH = {"int8": 8, "uint8": 8, "fp8e5": 8, "fp8e4nv": 8, "fp16": 16, "bf16": 16, "fp32": 32, "fp64": 64}
_EXACT_TYPE = {"fp32": "float32", "fp64": "float64"}
TF32_ERRORS = (5e-5, 2e-3)
"""Norm-wise errors that products of fp32 numbers rounded to TF32's 11 bits have."""


def dot_types(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Operands of two types: the narrower one is cast to the wider type, which loses nothing."""
    found = re.search(r"Both operands must be same dtype\. Got (\w+) and (\w+)", diagnosis.message)
    dots = _dots_at(program, diagnosis.line)
    if found is None or len(dots) != 1:
        return None
    widths = [_WIDTH.get(name, 0) for name in found.groups()]
    narrow, wide = (0, 1) if widths[0] < widths[1] else (1, 0)
    target = _EXACT_TYPE.get(found[wide + 1])
    chosen = argument(dots[0], ("input", "other")[narrow], narrow)
    language = program.module_name("triton.language")
    if target is None or widths[0] == widths[1] or chosen is None or language is None:
        return None
    text = f"{operand(chosen.value, program.code(chosen.value))}.to({language}.{target})"
    source = program.changed({dots[0]: with_value(dots[0], chosen, text)})
    return Fixed(source, f"cast an operand of tl.dot from {found[narrow + 1]} to {found[wide + 1]}, the other's type")


def dot_size(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Tiles too small for `tl.dot`: those that a loop steps by are made as long as it asks for, where all is masked."""
    found = re.search(r"Input shapes should have M >= (\d+), N >= (\d+) and K >= (\d+)", diagnosis.message)
    kernel = kernel_at(program, diagnosis.line)
    if found is None or kernel is None or any(access.mask is None for access in accesses(program, kernel)):
        return None
    least, steps = int(found[3]), step_names(program, kernel)
    changes: dict[cst.CSTNode, New] = {}
    for setting in settings(program, kernel):
        small = {setting.tiles[name] for name in steps & setting.tiles.keys() if int(setting.tiles[name].value) < least}
        if not small:
            return None
        changes |= {literal: integer(least) for literal in small}
    if not changes:
        return None
    return Fixed(program.changed(changes), f"a step of {least}, the least that tl.dot takes")


def precision(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """fp32 products in TF32: every `tl.dot` that says no precision, or TF32, gets one that keeps fp32's.

    On AMD, which has no split products, "ieee". A wrong value is taken for TF32's only where the error is of its size.
    """
    if not _looks_like_tf32(diagnosis):
        return None
    from mtmc.hardware import hardware as look_up

    way = "tf32x3" if look_up(hardware).target.startswith("sm_") else "ieee"

    def exact(dot: cst.Call) -> cst.Call | None:
        given = argument(dot, "input_precision")
        if given is not None and program.code(given.value).strip("\"'").lower() != "tf32":
            return None
        return with_argument(without_argument(dot, "allow_tf32"), "input_precision", f'"{way}"')

    dots = [dot for kernel in kernels(program) for dot in program.calls(_DOT, kernel)]
    changes = each(dots, exact)
    if not changes:
        return None
    return Fixed(program.changed(changes), f'tl.dot with input_precision="{way}", which keeps the precision of fp32')


def _looks_like_tf32(diagnosis: Diagnosis) -> bool:
    if diagnosis.kind == LOW_PRECISION:
        return "float32" in diagnosis.message or diagnosis.stage == "estimate"
    error = re.search(r"norm-wise error ([\d.e+-]+\d)", diagnosis.message)
    fp32 = "off by more than 0.0001 +" in diagnosis.message
    low, high = TF32_ERRORS
    return diagnosis.kind == "WrongValues" and fp32 and error is not None and low < float(error[1]) < high


def _dots_at(program: Program, line: int | None) -> list[cst.Call]:
    return [call for call in program.at(cst.Call, line) if program.path(call.func) == _DOT]
