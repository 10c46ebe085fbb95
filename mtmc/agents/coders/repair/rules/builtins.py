"""Functions and operators of Python in a kernel, of whole tiles."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import kernel_at, kernel_named, kernels
from mtmc.agents.coders.repair.lanes import tiles
from mtmc.agents.coders.repair.program import Program
from mtmc.agents.coders.repair.steps import Change, innermost, repeated
from mtmc.agents.coders.repair.vocabulary import positional, power, reduced, renamed_keywords, written
from mtmc.outcome import Diagnosis

_REDUCTIONS = ("sum", "max", "min")
_UNDEFINED = re.compile(
    r"NameError\('(sum|pow|abs|round) is not defined'\)|m(?:in|ax) requires at least 2 values"
    r"|builtin_m(?:in|ax)\(\) got an unexpected"
)
_WRONG = ("WrongValues", "NaN", "Infinity")


def builtin(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`sum(x)`, `max(x)`, `pow(x, 2)`: Triton's function. Of two tiles `max` is compiled, but not the interpreter's."""
    if _UNDEFINED.search(diagnosis.message):
        kernel = kernel_at(program, diagnosis.line)
        names = [] if kernel is None else [kernel.name.value]
    elif diagnosis.kind in _WRONG:
        names = [kernel.name.value for kernel in kernels(program)]
    else:
        return None
    wrong = diagnosis.kind in _WRONG

    def step(current: Program) -> Change | None:
        for name in names:
            for call in innermost(current, kernel_named(current, name)):
                change = _own(current, call, name, of_tiles=wrong)
                if change:
                    return change
        return None

    return repeated(program, step, "{new} instead of Python's {old}")


def pair(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`tl.max(x, y)` of two values, and `tl.maximum(x, axis=0)` of one: each for the other."""
    kernel = kernel_at(program, diagnosis.line)
    if kernel is None or not re.search(
        r"_semantic` argument must be|imum\(\) got an unexpected key", diagnosis.message
    ):
        return None
    language, changes = program.module_name("triton.language"), Change()
    for call in program.at(cst.Call, diagnosis.line):
        path = program.path(call.func) or ""
        name = path.removeprefix("triton.language.")
        other = reduced(program, name.removesuffix("imum"), call, own=False)
        if name in ("max", "min", "maximum", "minimum") and other is not None and other != name:
            changes[call.func] = cst.parse_expression(f"{language}.{other}")
            changes |= {a: b for a, b in zip(call.args, renamed_keywords(call).args, strict=True) if a is not b}
    if not changes:
        return None
    return Fixed(program.changed(changes), "a reduction is of one tile along an axis, the larger number is of two")


def operators(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`x ** 2` and `a @ b`, which Triton does not know: a product, a root or libdevice's power; `tl.dot`."""
    kernel = kernel_at(program, diagnosis.line)
    known = re.search(r"for \*\*: |'MatMult' is not|'Pow' is not", diagnosis.message)
    if known is None or kernel is None:
        return None
    own = kernel.name.value

    def step(current: Program) -> Change | None:
        here = kernel_named(current, own)
        found = [] if here is None else current.find(cst.BinaryOperation, here)
        for node in sorted(found, key=lambda node: len(current.code(node))):
            if isinstance(node.operator, cst.Power):
                new = power(current, node.left, node.right)
            elif isinstance(node.operator, cst.MatrixMultiply):
                new = written(current, "matmul", [node.left, node.right])
            else:
                continue
            if new is not None:
                return {node: cst.parse_expression(new.text), **new.changes}
        return None

    return repeated(program, step, "{new} instead of {old}, which Triton does not know")


def _own(program: Program, call: cst.Call, kernel: str, of_tiles: bool) -> Change | None:
    """The change for a call of a function of Python. of_tiles: of those with a tile among their arguments alone."""
    language = program.module_name("triton.language")
    if not isinstance(call.func, cst.Name) or language is None or call.func.value in program.bound_in_module():
        return None
    name, values = call.func.value, positional(call)
    if name in _REDUCTIONS:
        other = reduced(program, name, call, own=True)
        within = kernel_named(program, kernel)
        if other is None or within is None or (of_tiles and not tiles(program, within, call)):
            return None
        if other.endswith("imum") and not of_tiles:
            return None
        new = renamed_keywords(call).with_changes(func=cst.parse_expression(f"{language}.{other}"))
        return {call: new}
    if name in ("pow", "round") and values is not None and not of_tiles:
        new_text = written(program, "rint" if name == "round" else name, values)
        return None if new_text is None else {call: cst.parse_expression(new_text.text), **new_text.changes}
    return None
