"""functional: an export of which only plain changes are made in place, as the same export without such changes.

torch makes an export functional by tracing it twice more, which takes longer than the export itself. Networks of
convolutions change nothing but the running statistics of their norms, and results that an activation overwrites. For these
the graph is written anew here, op by op, with the names that torch gives. What is not known to be plain is left to torch.
"""

from __future__ import annotations

import copy
import logging
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mtmc.rewrite.effects import SAME_VALUES
from mtmc.task.tensors import storage_key

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

_log = logging.getLogger(__name__)

_NORM = "aten.batch_norm.default"
_KEPT_WHOLE = frozenset(
    f"aten.{name}.{kind}"
    for name, kind in (
        *((f"conv{rank}d", "default") for rank in (1, 2, 3)),
        *((f"max_pool{rank}d", "default") for rank in (1, 2, 3)),
        *((f"adaptive_avg_pool{rank}d", "default") for rank in (1, 2, 3)),
        ("conv_transpose1d", "default"),
        ("conv_transpose2d", "input"),
        ("conv_transpose3d", "input"),
        ("avg_pool1d", "default"),
        ("linear", "default"),
        ("layer_norm", "default"),
        ("group_norm", "default"),
        ("matmul", "default"),
        ("softmax", "int"),
        ("log_softmax", "int"),
    )
)
"""Ops that are made of others, and that torch leaves whole nevertheless."""
_FORMED = ("aten.flatten.using_ints", "aten.reshape.default", "aten.contiguous.default")
"""Ops that become a view of their operand, or a copy."""
_NORM_ARGUMENTS = 8
"""How many arguments of a norm are those of the one that gives its statistics: all but what concerns cuDNN."""
_STATISTICS = 4
"""How many results a norm has besides the first: mean and deviation of what it was given, and its running statistics."""


class _NotPlain(Exception):
    """Torch has to say what this becomes."""


def made_functional(program: ExportedProgram) -> ExportedProgram | None:
    """The export without changes in place, as `run_decompositions({})` gives it; None for one that is not plain.

    What it changes are buffers, each in memory of its own that no result shows, and that stays the module's.
    """
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    try:
        with unset_fake_temporarily():  # the export's tensors are of another mode than the model's
            return _Writer(program).program()
    except _NotPlain:
        return None
    except Exception:  # a torch whose exports are built otherwise
        _log.warning("an export is made functional by torch, which takes longer", exc_info=True)
        return None


