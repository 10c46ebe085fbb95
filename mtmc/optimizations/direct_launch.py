"""direct_launch: launches go straight to the compiled kernels, and what comes before them is remembered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from mtmc.action import Action, Region, make_action
from mtmc.evaluate.estimates.host_time import launch_bound, nearly_launch_bound
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.templates.gluon_text import is_gluon

PAGE = """\
# direct_launch

A forward with arguments of a kind that was there before does nothing but make memory and launch compiled kernels.

## What it does
At each launch Triton finds out anew for what a kernel has to be compiled, and a launcher works out sizes, strides and
the grid, reading `shape` and `stride` dozens of times; each view before it is a call of torch.
Here each kernel is wrapped: the wrapper remembers what was compiled by the arguments' types, alignments and numbers,
and launches it by `compiled[grid](*arguments)`. Stages in a row that only make views, memory and launches become a
function, wrapped by `Stretch`. It notes once, for tensors of one kind, which memory is made and what is launched with
what, and from then on makes that memory and those launches alone. Weights are arguments, so new ones are seen.

## When it pays
Where `call_ms` is above `device_ms`: small batches, decoding, many short kernels, many views. On an H100 a rotary
embedding of eight slices and two kernels took 0.31x of the time a call, and decoding attention of two 0.75x.
Unlike a CUDA graph it copies nothing, holds for every shape, and works while somebody else captures.

## When it harms
Nowhere much. Where the device is the limit nothing is gained, and the file is longer. Sizes that differ at each call
are remembered one by one (256 kinds at most), and a new one takes the long way once. Ops of torch that are no views end
a stretch, and with inputs that overlap none is remembered.
A task that is called under a CUDA graph (`CUDA_GRAPH = True`) gains nothing.
"""


class DirectLaunch(Optimization):
    """Wrapped kernels, and stretches that are done again from what was noted."""

    kind = "direct_launch"
    page = PAGE
    weight = 0.5
    changes = ("host_ms", "call_ms")

    def legal(self, version: Version) -> Iterator[Move]:
        """The one move, where kernels of Triton are launched one by one."""
        plan = version.plan
        if plan.direct_launch or version.task.cuda_graph:
            return
        kernels = [stage for stage in plan.stages if not stage.is_torch and not is_gluon(stage)]
        lines = [version.regions[stage] for stage in kernels if stage in version.regions]
        if not lines:
            return
        region = Region.spanning("launches", lines)
        action = make_action(self.kind, region, "launch the compiled kernels directly", launches=len(kernels))
        yield Move(action, partial(replace, plan, direct_launch=True))

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Where the device waits for the host; or may, on another machine or after the next fusion."""
        metrics = observation.outcome.metrics
        if launch_bound(metrics.get("device_ms"), metrics.get("call_ms")):
            return 2.0
        return NEARLY if nearly_launch_bound(metrics.get("device_ms"), metrics.get("host_ms")) else -3.0


NEARLY = 0.5
"""Where the device waits for the host on a busy machine alone."""
