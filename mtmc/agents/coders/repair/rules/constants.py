"""Infinity, pi and e by names that a kernel does not know."""

from __future__ import annotations

import math
import re

import libcst as cst

from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import kernel_at
from mtmc.agents.coders.repair.program import New, Program
from mtmc.outcome import Diagnosis

_NAMES = ("inf", "infinity", "INF", "INFINITY", "Inf", "Infinity")
_NUMBERS = {"pi": repr(math.pi), "e": repr(math.e), **dict.fromkeys(_NAMES, 'float("inf")')}
_TEXT = re.compile(r"cannot convert -?inf of type <class 'str'>")
_MODULES = ("torch", "numpy", "math", "triton.language", "triton.language.math", "triton")
_SAID = re.compile(rf"\b(?:pi|{'|'.join(_NAMES)})\b|name '(?:np|numpy|torch|math)' is not defined")


def infinity(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`tl.inf`, `np.inf`, a bare `inf`, "-inf": `float("inf")`, which Triton reads as a constant. Pi: its digits."""
    kernel = kernel_at(program, diagnosis.line)
    if kernel is None or not _SAID.search(diagnosis.message):
        return None
    if diagnosis.kind in ("WrongValues", "NaN", "Infinity"):
        return None
    changes: dict[cst.CSTNode, New] = {}
    for node in program.find(cst.Attribute, kernel):
        module, _, name = program.code(node).rpartition(".")
        known = (program.path(node) or "").rpartition(".")[0] in _MODULES or module in ("np", "numpy", "math")
        if name in _NUMBERS and known:
            changes[node] = cst.parse_expression(_NUMBERS[name])
    for use in program.find(cst.Name, kernel):
        part = isinstance(program.parent(use), cst.Attribute)
        bound = use.value in program.bound_in_module() or program.values(use.value, kernel)
        if use.value in _NAMES and not part and not bound:
            changes[use] = cst.parse_expression('float("inf")')
    for text in program.find(cst.SimpleString, kernel) if _TEXT.search(diagnosis.message) else []:
        above = program.parent(text)
        made = isinstance(above, cst.Arg) and program.code(program.parent(above) or above).startswith("float(")
        if text.value.strip("\"'") in ("inf", "-inf") and not made:
            changes[text] = cst.parse_expression(f"float({text.value})")
    return Fixed(program.changed(changes), "a number by a name that a kernel knows") if changes else None