@dataclass(eq=False)
class _Writer:
    """Writes the ops of an export one by one; `now` has what stands for each of its nodes at the moment."""

    source: ExportedProgram
    now: dict[Node, Node] = field(default_factory=dict)
    parts: dict[Node, list[Node]] = field(default_factory=dict)
    """The results of an op that has several."""
    homes: dict[Node, list[Node]] = field(default_factory=dict)
    """All nodes whose tensor may lie where a node's does, in order."""
    taken: set[str] = field(default_factory=set)
    """Names of inputs, without their numbers."""

    def __post_init__(self) -> None:
        import torch

        self.graph = torch.fx.Graph()
        self.buffers = self.source.graph_signature.inputs_to_buffers
        by_storage: dict[int, Node] = {}
        for node in self.source.graph.nodes:
            self.homes[node] = [node]
            keys = list(map(storage_key, _tensors(node)))
            others = [by_storage.setdefault(key, node) for key in keys]
            # what is passed on has gone, and had a storage of its own: the ops that give their operand again tell more
            others += node.all_input_nodes[:1] if node.op == "call_function" and _gives_again(node.target) else []
            for other in others:
                self._joined(node, other)

    def _joined(self, node: Node, other: Node) -> None:
        """Have two nodes' tensors lie in one place."""
        if self.homes[node] is not self.homes[other]:
            together = sorted(self.homes[node] + self.homes[other])
            self.homes |= dict.fromkeys(together, together)

    def program(self) -> ExportedProgram:
        """All of it. Raises: _NotPlain."""
        from torch.export import ExportedProgram

        signature = self.source.graph_signature
        if signature.inputs_to_lifted_tensor_constants or signature.inputs_to_lifted_custom_objs:
            raise _NotPlain
        for node in self.source.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                outputs = self._outputs(node)
            else:
                raise _NotPlain
        self.graph.eliminate_dead_code()
        return ExportedProgram(
            root=self.source.graph_module,
            graph=self.graph,
            graph_signature=outputs,
            state_dict=self.source.state_dict,
            range_constraints=self.source.range_constraints,
            module_call_graph=copy.deepcopy(self.source.module_call_graph),
            example_inputs=self.source.example_inputs,
            constants=self.source.constants,
        )

    def _placeholder(self, node: Node) -> None:
        made = self.graph.placeholder(node.name)
        if made.name != node.name:
            raise _NotPlain
        made.meta = dict(node.meta)
        self.now[node] = made
        self.taken.add(re.sub(r"_\d+$", "", node.name))

    def _call(self, node: Node) -> None:
        import torch

        if node.target is operator.getitem:
            parent, at = node.args
            if parent not in self.parts:
                raise _NotPlain
            self.now[node] = self.parts[parent][at]  # type: ignore[index]
            return
        if "val" not in node.meta:
            raise _NotPlain
        if _is_number(node.meta["val"]):
            if isinstance(node.target, torch._ops.OpOverload) and not str(node.target).startswith("aten.sym_"):
                raise _NotPlain  # a number out of a tensor
            self._write(node, node.target)
            return
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            raise _NotPlain
        if str(node.target) == _NORM:
            self._norm(node)
        elif node.target._schema.is_mutable:
            self._changed(node)
        elif str(node.target) in _FORMED:
            self._formed(node)
        elif str(node.target) in _KEPT_WHOLE or not (
            str(node.target) in SAME_VALUES or _is_made_of_others(node.target)
        ):
            self._write(node, node.target)
        else:
            raise _NotPlain

    def _given(self, item: Any) -> Any:
        """An argument with what its nodes are now."""
        from torch.fx.node import map_arg

        return map_arg(item, lambda node: self.now[node])

    def _write(self, node: Node, target: Any) -> None:
        """The node as an op of this target, with what its arguments are now; and its results, where it has several."""
        name = getattr(getattr(target, "overloadpacket", target), "__name__", "")
        made = self._named(node, target, self._given(node.args), name, node.meta["val"])
        made.kwargs = self._given(dict(node.kwargs))
        if isinstance(node.meta["val"], (list, tuple)):
            self.parts[node] = self._parts(node, made)
        self.now[node] = made

    def _named(self, node: Node, target: Any, args: Any, name: str, value: Any) -> Node:
        """A new node in the place of one, named as torch names what it traces. value: of it, without data. Raises: _NotPlain
        where an input has that name."""
        wanted = self.graph._target_to_str(name)
        if wanted in self.taken:
            raise _NotPlain
        made = self.graph.create_node("call_function", target, args, name=wanted)
        made.meta = {**node.meta, "val": value}
        return made

    def _parts(self, node: Node, made: Node) -> list[Node]:
        return [
            self._named(node, operator.getitem, (made, at), "getitem", value)
            for at, value in enumerate(made.meta["val"])
        ]

    def _formed(self, node: Node) -> None:
        """A view, or a copy in order and a view of that; what is in order already is itself. Raises: _NotPlain."""
        import torch

        aten, name = torch.ops.aten, str(node.target).split(".")[1]
        operand, *rest = node.args
        if node.kwargs or not isinstance(operand, torch.fx.Node) or (name == "contiguous" and rest):
            raise _NotPlain
        own, value = operand.meta["val"], node.meta["val"]
        if storage_key(own) != storage_key(value):
            ordered = own.clone(memory_format=torch.contiguous_format)
            made = self._named(node, aten.clone.default, (self.now[operand],), "clone", ordered)
            made.kwargs = {"memory_format": torch.contiguous_format}
            viewed = (made, list(value.shape))
            self.now[node] = made
            if name != "contiguous":
                self.now[node] = self._named(node, aten._unsafe_view.default, viewed, "_unsafe_view", value)
        elif name == "reshape":
            self.now[node] = self._named(
                node, aten.view.default, (self.now[operand], *self._given(rest)), "view", value
            )
        elif _same_form(own, value):
            self.now[node] = self.now[operand]
        elif name == "flatten":
            viewed = (self.now[operand], list(value.shape))
            self.now[node] = self._named(node, aten.view.default, viewed, "view", value)
        else:
            raise _NotPlain

    def _norm(self, node: Node) -> None:
        """A norm that keeps running statistics gives them as results."""
        import torch

        given, _, _, mean, variance, training, *_ = node.args
        if not training or not isinstance(mean, torch.fx.Node) or not isinstance(variance, torch.fx.Node):
            raise _NotPlain
        values = [each.meta["val"] for each in (given, mean, variance)]  # type: ignore[union-attr]
        plain = values[0].dim() > 1 and isinstance(values[0].shape[1], int) and values[1].shape == values[2].shape
        if not plain or {each.dtype for each in values} not in ({torch.float32}, {torch.float64}):
            raise _NotPlain
        if mean is variance or not all(self._is_own_buffer(each) for each in (mean, variance)):
            raise _NotPlain
        target = torch.ops.aten._native_batch_norm_legit_functional.default
        made = self._named(
            node,
            target,
            self._given(node.args[:_NORM_ARGUMENTS]),
            target.overloadpacket.__name__,
            (node.meta["val"], *(values[1],) * _STATISTICS),
        )
        parts = self._parts(node, made)
        self.now |= {node: parts[0], mean: parts[3], variance: parts[4]}

    def _changed(self, node: Node) -> None:
        """An op that overwrites its first operand becomes the one that makes a new tensor."""
        import torch

        packet, kind = node.target.overloadpacket.__name__, node.target._overloadname  # type: ignore[union-attr]
        new = getattr(getattr(torch.ops.aten, packet.removesuffix("_"), None), kind, None)
        target, *others = node.args
        if new is None or packet == "copy_" or not packet.endswith("_") or new._schema.is_mutable or node.kwargs:
            raise _NotPlain
        if len(new._schema.arguments) != len(node.target._schema.arguments) or _gives_again(new):  # type: ignore[union-attr]
            raise _NotPlain
        if _is_made_of_others(new) or torch.Tag.nondeterministic_seeded in new.tags:
            raise _NotPlain
        if not isinstance(target, torch.fx.Node):
            raise _NotPlain
        value = target.meta.get("val")
        if not isinstance(value, torch.Tensor) or not self._may_overwrite(target):
            raise _NotPlain
        if not all(_goes_along(value, each) for each in others):
            raise _NotPlain
        self._write(node, new)
        for each in self.homes[target]:
            if each in self.now:
                self.now[each] = self.now[node]

    def _may_overwrite(self, node: Node) -> bool:
        """Whether a tensor is a buffer, or an op's own result, which nothing else shows a part or another form of."""
        import torch

        value = node.meta["val"]
        first, *rest = self.homes[node]
        if first.op == "placeholder" and first.name not in self.buffers:
            return False
        for each in rest:
            schema = getattr(each.target, "_schema", None)
            if schema is None or not schema.is_mutable or not _same_form(each.meta["val"], value):
                return False
        return isinstance(first.meta["val"], torch.Tensor) and _same_form(first.meta["val"], value)

    def _is_own_buffer(self, node: Node) -> bool:
        return node.op == "placeholder" and node.name in self.buffers and self.homes[node] == [node]

    def _outputs(self, node: Node) -> Any:
        """Write the output, what has changed first. Returns: the signature."""
        from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument

        signature = self.source.graph_signature
        changed = {
            each: made for each, made in self.now.items() if each.op == "placeholder" and made.op == "call_function"
        }
        returned = node.args[0]
        results = {self.now[each] for each in node.all_input_nodes}
        if any(each in self.homes[one] for each in node.all_input_nodes for one in changed):
            raise _NotPlain  # a result that is a buffer, or a part of it
        if results & set(changed.values()) or not isinstance(returned, (list, tuple)):
            raise _NotPlain
        order = [each for each in self.now if each in changed]
        made = self.graph.output((*(self.now[each] for each in order), *self._given(tuple(returned))))
        made.meta = dict(node.meta)
        specs = [
            OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(self.now[each].name), self.buffers[each.name])
            for each in order
        ]
        for spec in signature.output_specs:
            if spec.kind != OutputKind.USER_OUTPUT:
                raise _NotPlain
            name = getattr(spec.arg, "name", None)
            value = next((self.now[each] for each in node.all_input_nodes if each.name == name), None)
            arg = spec.arg if value is None else TensorArgument(value.name)
            specs.append(OutputSpec(spec.kind, arg, spec.target))
        return ExportGraphSignature(list(signature.input_specs), specs)


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    import torch
    from torch.utils._pytree import tree_leaves

    if node.op != "output":
        yield from (each for each in tree_leaves(node.meta.get("val")) if isinstance(each, torch.Tensor))


