"""groups: the largest sets of neighbouring stages that are better as one kernel, whatever the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mtmc.optimizations.boundaries import are_for_two, is_for_the_next, stays_with_rows
from mtmc.optimizations.recomputing import repeats_much
from mtmc.optimizations.version import Version
from mtmc.rewrite.flow import Flow
from mtmc.rewrite.graph import product
from mtmc.rewrite.plan import Plan, Setting, Stage, merged_ops

MULTIPLY = ("matmul", "convolution")
"""Templates of products, which take along what follows element by element."""
MEMORY = ("pointwise", "rowwise", "windows", "scan")
"""Templates that memory limits: the fewer kernels, the better."""

ALL_NEIGHBOURS = "fuse all neighbours that gain by it"
"""What actions that make kernels of all groups say of it."""


@dataclass(frozen=True)
class Group:
    """Stages that become one kernel, `merged`. parts: all of them. stages: without the views, in the plan's order."""

    stages: tuple[Stage, ...]
    parts: tuple[Stage, ...]
    merged: Stage


def flow_of(version: Version) -> Flow:
    """What flows between a version's stages."""
    return Flow(version.graph, version.plan, [stage for stage in version.plan.stages if version.is_free(stage)])


def parts_of(version: Version, stage: Stage) -> int:
    """How many numbers of elements the results of an elementwise kernel have; 1 for any other stage."""
    graph = version.graph
    if stage.template != "pointwise":
        return 1
    return len({product(graph.values[value].shape) or (1,) for value in graph.leaving(stage.ops)})


def settings_of(version: Version, stages: Sequence[Stage]) -> dict[str, dict[str, Setting]]:
    """The settings that actions have chosen for these stages, by their templates, those of an earlier stage first: what
    holds rows in registers is no block of a scan. What nobody has chosen is the larger kernel's own affair. Those of a
    kernel that goes element by element count among its like alone: beside a view it may be tiled."""
    settings: dict[str, dict[str, Setting]] = {}
    alone = all(stage.template == "pointwise" for stage in stages)
    for stage in reversed(stages):
        if alone or stage.template != "pointwise":
            settings[stage.template] = settings.get(stage.template, {}) | version.chosen(stage)
    return settings


def groups_of(version: Version) -> list[Group]:
    """Every set of three stages or more, and of two, that can grow no further, in the plan's order.

    Each grows from its first stage on, by one neighbour at a time: what memory limits (`MEMORY`) with its like, and
    what goes element by element after a product that is a kernel already, or that no library call does as well: one of
    fp32 numbers. What one kernel of both would work out too often stays apart (see `recomputing`). Elementwise results
    of several sizes become parts of one launch in the end, since nothing else joins such a kernel any more. Left to
    `fuse` a pair at a time is what may harm: work before a product, a reduction after one. What is kept from one call to the
    next stays apart: it takes nothing.
    """
    return _Growing(version).groups()


