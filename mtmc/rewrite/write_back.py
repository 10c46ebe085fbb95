"""write_back: how a version leaves behind what the reference changes: its inputs and its module's buffers.

A torch call may change a tensor where it lies (`self.cache.index_copy_(...)`) if nothing reads the old values later, and so
may a kernel that goes by elements, if it reads each old one where it writes the new one. All other new values are made
first, and copied into their places right before return.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.overloads import overload
from mtmc.rewrite.places_kept import written_where_read
from mtmc.rewrite.plan import Plan, Stage

NORM = "aten._native_batch_norm_legit_functional.default"
"""A batch norm in training whose new running statistics are results 3 and 4."""
_ADD = "aten.add.Tensor"
_SCATTERED = {
    "aten.select_scatter.default": "select",
    "aten.slice_scatter.default": "slice",
    "aten.diagonal_scatter.default": "diagonal",
}
"""Ops that give a tensor with another one in a part of it, and the view that is that part."""
_AS_OPS = ("index_put", "slice")
"""Ops whose method is missing or does not take what the op takes."""
_MAY_RETURN_ITS_OPERAND = ("dropout", "feature_dropout", "alpha_dropout", "einsum", "meshgrid", "type_as")
"""Ops that may give a view of an operand, or the operand, though their schema does not say so."""


@dataclass(frozen=True)
class WriteBack:
    """What is to be done beside the calls of a plan.

    in_place: op -> (place of its argument, place of its result, the changed tensor) for each that it changes where it lies.
    placed: kernel's stage -> (value, changed tensor) for each that it writes where that lies.
    copied: mutations that are left to do at the end: (changed tensor, value, whether it is another tensor then).
    cloned: values that must be copied before anything is changed at the end, since they may lie in what is changed.
    raised: ops that add a number to a tensor and that nothing reads: (op, changed tensor, number). They are left for the
    end, where one launch does for the counters of all norms.
    """

    in_place: Mapping[str, tuple[tuple[int, int, str], ...]] = field(default_factory=dict)
    placed: Mapping[Stage, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    copied: tuple[tuple[str, str, bool], ...] = ()
    cloned: frozenset[str] = frozenset()
    raised: tuple[tuple[str, str, int | float], ...] = ()


def write_back(graph: Graph, plan: Plan) -> WriteBack:
    """How a plan's version leaves behind what its graph's mutations say."""
    if not graph.mutations:
        return WriteBack()
    return _Placing(graph, plan).found()


def in_place_text(op: Op, target: str, argument: Any, kwargs: str) -> str:
    """The call that changes `target` (an expression) where it lies. argument: text of an argument. kwargs: their text."""
    name = op.target.split(".")[1]
    rest = [argument(item) for item in op.args[1:]] + ([kwargs] if kwargs else [])
    if op.target in _SCATTERED:
        view = _SCATTERED[op.target]
        call = "torch.ops.aten.slice.Tensor" if view == "slice" else f"torch.{view}"
        return f"{call}({', '.join([target, *rest[1:]])}).copy_({rest[0]})"
    if name in _AS_OPS:
        return f"torch.ops.aten.{name}_.{op.target.split('.')[2]}({', '.join([target, *rest])})"
    return f"{target}.{name}_({', '.join(rest)})"


class _Placing:
    """Goes over a plan's stages in order, and keeps account of what lies in which changed tensor."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        self._graph, self._plan = graph, plan
        self._targets = {each.target for each in graph.mutations if not each.rebound}
        self._whole = {target: target for target in self._targets}  # value -> the changed tensor that it is now
        self._memory = {target: frozenset([target]) for target in self._targets}  # value -> what it may lie in
        self._in_place: dict[str, tuple[tuple[int, int, str], ...]] = {}
        self._raised: list[tuple[str, str, int | float]] = []
        self._placed: dict[Stage, tuple[tuple[str, str], ...]] = {}

    def found(self) -> WriteBack:
        for at, stage in enumerate(self._plan.stages):
            if not stage.is_torch:
                self._place(stage, at)
                continue
            op = self._graph.by_name[stage.ops[0]]
            pairs = self._pairs(op)
            if pairs and all(self._allowed(op, pair, at) for pair in pairs):
                if self._counts(op):
                    self._raised.append((op.name, pairs[0][2], op.args[1]))
                self._in_place[op.name] = tuple(pairs)
                for _, made, target in pairs:
                    self._whole[op.outputs[made]] = target
                    self._memory[op.outputs[made]] = frozenset([target])
            elif may_alias(op):
                lies = self._lies_in(op.refs())
                self._memory |= {output: lies for output in op.outputs if lies}
        return self._rest()

    def _rest(self) -> WriteBack:
        left = [
            (each.target, each.value, each.rebound)
            for each in self._graph.mutations
            if each.rebound or self._whole.get(each.value) != each.target
        ]
        written = {target for target, _, rebound in left if not rebound} | {
            target for pairs in self._in_place.values() for _, _, target in pairs
        }
        kept = {value for _, value, _ in left} | (self._graph.returned - self._graph.shared)
        cloned = frozenset(value for value in kept if self._memory.get(value, frozenset()) & written)
        return WriteBack(self._in_place, self._placed, tuple(left), cloned, tuple(self._raised))

    def _place(self, stage: Stage, at: int) -> None:
        """Note what a kernel may write where it lies."""
        pairs = tuple(
            (each.value, each.target)
            for each in self._graph.mutations
            if each.target in self._targets
            and self._graph.producer.get(each.value) in stage.ops
            and self._missed_by_none(each.value, each.target, at)
        )
        pairs = written_where_read(self._graph, stage, pairs) if pairs else ()
        if pairs:
            self._placed[stage] = pairs
            self._whole |= dict(pairs)
            self._memory |= {value: frozenset([target]) for value, target in pairs}

    def _missed_by_none(self, made: str, target: str, at: int) -> bool:
        """Whether nothing but a kernel has to do with the old values of a tensor that it changes where it lies."""
        old = {value for value, lies in self._memory.items() if target in lies}
        later = {ref for each in self._plan.stages[at + 1 :] for name in each.ops for ref in self._graph.reads[name]}
        kept = made in self._graph.returned and made not in self._graph.shared
        return old == {target} and not (kept or target in self._graph.results() or target in later)

    def _counts(self, op: Op) -> bool:
        """Whether an op adds a number, and nothing but the changed tensor has to do with the sum."""
        number = len(op.args) == 2 and isinstance(op.args[1], (int, float)) and not op.kwargs
        result = op.outputs[0]
        return op.target == _ADD and number and not self._graph.readers(result) and result not in self._graph.returned

    def _pairs(self, op: Op) -> list[tuple[int, int, str]]:
        """What an op would change where it lies: place of the argument, place of the result, and the tensor."""
        places = [(3, 3), (4, 4)] if op.target == NORM else [(0, 0)] if _has_in_place(op) else []
        pairs = []
        for read, made in places:
            item = op.args[read] if read < len(op.args) else None
            target = self._whole.get(item.name) if isinstance(item, Ref) else None
            if target is None or not isinstance(item, Ref) or op.outputs[made] not in self._graph.used:
                return []
            old, new = self._graph.values[target], self._graph.values[op.outputs[made]]
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                return []
            pairs.append((read, made, target))
        return pairs

    def _allowed(self, op: Op, pair: tuple[int, int, str], at: int) -> bool:
        """Whether nothing misses the old values of a tensor that an op changes where it lies."""
        read, made, target = pair
        old = {value for value, lies in self._memory.items() if target in lies}
        others = [ref for place, item in enumerate(op.args) if place != read for ref in _refs(item)]
        others += _refs(tuple(op.kwargs.values()))
        if old & set(others) or (old - {target}) & self._graph.results():
            return False
        if op.outputs[made] in self._graph.returned and op.outputs[made] not in self._graph.shared:
            return False
        if target in self._graph.results():  # forward returns, or keeps elsewhere, what it held before
            return False
        later = {ref for stage in self._plan.stages[at + 1 :] for name in stage.ops for ref in self._graph.reads[name]}
        return not old & later

    def _lies_in(self, refs: Collection[str]) -> frozenset[str]:
        return frozenset(target for ref in refs for target in self._memory.get(ref, ()))


