"""Grids: their keys, their lambdas, and divisions that leave the last block out."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import Launch, is_kernel, launched_kernel, launches, tile_names
from mtmc.agents.coders.repair.program import New, Program
from mtmc.agents.coders.repair.spelling import near
from mtmc.outcome import Diagnosis

_HELPERS = {
    "ceil_div": "cdiv", "ceildiv": "cdiv", "div_ceil": "cdiv", "cdiv": "cdiv",
    "next_power_of_two": "next_power_of_2", "next_pow2": "next_power_of_2", "next_power_of_2": "next_power_of_2",
    "next_pow_of_2": "next_power_of_2",
}  # fmt: skip
_DOWN = ("int", "math.floor", "floor", "np.floor", "round")
_NO_HELPER = re.compile(r"module 'triton(?:\.\w+)*' has no attribute '(\w+)'")


def floored(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Results that are not all written, and a grid of `n // BLOCK` programs: rounded up."""
    triton = program.module_name("triton")
    if diagnosis.kind not in ("NaN", "WrongValues", "Unwritten") or triton is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for launch in launches(program):
        for place in _places(program, launch):
            for node in program.find(cst.BinaryOperation, place):
                if isinstance(node.operator, cst.FloorDivide) and not _rounds_up(program, node):
                    left, right = program.code(node.left), program.code(node.right)
                    changes[node] = cst.parse_expression(f"{triton}.cdiv({left}, {right})")
            for call in program.find(cst.Call, place):
                inner = call.args[0].value if len(call.args) == 1 else None
                divided = isinstance(inner, cst.BinaryOperation) and isinstance(inner.operator, cst.Divide)
                if isinstance(inner, cst.BinaryOperation) and divided and program.code(call.func) in _DOWN:
                    left, right = program.code(inner.left), program.code(inner.right)
                    changes[call] = cst.parse_expression(f"{triton}.cdiv({left}, {right})")
    return (
        Fixed(program.changed(changes), "a grid rounded up, so that the last block is not left out")
        if changes
        else None
    )


def grid_key(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`meta["BLOCK"]` of no parameter, or `meta.BLOCK`: by the kernel's only tile size, or the one of nearly that name."""
    key = re.fullmatch(r"\W*(\w+)\W*", diagnosis.message) if diagnosis.kind == "KeyError" else None
    attribute = re.search(r"'dict' object has no attribute '(\w+)'", diagnosis.message)
    changes: dict[cst.CSTNode, New] = {}
    for launch in launches(program):
        kernel = launched_kernel(program, launch)
        for place in [] if kernel is None else _places(program, launch):
            for node in program.find(cst.Attribute, place) if attribute else []:
                if attribute is not None and node.attr.value == attribute[1] and isinstance(node.value, cst.Name):
                    changes[node] = cst.parse_expression(f'{node.value.value}["{attribute[1]}"]')
            for text in program.find(cst.SimpleString, place) if key and kernel else []:
                known = tile_names(program, kernel) if kernel is not None else set()
                meant = next(iter(known)) if len(known) == 1 else near(key[1] if key else "", known)
                if key is not None and text.value.strip("\"'") == key[1] and meant is not None:
                    changes[text] = cst.SimpleString(f'"{meant}"')
    return Fixed(program.changed(changes), "a grid by the kernel's own tile size") if changes else None


def grid_function(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A lambda without a parameter, and a grid of more than three axes."""
    changes: dict[cst.CSTNode, New] = {}
    lambdas = re.search(r"<lambda>\(\) takes 0 positional arguments but 1 was given", diagnosis.message)
    four = re.search(r"too many values to unpack \(expected 3\)|grid must have at most 3", diagnosis.message)
    for launch in launches(program) if lambdas or four else []:
        value = launch.grid_value
        source = program.value(value.value, launch.function) if isinstance(value, cst.Name) else value
        if lambdas and isinstance(source, cst.Lambda) and not source.params.params:
            changes[source] = cst.parse_expression(f"lambda meta: {program.code(source.body)}")
        body = source.body if isinstance(source, cst.Lambda) else source
        if four and isinstance(body, cst.Tuple) and len(body.elements) > 3:
            texts = [program.code(element.value) for element in body.elements]
            if set(texts[3:]) == {"1"}:
                changes[body] = cst.parse_expression(f"({', '.join(texts[:3])})")
    return (
        Fixed(program.changed(changes), "a grid as Triton calls it: of meta, with up to three axes")
        if changes
        else None
    )


def helper(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`tl.cdiv` on the host, `triton.ceil_div`, `triton.next_power_of_two`: triton's own."""
    triton, function = program.module_name("triton"), program.function_at(diagnosis.line)
    found = _NO_HELPER.search(diagnosis.message)
    outside = "outside of the scope of a kernel" in diagnosis.message
    if triton is None or function is None or is_kernel(program, function) or not (found or outside):
        return None
    changes: dict[cst.CSTNode, New] = {}
    for call in program.find(cst.Call, function):
        module, _, name = (program.path(call.func) or "").rpartition(".")
        missing = found is not None and (name == found[1] or f".{found[1]}." in f".{module}.")
        if module.startswith("triton") and name in _HELPERS and (missing or (outside and module == "triton.language")):
            changes[call.func] = cst.parse_expression(f"{triton}.{_HELPERS[name]}")
    return Fixed(program.changed(changes), "a helper of triton by its own name, on the host") if changes else None


def _places(program: Program, launch: Launch) -> list[cst.BaseExpression]:
    """What a grid is made of: its own expression, and what the names in it are bound to."""
    value = launch.grid_value
    found = [] if value is None else [value]
    for place in found:
        for name in program.find(cst.Name, place):
            source = program.value(name.value, launch.function)
            whole = isinstance(source, cst.Call) and program.code(source.func) in _DOWN
            if source is not None and source not in found and (whole or not isinstance(source, cst.Call | cst.Integer)):
                found.append(source)
    return found


def _rounds_up(program: Program, node: cst.BinaryOperation) -> bool:
    """Whether a division rounds up already: (n + b - 1) // b, (n + 127) // 128, -(-n // b), (n - 1) // b + 1."""
    above = program.parent(node)
    left = node.left
    sums = isinstance(left, cst.BinaryOperation) and isinstance(left.operator, cst.Add | cst.Subtract)
    negative = isinstance(left, cst.UnaryOperation) and isinstance(left.operator, cst.Minus)
    more = isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Add)
    return sums or negative or more
