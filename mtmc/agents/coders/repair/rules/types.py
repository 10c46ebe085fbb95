"""Types: names that Triton has not, casts that tensors of kernels have not, types of Triton or numpy on the host."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.edits import operand
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import is_kernel, kernel_at
from mtmc.agents.coders.repair.program import New, Program, parameters
from mtmc.agents.coders.repair.vocabulary import TYPES
from mtmc.outcome import Diagnosis

_MISSING = re.compile(r"module 'triton\.language' has no attribute '(\w+)'")
_CASTS = ("astype", "type", "float", "half", "double", "long", "int", "bfloat16", "type_as")
_METHOD = re.compile(rf"'tensor' object has no attribute '({'|'.join(_CASTS)})'|unhashable type: '\w+'")
_CALLED = re.compile(r"'dtype' object is not callable|float\(\) argument must be|int\(\) argument must be")
_HOST = re.compile(r"must be torch\.dtype, not|invalid combination of arguments - got \((?:dtype|type)[,)]")
_SAFE = ("int1", "int32", "int64", "float16", "bfloat16", "float32", "float64", "int8", "int16", "uint8")


def type_name(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`tl.float`, `tl.half`, `tl.fp32`: the type of that width. A bare `float32`, or its name as a text: Triton's."""
    language, kernel = program.module_name("triton.language"), kernel_at(program, diagnosis.line)
    if language is None or kernel is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    missing = _MISSING.search(diagnosis.message)
    bare = re.search(r"name '(\w+)' is not defined|NameError\('(\w+) is not defined'\)", diagnosis.message)
    if missing is not None and missing[1] in TYPES:
        for node in program.find(cst.Attribute, kernel):
            if program.path(node) == f"triton.language.{missing[1]}" and not _called(program, node):
                changes[node] = cst.parse_expression(f"{language}.{TYPES[missing[1]]}")
    elif bare is not None and (bare[1] or bare[2]) in _SAFE:
        name = bare[1] or bare[2]
        for use in program.find(cst.Name, kernel):
            if use.value == name and not isinstance(program.parent(use), cst.Attribute):
                changes[use] = cst.parse_expression(f"{language}.{name}")
    elif "'str' object has no attribute" in diagnosis.message:
        for text in program.at(cst.SimpleString, diagnosis.line):
            if text.value.strip("\"'") in _SAFE and isinstance(program.parent(text), cst.Arg):
                changes[text] = cst.parse_expression(f"{language}.{text.value.strip(chr(34) + chr(39))}")
    return Fixed(program.changed(changes), "a type by the name that triton.language has for it") if changes else None


def cast(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`x.astype(t)`, `x.float()`, `float(x)`, `tl.float32(x)`: `x.to(t)`."""
    language, kernel = program.module_name("triton.language"), kernel_at(program, diagnosis.line)
    if language is None or kernel is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    if _METHOD.search(diagnosis.message):
        for call in program.find(cst.Call, kernel):
            if isinstance(call.func, cst.Attribute) and program.path(call.func) is None:
                kind = _method_type(program, call, language)
                if kind is not None:
                    value = call.func.value
                    changes[call] = cst.parse_expression(f"{operand(value, program.code(value))}.to({kind})")
    elif _CALLED.search(diagnosis.message):
        for call in program.at(cst.Call, diagnosis.line):
            module, _, name = (program.path(call.func) or program.code(call.func)).rpartition(".")
            text = any(isinstance(arg.value, cst.SimpleString) for arg in call.args)
            if module in ("", "triton.language") and name in TYPES and len(call.args) == 1 and not text:
                value = call.args[0].value
                code = operand(value, program.code(value))
                changes[call] = cst.parse_expression(f"{code}.to({language}.{TYPES[name]})")
    outer = {node: new for node, new in changes.items() if not _inside(program, node, changes)}
    return Fixed(program.changed(outer), "cast with .to(), the way of tensors in kernels") if outer else None


def pointer_type(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A cast to the type of a pointer: to that of what it points to."""
    kernel = kernel_at(program, diagnosis.line)
    missing = "'tensor' object has no attribute 'element_ty'" in diagnosis.message
    cast_to = re.search(r"cannot cast .* to .*pointer<", diagnosis.message)
    if kernel is None or not (missing or cast_to):
        return None
    own = {parameter.name.value for parameter in parameters(kernel)}
    attribute = "element_ty" if missing else "dtype"
    changes: dict[cst.CSTNode, New] = {}
    for node in program.at(cst.Attribute, diagnosis.line):
        above = program.parent(node)
        plain = isinstance(node.value, cst.Name) and node.value.value in own
        if plain and node.attr.value == attribute and not isinstance(above, cst.Attribute):
            changes[node] = cst.parse_expression(f"{program.code(node.value)}.dtype.element_ty")
    return Fixed(program.changed(changes), "the type of what a pointer points to") if changes else None


def host_type(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Types of Triton or numpy that torch is given: torch's own of the same name."""
    function, torch = program.function_at(diagnosis.line), program.module_name("torch")
    if function is None or torch is None or is_kernel(program, function) or not _HOST.search(diagnosis.message):
        return None
    changes: dict[cst.CSTNode, New] = {}
    for node in program.find(cst.Attribute, function):
        module, _, name = (program.path(node) or "").rpartition(".")
        if module in ("triton.language", "numpy") and name in TYPES and name in TYPES.values():
            changes[node] = cst.parse_expression(f"{torch}.{name}")
    return Fixed(program.changed(changes), "types of torch where torch is asked") if changes else None


def _called(program: Program, node: cst.Attribute) -> bool:
    above = program.parent(node)
    return isinstance(above, cst.Call) and above.func is node


def _inside(program: Program, node: cst.CSTNode, others: dict[cst.CSTNode, New]) -> bool:
    above = program.parent(node)
    while above is not None:
        if above in others:
            return True
        above = program.parent(above)
    return False


def _method_type(program: Program, call: cst.Call, language: str) -> str | None:
    """Text of the type that a method of numpy or torch casts to; None where it is no such method."""
    name = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    if name in ("astype", "type") and len(call.args) == 1 and call.args[0].star == "":
        kind = call.args[0].value
        module, _, last = (program.path(kind) or "").rpartition(".")
        if module in ("numpy", "torch", "triton.language") and last in TYPES:
            return f"{language}.{TYPES[last]}"
        return program.code(kind) if isinstance(kind, cst.Attribute | cst.Name) else None
    if name in TYPES and not call.args and name != "int1":
        return f"{language}.{TYPES[name]}"
    return None
