"""effects: what a forward changes besides giving its result, as an export shows it: its inputs and its module's buffers.

What torch.export cannot follow is refused here with its line, before an export of it is made functional.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mtmc.errors import TaskError
from mtmc.rewrite.lines import line_of
from mtmc.task.tensors import storage_key

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node
    from torch.nn import Module

SAME_VALUES = ("aten.lift_fresh_copy.default", "aten.detach_.default", "aten.detach.default", "aten.alias.default")
"""Ops whose result is their operand, as far as values go."""
_FORM = ("resize_", "resize_as_", "set_", "t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_",
         "as_strided_")  # fmt: skip
"""Ops that change what memory a tensor shows, and how, instead of the values in it."""
_SET_DATA = "aten._has_compatible_shallow_copy_type.default"
"""What an assignment to a tensor's `.data` leaves in an export: the assignment itself is lost."""
_KEEPING = {"aten.batch_norm.default": (3, 5), "aten.instance_norm.default": (3, 5)}
"""Norms that change their running statistics without saying so: where the mean stands, and whether they are trained."""


@dataclass(frozen=True)
class Sharing:
    """How tensors lie after a call, beside those that it changes.

    rebound: paths of buffers that are other tensors now. same: leaf of the result -> name of the placeholder that it is
    now, as a whole. shared: leaves that share memory with a changed tensor.
    """

    rebound: frozenset[str] = frozenset()
    same: Mapping[int, str] = field(default_factory=dict)
    shared: frozenset[int] = frozenset()


def keeps_statistics(node: Node) -> bool:
    """Whether an op is a norm that changes the running statistics that it is given."""
    mean, training = _KEEPING.get(str(node.target), (0, 0))
    return bool(mean) and len(node.args) > training and node.args[mean] is not None and bool(node.args[training])


def refuse_what_is_not_followed(program: ExportedProgram) -> None:
    """Raises: TaskError, naming op and line, for a change that would be lost: of a parameter, through `.data`, of a form."""
    signature = program.graph_signature
    constants = set(signature.inputs_to_lifted_tensor_constants)
    for node in program.graph.nodes:
        name = str(node.target)
        if name == _SET_DATA:
            raise TaskError(f"forward{_where(node)} assigns to .data of a tensor: use copy_, which can be followed")
        if keeps_statistics(node) and "instance_norm" in name:
            raise TaskError(
                f"forward{_where(node)} changes the running statistics of an instance norm: build it with "
                "track_running_stats=False, or call .eval() in __init__"
            )
        for changed in _changed(node):
            root = _root(changed)
            if changed.name in constants:
                raise TaskError(
                    f"forward{_where(node)} changes a tensor through .data, or one that is no buffer: change the tensor "
                    "itself, and keep it with register_buffer"
                )
            if root.op == "placeholder" and name.split(".")[1] in _FORM:
                raise TaskError(
                    f"forward{_where(node)} changes the form of {_called(root, signature)} ({name}), not only its "
                    "values: make a tensor of that form instead"
                )
            if root.name in signature.inputs_to_parameters:
                raise TaskError(
                    f"forward{_where(node)} changes {_called(root, signature)} in place: keep what calls change in a "
                    "buffer (register_buffer)"
                )


def refuse_overlaps(program: ExportedProgram, model: Module, inputs: Sequence[Any]) -> None:
    """Raises: TaskError where a tensor that is changed shares memory with another input, buffer or parameter."""
    held = dict(_held(program, model, inputs))
    together: dict[int, list[str]] = {}
    for name, tensor in held.items():
        if tensor.numel():
            together.setdefault(storage_key(tensor), []).append(name)
    for name in changed_placeholders(program):
        mine = held.get(name)
        for other in () if mine is None else together.get(storage_key(mine), ()):
            if other != name and held[other] is not mine:
                what = _called_by_name(name, program.graph_signature)
                raise TaskError(
                    f"forward changes {what}, which shares memory with "
                    f"{_called_by_name(other, program.graph_signature)}: give it memory of its own (clone)"
                )


def sharing(program: ExportedProgram, model: Module, inputs: Sequence[Any]) -> Sharing:
    """Call the model once, and look where its tensors lie then. On fake tensors this costs nothing."""
    import torch.utils._pytree as pytree

    changed = changed_placeholders(program)
    buffers = {name: path for name, path in program.graph_signature.inputs_to_buffers.items() if name in changed}
    before = dict(_held(program, model, inputs))
    result = model(*inputs)
    rebound = frozenset(path for name, path in buffers.items() if _attribute(model, path) is not before[name])
    now = {name: tensor for name, tensor in _held(program, model, inputs) if name in changed}
    same, shared = {}, set()
    for at, leaf in enumerate(pytree.tree_leaves(result)):
        for name, tensor in now.items():
            if not _is_tensor(leaf) or storage_key(leaf) != storage_key(tensor):
                continue
            shared.add(at)
            if (leaf.shape, leaf.stride(), leaf.dtype, leaf.storage_offset()) == (
                tensor.shape,
                tensor.stride(),
                tensor.dtype,
                tensor.storage_offset(),
            ):
                same[at] = name
    return Sharing(rebound, same, frozenset(shared))


def changed_placeholders(program: ExportedProgram) -> tuple[str, ...]:
    """Names of the placeholders of what a functional export changes."""
    signature = program.graph_signature
    of_path = {path: name for name, path in signature.inputs_to_buffers.items()}
    targets = [spec for spec in signature.output_specs if "MUTATION" in spec.kind.name]
    return tuple(of_path.get(str(spec.target), str(spec.target)) for spec in targets)


def _where(node: Node) -> str:
    """ " (line 12 of the reference)", or "" where that is not known."""
    line = line_of(node)
    return "" if line is None else f" (line {line} of the reference)"


def _changed(node: Node) -> Iterator[Node]:
    """The tensors that an op changes."""
    import torch

    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for at, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name)
            for each in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(each, torch.fx.Node):
                    yield each


def _root(node: Node) -> Node:
    """What a tensor is a view of, or shows after a change in place."""
    while node.op == "call_function":
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.arguments or not schema.returns or not node.all_input_nodes:
            break
        if schema.arguments[0].alias_info is None or schema.returns[0].alias_info is None:
            break
        node = node.all_input_nodes[0]
    return node


def _called(node: Node, signature: Any) -> str:
    return _called_by_name(node.name, signature)


def _called_by_name(name: str, signature: Any) -> str:
    if name in signature.inputs_to_parameters:
        return f"the parameter {signature.inputs_to_parameters[name]!r}"
    if name in signature.inputs_to_buffers:
        return f"the buffer {signature.inputs_to_buffers[name]!r}"
    return f"its argument {name!r}"


def _held(program: ExportedProgram, model: Module, inputs: Sequence[Any]) -> Iterable[tuple[str, torch.Tensor]]:
    """The tensor of each placeholder."""
    import torch.utils._pytree as pytree

    signature = program.graph_signature
    for name, path in {**signature.inputs_to_parameters, **signature.inputs_to_buffers}.items():
        yield name, _attribute(model, path)
    for name, leaf in zip(signature.user_inputs, pytree.tree_leaves(list(inputs)), strict=False):
        if _is_tensor(leaf):
            yield str(name), leaf


def _attribute(model: Module, path: str) -> Any:
    found: Any = model
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
