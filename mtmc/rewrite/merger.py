"""merger: the same forward exported at several sets of shapes, read side by side as one graph."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mtmc.errors import TaskError
from mtmc.rewrite.effects import SAME_VALUES, Sharing
from mtmc.rewrite.export import copied
from mtmc.rewrite.graph import CONSTANT, Current, Graph, Mutation, Op, Ref, Tensor, Varying, in_tuple
from mtmc.rewrite.lines import line_of
from mtmc.rewrite.passing import passed_on

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node
    from torch.nn import Module

_WORDS = (
    "a a_bits acc across across_d across_h across_mask across_w along along_mask at_d at_h at_w b b_bits bag batch before "
    "begin block block_cols block_m block_n blocks_k blocks_m blocks_n both carry channels chunk col_mask cols columns "
    "count_d count_h count_w counted counts d described down each each_key each_key_of each_of end equal filters "
    "first first_d first_h first_row first_w fits_d fits_h fits_w float from_d from_end from_h from_w given group "
    "group_size h half_mask held in_d in_h in_w inner inside inside_d inside_h inside_w k_mask ks last last_col lead "
    "left lowest made made_ptr made_value made_value_bits mask max member min n_across n_along n_bags n_batch "
    "n_channels n_cols n_counted n_each n_elements n_inner n_inside n_k n_kept n_m n_mask n_n n_parts n_pixels "
    "n_rows n_sources number offs others out_d out_h out_mask out_w outer own own_key packs part parts phase phase_d "
    "phase_h phase_w pixel places planes positions program rank right row row_mask rows self share shares split "
    "start step tap tap_d tap_h tap_w tap_weight taps_d taps_h taps_w their their_key there tile tiles tl to_d to_h "
    "to_w torch transposed triton turn turns w widths "
    "gl gluon hopper width"
)
RESERVED = frozenset(_WORDS.split())
"""Names that generated kernels and launchers use for themselves."""
_MADE_OF_OTHERS = re.compile(r".*_(tiles|ptr|kernel|stride_\d+)")
"""Names that they make of a value's or a kernel's."""
MAX_CONSTANT = 64
"""Elements of a tensor that is written into the text of a version."""
LONGEST = 8
"""Elements of a tuple or list on a module, whose numbers a version may be written with."""
_FUNCTIONAL_NORM = re.compile("^_native_batch_norm_legit(_functional|_no_training|_no_stats)?")
"""What a batch norm is called where its running statistics are results instead of being changed in place."""
_PUBLIC = {
    f"aten.__{name}__.{kind}": f"aten.bitwise_{name}.{kind}"
    for name in ("and", "or", "xor")
    for kind in ("Tensor", "Scalar")
} | {
    f"aten.__{letter}shift__.{kind}": f"aten.bitwise_{side}_shift.{public}"
    for letter, side in (("l", "left"), ("r", "right"))
    for kind, public in (("Tensor", "Tensor"), ("Scalar", "Tensor_Scalar"))
}
"""Ops behind Python's operators, and what they are called in public."""


class NotAlike(Exception):
    """Two variants of a task export to different ops."""


