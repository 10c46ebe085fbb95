"""Names: of functions that are not there, of torch where a kernel needs Triton's, of keywords, misspelt or not imported."""

from __future__ import annotations

import builtins
import re

import libcst as cst

from mtmc.agents.coders.repair.edits import imported, with_keyword
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import OPTIONS, kernel_at, launched_kernel, launches
from mtmc.agents.coders.repair.program import New, Program, parameters
from mtmc.agents.coders.repair.spelling import near
from mtmc.outcome import Diagnosis

_IMPORTS = {
    "math": "import math",
    "torch": "import torch",
    "nn": "import torch.nn as nn",
    "F": "import torch.nn.functional as F",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "libdevice": "from triton.language.extra import libdevice",
    "np": "import numpy as np",
    "Optional": "from typing import Optional",
}
"""Names that mean one module to everybody."""
_KEYWORDS = {
    "dim": "axis", "keepdim": "keep_dims", "keepdims": "keep_dims", "fill_value": "value", "dtype_out": "out_dtype",
}  # fmt: skip
"""Keyword of torch -> Triton's own."""


def missing_import(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A module under its usual name that nothing imports or binds."""
    name = _undefined(diagnosis)
    line = _IMPORTS.get(name or "")
    if name is None or line is None or name in program.bound_in_module():
        return None
    return Fixed(program.changed(imported(program, line)), line)


def misspelt(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A name that nothing binds, where exactly one that is bound before differs from it by one letter."""
    name, function = _undefined(diagnosis), program.function_at(diagnosis.line)
    if name is None or function is None or diagnosis.line is None or hasattr(builtins, name):
        return None  # a name of Python's is no slip of the pen
    own = {parameter.name.value for parameter in parameters(function)}
    for assign in program.find(cst.Assign, function):
        if program.lines(assign)[1] < diagnosis.line:
            own.update(bound for bound, _ in program.bindings(assign))
    later = {bound for bound, _ in program.bindings(function)}
    meant = near(name, own | later | program.bound_in_module())
    if meant is None or name in later or meant in later - own:
        return None
    uses = [node for node in program.find(cst.Name, function) if node.value == name and _is_use(program, node)]
    return Fixed(
        program.changed({node: cst.Name(meant) for node in uses}), f"{meant} instead of {name}, which is not defined"
    )


def keyword(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A keyword that its function does not know: torch's name for one of Triton, or one letter off."""
    return (
        _unknown_option(program, diagnosis)
        or _missing_parameter(program, diagnosis)
        or _torch_keyword(program, diagnosis)
    )


def _undefined(diagnosis: Diagnosis) -> str | None:
    found = re.search(r"(?:name ')?\b(\w+)'? is not defined", diagnosis.message)
    named = diagnosis.kind == "NameError" or "NameError" in diagnosis.message
    return found[1] if found is not None and named else None


def _is_use(program: Program, node: cst.Name) -> bool:
    """Whether a name stands for a variable: not an attribute, nor a keyword of a call."""
    above = program.parent(node)
    if isinstance(above, cst.Attribute):
        return above.value is node
    return not _is_label(above, node)


def _is_label(above: cst.CSTNode | None, node: cst.Name) -> bool:
    if isinstance(above, cst.Arg):
        return above.keyword is node
    return isinstance(above, cst.Param | cst.FunctionDef | cst.ClassDef) and above.name is node


def _unknown_option(program: Program, diagnosis: Diagnosis) -> Fixed | None:
    found = re.search(r"Keyword argument (\w+) was specified but unrecognised", diagnosis.message)
    for launch in [] if found is None else launches(program):
        call, kernel = launch.call, launched_kernel(program, launch)
        if found is None or kernel is None or call not in program.at(cst.Call, diagnosis.line):
            continue
        given = {arg.keyword.value for arg in call.args if arg.keyword is not None}
        meant = near(found[1], ({p.name.value for p in parameters(kernel)} | set(OPTIONS)) - given)
        wrong = next((arg for arg in call.args if arg.keyword is not None and arg.keyword.value == found[1]), None)
        if meant is not None and wrong is not None:
            source = program.changed({call: with_keyword(call, wrong, meant)})
            return Fixed(source, f"{meant} instead of {found[1]}, which the launch does not know")
    return None


def _missing_parameter(program: Program, diagnosis: Diagnosis) -> Fixed | None:
    """A launch that gives a parameter by a name that is one letter off."""
    found = re.search(r"missing 1 required positional argument: '(\w+)'", diagnosis.message)
    for launch in [] if found is None else launches(program):
        kernel = launched_kernel(program, launch)
        if found is None or kernel is None or launch.call not in program.at(cst.Call, diagnosis.line):
            continue
        known = {parameter.name.value for parameter in parameters(kernel)} | set(OPTIONS)
        wrong = [arg for arg in launch.call.args if arg.keyword is not None and arg.keyword.value not in known]
        if len(wrong) == 1 and wrong[0].keyword is not None and near(wrong[0].keyword.value, {found[1]}):
            source = program.changed({launch.call: with_keyword(launch.call, wrong[0], found[1])})
            return Fixed(source, f"{found[1]} instead of {wrong[0].keyword.value}, which the kernel does not know")
    return None


def _torch_keyword(program: Program, diagnosis: Diagnosis) -> Fixed | None:
    found = re.search(r"unexpected keyword argument '(\w+)'", diagnosis.message)
    meant = _KEYWORDS.get(found[1]) if found is not None else None
    if found is None or meant is None or kernel_at(program, diagnosis.line) is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for call in program.at(cst.Call, diagnosis.line):
        if (program.path(call.func) or "").startswith("triton.language."):
            for arg in call.args:
                if arg.keyword is not None and arg.keyword.value == found[1]:
                    changes[arg.keyword] = cst.Name(meant)
    return Fixed(program.changed(changes), f"{meant} instead of torch's {found[1]}") if changes else None
