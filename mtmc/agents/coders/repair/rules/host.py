"""The side of the host: grids, devices and types of outputs, views that a kernel takes for contiguous."""

from __future__ import annotations

import re

import libcst as cst

from mtmc.agents.coders.repair.edits import argument, with_argument
from mtmc.agents.coders.repair.fixed import Fixed
from mtmc.agents.coders.repair.kernels import Launch, launches
from mtmc.agents.coders.repair.modules import forward_of, made_by
from mtmc.agents.coders.repair.program import New, Program, parameters
from mtmc.agents.coders.repair.vocabulary import TYPES
from mtmc.outcome import Diagnosis

_NO_CUDA = re.compile(
    r"not compiled with CUDA|torch\.cuda\.\w+Tensor not available|No CUDA GPUs|no NVIDIA driver"
    r"|Expected all tensors to be on the same"
)
_MAKERS = ("empty", "zeros", "ones", "full", "arange", "tensor", "randn", "rand")
_ALIKE = ("empty_like", "zeros_like", "ones_like", "full_like")
_VIEWS = ("t", "transpose", "permute", "swapaxes", "movedim", "expand")


def grid(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A grid that is a number instead of a tuple, or has a float in it from a division."""
    if diagnosis.kind != "TypeError":
        return None
    here = [launch for launch in launches(program) if launch.call in program.at(cst.Call, diagnosis.line)]
    written, source = (here[0].grid_value, _grid_source(program, here[0])) if len(here) == 1 else (None, None)
    number = re.search(r"'int' object is not iterable|object of type 'int' has no len", diagnosis.message)
    if number is not None and source is None:
        source = written  # of a name that is bound to more than can be read
    if written is None or source is None:
        return None
    if number is not None:
        if isinstance(source, cst.Tuple | cst.List):
            return None
        place = source if isinstance(program.parent(source), cst.Lambda) else written
        changed = program.changed({place: cst.parse_expression(f"({program.code(place)},)")})
        return Fixed(changed, "the grid as a tuple")
    if "'float' object cannot be interpreted as an integer" not in diagnosis.message:
        return None
    if isinstance(written, cst.Name) and not _only_grids(program, here[0], written.value):
        return None
    places = [source, *_named_parts(program, here[0], source)]
    divisions = [n for p in places for n in program.find(cst.BinaryOperation, p) if isinstance(n.operator, cst.Divide)]
    triton = program.module_name("triton")
    changes: dict[cst.CSTNode, New] = {}
    for division in divisions:
        if _rounds_up(division):
            changes[division.operator] = cst.FloorDivide()
        elif triton is not None:
            left, right = program.code(division.left), program.code(division.right)
            changes[division] = cst.parse_expression(f"{triton}.cdiv({left}, {right})")
    if not changes or len(changes) < len(divisions):
        return None
    return Fixed(program.changed(changes), "the grid in whole numbers, rounded up")


def device(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A device that is written out, or none where the kernel needs a tensor on a GPU: the device of an input."""
    written = _NO_CUDA.search(diagnosis.message)
    missing = re.search(r"argument (\w+) of (\w+) is a tensor on the cpu", diagnosis.message)
    function = program.function_at(diagnosis.line)
    owner = _tensor_parameter(program, function) if function is not None else None
    if function is None or owner is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    if written is not None:
        for text in program.find(cst.SimpleString, function):
            if re.fullmatch(r"""["']cuda(:0)?["']""", text.value) and _names_device(program, text):
                wrapped = program.parent(program.parent(text) or text)
                whole = isinstance(wrapped, cst.Call) and program.path(wrapped.func) == "torch.device"
                changes[wrapped if whole and wrapped is not None else text] = cst.parse_expression(f"{owner}.device")
        changes |= _old_makers(program, function, owner)
    elif missing is not None:
        for launch in launches(program, missing[2]):
            arg = argument(launch.call, missing[1], _position(program, missing[2], missing[1]))
            made = program.value(arg.value.value, launch.function) if arg and isinstance(arg.value, cst.Name) else None
            if isinstance(made, cst.Call) and _is_maker(program, made) and argument(made, "device") is None:
                changes[made] = with_argument(made, "device", f"{owner}.device")
    return Fixed(program.changed(changes), f"device={owner}.device") if changes else None


def output_type(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """An output of a wrong type, where it is known which call makes it."""
    found = re.search(r"has dtype \w+, the reference (\w+)", diagnosis.message)
    made, torch = made_by(program), program.module_name("torch")
    if diagnosis.kind != "DType" or found is None:
        return None
    if made is None or torch is None:
        return None
    source = program.changed({made: with_argument(made, "dtype", f"{torch}.{found[1]}")})
    return Fixed(source, f"dtype={torch}.{found[1]} for the output, the type that the reference gives")


def contiguous(program: Program, diagnosis: Diagnosis, hardware: str) -> Fixed | None:
    """A transposed or expanded view that goes to a kernel without a word of its strides: laid out anew."""
    forward = forward_of(program)
    if diagnosis.kind != "WrongValues" or forward is None:
        return None
    changes: dict[cst.CSTNode, New] = {}
    for launch in launches(program):
        if launch.function is not forward:
            continue
        for arg in launch.call.args:
            value = arg.value
            view = program.value(value.value, forward) if isinstance(value, cst.Name) else value
            named = f"{value.value}.stride" if isinstance(value, cst.Name) else ".stride"
            if view is not None and _is_view(view) and named not in program.code(forward):
                changes[view] = cst.parse_expression(f"{program.code(view)}.contiguous()")
    return (
        Fixed(program.changed(changes), "views laid out anew before a kernel reads them in order") if changes else None
    )


def _grid_source(program: Program, launch: Launch) -> cst.BaseExpression | None:
    """The expression that the grid comes from: through a name, and inside of a lambda."""
    value = launch.grid_value
    if isinstance(value, cst.Name):
        value = program.value(value.value, launch.function)
    return value.body if isinstance(value, cst.Lambda) else value


def _old_makers(program: Program, function: cst.FunctionDef, owner: str) -> dict[cst.CSTNode, New]:
    """`torch.cuda.FloatTensor(n)` as `torch.empty(n, ...)`."""
    changes: dict[cst.CSTNode, New] = {}
    for call in program.find(cst.Call, function):
        found = re.fullmatch(r"torch\.cuda\.(\w+)Tensor", program.path(call.func) or "")
        kind = TYPES.get(found[1].lower()) if found is not None else None
        if kind is not None and call.args:
            sizes = ", ".join(program.code(arg.value) for arg in call.args)
            torch = program.module_name("torch")
            changes[call] = cst.parse_expression(f"{torch}.empty({sizes}, dtype={torch}.{kind}, device={owner}.device)")
    return changes


def _named_parts(program: Program, launch: Launch, source: cst.BaseExpression) -> list[cst.BaseExpression]:
    """What the names of a grid's axes stand for, where they stand for nothing else."""
    elements = source.elements if isinstance(source, cst.Tuple | cst.List) else ()
    names = [element.value for element in elements if isinstance(element.value, cst.Name)]
    uses = [node.value for node in program.find(cst.Name, launch.function)]
    values = [program.value(name.value, launch.function) for name in names if uses.count(name.value) == 2]
    return [value for value in values if value is not None]


def _only_grids(program: Program, launch: Launch, name: str) -> bool:
    """Whether a name stands for nothing but grids in the function of a launch."""
    grids = {id(one.grid_value) for one in launches(program)}
    uses = [node for node in program.find(cst.Name, launch.function) if node.value == name]
    return all(id(node) in grids or isinstance(program.parent(node), cst.AssignTarget) for node in uses)


def _rounds_up(division: cst.BinaryOperation) -> bool:
    """Whether it is (n + b - 1) / b."""
    left = division.left
    if not isinstance(left, cst.BinaryOperation) or not isinstance(left.operator, cst.Subtract):
        return False
    one, total = left.right, left.left
    return (
        isinstance(one, cst.Integer)
        and one.value == "1"
        and isinstance(total, cst.BinaryOperation)
        and isinstance(total.operator, cst.Add)
        and any(side.deep_equals(division.right) for side in (total.left, total.right))
    )


def _tensor_parameter(program: Program, function: cst.FunctionDef) -> str | None:
    """The first parameter that is surely a tensor: its shape, type or size is asked for."""
    names = [parameter.name.value for parameter in parameters(function)]
    asked = {
        node.value.value
        for node in program.find(cst.Attribute, function)
        if isinstance(node.value, cst.Name)
        and node.attr.value in ("shape", "dtype", "device", "numel", "stride", "size")
    }
    return next((name for name in names if name in asked and name != "self"), None)


def _position(program: Program, kernel: str, name: str) -> int | None:
    for function in program.functions:
        names = [parameter.name.value for parameter in parameters(function)]
        if function.name.value == kernel and name in names:
            return names.index(name)
    return None


def _is_maker(program: Program, call: cst.Call) -> bool:
    module, _, name = (program.path(call.func) or "").rpartition(".")
    return module == "torch" and name in (*_MAKERS, *_ALIKE)


def _names_device(program: Program, text: cst.SimpleString) -> bool:
    """Whether a string is the argument of `device=`, `torch.device()` or `.to()`."""
    arg = program.parent(text)
    if not isinstance(arg, cst.Arg):
        return False
    if arg.keyword is not None:
        return arg.keyword.value == "device"
    call = program.parent(arg)
    named = (
        isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and call.func.attr.value in ("to", "device")
    )
    return named


def _is_view(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Attribute):
        return node.attr.value in ("T", "mT")
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value in _VIEWS
