"""pipeline: how many slices of the operands are on their way while one is computed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtmc.action import Action, make_action
from mtmc.optimizations.descriptors import suits_descriptors
from mtmc.optimizations.resources import PRODUCTS, element_bytes
from mtmc.optimizations.schedule_change import Choice, ScheduleChange, kernel_of
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.gluon_text import is_gluon
from mtmc.rewrite.templates.product_tiles import OWN_WARPS
from mtmc.source.sites import Sites

PAGE = """\
# pipeline

How many slices of the operands are on their way to shared memory while one is multiplied: num_stages.

## What it does
With num_stages above 1, the loads of the loop around tl.dot become asynchronous copies from memory to shared memory
(LDGSTS in the machine code of NVIDIA GPUs from A100 on), some turns ahead. With 1 there are none, and each slice is
waited for. A slice of both operands takes (bm + bn) * bk * bytes of a number of shared memory; n stages hold n slices
on Hopper and Blackwell's tensor cores, n - 1 elsewhere.

Loads in warps of their own (Hopper, fp16 and bf16): with tl.range(..., warp_specialize=True) one group of four warps
asks for slices as soon as there is room for them, and two groups multiply, 64 rows each; they hand registers to one
another (setmaxnreg). One group multiplies while the other works out exponentials, or stores, as in the libraries'
kernels for Hopper. Such loads go through descriptors that the kernel makes, since the compiler cuts them in two.

## When it pays
Products with a long inner dimension. 128 x 64 x 32 tiles of gelu(linear), 2048 x 4096 x 2048, H100: tf32x3 in 1 stage
0.586 ms, 2 stages 0.557, 4 stages 0.498. The faster the product itself, the more it gains: plain tf32 went from 0.291
to 0.165. 3 and 4 stages were within 2% of each other on every task that was timed with both (1.307 and 1.315 ms;
0.460 and 0.458).

## When it harms
- Shared memory: three stages of 128 x 128 x 64 in fp32 take 192 KiB on an H100 and 128 KiB on an A100, so only one
  program fits an SM; on an L4 they do not fit.
- Copies are 16 bytes wide only where strides are multiples of 16 elements, which Triton then knows; strides of 1000
  are compiled to 4-byte copies, four times as many. 1000 cubed took 0.207 ms, the library takes 0.064 for 1024 cubed.
- A short inner dimension never fills the stages.
- Warps of their own for loads: tiles have 128 rows and programs fill a multiprocessor each; attention has one loop,
  which masks all keys where rows have different numbers of them; each launch and program pays for making the
  descriptors.
- A loop without tl.dot is compiled to the same code for any num_stages: there, more elements and warps hide the
  latency.
"""

STAGES = (2, 3, 4, 5)
OWN_ROWS = 128
"""Of a tile whose loads have warps of their own: 64 for each of the two groups of warps that multiply."""
USUAL_STAGES = 3
"""Slices in flight that a version without a plan is offered: what does well on most GPUs."""


class Pipeline(ScheduleChange):
    """How many slices of a product are on their way at once."""

    kind = "pipeline"
    page = PAGE
    weight = 1.0
    changes = ("device_ms", "shared_memory")

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        if stage.template not in PRODUCTS:
            return []
        stages: list[tuple[Choice, str]] = [
            ({"num_stages": count}, f"apply a pipeline of {count} stages to the {stage.title} kernel")
            for count in STAGES
        ]
        return [*stages, *_own_warps(version, stage)]

    def sites(self, sites: Sites) -> Iterator[Action]:
        """Kernels that read memory in a loop."""
        for kernel in sites.kernels:
            if kernel.loads_in_loop:
                sentence = f"apply a pipeline of {USUAL_STAGES} stages to the {kernel.region.name} kernel"
                yield make_action(self.kind, kernel.region, sentence, num_stages=USUAL_STAGES)

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Three or four stages did best where they were timed; of convolutions three, whose taps are gathered."""
        kernel = kernel_of(observation, action)
        if kernel is not None and kernel.template == "convolution":
            return 0.7 if dict(action.params).get("num_stages") == 3 else -1.0
        return {2: -1.0, 3: 0.7, 4: 0.5, 5: -0.7}.get(int(dict(action.params).get("num_stages", 0)), 0.0)


def _own_warps(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """Whether loads have warps of their own, where the compiler can give them some."""
    schedule, name = dict(stage.schedule), stage.title
    attention = stage.template == "attention"
    if is_gluon(stage):  # which has them anyway
        return []
    if schedule.get("specialized"):
        masks: Choice = {"masks": "edges"} if attention else {}
        words = f"let all warps of the {name} kernel load and multiply again"
        return [({"specialized": 0, "operands": "descriptors", "num_warps": 2 * OWN_WARPS, **masks}, words)]
    if (
        version.hardware.target != "sm_90"
        or element_bytes(version.graph, stage) != 2
        or not suits_descriptors(version, stage)
    ):
        return []
    product: Choice = {"results": "descriptors", "epilogue": 1, "stream_k": 0}
    more: Choice = {"masks": "all"} if attention else product
    words = f"give the loads of the {name} kernel warps of their own"
    own: Choice = {"specialized": 1, "operands": "own_descriptors", "num_warps": OWN_WARPS, "block_m": OWN_ROWS}
    return [({**own, **more}, words)]
