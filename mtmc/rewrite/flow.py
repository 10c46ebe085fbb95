"""flow: which stages of a plan may become one, by what flows between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Plan, Stage


class Flow:
    """What flows between the stages of a plan. free: those that are views, which a fusion takes along."""

    def __init__(self, graph: Graph, plan: Plan, free: Sequence[Stage]) -> None:
        self._stages = plan.stages
        self._place = {stage: at for at, stage in enumerate(plan.stages)}
        self._free = {self._place[stage] for stage in free}
        self._reads = [
            graph.reads[stage.ops[0]].union(*(graph.reads[name] for name in stage.ops[1:])) for stage in plan.stages
        ]
        makers = {
            out: at for at, stage in enumerate(plan.stages) for name in stage.ops for out in graph.by_name[name].outputs
        }
        self._after: list[set[int]] = [set() for _ in plan.stages]
        for at, reads in enumerate(self._reads):
            for maker in {makers[ref] for ref in reads if ref in makers} - {at}:
                self._after[maker].add(at)
        self._readers: dict[str, list[int]] = {}
        for at, reads in enumerate(self._reads):
            for ref in reads - set(graph.parameters):
                self._readers.setdefault(ref, []).append(at)
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
        near = {other for ref in self._reads[at] for other in self._readers.get(ref, ())} | self._after[at]
        chain = [*self._after[at]]
        while chain:
            view = chain.pop()
            if view in self._free:
                chain += self._after[view]
                near |= self._after[view]
        return near - self._free

    def _before(self, at: int) -> set[int]:
        """The stages before one that it is near to."""
        return {first for first in range(at) if first not in self._free and at in self._near(first)}

    def independent(self, first: Stage, second: Stage) -> bool:
        """Whether nothing flows from either to the other, on any way."""
        one, two = self._place[first], self._place[second]
        return two not in self._all_after(one) and one not in self._all_after(two)

    def together(self, first: Stage, second: Stage) -> list[Stage] | None:
        """The stages that become one if these two do, or None where they cannot.

        They are `first`, `second` and the views that stand between them. `first` must feed `second`, straight or through
        such views, or both read a value that neither makes (parameters do not count); no other way may lead from one to the
        other.
        """
        one, two = self._place[first], self._place[second]
        if one in self._after[two]:
            return None
        fed = two in self._after[one]
        between = self._views_between(one, two)
        siblings = any(two in self._readers.get(ref, ()) for ref in self._reads[one])
        if not (between or fed or siblings):
            return None
        parts = [one, *between, two]
        return None if self._detour(set(parts)) else [self._stages[at] for at in parts]

    def closed(self, stages: Sequence[Stage]) -> bool:
        """Whether stages can become one: no way leads out of them and back."""
        return not self._detour({self._place[stage] for stage in stages})

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
