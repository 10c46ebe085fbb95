"""Parameters of kernels: what must be known when they are compiled, and numbers of the module."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.edits import with_parameter
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import kernel_at
from mtmc.agents.coders.repair.program import New, Program, number, parameters
from mtmc.outcome import Diagnosis

_SHAPED = ("arange", "zeros", "full", "static_range", "reshape", "broadcast_to")
_CONSTEXPR = "triton.language.constexpr"


def constexpr(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Parameters that say how large a tile is, without `tl.constexpr`: all of the kernel get it."""
    kernel = kernel_at(program, diagnosis.line)
    language = program.module_name("triton.language")
    if (
        kernel is None
        or language is None
        or "constexpr" not in diagnosis.message
        or re.search(r"global variable|has no attribute|is not defined", diagnosis.message)
    ):
        return None
    shaping: set[str] = set()
    for name in _SHAPED:
        for call in program.calls(f"triton.language.{name}", kernel):
            shape = (
                call.args
                if name in ("arange", "static_range")
                else call.args[:1]
                if name != "reshape"
                else call.args[1:]
            )
            shaping.update(n.value for arg in shape for n in program.find(cst.Name, arg.value))
    annotation = cst.Annotation(cst.parse_expression(f"{language}.constexpr"))
    changes: dict[cst.CSTNode, New] = {}
    for parameter in parameters(kernel):
        given = program.path(parameter.annotation.annotation) if parameter.annotation is not None else None
        if parameter.name.value in shaping and given != _CONSTEXPR:
            changes[parameter] = parameter.with_changes(annotation=annotation)
    if not changes:
        return None
    names = ", ".join(old.name.value for old in changes if isinstance(old, cst.Param))
    return Fixed(program.changed(changes), f"{names} as {language}.constexpr, for tiles are as large as they say")


def global_constant(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A kernel that reads a number of the module: the number becomes the default of a parameter of the same name."""
    found = re.search(r"Cannot access global variable (\w+) from within", diagnosis.message)
    kernel, language = kernel_at(program, diagnosis.line), program.module_name("triton.language")
    if found is None or kernel is None or language is None:
        return None
    name = found[1]
    value = program.value(name, program.module)
    last = kernel.params
    plain = not last.kwonly_params and not isinstance(last.star_arg, cst.Param) and last.star_kwarg is None
    before = value is not None and program.lines(value)[1] < program.lines(kernel)[0]
    constant = number(value) is not None or (isinstance(value, cst.Name) and value.value in ("True", "False"))
    if not (constant and before and plain) or name in {parameter.name.value for parameter in parameters(kernel)}:
        return None
    changes: dict[cst.CSTNode, New] = {
        kernel: with_parameter(kernel, f"{name}: {language}.constexpr = {name}"),
    }
    return Fixed(
        program.changed(changes), f"{name} as a parameter of {kernel.name.value}, with the module's number as default"
    )
