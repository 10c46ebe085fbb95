"""targets: the stages that an action is about, how often it is done, and what it saves, from the facts of the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mtmc.action import Action
from mtmc.agents.policies.learned.forms import form
from mtmc.agents.policies.learned.graphs import GraphFacts
from mtmc.agents.policies.learned.stages import StageFacts, value_bytes
from mtmc.rewrite.plan import Stage

_MEMORY = ("pointwise", "rowwise", "windows", "scan")
_PRODUCTS = ("matmul", "convolution")
_NAMED = ("first", "middle", "second")
"""Parameters of a fusion of neighbours: names of its stages."""
_FAMILY = {
    **{"product": "matmul", "convolution": "convolution", "norm": "rowwise", "reduction": "rowwise"},
    **{"window": "windows", "scan": "scan", "pointwise": "pointwise"},
}
"""Class of a torch call -> family of the kernel that it would become."""


@dataclass(frozen=True)
class Target:
    """places: positions of its stages in the plan, the first and the last of them as the action names them. times: to how
    many stages (or sets of neighbours) that are alike it is done, itself among them. kernels: launches that it saves in
    all. bytes: of the values between its stages, which a fusion need not write and read."""

    places: tuple[int, ...] = ()
    times: int = 1
    kernels: int = 0
    bytes: int = 0


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages of a plan. facts: of each. graph: that they are over."""

    graph: GraphFacts
    stages: tuple[Stage, ...]
    facts: Sequence[StageFacts]
    _found: dict[tuple[object, ...], Target] = field(default_factory=dict)

    @cached_property
    def place(self) -> Mapping[str, int]:
        """Position of a stage by its name."""
        return {stage.name: at for at, stage in enumerate(self.stages)}

    @cached_property
    def forms(self) -> Mapping[Hashable, int]:
        """How many stages there are of each form; views are none."""
        return Counter(form(self.graph, self.stages[at]) for at in range(len(self.stages)) if not self.is_free(at))

    def is_free(self, at: int) -> bool:
        """Whether a stage is a view, which launches nothing."""
        return self.stages[at].is_torch and self.facts[at].count("view") == len(self.stages[at].ops)

    def alike(self, at: int) -> int:
        """How many stages are like one, itself among them."""
        return self.forms.get(form(self.graph, self.stages[at]), 1)

    def target(self, action: Action) -> Target:
        """What an action is about; many are about the same."""
        params = dict(action.params)
        kind = action.kind if action.kind in ("fuse", "layout", "capture") else ""
        key = (kind, action.region.name, *(params.get(name) for name in (*_NAMED, "groups", "saved")))
        if key not in self._found:
            self._found[key] = self._target(action, params)
        return self._found[key]

    def _target(self, action: Action, params: Mapping[str, object]) -> Target:
        if "groups" in params:
            return self._groups(action, int(str(params["groups"])), int(str(params["saved"])))
        if action.kind == "fuse":
            return self._neighbours([str(params[name]) for name in _NAMED if name in params])
        if action.kind == "layout":
            return Target(tuple(at for at, facts in enumerate(self.facts) if facts.count("convolution")))
        if action.kind == "capture":
            return Target(tuple(at for at in range(len(self.stages)) if not self.is_free(at)))
        if action.region.name in self.place:
            at = self.place[action.region.name]
            return Target((at,), self.alike(at))
        return Target(self._named(action.region.name.split(" and ")))

    def _named(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.place[name] for name in names if name in self.place)

    def _neighbours(self, names: Sequence[str]) -> Target:
        """Of a fusion of two or three. Those like them are as many as the rarest of their forms allows."""
        places = self._named(names)
        wanted = Counter(form(self.graph, self.stages[at]) for at in places)
        times = max(1, min((self.forms.get(each, 1) // count for each, count in wanted.items()), default=1))
        return Target(places, times, times * max(0, len(places) - 1), self._between(places))

    def _groups(self, action: Action, groups: int, saved: int) -> Target:
        """Of a fusion of whole groups: of the one that begins and ends with the stages in its region's name and of those
        like it, or of all that lie between them."""
        ends = self._named(action.region.name.split(" to "))
        if len(ends) != 2:
            return Target(ends, groups, saved)
        span = [at for at in range(ends[0], ends[1] + 1) if not self.is_free(at)]
        joined = [(a, b) for a in span for b in self._readers[a] if b <= ends[1] and self._join(a, b)]
        if groups == 1:
            members, grown = {ends[0], ends[1]}, True
            while grown:
                more = {at for pair in joined if members & set(pair) for at in pair} - members
                members, grown = members | more, bool(more)
        else:
            members = {*ends, *(at for pair in joined for at in pair)}
        places = tuple(sorted(members))
        times = groups if groups > 1 else max(1, round(saved / max(1, len(places) - 1)))
        inside = {value for a, b in joined if a in members for value in self._made[a] & self._reads[b]}
        return Target(places, times, saved, sum(value_bytes(self.graph, at) for at in inside))

    def _join(self, a: int, b: int) -> bool:
        """Whether two neighbours are fused gladly, as `mtmc.optimizations.groups` has it: what memory limits with its like,
        a product of fp32 numbers, or one that is a kernel, with what goes element by element."""
        one, two = self._family(a), self._family(b)
        if one in _MEMORY and two in _MEMORY:
            return True
        plain = one == "matmul" and self.facts[a].width == 4
        return one in _PRODUCTS and two == "pointwise" and (plain or not self.stages[a].is_torch)

    def _family(self, at: int) -> str:
        stage, facts = self.stages[at], self.facts[at]
        if not stage.is_torch:
            return stage.family
        return next((family for kind, family in _FAMILY.items() if facts.count(kind)), "")  # type: ignore[arg-type]

    def _between(self, places: Sequence[int]) -> int:
        """Bytes of the values that one of the stages makes and a later one reads."""
        pairs = [(a, b) for at, a in enumerate(places) for b in places[at + 1 :]]
        inside = {value for a, b in pairs for value in self._made[a] & self._reads[b]}
        return sum(value_bytes(self.graph, value) for value in inside)

    @cached_property
    def _source(self) -> Mapping[int, int]:
        """Position of a value that a view makes -> of the value that it is a view of."""
        found: dict[int, int] = {}
        for at, stage in enumerate(self.stages):
            op = self.graph.by_name.get(stage.ops[0]) if self.is_free(at) else None
            if op is not None and op.reads:
                found |= dict.fromkeys(op.makes, found.get(op.reads[0], op.reads[0]))
        return found

    @cached_property
    def _made(self) -> Sequence[frozenset[int]]:
        """Values that each stage makes; a view makes none."""
        known = self.graph.by_name
        return [
            frozenset(
                () if self.is_free(at) else (out for name in stage.ops if name in known for out in known[name].makes)
            )
            for at, stage in enumerate(self.stages)
        ]

    @cached_property
    def _reads(self) -> Sequence[frozenset[int]]:
        """Values that each stage reads, through views."""
        known, source = self.graph.by_name, self._source
        return [
            frozenset(source.get(ref, ref) for name in stage.ops if name in known for ref in known[name].reads)
            for stage in self.stages
        ]

    @cached_property
    def _readers(self) -> Sequence[Sequence[int]]:
        """The later stages that read what each stage makes."""
        by_value: dict[int, list[int]] = {}
        for at, reads in enumerate(self._reads):
            if not self.is_free(at):
                for value in reads:
                    by_value.setdefault(value, []).append(at)
        return [
            sorted({other for value in made for other in by_value.get(value, ()) if other > at})
            for at, made in enumerate(self._made)
        ]
