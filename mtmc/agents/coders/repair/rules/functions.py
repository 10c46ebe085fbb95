"""Functions in a kernel that Triton has not, or has under another name."""

from __future__ import annotations

import re
from collections.abc import Callable

import libcst as cst

from mtmc.agents.coders.repair.edits import operand
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import given, is_constexpr, kernel_at, kernel_named, launches
from mtmc.agents.coders.repair.program import New, Program, parameters
from mtmc.agents.coders.repair.spelling import near
from mtmc.agents.coders.repair.steps import Change, innermost, repeated
from mtmc.agents.coders.repair.vocabulary import (
    ELEMENTWISE,
    HOME,
    LANGUAGE,
    LIBRARY,
    REDUCTIONS,
    TYPES,
    bounds,
    positional,
    reduced,
    renamed_keywords,
    written,
)
from mtmc.outcome import Diagnosis

_OTHERS = ("torch", "numpy", "torch.nn.functional")
_MAKERS = ("zeros", "full", "arange")
"""Makers of tiles that torch and Triton call alike."""
_NO_IMPORT = re.compile(r"cannot import name '\w+' from 'triton\.language[\w.]*'|No module named 'triton\.[\w.]+'")
_MISSING = re.compile(r"module 'triton\.language[\w.]*' has no attribute '(\w+)'")
_NOT_TRITON = re.compile(
    r"Unsupported function referenced|torch\.dtype|must be real number, not tensor|global variable (torch|math|np|numpy|F) "
    r"|type object 'numpy\."
)


