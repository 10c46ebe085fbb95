"""stop: end this line of the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtmc.action import STOP, STOP_KIND, Action
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.source.sites import Sites

PAGE = """\
# stop

This version is kept as it is, and the search goes on elsewhere.

## What it does
Nothing to the hardware: no kernel is written and no evaluation is spent.

## When it pays
Near the roofline, where further edits find noise. What "near" is depends on the limit (`roofline` in the metrics):
- Memory: streams on H100 and H200 reach 0.84 to 0.88 of the peak bandwidth. A version at 0.85 is done.
- fp32 products: the roofline counts three TF32 products, and the best tile on record (2048 x 4096 x 2048, 0.479 ms)
  is at 0.43 of it. A product at 0.4 may be done.
- Short kernels: at 0.01 ms a third of the time is the launch (some 3.5 us); only fewer launches help.

## When it harms
Too early: while two kernels could still be fused, while an fp32 product is still "ieee", while there are fewer
programs than multiprocessors.
"""


NEAR_ROOF = 0.85
"""Fraction of the roofline from which on stopping is the best thing to do."""


class Stop(Optimization):
    """Always legal, makes nothing."""

    kind = STOP_KIND
    page = PAGE
    weight = 0.2

    def legal(self, version: Version) -> Iterator[Move]:
        """The one stop action, which makes no child."""
        yield Move(STOP, lambda: None)

    def sites(self, sites: Sites) -> Iterator[Action]:
        """The same without a plan."""
        yield STOP

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """The best thing to do near the roofline."""
        return 3.0 if observation.outcome.metrics.get("roofline", 0.0) >= NEAR_ROOF else 0.0