def _is_number(value: Any) -> bool:
    import torch

    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def _is_made_of_others(target: Any) -> bool:
    """Whether torch decomposes an op by itself."""
    import torch

    keys = torch._C.DispatchKey
    if {keys.CompositeImplicitAutograd, keys.Autograd} & set(target.py_kernels):
        return True
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd"))


def _gives_again(target: Any) -> bool:
    """Whether an op may give its operand in another form, or as it is. One that torch decomposes may, whatever it says."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return target is operator.getitem
    again = any(each.alias_info is not None for each in schema.returns)
    return again or (_is_made_of_others(target) and str(target) not in (*_KEPT_WHOLE, _NORM))


def _same_form(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dim() != other.dim() or one.dtype != other.dtype:
        return False
    forms = [(*each.shape, *each.stride(), each.storage_offset()) for each in (one, other)]
    return all(_surely_same(a, b) for a, b in zip(*forms, strict=True))


def _surely_same(one: Any, other: Any) -> bool:
    """Whether two sizes are the same number, or the same expression; asks nothing of the symbols."""
    a, b = (getattr(getattr(each, "node", None), "expr", each) for each in (one, other))
    return bool(a == b)


def _goes_along(value: torch.Tensor, other: Any) -> bool:
    """Whether a new tensor of both has the form of the first: the other is of its dtype, and lies in order as it does."""
    import torch

    if isinstance(other, torch.fx.Node):
        tensor = other.meta.get("val")
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != value.dtype or tensor.dim() != value.dim():
            return False
        return _same_form(tensor, value)
    if isinstance(other, (list, tuple)):
        return False
    return other is None or isinstance(other, (int, str, bool)) or value.dtype.is_floating_point