def function(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A function of triton.language or libdevice that is not there: where it is, what computes the same, or the one
    function whose name is one letter off."""
    found = _MISSING.search(diagnosis.message)
    kernel = kernel_at(program, diagnosis.line)
    if found is None or kernel is None:
        return None
    missing, own = found[1], kernel.name.value

    def step(current: Program) -> Change | None:
        for call in innermost(current, kernel_named(current, own)):
            path = current.path(call.func) or ""
            if path.startswith("triton.language.") and missing in path.split(".")[2:]:
                return _exchanged(current, call, path)
        return None

    return repeated(program, step, f"{{new}} instead of {{old}}, for there is no {missing}")


def torch_in_kernel(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Types and functions of torch, numpy or math in a kernel: Triton's of the same meaning."""
    kernel = kernel_at(program, diagnosis.line)
    language = program.module_name("triton.language")
    if kernel is None or language is None or _NOT_TRITON.search(diagnosis.message) is None:
        return None

    def step(current: Program) -> Change | None:
        for call in innermost(current, kernel_named(current, kernel.name.value)):
            module, _, name = (current.path(call.func) or "").rpartition(".")
            of_math = module == "math" and call in current.at(cst.Call, diagnosis.line)  # ahead of time, math is right
            if module in _OTHERS or of_math:
                return _translated(current, call, name)
        return None

    changes: dict[cst.CSTNode, New] = {}
    for node in program.find(cst.Attribute, kernel):
        module, _, name = (program.path(node) or "").rpartition(".")
        above = program.parent(node)
        called = isinstance(above, cst.Call) and above.func is node
        if module in _OTHERS and name in TYPES and not called:
            changes[node] = cst.parse_expression(f"{language}.{TYPES[name]}")
    typed = Program.parse(program.changed(changes)) if changes else program
    fixed = None if typed is None else repeated(typed, step, "{new} instead of {old} in a kernel")
    if fixed is not None:
        return fixed
    changes = changes or _handed_over(program, kernel, language)
    return Fixed(program.changed(changes), "a type of triton.language instead of torch's") if changes else None


def float_argument(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A function that takes fp32 only, of a narrower type: its argument is cast, which loses nothing."""
    narrow = re.search(
        r"Expected dtype \['fp32', 'fp64'\] but got (fp16|bf16)|^KeyError: \(triton\.language\.b?float16",
        diagnosis.message,
    )
    language = program.module_name("triton.language")
    if narrow is None or language is None or kernel_at(program, diagnosis.line) is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for call in program.at(cst.Call, diagnosis.line):
        path = program.path(call.func) or ""
        name = path.rpartition(".")[2]
        if not path.startswith("triton.language.") or name not in ELEMENTWISE | LIBRARY or not call.args:
            continue
        value = call.args[0].value
        code = program.code(value)
        if len(call.args) == 1 and not code.endswith("float32)"):
            changes[value] = _cast_to(language)
    return (
        Fixed(program.changed(changes), "cast to float32 what the function takes in no narrower type")
        if changes
        else None
    )


def import_from(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`from triton.language.math import tanh` of what only libdevice has, and libdevice itself from elsewhere."""
    found = _NO_IMPORT.search(diagnosis.message)
    statements = [node for node in program.at(cst.ImportFrom, diagnosis.line) if node.module is not None]
    names = statements[0].names if len(statements) == 1 else ()
    if found is None or isinstance(names, cst.ImportStar) or len(names) != 1:
        return None
    name = names[0].evaluated_name
    home = HOME if name in LIBRARY else HOME.rpartition(".")[0] if name == "libdevice" else None
    if home is None:
        return None
    source = program.changed({statements[0]: statements[0].with_changes(module=cst.parse_expression(home))})
    return Fixed(source, f"{name} from {home}, which has it")


def _exchanged(program: Program, call: cst.Call, path: str) -> Change | None:
    """The change for a call of something below triton.language that is not there."""
    language, name = program.module_name("triton.language"), path.rpartition(".")[2]
    below = path.count(".") > 2  # of triton.language.math, say
    if language is None or isinstance(program.parent(call), cst.Attribute):
        return None
    if below and name in LANGUAGE and name not in REDUCTIONS:
        return {call.func: cst.parse_expression(f"{language}.{name}")}
    change = _translated(program, call, name)
    meant = near(name, LANGUAGE) if change is None and not below else None
    return change if meant is None else {call.func: cst.parse_expression(f"{language}.{meant}")}


def _translated(program: Program, call: cst.Call, name: str) -> Change | None:
    """The change for a call of a function that torch, numpy, C or Python call `name`."""
    language = program.module_name("triton.language")
    if language is None:
        return None
    if name in REDUCTIONS:
        other = reduced(program, name, call, own=False)
        new_call = None if other is None else _called(call, f"{language}.{other}")
        return None if new_call is None else {_with_values(program, call): new_call[call]}
    if name in _MAKERS:
        return _called(call, f"{language}.{name}")
    values = bounds(call) if name in ("clamp", "clip") else positional(call)
    new = None if values is None else written(program, name, values)
    return None if new is None else {call: cst.parse_expression(new.text), **new.changes}


def _with_values(program: Program, call: cst.Call) -> cst.CSTNode:
    """A reduction of torch along an axis gives values and places: the call, or `.values` of it."""
    above = program.parent(call)
    named = isinstance(above, cst.Attribute) and above.value is call and above.attr.value == "values"
    return above if named and above is not None else call


def _called(call: cst.Call, function: str) -> Change:
    return {call: renamed_keywords(call).with_changes(func=cst.parse_expression(function))}


def _handed_over(program: Program, kernel: cst.FunctionDef, language: str) -> dict[cst.CSTNode, New]:
    """Types of torch that launches give for constexpr parameters."""
    changes: dict[cst.CSTNode, New] = {}
    for launch in launches(program, kernel.name.value):
        for parameter in parameters(kernel):
            value = given(kernel, launch.call, parameter.name.value)
            module, _, name = (program.path(value) or "" if value is not None else "").rpartition(".")
            if value is not None and is_constexpr(program, parameter) and module == "torch" and name in TYPES:
                changes[value] = cst.parse_expression(f"{language}.{TYPES[name]}")
    return changes


def _cast_to(language: str) -> Callable[[cst.BaseExpression], cst.BaseExpression]:
    def change(value: cst.BaseExpression) -> cst.BaseExpression:
        return cst.parse_expression(f"{operand(value, cst.Module([]).code_for_node(value))}.to({language}.float32)")

    return change
