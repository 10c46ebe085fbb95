"""fuse: two neighbouring stages become one kernel."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from mtmc.action import Action, Region
from mtmc.optimizations.groups import Group, flow_of, fused, groups_of, settings_of
from mtmc.optimizations.layout import kept
from mtmc.optimizations.version import Version, also, make_action
from mtmc.rewrite.alike import form
from mtmc.rewrite.flow import Flow
from mtmc.rewrite.graph import CONSTANT, Shape
from mtmc.rewrite.plan import Plan, Stage, feeds, merged_ops
from mtmc.rewrite.products import PRODUCTS

PAGE = """\
# fuse

Two kernels, of which one reads what the other writes, become one. Torch calls are lowered on the way.

## What it does
The value between them stays in registers: it is not written to memory and not read again, and one launch is saved.
What that is worth can be told beforehand: twice the bytes of the value between, over the bandwidth that streams reach
(0.87 of the peak). 16384 x 4096 fp32 numbers are 268 MB, so 0.18 ms on an H100.

Small stages over the same shape that need nothing of each other go side by side in one kernel, which saves the launch.

## When it pays
Nearly always where memory is the limit: elementwise after anything, elementwise before a product, a reduction after
what makes its rows. Library calls against one fused kernel, fp32, H100: gelu(x + bias) 0.402 ms to 0.184; nine
elementwise calls 1.889 to 0.270; RMS norm of six calls 0.733 to 0.183; softmax then gelu 0.412 to 0.185; mean, max
and argmax of the same rows 0.298 to 0.099.

## When it harms
- A product and a reduction over its columns: one program must see all columns of a row, so few programs are left.
  Linear then max over 2048 rows went from 0.688 ms to 1.196 when it was fused, and to 0.662 only after `tile` and
  `pipeline`.