class Merger:
    """Reads the same node of all exports side by side."""

    def __init__(
        self,
        programs: list[ExportedProgram],
        models: list[Module],
        labels: list[str],
        sharing: Sharing | None = None,
    ) -> None:
        """sharing: of the first export; where it is left out, nothing is known of how results lie in memory."""
        self.sharing = sharing or Sharing()
        self.programs = programs
        self.models = models
        self.labels = labels
        self.names: dict[str, str] = {}
        self.values: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.output: Any = None
        self.mutations: list[Mutation] = []
        self.shared: frozenset[str] = frozenset()

    def graph(self, rows: list[tuple[Node, ...]]) -> Graph:
        """The graph. rows: the same node of each export, in order. Raises: TaskError; NotAlike where the exports differ."""
        signature = self.programs[0].graph_signature
        parameters = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        constants = signature.inputs_to_lifted_tensor_constants
        arguments = _arguments(self.models[0])
        inputs: dict[str, str] = {}
        fixed: dict[str, tuple[Any, ...]] = {}
        for nodes in rows:
            node = nodes[0]
            if node.op == "placeholder":
                argument = arguments.get(node.name, node.name)
                name = self._rename(node.name, parameters.get(node.name, argument).replace(".", "_"))
                self._keep(nodes, name)
                if node.name in constants:
                    self._constant(name, constants[node.name])
                if node.name in signature.user_inputs and name in self.values:
                    inputs[name] = argument
                elif name not in self.values:
                    fixed[argument] = tuple(each.meta["val"] for each in nodes)
            elif node.op == "get_attr":
                raise TaskError(
                    "forward runs calls in a mode of their own (torch.autocast) or under a condition of a tensor's value "
                    "(torch.cond): leave that out, cast tensors with .to, choose with torch.where"
                )
            elif node.op == "call_function":
                self._call(nodes)
            elif node.op == "output":
                self._results([_listed(each.args[0]) for each in nodes])
        paths = {self.names[node]: path for node, path in parameters.items() if node in self.names}
        return Graph(
            inputs=tuple(inputs),
            argument_of=inputs,
            parameters=paths,
            registered=dict(_registered(self.models[0], paths)),
            ops=_live(self.ops, (self.output, tuple(Ref(each.value) for each in self.mutations))),
            values=self.values,
            output=_unflatten(self.programs[0], self.output),
            mutations=tuple(self.mutations),
            shared=self.shared,
            attributes=_attributes(self.models),
            variants=tuple(self.labels),
            fixed=fixed,
        )

    def _results(self, columns: list[list[Any]]) -> None:
        """What forward changes, and what it returns. columns: the outputs of each export."""
        signature = self.programs[0].graph_signature
        of_path = {path: name for name, path in signature.inputs_to_buffers.items()}
        returned: list[Any] = []
        for spec, *column in zip(signature.output_specs, *columns, strict=True):
            value = self._convert(column)
            if "MUTATION" not in spec.kind.name:
                returned.append(value)
                continue
            target = self.names[of_path.get(str(spec.target), str(spec.target))]
            if value.name != target:
                self.mutations.append(Mutation(target, value.name, str(spec.target) in self.sharing.rebound))
        changed = {mutation.target: mutation for mutation in self.mutations}
        for at, name in self.sharing.same.items():
            mutation = changed.get(self.names[name])
            if mutation is not None and not mutation.rebound and returned[at] == Ref(mutation.value):
                returned[at] = Current(mutation.target)
        self.output = tuple(returned)
        self.shared = frozenset(returned[at].name for at in self.sharing.shared if isinstance(returned[at], Ref))

    def _rename(self, node: str, wanted: str) -> str:
        """Give a node's value a name of its own that no kernel uses for something else."""
        name = wanted
        while name in RESERVED or name in self.names.values() or _MADE_OF_OTHERS.fullmatch(name):
            name += "_"
        self.names[node] = name
        return name

    def _constant(self, name: str, target: str) -> None:
        """A tensor that forward makes of numbers is an op without inputs. Raises: TaskError for a large one."""
        tensors = [program.constants[target] for program in self.programs]
        if any(tensor.numel() > MAX_CONSTANT for tensor in tensors):
            raise TaskError(
                f"forward makes a constant tensor of {tensors[0].numel()} elements; register it as a buffer in __init__"
            )
        if any(repr(tensor.tolist()) != repr(tensors[0].tolist()) for tensor in tensors):  # NaN is no other number here
            raise NotAlike("another constant tensor")
        self.ops.append(Op(name, CONSTANT, (tensors[0].tolist(), str(tensors[0].dtype)), {}, (name,), None))

    def _keep(self, nodes: tuple[Node, ...], name: str, pick: int | None = None) -> None:
        import torch

        found = [node.meta["val"] if pick is None else node.meta["val"][pick] for node in nodes]
        if not all(isinstance(value, torch.Tensor) for value in found):
            return
        if any(isinstance(size, torch.SymInt) for value in found for size in value.shape):
            raise TaskError(
                f"the size of {name} depends on the values of tensors (masked_select, nonzero): choose with torch.where"
            )
        if len({value.dim() for value in found}) > 1:
            raise NotAlike(f"{name} has another number of dimensions")
        shape = tuple(zip(*[tuple(int(size) for size in value.shape) for value in found], strict=True))
        contiguous = all(value.is_contiguous() for value in found)
        strides = () if contiguous else tuple(zip(*[tuple(map(int, value.stride())) for value in found], strict=True))
        self.values[name] = Tensor(shape, str(found[0].dtype).removeprefix("torch."), contiguous, strides)

    def _call(self, nodes: tuple[Node, ...]) -> None:
        import torch

        node = nodes[0]
        if "val" not in node.meta:  # a check, which gives nothing
            return
        if node.target is operator.getitem:
            parent, index = node.args
            if len({each.args[1] for each in nodes}) > 1:
                raise NotAlike("another element of a tuple")
            assert isinstance(parent, torch.fx.Node)
            self.names[node.name] = f"{self.names[parent.name]}_{index}"
            return
        same = copied(node) or (node.args[0] if str(node.target) in SAME_VALUES else None)
        if all(passed_on(each) is not None for each in nodes):
            same = passed_on(node)
        if same is not None:
            self.names[node.name] = self._convert([same]).name
            return
        name = self._rename(node.name, _FUNCTIONAL_NORM.sub("batch_norm", node.name))
        if isinstance(node.meta.get("val"), (tuple, list)):
            outputs = tuple(f"{name}_{index}" for index in range(len(node.meta["val"])))
            if len({len(each.meta["val"]) for each in nodes}) > 1:
                raise NotAlike(f"{node.name} gives another number of values")
            for index, output in enumerate(outputs):
                self._keep(nodes, output, index)
        else:
            outputs = (name,)
            self._keep(nodes, name)
        kwargs = {key: self._convert([each.kwargs[key] for each in nodes]) for key in node.kwargs}
        args = self._convert([each.args for each in nodes])
        target = str(node.target)
        self.ops.append(Op(name, _PUBLIC.get(target, target), args, kwargs, outputs, line_of(node)))

    def _convert(self, column: list[Any]) -> Any:
        """The same argument of all exports as one: Ref, constant, Varying or a tuple of these."""
        import torch

        first = column[0]
        if isinstance(first, torch.fx.Node):
            return Ref(self.names[first.name])
        if isinstance(first, (tuple, list)):
            if len({len(each) for each in column}) > 1:
                raise NotAlike("an argument list of another length")
            return tuple(self._convert(list(part)) for part in zip(*column, strict=True))
        if all(each == first or (each != each and first != first) for each in column):
            return first
        if all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in column):
            return Varying(tuple(column))
        raise NotAlike(f"argument {first!r} differs")


