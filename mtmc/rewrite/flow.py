"""flow: which stages of a plan may become one, by what flows between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations

from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Plan, Stage


class Flow:
    """What flows between the stages of a plan. free: those that are views, which a fusion takes along."""

    def __init__(self, graph: Graph, plan: Plan, free: Sequence[Stage]) -> None:
        self._stages = plan.stages
        self._place = {stage: at for at, stage in enumerate(plan.stages)}
        self._free = {self._place[stage] for stage in free}
        # parameters are made by no stage, and that two stages read the same ones brings them no nearer
        self._reads = [graph.flowing(stage.ops) for stage in plan.stages]
        makers = {out: at for at, stage in enumerate(plan.stages) for out in graph.flow(stage.ops)[0]}
        self._after: list[set[int]] = [set() for _ in plan.stages]
        self._makers: list[set[int]] = [set() for _ in plan.stages]
        self._readers: dict[str, list[int]] = {}
        for at, reads in enumerate(self._reads):
            for ref in reads:
                self._readers.setdefault(ref, []).append(at)
                maker = makers.get(ref, at)
                if maker != at:
                    self._after[maker].add(at)
                    self._makers[at].add(maker)
        self._reached: dict[int, set[int]] = {}

    def pairs(self) -> Iterator[tuple[Stage, Stage]]:
        """The pairs that `together` may allow, in the plan's order, each once."""
        for at, stage in enumerate(self._stages):
            if at not in self._free:
                yield from ((stage, self._stages[other]) for other in sorted(self._near(at)) if other > at)

    def pairs_with(self, stage: Stage) -> Iterator[tuple[Stage, Stage]]:
        """Those of `pairs` that a stage is one of, with earlier stages first."""
        place = self._place[stage]
        for at in sorted(self._before(place)):
            yield self._stages[at], stage
        yield from ((stage, self._stages[other]) for other in sorted(self._near(place)) if other > place)

    def _near(self, at: int) -> set[int]:
        """The stages that read what a stage reads or makes, straight or through views."""
        return self._beside(at, self._after)

    def _before(self, at: int) -> set[int]:
        """The stages before one that it is near to."""
        return {first for first in self._beside(at, self._makers) if first < at}

    def _beside(self, at: int, linked: Sequence[set[int]]) -> set[int]:
        """The stages that read what a stage reads, and those that it is linked to, straight or through views."""
        near = {other for ref in self._reads[at] for other in self._readers[ref]} | linked[at]
        chain = [*linked[at]]
        while chain:
            view = chain.pop()
            if view in self._free:
                chain += linked[view]
                near |= linked[view]
        return near - self._free

    def independent(self, first: Stage, second: Stage) -> bool:
        """Whether nothing flows from either to the other, on any way."""
        one, two = self._place[first], self._place[second]
        return two not in self._all_after(one) and one not in self._all_after(two)

    def in_order(self, stages: Sequence[Stage]) -> list[Stage]:
        """Some stages in the plan's order."""
        return sorted(stages, key=self._place.__getitem__)

    def together(self, *stages: Stage) -> list[Stage] | None:
        """The stages that become one if these do, in the plan's order, or None where they cannot.

        They are these, two or more in the plan's order, and the views that stand between them. Each must feed another,
        straight or through such views, or read a value with it that neither makes (parameters do not count), so that all
        hang together; no other way may lead out of them and back.
        """
        places = [self._place[stage] for stage in stages]
        parts, links = set(places), list[set[int]]()
        for one, two in combinations(places, 2):
            if one in self._after[two]:
                return None
            between = self._views_between(one, two)
            siblings = any(two in self._readers.get(ref, ()) for ref in self._reads[one])
            if between or two in self._after[one] or siblings:
                links.append({one, two})
            parts |= set(between)
        if not _all_linked(set(places), links) or self._detour(parts):
            return None
        return [self._stages[at] for at in sorted(parts)]

    def between(self, first: Stage, second: Stage) -> list[Stage]:
        """The stages, but for views, that stand on any way from one stage to another, in the plan's order."""
        one, two = self._place[first], self._place[second]
        reached = sorted(self._all_after(one) - self._free)
        return [self._stages[at] for at in reached if two in self._all_after(at)]

    def meeting(self, first: Stage, second: Stage) -> Stage | None:
        """The first stage, but for views, that something flows to from both; None where there is none."""
        both = self._all_after(self._place[first]) & self._all_after(self._place[second]) - self._free
        return self._stages[min(both)] if both else None

    def first_met(self, stage: Stage, stops: Collection[Stage]) -> list[Stage]:
        """Those of some stages that something flows to from one without passing another of them, in the plan's order."""
        ends, seen, found = {self._place[stop] for stop in stops}, set[int](), set[int]()
        todo = [self._place[stage]]
        while todo:
            after = self._after[todo.pop()]
            found |= after & ends
            todo += after - ends - seen
            seen |= after
        return [self._stages[at] for at in sorted(found)]

    def makers(self, stages: Sequence[Stage], wanted: Callable[[Stage], bool]) -> list[Stage]:
        """The stages that feed some of these or each other, straight or through views, and nothing else; the wanted ones."""
        inside, found = {self._place[stage] for stage in stages}, set[int]()
        for at in reversed(range(max(inside))):
            after = self._readers_of(at) if at not in inside | self._free else set()
            if after and after <= inside | found and wanted(self._stages[at]):
                found.add(at)
        return [self._stages[at] for at in sorted(found)]

    def readers(self, stage: Stage) -> list[Stage]:
        """The stages, but for views, that read what a stage makes, straight or through views, in the plan's order."""
        return [self._stages[at] for at in sorted(self._readers_of(self._place[stage]))]

    def _readers_of(self, at: int) -> set[int]:
        """The stages, but for views, that read what a stage makes, straight or through views."""
        found, todo = set[int](), [*self._after[at]]
        while todo:
            each = todo.pop()
            if each in self._free:
                todo += self._after[each]
            else:
                found.add(each)
        return found

    def _views_between(self, first: int, second: int) -> list[int]:
        """The views by way of which something flows from one stage to another, in order."""
        found, todo = set[int](), [first]
        while todo:
            new = (self._after[todo.pop()] & self._free) - found
            found |= new
            todo += new
        leading = set[int]()
        for view in sorted(found, reverse=True):
            if second in self._after[view] or self._after[view] & leading:
                leading.add(view)
        return sorted(leading)

    def _detour(self, parts: set[int]) -> bool:
        """Whether a way leaves the parts and comes back to them."""
        end = max(parts)
        todo = [at for part in parts for at in self._after[part] - parts]
        seen = set(todo)
        while todo:
            for at in self._after[todo.pop()]:
                if at in parts:
                    return True
                if at < end and at not in seen:
                    seen.add(at)
                    todo.append(at)
        return False

    def _all_after(self, start: int) -> set[int]:
        """The stages that something flows to from one, on any way."""
        if start not in self._reached:
            found: set[int] = set()
            todo = [start]
            while todo:
                new = self._after[todo.pop()] - found
                found |= new
                todo += new
            self._reached[start] = found
        return self._reached[start]


def _all_linked(places: set[int], links: Sequence[set[int]]) -> bool:
    """Whether links lead from any of some places to all others."""
    met, rest = {min(places)}, list(links)
    while joined := [link for link in rest if link & met]:
        met = met.union(*joined)
        rest = [link for link in rest if link not in joined]
    return met == places