- Work before a product is done again for every tile of columns.
- A fused kernel that holds too much spills registers: look at `spills` in the metrics.
After a large product the gain is small: a GELU in the product's kernel saves 2% of 0.691 ms. There `precision`,
`tile` and `pipeline` are worth more.
"""

SMALL = 2**20
"""Elements that a stage reads and writes at most to be small: 4 MB, a good microsecond."""
SIDE_BY_SIDE = ("pointwise", "rowwise")
"""Families whose kernels go over several values of the same shape at once."""


class Fuse:
    """Two stages become one kernel."""

    kind = "fuse"
    page = PAGE

    def legal(self, version: Version) -> list[Action]:
        """Actions for the largest groups, for neighbours that one family covers together, for small ones side by side.

        Neighbours that are alike, as in the layers of a network, have one action, which fuses them everywhere.
        """
        flow = flow_of(version)
        working = [stage for stage in version.plan.stages if not version.is_free(stage)]
        found: dict[Hashable, list[tuple[Stage, ...]]] = {}
        for stages in self._neighbours(version, flow):
            if (merged := self._merged(version, flow, *stages)) is not None:
                found.setdefault(form(version.graph, merged[1]), []).append(stages)
        near = [self._fuse(version, first, _apart_from(first, others)) for first, *others in found.values()]
        return [*self._groups(version), *near, *self._side_by_side(version, flow, working)]

    def _fuse(self, version: Version, stages: tuple[Stage, ...], others: Sequence[tuple[Stage, ...]]) -> Action:
        """The action for some neighbours, and others like them."""
        names = [stage.name for stage in stages]
        sentence = f"fuse {', '.join(names[:-1])} and {names[-1]}{also(others)}"
        keys = ("first", "second") if len(names) == 2 else ("first", "middle", "second")
        return make_action(self.kind, version.region(*stages), sentence, **dict(zip(keys, names, strict=True)))

    def _neighbours(self, version: Version, flow: Flow) -> Iterator[tuple[Stage, ...]]:
        """Pairs of neighbours, then products with something between them that neither can take alone: attention's."""
        yield from flow.pairs()
        graph, working = version.graph, [stage for stage in version.plan.stages if not version.is_free(stage)]
        products = [stage for stage in working if any(graph.by_name[op].target in PRODUCTS for op in stage.ops)]
        for first in products:
            for middle in (stage for stage in working if feeds(graph, first, stage)):
                for second in (stage for stage in products if feeds(graph, middle, stage)):
                    if len({first, middle, second}) == 3:
                        yield first, middle, second

    def _groups(self, version: Version) -> list[Action]:
        """All groups at once, and those of three stages or more."""
        groups = groups_of(version)
        actions = []
        if len(groups) > 1:
            saved = sum(len(group.stages) - 1 for group in groups)
            stages = [stage for group in groups for stage in group.stages]
            sentence = f"fuse all neighbours that gain by it, {len(groups)} kernels instead of {saved + len(groups)}"
            actions.append(make_action(self.kind, _span(version, stages), sentence, groups=len(groups), saved=saved))
        for first, *others in _by_form(version, groups):
            if len(first.stages) > 2 and (len(groups) == 1 or 1 + len(others) < len(groups)):
                names = f"{first.stages[0].name} to {first.stages[-1].name}"
                sentence = f"fuse the {len(first.stages)} calls from {names}{also(others)}"
                numbers = {"groups": 1, "saved": (len(first.stages) - 1) * (1 + len(others))}
                actions.append(make_action(self.kind, _span(version, first.stages), sentence, **numbers))
        return actions

    def _chosen(self, version: Version, action: Action) -> list[Group]:
        """The groups that an action of `_groups` is about."""
        groups = groups_of(version)
        if action.param("groups") != 1:
            return groups
        for alike in _by_form(version, groups):
            if _span(version, alike[0].stages).name == action.region.name:
                return alike
        return []

    def _side_by_side(self, version: Version, flow: Flow, working: list[Stage]) -> list[Action]:
        """Small stages over the same shape of which none needs another: one launch instead of two."""
        actions = []
        small = [(stage, shape) for stage in working if (shape := _small(version, stage)) is not None]
        for at, (first, shape) in enumerate(small):
            for second, other in small[at + 1 :]:
                if shape != other or not flow.independent(first, second) or flow.together(first, second):
                    continue
                if self._joined(version, flow, first, second) is None:
                    continue
                sentence = f"fuse {first.name} and {second.name} side by side"
                region = version.region(first, second)
                names = {"first": first.name, "second": second.name}
                actions.append(make_action(self.kind, region, sentence, **names, apart=True))
                break  # the next one like it; the others can follow
        return actions

    def _joined(self, version: Version, flow: Flow, *stages: Stage) -> tuple[list[Stage], Stage] | None:
        """Stages that nothing flows between, and the kernel they become."""
        if not flow.independent(stages[0], stages[1]):
            return None
        merged = version.as_kernel(merged_ops(version.graph, stages), settings_of(stages))
        return None if merged is None or merged.family not in SIDE_BY_SIDE else ([*stages], merged)

    def rewrite(self, version: Version, action: Action) -> Plan | None:
        """The plan with both as one stage; settings of either are kept where the fused kernel has them."""
        plan = self._plan(version, action)
        return plan and kept(version, plan)

    def _plan(self, version: Version, action: Action) -> Plan | None:
        params = dict(action.params)
        if "groups" in params:
            groups = self._chosen(version, action)
            return fused(version, groups) if groups else None
        named = [version.stage(str(params[key])) for key in ("first", "middle", "second") if key in params]
        find = self._joined if params.get("apart") else self._merged
        merged = find(version, flow_of(version), *named)
        if merged is None:
            return None
        done = replace(version, plan=version.plan.with_merged(version.graph, *merged))
        return done.plan if params.get("apart") else self._everywhere(version, done, form(version.graph, merged[1]))

    def _everywhere(self, version: Version, done: Version, wanted: Hashable) -> Plan:
        """The plan of `done` with all neighbours of `version` fused that become a kernel of the wanted form."""
        flow = flow_of(version)
        for stages in self._neighbours(version, flow):
            if not set(stages) <= set(done.plan.stages):
                continue
            merged = self._merged(version, flow, *stages)
            if merged is None or form(version.graph, merged[1]) != wanted:
                continue
            again = self._merged(done, flow_of(done), *stages)  # what was fused meanwhile may stand between them
            if again is not None:
                done = replace(done, plan=done.plan.with_merged(done.graph, *again))
        return done.plan

    def _merged(self, version: Version, flow: Flow, *stages: Stage) -> tuple[list[Stage], Stage] | None:
        """The stages that are fused (each feeds the next) and the kernel they become."""
        parts: list[Stage] = []
        for first, second in pairwise(stages):
            found = flow.together(first, second)
            if found is None:
                return None
            parts += [stage for stage in found if stage not in parts]
        merged = version.as_kernel(merged_ops(version.graph, parts), settings_of(stages))
        return None if merged is None else (parts, merged)


def _apart_from(first: tuple[Stage, ...], others: Sequence[tuple[Stage, ...]]) -> list[tuple[Stage, ...]]:
    """The others that share no stage with the first nor with each other."""
    taken, found = set(first), []
    for stages in others:
        if not taken & set(stages):
            taken |= set(stages)
            found.append(stages)
    return found


def _by_form(version: Version, groups: Sequence[Group]) -> list[list[Group]]:
    """Groups that become kernels of one form together."""
    of = {group.merged: group for group in groups}
    return [[of[stage] for stage in (first, *others)] for first, others in version.by_form(list(of))]


def _span(version: Version, stages: Sequence[Stage]) -> Region:
    """The lines from the first to the last of several stages."""
    region = version.region(*stages)
    return Region(f"{stages[0].name} to {stages[-1].name}", region.first_line, region.last_line)


def _small(version: Version, stage: Stage) -> Shape | None:
    """The shape of a stage's first result, where a launch takes longer than the bytes of all it reads and writes."""
    graph = version.graph
    if not stage.is_torch and stage.family not in SIDE_BY_SIDE:
        return None
    ops = [graph.by_name[name] for name in stage.ops]
    values = {name for op in ops for name in (*op.refs(), *op.outputs) if name in graph.values}
    if not values or sum(graph.values[name].numel() for name in values) > SMALL or ops[-1].target == CONSTANT:
        return None
    result = graph.values.get(ops[-1].outputs[0])
    return None if result is None else result.shape
