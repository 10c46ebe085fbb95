"""combine: the first steps of several kinds at once, from the reference on."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mtmc.action import Action, Region, make_action
from mtmc.errors import CoderError
from mtmc.optimizations.cuda_graph import CudaGraph
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.merging import saved_logit
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Plan, root_plan

_log = logging.getLogger(__name__)

PAGE = """\
# combine

What several kinds do first to a whole network is done at once, from the reference on.

## What it does
Some steps change a whole version, and are nearly always among those that its best version has come by: all neighbours
are fused that gain by it, masks and joined products are written anew, 16-bit convolutions get tensors that lie channels
last, what hangs on weights alone is kept, and the launches become a CUDA graph. Each is an action of its own. This one
takes them in a row without an evaluation between, in the order of its sentence, each as the kind would offer it then.
It is offered for three steps in a row or more, or for two where a CUDA graph is one and has 64 launches or more.
Two forms are offered: with the CUDA graph at the end, and without.

## When it pays
Large networks and few evaluations. A decoder of four layers in bf16 on an H200: the first batch of a search has 3.64x
over the root by this action, and after 18 evaluations in four minutes the best has 3.68x. Without it nine evaluations
did not reach two of the steps in a row. What each step is worth alone can be asked afterwards: all are offered still.

## When it harms
- One step in the row that loses, or that makes the version wrong: nothing tells which it was. Then take them singly.
- Inputs and outputs that are large beside the work: the form without the graph copies nothing.
"""

AT_ONCE = math.log(2.0)
"""For steps in a row, over the largest of them alone."""
GRAPHED, UNGRAPHED = math.log(2.0), -math.log(4.0)
"""For the form with a CUDA graph, where one would be tried by itself, and where it would not."""
LEAST, FEWEST = 3, 2
"""Steps in a row from which on doing them at once is offered: two are soon done one by one, unless the CUDA graph is one of
them and saves `MANY` launches: then each evaluation is dear, and a version without it tells of the host's time alone."""
MANY = 64
MOST = 12
"""Steps at most."""


@dataclass(frozen=True)
class Combine(Optimization):
    """First steps in a row.

    kinds: those whose `leading` moves are taken, in this order. graph: the kind of the last step.
    """

    kinds: tuple[Optimization, ...]
    graph: CudaGraph

    kind = "combine"
    page = PAGE
    weight = 3.0
    changes = ("kernels", "bytes_moved", "flops", "host_ms", "call_ms")

    def legal(self, version: Version) -> Iterator[Move]:
        """The row of first steps without a CUDA graph and with one, on a version that nothing was done to yet."""
        if version.plan != root_plan(version.graph):
            return
        names, end = self._row(version)
        saved = max(1, len(version.working()) - len(end.working()))
        lines = [version.regions[stage] for stage in version.working() if stage in version.regions]
        last = next(iter(self.graph.legal(end)), None)
        launches = 0 if last is None else int(dict(last.action.params)["launches"])
        if len(names) + (last is not None) < (FEWEST if launches >= MANY else LEAST) or not lines:
            return
        region = Region.spanning("forward", lines)
        if len(names) > 1:
            yield self._move(region, names, saved, lambda: end.plan)
        if last is not None:
            yield self._move(region, [*names, self.graph.kind], saved, lambda: last.child, launches)

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Each kernel that is saved is a fusion of two; with a CUDA graph where that would be tried by itself."""
        logit = saved_logit(action) + AT_ONCE
        if "launches" not in dict(action.params):
            return logit
        return logit + (GRAPHED if self.graph.logit(observation, action, actions) > 0 else UNGRAPHED)

    def _row(self, version: Version) -> tuple[list[str], Version]:
        """The names of the steps, and the version after them."""
        names = list[str]()
        for kind in self.kinds:
            while len(names) < MOST and (move := next(iter(kind.leading(version)), None)) is not None:
                if move.child is None or move.child == version.plan:
                    break
                try:
                    after = version.made(move.child)
                except CoderError as error:  # the next kind goes on from here
                    _log.debug("task %s: %s is left out: %s", version.task.name, move.action.sentence, error)
                    break
                names.append(_name(move.action))
                version = after
        return names, version

    def _move(
        self, region: Region, names: Sequence[str], saved: int, make: Callable[[], Plan | None], launches: int = 0
    ) -> Move:
        *first, last = names
        params: dict[str, str | int] = {"steps": len(names), "saved": saved}
        if launches:
            params["launches"] = launches
        return Move(make_action(self.kind, region, f"combine {', '.join(first)} and {last}", **params), make)


def _name(action: Action) -> str:
    rules = dict(action.params).get("rules")
    return action.kind if rules is None else f"{action.kind} of {rules}"
