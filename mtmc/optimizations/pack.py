"""pack: what is computed from the module's tensors alone is kept from one call to the next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mtmc.action import Action, Region, make_action
from mtmc.errors import CoderError
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.packing import kept_filters, packed_stages
from mtmc.rewrite.source import print_plan

PAGE = """\
# pack

What forward computes from its weights alone is made at the first call, and made anew where a weight has changed.

## What it does
Weights that are permuted, scaled, joined, summed, converted or unpacked from few bits come out the same every time.
They move into a method of their own, and its results are kept with the address, form and version (`_version`) of each
tensor that they were made of. A call looks at these, some microseconds of the host for ten tensors, and launches
nothing for what is kept. With gradients, under autocast and in somebody else's CUDA graph all is made at every call.

## When it pays
Few rows: a batch of 16 that reads 32 MB of weights writes and reads 64 MB more where they are converted at each call.
After `algebra`, whose scaled and summed weights are a launch or two each. In front of a library call for products, that
cannot unpack its operand: 4-bit weights unpacked at each call cost more bytes than the product itself.

## When it harms
- The packed weights lie in memory besides the others. Of 4-bit weights they are four times as large, and reading them
  takes as long: a kernel that unpacks what it multiplies (`fuse`) reads a quarter.
- Weights that change at every call are packed at every call. What changes through `weight.data` is not seen.
"""


class Pack(Optimization):
    """What is made of weights alone is kept."""

    kind = "pack"
    page = PAGE
    weight = 3.0
    changes = ("kernels", "bytes_moved")

    def legal(self, version: Version) -> Iterator[Move]:
        """The one move, where a stage that launches something reads nothing but the module's tensors."""
        plan = version.plan
        if plan.packed:
            return
        packed = packed_stages(version.graph, plan)
        stages = [stage for stage in packed if not version.is_free(stage)]
        filters = kept_filters(version.graph, plan, packed)
        if not stages and not filters:
            return
        child = replace(plan, packed=True)
        try:
            print_plan(version.task, version.graph, child)
        except CoderError:  # a size that an input alone tells
            return
        first, *others = [*(stage.name for stage in stages), *dict.fromkeys(each.value for each in filters.values())]
        names = first + (f" and {len(others)} more" if others else "")
        working = [*stages, *(stage for stage in plan.stages if filters.keys() & set(stage.ops))]
        lines = [version.regions[stage] for stage in working if stage in version.regions]
        region = Region.spanning("weights", lines)
        sentence = f"compute {names} once, and again where a weight has changed"
        yield Move(make_action(self.kind, region, sentence, launches=1 + len(others)), lambda: child)

    def leading(self, version: Version) -> Iterator[Move]:
        """The one move."""
        return self.legal(version)

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Each launch that is left out is a fusion of two."""
        return math.log(int(dict(action.params).get("launches", 1)))