@dataclass
class _Growing:
    version: Version
    _flow: Flow | None = None
    _families: dict[tuple[str, ...], str | None] = field(default_factory=dict)
    _members: dict[Stage, tuple[Stage, ...]] = field(default_factory=dict)
    _movers: dict[tuple[str, ...], bool] = field(default_factory=dict)
    _for_others: dict[tuple[tuple[str, ...], tuple[str, ...]], bool] = field(default_factory=dict)
    _in_parts: bool = False
    """Whether elementwise kernels may be joined whose results have other numbers of elements."""
    _before: bool = False
    """Whether kernels of products take along work before them, too."""

    def groups(self) -> list[Group]:
        plan, once = self.version.plan, self.version.kept()
        self._members = {stage: (stage,) for stage in plan.stages}
        for self._in_parts in (False, True):
            for seed in sorted(self._members, key=self._moves):  # what only moves elements joins what reads them
                if seed in self._members and self._family(seed) is not None:
                    self._grow(seed)
        place, found = {stage: at for at, stage in enumerate(plan.stages)}, []
        for merged, parts in self._members.items():
            working = [stage for stage in parts if stage in place and not self.version.is_free(stage)]
            stages = tuple(sorted(working, key=place.__getitem__))
            if len(stages) > 1 and not once.issuperset(stages):
                found.append(Group(stages, parts, merged))
        return sorted(found, key=lambda group: place[group.stages[0]])

    def grown(self, kernel: Stage) -> Version:
        """The version with one kernel of a product grown by all work around it."""
        self._members = {stage: (stage,) for stage in self.version.plan.stages}
        self._before = True
        self._grow(kernel)
        return self.version

    def _grow(self, stage: Stage) -> None:
        while (merged := self._larger(stage)) is not None:
            stage = merged

    def _larger(self, stage: Stage) -> Stage | None:
        """The stage with one neighbour more, after which it stands in the version's plan; None if none may join it."""
        version = self.version
        if self._flow is None:
            self._flow = flow_of(version)
        for first, second in self._flow.pairs_with(stage):
            if not self._gladly(first, second):
                continue
            parts = self._flow.together(first, second)
            if parts is None:
                continue
            chosen = settings_of(version, [each for part in (first, second) for each in self._members[part]])
            merged = version.as_kernel(merged_ops(version.graph, parts), chosen)
            if merged is None or not self._as_wished(first, second, merged):
                continue
            self.version = replace(version, plan=version.plan.with_merged(version.graph, parts, merged))
            self._flow = None
            self._members[merged] = tuple(member for part in parts for member in self._members.pop(part))
            return merged
        return None

    def _gladly(self, first: Stage, second: Stage) -> bool:
        """Whether two stages should be one, by the templates they are of alone."""
        one, two = self._family(first), self._family(second)
        if one in MEMORY and two in MEMORY and repeats_much(self.version.graph, first, second):
            return False
        if not self._in_parts and self._is_for_others(first, second):
            return False
        if self._in_parts:
            return one == two == "pointwise"
        if one in MEMORY and two in MEMORY:
            return not self._is_for_another(first, second)
        if self._before and one == "pointwise" and two in MULTIPLY:
            return True
        return one in MULTIPLY and two == "pointwise" and (not first.is_torch or self._in_fp32(first, one))

    def _is_for_others(self, first: Stage, second: Stage) -> bool:
        """Whether one of two stages, neither of which reads the other, only moves elements that others read: those take it
        in at no cost, and beside the other one it would be written."""
        assert self._flow is not None
        if not self._flow.independent(first, second):
            return False
        results = self.version.graph.results()
        for stage in (first, second):
            if self._moves(stage) and not results.intersection(self.version.graph.leaving(stage.ops)):
                readers = self._flow.readers(stage)
                if readers and all(self._family(reader) in MEMORY for reader in readers):
                    return True
        return False

    def _is_for_another(self, first: Stage, second: Stage) -> bool:
        """Whether what goes element by element is better in another kernel than that of these two, see `boundaries`."""
        assert self._flow is not None
        one, two = self._family(first), self._family(second)
        if one == "pointwise" and stays_with_rows(self.version, first, second):
            return True
        if (one, two) == ("pointwise", "rowwise") and self._flow.independent(first, second):
            first, second = second, first
        elif two != "pointwise" or one not in ("rowwise", "pointwise"):
            return False
        key = (first.ops, second.ops)
        if key not in self._for_others:
            found = are_for_two if one == two else is_for_the_next
            self._for_others[key] = found(self.version, self._flow, first, second)
        return self._for_others[key]

    def _moves(self, stage: Stage) -> bool:
        """Whether a stage only moves elements."""
        if stage.ops not in self._movers:
            body = None if self.version.is_free(stage) else self.version.body(stage)
            self._movers[stage.ops] = body is not None and all(node.kind in ("index", "view") for node in body.nodes)
        return self._movers[stage.ops]

    def _as_wished(self, first: Stage, second: Stage, merged: Stage) -> bool:
        one, two = self._family(first), self._family(second)
        if one in MULTIPLY or two in MULTIPLY:
            return merged.template == (one if one in MULTIPLY else two)
        return merged.template in MEMORY and (self._in_parts or parts_of(self.version, merged) == 1)

    def _in_fp32(self, stage: Stage, template: str) -> bool:
        outputs = self.version.graph.by_name[stage.ops[-1]].outputs
        return template == "matmul" and self.version.graph.values[outputs[0]].dtype == "float32"

    def _family(self, stage: Stage) -> str | None:
        """The template of a stage's kernel; None for a call that has none."""
        if not stage.is_torch:
            return stage.template
        if stage.ops not in self._families:
            alone = None if self.version.is_free(stage) else self.version.as_kernel(stage.ops, {})
            self._families[stage.ops] = None if alone is None else alone.template
        return self._families[stage.ops]


def grown(version: Version, kernel: Stage) -> Version:
    """The version in which a product's kernel has taken in what goes element by element before and after it.

    Unlike `groups_of`, work before the product is taken too, which is done again for every tile of columns.
    """
    return _Growing(version).grown(kernel)


def fused(version: Version, groups: Sequence[Group]) -> Plan:
    """The version's plan with each group as one stage."""
    plan = version.plan
    for group in groups:
        plan = plan.with_merged(version.graph, group.parts, group.merged)
    return plan
