"""What launches give their kernels: constants that are missing, given twice or tuned, addresses, methods not called."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.edits import with_argument
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import (
    OPTIONS,
    Launch,
    grid_text,
    is_constexpr,
    kernel_named,
    launched_kernel,
    launches,
)
from mtmc.agents.coders.repair.program import New, Program, parameters
from mtmc.agents.coders.repair.spelling import near
from mtmc.outcome import Diagnosis

_MISSING = re.compile(r"missing \d+ required positional arguments?: ('\w+'(?:,? (?:and )?'\w+')*)")
_TWICE = re.compile(r"got multiple values for (?:keyword )?argument '(\w+)'|Conflicting meta-parameters: (\w+)\.")
_METHODS = ("numel", "nelement", "dim", "contiguous")
_TENSOR = (
    "numel", "nelement", "contiguous", "stride", "shape", "size", "view", "reshape", "device", "dtype", "flatten",
    "transpose", "new_empty", "data_ptr", "is_contiguous",
)  # fmt: skip


def missing_constant(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A launch without one of its kernel's constants: it gives it under another name, or has it in its grid."""
    found, launch = _MISSING.search(diagnosis.message), _launch_at(program, diagnosis.line)
    kernel = None if launch is None else launched_kernel(program, launch)
    if found is None or launch is None or kernel is None:
        return None
    missing = re.findall(r"'(\w+)'", found[1])
    constants = {p.name.value for p in parameters(kernel) if is_constexpr(program, p)}
    if not set(missing) <= constants:
        return None
    known = {p.name.value for p in parameters(kernel)} | set(OPTIONS)
    unknown = [a for a in launch.call.args if a.keyword is not None and a.keyword.value not in known]
    if unknown:
        return _renamed(program, launch, missing, unknown)
    divisors = _divisors(program, launch)
    if len(divisors) != 1 or len(missing) != 1:
        return None
    (value,) = divisors
    source = program.changed({launch.call: with_argument(launch.call, missing[0], value)})
    return Fixed(source, f"{missing[0]}={value}, by which the grid divides")


def _renamed(program: Program, launch: Launch, missing: list[str], unknown: list[cst.Arg]) -> Fixed | None:
    """The constants that a launch gives under other names: the only one, or each by the same last part of its name."""
    texts = [arg.keyword.value for arg in unknown if arg.keyword is not None]
    if len(missing) == len(texts) == 1 and near(texts[0], set(missing)):
        return None  # a slip of the pen, which another rule corrects
    ends = {name.rpartition("_")[2].upper(): name for name in missing}
    meant = missing if len(missing) == 1 else [ends.get(text.rpartition("_")[2].upper(), "") for text in texts]
    if len(texts) != len(missing) or sorted(meant) != sorted(missing):
        return None
    changes: dict[cst.CSTNode, New] = {
        arg.keyword: cst.Name(name) for arg, name in zip(unknown, meant, strict=True) if arg.keyword is not None
    }
    said = f"{', '.join(meant)} instead of {', '.join(texts)}, the only constants that are missing"
    return Fixed(program.changed(changes), said)


