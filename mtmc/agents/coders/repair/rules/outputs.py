"""What a forward gives: its own memory, one tensor instead of a tuple of one, a shape without an axis too many."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.accesses import accesses
from mtmc.agents.coders.repair.edits import argument, with_value
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import Launch, given, launched_kernel, launches
from mtmc.agents.coders.repair.modules import forward_of, made_by, returned_values
from mtmc.agents.coders.repair.program import New, Program, parameters
from mtmc.outcome import Diagnosis

_SAME = ("view", "reshape", "contiguous", "flatten", "detach")
_SHAPE = re.compile(r"has shape \[([\d, ]*)\], the reference \[([\d, ]*)\]")


def tuple_of_one(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A tuple or a list of one tensor where the reference gives a tensor: that tensor."""
    if diagnosis.kind != "Structure" or not re.search(
        r"returns [(\[]\*[)\]], the reference \*( |$)", diagnosis.message
    ):
        return None
    forward = forward_of(program)
    changes: dict[cst.CSTNode, New] = {}
    for value in [] if forward is None else returned_values(program, forward):
        if isinstance(value, cst.Tuple | cst.List) and len(value.elements) == 1:
            changes[value] = value.elements[0].value
    return Fixed(program.changed(changes), "the tensor itself instead of a tuple of one") if changes else None


def own_output(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A kernel that writes over an input, which it only reads under another name: an output of its own."""
    torch = program.module_name("torch")
    if diagnosis.kind != "InputMutated" or torch is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for launch in launches(program):
        for name in _only_stored(program, launch):
            function = launch.function
            value = program.value(name, function)
            owner = _same_memory(program, function, value)
            if owner is not None and value is not None:
                changes[value] = cst.parse_expression(f"{torch}.empty_like({_plain(program, value)})")
            elif name in {parameter.name.value for parameter in parameters(function)}:
                changes |= _beside(program, launch, name, torch)
    return Fixed(program.changed(changes), "an output of its own, not the memory of an input") if changes else None


def returned(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A forward that returns nothing, and makes one tensor that one kernel writes: it returns that."""
    forward = forward_of(program)
    if forward is None or "NoneType" not in diagnosis.message or diagnosis.kind not in ("Type", "Structure"):
        return None
    here = [launch for launch in launches(program) if launch.function is forward]
    names = {name for launch in here for name in _only_stored(program, launch)}
    if program.find(cst.Return, forward) or len(names) != 1 or len(here) != 1:
        return None
    (name,) = names
    body = forward.body
    if not isinstance(body, cst.IndentedBlock) or len(program.values(name, forward)) != 1:
        return None
    line = cst.parse_statement(f"return {name}")
    changed = forward.with_changes(body=body.with_changes(body=[*body.body, line]))
    return Fixed(program.changed({forward: changed}), f"return {name}, the only tensor that the kernel writes")


def shape(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """An output with an axis of one element too many, or of all elements in a row: as the reference has it."""
    found, made = _SHAPE.search(diagnosis.message), made_by(program)
    if diagnosis.kind != "Shape" or found is None or made is None:
        return None
    own, other = ([int(size) for size in text.split(",") if size.strip()] for text in found.groups())
    first, torch = argument(made, "size", 0), program.module_name("torch")
    if first is None or not (program.path(made.func) or "").startswith("torch."):
        return None
    sizes = first.value.elements if isinstance(first.value, cst.Tuple | cst.List) else ()
    texts = [program.code(element.value) for element in sizes]
    if texts.count("1") == 1 and own == [*other[: texts.index("1")], 1, *other[texts.index("1") :]]:
        texts.remove("1")
        text = f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
        return Fixed(program.changed({made: with_value(made, first, text)}), "an output without an axis of one")
    row = re.fullmatch(r"(\w+)\.numel\(\)", program.code(first.value))
    same = len(own) == 1 and len(other) > 1 and own[0] == _product(other)
    if row is None or not same or torch is None:
        return None
    source = program.changed({made: cst.parse_expression(f"{torch}.empty_like({row[1]})")})
    return Fixed(source, f"an output of the shape of {row[1]}")


def _product(sizes: list[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _only_stored(program: Program, launch: Launch) -> list[str]:
    """Names of the tensors that a launch gives for pointers which its kernel stores through and never loads."""
    kernel = launched_kernel(program, launch)
    if kernel is None:
        return []
    own = [parameter.name.value for parameter in parameters(kernel)]
    through: dict[str, set[str]] = {}
    for access in accesses(program, kernel):
        for name in _roots(program, kernel, access.pointer):
            through.setdefault(name, set()).add(access.name)
    stored = [name for name in own if through.get(name) == {"store"}]
    values = [given(kernel, launch.call, name) for name in stored]
    return [value.value for value in values if isinstance(value, cst.Name)]


def _roots(program: Program, kernel: cst.FunctionDef, pointer: cst.CSTNode, depth: int = 4) -> set[str]:
    """Parameters that an address is made of."""
    own = {parameter.name.value for parameter in parameters(kernel)}
    found: set[str] = set()
    for node in program.find(cst.Name, pointer):
        found |= {node.value} & own
        value = program.value(node.value, kernel) if node.value not in own else None
        if value is not None and depth:
            found |= _roots(program, kernel, value, depth - 1)
    return found


def _same_memory(program: Program, function: cst.CSTNode, value: cst.BaseExpression | None) -> str | None:
    """The parameter of a function that a value is the memory of; None where it is no such."""
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in _SAME:
        value = value.func.value
    own = {parameter.name.value for parameter in parameters(function)}
    return value.value if isinstance(value, cst.Name) and value.value in own else None


def _plain(program: Program, value: cst.BaseExpression) -> str:
    """A value's text without a copy that `empty_like` does not need."""
    copied = isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "detach"
    return program.code(value.func.value if copied else value)  # type: ignore[attr-defined]


def _beside(program: Program, launch: Launch, name: str, torch: str) -> dict[cst.CSTNode, New]:
    """The changes that give a kernel `out` for an input `name` that it is given twice, and return it in its place."""
    function, kernel = launch.function, launched_kernel(program, launch)
    twice = [arg for arg in launch.call.args if isinstance(arg.value, cst.Name) and arg.value.value == name]
    line = program.around(launch.call, cst.SimpleStatementLine)
    returns = program.find(cst.Return, function)
    right = all(isinstance(node.value, cst.Name) and node.value.value == name for node in returns)
    new = "out" if not program.values("out", function) else "result"
    if kernel is None or len(twice) != 2 or line is None or len(returns) != 1 or not right:
        return {}
    own = [parameter.name.value for parameter in parameters(kernel)]
    stored = [
        a for a in twice if a.keyword is None and own[list(launch.call.args).index(a)] in _stored(program, kernel)
    ]
    if len(stored) != 1 or program.values(new, function):
        return {}
    made = cst.parse_statement(f"{new} = {torch}.empty_like({name})")

    def before(statement: cst.SimpleStatementLine) -> cst.FlattenSentinel[cst.BaseStatement]:
        plain = made.with_changes(leading_lines=statement.leading_lines)
        return cst.FlattenSentinel([plain, statement.with_changes(leading_lines=())])

    renamed: dict[cst.CSTNode, New] = {node.value: cst.Name(new) for node in returns if node.value is not None}
    return {stored[0].value: cst.Name(new), line: before, **renamed}  # type: ignore[dict-item]


def _stored(program: Program, kernel: cst.FunctionDef) -> set[str]:
    return {n for a in accesses(program, kernel) if a.name == "store" for n in _roots(program, kernel, a.pointer)}