def _listed(items: Any) -> list[Any]:
    return list(items)


def _live(ops: list[Op], output: Any) -> tuple[Op, ...]:
    """The ops whose results are used: exports keep, for instance, size checks that nothing reads."""
    needed = {ref.name for ref in _flat(output)}
    live = []
    for op in reversed(ops):
        if needed & set(op.outputs):
            live.append(op)
            needed |= set(op.refs())
    return tuple(reversed(live))


def _flat(item: Any) -> list[Ref]:
    if isinstance(item, Ref):
        return [item]
    return [ref for part in item for ref in _flat(part)] if isinstance(item, (tuple, list)) else []


def _unflatten(program: ExportedProgram, flat: Any) -> Any:
    """forward's result in its own structure: a value, a tuple, a list or a dict of values."""
    import torch.utils._pytree as pytree

    return pytree.tree_unflatten(list(flat), program.call_spec.out_spec)


def _registered(model: Module, paths: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Values that are the model's own tensors, and the dictionary that has them; see `Graph.registered`."""
    for value, path in paths.items():
        for name in ("_parameters", "_buffers"):
            if path in vars(model)[name]:
                yield value, name


def _arguments(model: Module) -> dict[str, str]:
    """forward's arguments by the names that exports give them: in lower case, with single underscores."""
    names = list(inspect.signature(model.forward).parameters)
    exported = [re.sub("[^a-zA-Z0-9]+", "_", name).lower() for name in names]
    return {key: name for key, name in zip(exported, names, strict=True) if exported.count(key) == 1}


def _attributes(models: list[Module]) -> dict[str, tuple[float, ...]]:
    """Numbers that modules keep as attributes, by path from the model, where all variants have them; of tuples and lists
    ("conv.padding.0") those that differ between variants."""
    columns = [dict(_numbers(model)) for model in models]
    found = {
        path: tuple(column[path] for column in columns)
        for path in columns[0]
        if all(path in column for column in columns)
    }
    return {path: values for path, values in found.items() if not in_tuple(path) or len(set(values)) > 1}


def _numbers(model: Module) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            parts = {f"{name}.{at}": part for at, part in enumerate(value)} if isinstance(value, (tuple, list)) else {}
            for own, part in (parts if len(parts) <= LONGEST else {}).items() if parts else [(name, value)]:
                if name.startswith("_") or isinstance(part, bool) or not isinstance(part, (int, float)):
                    continue
                found.append((f"{prefix}.{own}" if prefix else own, part))
    return found
