"""What stands around a kernel: `triton.jit`, its tuner, the names of what is known ahead of time."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from mtmc.agents.coders.repair.edits import with_argument
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import is_kernel, kernels
from mtmc.agents.coders.repair.program import New, Program, parameters
from mtmc.agents.coders.repair.spelling import near
from mtmc.outcome import Diagnosis

_NAME = re.compile(r"name '(\w+)' is not defined|module 'triton(?:\.language)?' has no attribute '(\w+)'")
_JIT = ("jit", "kernel", "compile", "triton_jit")
_CONSTEXPR = ("constexpr", "const_expr", "constexp", "Constexpr", "const", "constant")


def jit(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """No `triton.jit` on what is launched, or one by another name."""
    triton = program.module_name("triton")
    if triton is None:
        return None
    right = cst.parse_expression(f"{triton}.jit")
    changes: dict[cst.CSTNode, New] = {}
    found = _NAME.search(diagnosis.message)
    name = (found[1] or found[2]) if found is not None else ""
    if name in _JIT or near(name, {"jit"}):
        for function in program.functions:
            for decorator in function.decorators:
                if program.code(decorator.decorator).rpartition(".")[2] == name and _speaks_triton(program, function):
                    changes[decorator.decorator] = right
    elif "'function' object is not subscriptable" in diagnosis.message:
        launched = {
            node.value.value
            for node in program.at(cst.Subscript, diagnosis.line)
            if isinstance(node.value, cst.Name) and isinstance(program.parent(node), cst.Call)
        }
        for function in program.functions:
            if (
                function.name.value in launched
                and not is_kernel(program, function)
                and _speaks_triton(program, function)
            ):
                changes[function] = function.with_changes(decorators=[*function.decorators, cst.Decorator(right)])
    return Fixed(program.changed(changes), f"{triton}.jit on what is launched") if len(changes) == 1 else None


def constexpr_name(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`tl.constexpr` by another name, or of another module."""
    found, language = _NAME.search(diagnosis.message), program.module_name("triton.language")
    name = (found[1] or found[2]) if found is not None else ""
    if language is None or name not in _CONSTEXPR:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for function in program.functions:
        for parameter in parameters(function):
            annotation = parameter.annotation
            if annotation is not None and program.code(annotation.annotation).rpartition(".")[2] == name:
                changes[annotation.annotation] = cst.parse_expression(f"{language}.constexpr")
    return Fixed(program.changed(changes), f"{language}.constexpr by its own name") if changes else None


def tuner(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A tuner below `triton.jit`, with a key that is no argument, without a key, or with settings as keywords."""
    return _order(program, diagnosis) or _key(program, diagnosis) or _config(program, diagnosis)


def _order(program: Program, diagnosis: Diagnosis) -> Fixed | None:
    if "'function' object has no attribute 'arg_names'" not in diagnosis.message:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for kernel in kernels(program):
        jits = [d for d in kernel.decorators if program.path(d.decorator) == "triton.jit"]
        others = [d for d in kernel.decorators if d not in jits]
        if len(jits) == 1 and others and kernel.decorators[-1] is not jits[0]:
            lines = [d.with_changes(leading_lines=()) for d in (*others, *jits)]
            changes[kernel] = kernel.with_changes(decorators=lines)
    return Fixed(program.changed(changes), "the tuner around triton.jit, which comes last") if changes else None


def _key(program: Program, diagnosis: Diagnosis) -> Fixed | None:
    """A key only says when to tune anew: without the names that are no arguments it says so less often."""
    wrong = re.search(r"key contains names that are not kernel arguments: ([\w, ]+)\.", diagnosis.message)
    missing = re.search(r"autotune\(\) missing 1 required positional argument: 'key'", diagnosis.message)
    if wrong is None and missing is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for kernel in kernels(program):
        known = {parameter.name.value for parameter in parameters(kernel)}
        for decorator in kernel.decorators:
            for call in program.calls("triton.autotune", decorator):
                if missing is not None:
                    changes[call] = with_argument(call, "key", "[]")
                    continue
                for arg in call.args:
                    names = arg.value.elements if isinstance(arg.value, cst.List) else ()
                    kept = [one for one in names if program.code(one.value).strip("\"'") in known]
                    if arg.keyword is not None and arg.keyword.value == "key" and len(kept) < len(names):
                        changes[arg.value] = cst.parse_expression(_listed(program, kept))
    return Fixed(program.changed(changes), "a key of the kernel's own arguments") if changes else None


def _config(program: Program, diagnosis: Diagnosis) -> Fixed | None:
    if re.search(r"Config\.__init__\(\) got an unexpected keyword argument", diagnosis.message) is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for kernel in kernels(program):
        known = {parameter.name.value for parameter in parameters(kernel)}
        for decorator in kernel.decorators:
            for call in program.calls("triton.Config", decorator):
                named = [a for a in call.args if a.keyword is not None and a.keyword.value in known]
                others = [program.code(a).rstrip(", ") for a in call.args if a not in named]
                if not named or len(others) + len(named) < len(call.args) or any("{" in text for text in others):
                    return None
                entries = ", ".join(f'"{a.keyword.value}": {program.code(a.value)}' for a in named if a.keyword)
                text = ", ".join([f"{{{entries}}}", *others])
                changes[call] = cst.parse_expression(f"{program.code(call.func)}({text})")
    return Fixed(program.changed(changes), "a configuration's parameters in a dict") if changes else None


def _listed(program: Program, parts: Sequence[cst.BaseElement]) -> str:
    return "[" + ", ".join(program.code(part.value) for part in parts) + "]"


def _speaks_triton(program: Program, function: cst.FunctionDef) -> bool:
    """Whether a function does what only kernels do."""
    return bool(program.calls("triton.language.program_id", function))
