"""graphs: what a task computes as plain data: ops, edges and shapes; and whether two tasks compute the same.

`GraphFacts` is what the features of an observation know of the task's graph. It is taken from an exported graph in a live
search, and kept as JSON with recorded trees, so both give the same features.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from mtmc.rewrite.graph import Graph, Op

Role = Literal["input", "parameter", "made"]

_SYMMETRIC = ("aten.add.Tensor", "aten.mul.Tensor", "aten.maximum.default", "aten.minimum.default", "aten.max.other")
"""Ops whose operands may change places."""
_ROUNDS = 3


@dataclass(frozen=True)
class ValueFacts:
    """A tensor at the full shapes. dtype: torch's name. role: what makes it."""

    shape: tuple[int, ...]
    dtype: str
    role: Role


@dataclass(frozen=True)
class OpFacts:
    """One ATen call. reads, makes: positions in `GraphFacts.values`. numbers: its other arguments, as text."""

    name: str
    target: str
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    numbers: str


@dataclass(frozen=True, eq=False)
class GraphFacts:
    """A task's graph at its full shapes. Compared by identity: there is one a task.

    outputs: positions of the values that forward returns. after: the graph after kinds of rules, in order (see
    `mtmc.rewrite.algebra`), for those that are known.
    """

    values: tuple[ValueFacts, ...]
    ops: tuple[OpFacts, ...]
    outputs: tuple[int, ...]
    after: Mapping[tuple[str, ...], GraphFacts] = field(default_factory=dict)

    @cached_property
    def by_name(self) -> dict[str, OpFacts]:
        """Its ops by name."""
        return {op.name: op for op in self.ops}

    @cached_property
    def readers(self) -> Mapping[int, frozenset[str]]:
        """Position of a value -> names of the ops that read it; values that none reads are left out."""
        found: dict[int, set[str]] = {}
        for op in self.ops:
            for at in op.reads:
                found.setdefault(at, set()).add(op.name)
        return {at: frozenset(names) for at, names in found.items()}

    def leaving(self, ops: Collection[str]) -> set[int]:
        """Positions of the values that some ops make and that another op or forward's result reads."""
        inside = frozenset(ops)
        made = {at for name in ops if name in self.by_name for at in self.by_name[name].makes}
        return {at for at in made if at in self._returned or not self.readers.get(at, inside) <= inside}

    @cached_property
    def _returned(self) -> frozenset[int]:
        return frozenset(self.outputs)

    def after_rules(self, kinds: Sequence[str]) -> GraphFacts:
        """The graph after these rules of algebra; this one where that is not known."""
        return self.after.get(tuple(kinds), self)

    def to_json(self) -> str:
        """Compact JSON text; `graph_from_json` is its inverse."""
        return json.dumps(self._plain(), separators=(",", ":"))

    def _plain(self) -> dict[str, Any]:
        values = [[list(each.shape), each.dtype, each.role] for each in self.values]
        ops = [[op.name, op.target, list(op.reads), list(op.makes), op.numbers] for op in self.ops]
        data: dict[str, Any] = {"values": values, "ops": ops, "outputs": list(self.outputs)}
        if self.after:
            data["after"] = [[list(kinds), graph._plain()] for kinds, graph in sorted(self.after.items())]
        return data


def graph_from_json(text: str) -> GraphFacts:
    """Inverse of `GraphFacts.to_json`. Raises: KeyError, ValueError on text of another form."""
    return _from_plain(json.loads(text))


def _from_plain(data: Mapping[str, Any]) -> GraphFacts:
    values = tuple(ValueFacts(tuple(shape), dtype, role) for shape, dtype, role in data["values"])
    ops = tuple(
        OpFacts(name, target, tuple(reads), tuple(makes), more) for name, target, reads, makes, more in data["ops"]
    )
    after = {tuple(kinds): _from_plain(graph) for kinds, graph in data.get("after", ())}
    return GraphFacts(values, ops, tuple(data["outputs"]), after)


def with_rules(graph: Graph, plans: Iterable[tuple[str, ...]]) -> GraphFacts:
    """The facts of an exported graph and of what rules of algebra make of it. plans: kinds of rules, in order, each."""
    from mtmc.rewrite.algebra import after_rules

    kinds = sorted({each for each in plans if each})
    return replace(graph_facts(graph), after={each: graph_facts(after_rules(graph, each)) for each in kinds})


def graph_facts(graph: Graph) -> GraphFacts:
    """The facts of an exported graph, at its first variant: the full shapes."""
    from mtmc.rewrite.graph import Ref, Varying

    positions = {name: at for at, name in enumerate(graph.values)}

    def role(name: str) -> Role:
        if name in graph.producer:
            return "made"
        return "parameter" if name in graph.parameters else "input"

    def number(item: Any) -> Any:
        if isinstance(item, Ref):
            return None
        if isinstance(item, Varying):
            return item.values[0]
        if isinstance(item, list | tuple):
            return [number(each) for each in item]
        return item if isinstance(item, bool | int | float | str | None) else str(item)

    def facts(op: Op) -> OpFacts:
        more = [number(item) for item in op.args] + [[name, number(op.kwargs[name])] for name in sorted(op.kwargs)]
        reads = tuple(positions[name] for name in op.refs() if name in positions)
        makes = tuple(positions[name] for name in op.outputs if name in positions)
        return OpFacts(op.name, op.target, reads, makes, json.dumps(more, separators=(",", ":")))

    values = tuple(
        ValueFacts(tuple(size[0] for size in tensor.shape), tensor.dtype, role(name))
        for name, tensor in graph.values.items()
    )
    return GraphFacts(
        values, tuple(facts(op) for op in graph.ops), tuple(sorted(positions[n] for n in graph.results()))
    )


def graph_key(graph: GraphFacts, dtypes: bool = False) -> str:
    """The canonical form of a graph as 16 hex digits: the same for graphs that differ in names and order only.

    Ops, their numbers, edges and shapes count; operands of a sum or product may change places. dtypes: whether dtypes
    count, too. By refined labels (Weisfeiler and Leman): values get labels of what makes them, then, `_ROUNDS` times, of
    what reads them; the key is of the sorted labels of all ops. Two different graphs with one key are possible in
    principle, which is the safe side where equal ones are to be left out.
    """
    labels = [_digest(value.role, value.shape, value.dtype if dtypes else "") for value in graph.values]
    for _ in range(_ROUNDS):
        labels = _refined(graph, labels)
    ops = sorted(
        _digest(op.target, op.numbers, _operands(op, labels), [labels[at] for at in op.makes]) for op in graph.ops
    )
    return _digest(ops, sorted(labels[at] for at in graph.outputs))


def _refined(graph: GraphFacts, labels: Sequence[str]) -> list[str]:
    """Labels that also know what makes a value, all the way up, and what reads it, one step on."""
    made = list(labels)
    for op in graph.ops:
        for place, at in enumerate(op.makes):
            made[at] = _digest(made[at], op.target, op.numbers, _operands(op, made), place)
    readers: list[list[str]] = [[] for _ in made]
    for op in graph.ops:
        for place, at in enumerate(op.reads):
            shown = 0 if op.target in _SYMMETRIC else place
            readers[at].append(_digest(op.target, op.numbers, shown, [made[each] for each in op.makes]))
    return [_digest(label, sorted(read)) for label, read in zip(made, readers, strict=True)]


def _operands(op: OpFacts, labels: Sequence[str]) -> list[str]:
    found = [labels[at] for at in op.reads]
    return sorted(found) if op.target in _SYMMETRIC else found


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()[:16]