def given_twice(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A constant that a tuner gives as well, or that a launch gives by position and by keyword: given once."""
    found, launch = _TWICE.search(diagnosis.message), _launch_at(program, diagnosis.line)
    kernel = None if launch is None else launched_kernel(program, launch)
    if found is None or launch is None or kernel is None:
        return None
    name = found[1] or found[2]
    names = [parameter.name.value for parameter in parameters(kernel)]
    plain = [arg for arg in launch.call.args if arg.keyword is None]
    by_name = [arg for arg in launch.call.args if arg.keyword is not None and arg.keyword.value == name]
    by_place = plain[names.index(name) :] if name in names else []
    if _is_tuned(program, kernel, name):
        surplus = by_name or by_place
        grid = _follows(program, launch, name, surplus[0].value) if len(surplus) == 1 else None
    else:
        same = by_name and by_place and by_name[0].value.deep_equals(by_place[0].value)
        surplus, grid = (by_place if same else []), {}
    if len(surplus) != 1 or grid is None or (surplus == by_place and plain[-1] is not surplus[0]):
        return None
    changes = {launch.call: _without(surplus[0]), **grid}
    return Fixed(program.changed(changes), f"{name} given once")


def address(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """Addresses for tensors: `x.data_ptr()` is a number to Triton."""
    if not re.search(r"Unsupported ptr type|pointer", diagnosis.message):
        return None
    changes: dict[cst.CSTNode, New] = {}
    for launch in launches(program):
        for arg in launch.call.args:
            target = arg.value.func if isinstance(arg.value, cst.Call) and not arg.value.args else None
            if isinstance(target, cst.Attribute) and target.attr.value == "data_ptr":
                changes[arg.value] = target.value
    return Fixed(program.changed(changes), "tensors instead of their addresses") if changes else None


def tensor_method(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`n = x.numel` without its call, and methods of tensors that are one letter off."""
    changes: dict[cst.CSTNode, New] = {}
    function = program.function_at(diagnosis.line)
    wrong = re.search(r"'(?:Fake)?Tensor' object has no attribute '(\w+)'", diagnosis.message)
    if function is None:
        return None
    if wrong is not None:
        meant = near(wrong[1], _TENSOR)
        for node in program.find(cst.Attribute, function) if meant is not None else []:
            if node.attr.value == wrong[1]:
                changes[node.attr] = cst.Name(meant or "")
    elif "builtin_function_or_method" in diagnosis.message:
        for node in program.find(cst.Attribute, function):
            above = program.parent(node)
            called = isinstance(above, cst.Call) and above.func is node
            if node.attr.value in _METHODS and not called and not isinstance(above, cst.Attribute):
                changes[node] = cst.Call(node)
    return Fixed(program.changed(changes), "a method of tensors by its name, and called") if changes else None


def stray_comma(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`n = x.numel(),`: a comma that makes a number a tuple, of what a launch is given."""
    if diagnosis.kind not in ("TypeError", "CompilationError", "ValueError", "AttributeError"):
        return None
    changes: dict[cst.CSTNode, New] = {}
    for launch in launches(program):
        for arg in launch.call.args:
            value = program.value(arg.value.value, launch.function) if isinstance(arg.value, cst.Name) else None
            if isinstance(value, cst.Tuple) and len(value.elements) == 1 and not value.lpar:
                changes[value] = value.elements[0].value
    return Fixed(program.changed(changes), "without a comma that makes a tuple of a number") if changes else None


def grid_keyword(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """`kernel(x, n, grid=(4,))`: the grid in brackets."""
    if "outside of the scope of a kernel" not in diagnosis.message:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for call in program.at(cst.Call, diagnosis.line):
        grids = [arg for arg in call.args if arg.keyword is not None and arg.keyword.value == "grid"]
        if isinstance(call.func, cst.Name) and kernel_named(program, call.func.value) and len(grids) == 1:
            bare = _dropped(call, grids[0])
            target = cst.parse_expression(f"{call.func.value}[{program.code(grids[0].value)}]")
            changes[call] = bare.with_changes(func=target)
    return Fixed(program.changed(changes), "the grid in brackets before the arguments") if changes else None


def _launch_at(program: Program, line: int | None) -> Launch | None:
    calls = program.at(cst.Call, line)
    found = [launch for launch in launches(program) if launch.call in calls]
    return found[0] if len(found) == 1 else None


def _divisors(program: Program, launch: Launch) -> set[str]:
    """Texts of names and numbers by which a grid divides what is to be done."""
    found: set[str] = set()
    value = launch.grid_value
    places = [] if value is None else [value]
    seen: set[str] = set()
    while places:
        place = places.pop()
        for name in program.find(cst.Name, place):
            source = program.value(name.value, launch.function) if name.value not in seen else None
            seen.add(name.value)
            places += [] if source is None else [source]
        for call in program.find(cst.Call, place):
            if (program.path(call.func) or "").endswith("cdiv") and len(call.args) == 2:
                found.add(program.code(call.args[1].value))
        for node in program.find(cst.BinaryOperation, place):
            if isinstance(node.operator, cst.FloorDivide):
                found.add(program.code(node.right))
    return {text for text in found if re.fullmatch(r"\w+", text)}


def _is_tuned(program: Program, kernel: cst.FunctionDef, name: str) -> bool:
    """Whether every configuration of a kernel's tuner gives a constant or an option."""
    configs = [c for d in kernel.decorators for c in program.calls("triton.Config", d)]
    return bool(configs) and all(re.search(rf"\b{name}\b", program.code(config)) for config in configs)


def _follows(program: Program, launch: Launch, name: str, value: cst.BaseExpression) -> dict[cst.CSTNode, New] | None:
    """The change that makes a grid follow a tuned constant; none where it does; None where that is not sure."""
    text, given = grid_text(program, launch), program.code(value)
    if name in OPTIONS or re.search(rf"""\[["']{name}["']\]""", text):
        return {}
    place = launch.grid_value
    if isinstance(place, cst.Name):
        place = program.value(place.value, launch.function)
    if not isinstance(place, cst.Tuple) or re.search(rf"\b{re.escape(given)}\b", text) is None:
        return None
    new = re.sub(rf"\b{re.escape(given)}\b", f'meta["{name}"]', program.code(place))
    return {place: cst.parse_expression(f"lambda meta: {new}")}


def _dropped(call: cst.Call, arg: cst.Arg) -> cst.Call:
    kept = [one for one in call.args if one is not arg]
    if kept and arg is call.args[-1]:
        kept[-1] = kept[-1].with_changes(comma=arg.comma)
    return call.with_changes(args=kept)


def _without(arg: cst.Arg) -> New:
    def change(call: cst.Call) -> cst.Call:
        kept = [one for one in call.args if not one.deep_equals(arg)]
        if kept and not isinstance(arg.comma, cst.Comma):
            kept[-1] = kept[-1].with_changes(comma=arg.comma)
        return call.with_changes(args=kept)

    return change