def _refs(item: Any) -> list[str]:
    if isinstance(item, Ref):
        return [item.name]
    return [ref for part in item for ref in _refs(part)] if isinstance(item, (tuple, list)) else []


def may_alias(op: Op) -> bool:
    """Whether a result of a torch call may share memory with what it reads."""
    if op.target.split(".")[1] in _MAY_RETURN_ITS_OPERAND:
        return True
    schema = getattr(overload(op.target), "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


def _has_in_place(op: Op) -> bool:
    """Whether torch has the op as one that changes its first argument, with the same other arguments."""
    import torch

    if op.target in _SCATTERED:
        return True
    space, name, kind = [*op.target.split("."), "", ""][:3]
    other = overload(f"{space}.{name}_.{kind}")
    own = overload(op.target)
    if other is None or own is None or len(op.outputs) != 1:
        return False
    if not hasattr(torch.Tensor, f"{name}_") and name not in _AS_OPS:
        return False
    wanted, given = ([argument.name for argument in each._schema.arguments] for each in (own, other))
    return bool(given) and wanted == given


def counted(sums: Sequence[tuple[str, str, int | float]]) -> list[str]:
    """Statements that add numbers to tensors, one call for all of a dtype and number. sums: (tensor, dtype, number)."""
    alike: dict[tuple[str, int | float], list[str]] = {}
    for target, dtype, number in sums:
        alike.setdefault((dtype, number), []).append(target)
    return [
        f"{targets[0]}.add_({number!r})"
        if len(targets) == 1
        else f"torch._foreach_add_([{', '.join(targets)}], {number!r})"
        for (_, number), targets in alike.items()
    ]


def grouped(copies: Sequence[tuple[str, str, str]]) -> list[str]:
    """Statements that copy values into tensors, one call for all of a dtype. copies: (tensor, value, dtype), as text."""
    by_dtype: dict[str, list[tuple[str, str]]] = {}
    for target, value, dtype in copies:
        by_dtype.setdefault(dtype, []).append((target, value))
    lines = []
    for pairs in by_dtype.values():
        if len(pairs) == 1:
            lines.append(f"{pairs[0][0]}.copy_({pairs[0][1]})")
        else:
            targets, values = (", ".join(texts) for texts in zip(*pairs, strict=True))
            lines.append(f"torch._foreach_copy_([{targets}], [{values}])")
    return lines
