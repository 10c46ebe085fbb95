"""precision: how the tensor cores are used for products of fp32 numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtmc.action import Action, make_action
from mtmc.optimizations.resources import PRODUCTS
from mtmc.optimizations.rounding import has_variance
from mtmc.optimizations.schedule_change import Choice, ScheduleChange, kernel_of
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.conv_rounding import ROUNDED
from mtmc.source.sites import Sites

PAGE = """\
# precision

How a product of fp32 numbers is computed: tl.dot(..., input_precision=...).

## What it does
"ieee" multiplies on the ordinary cores. "tf32x3" cuts each operand into a high and a low TF32 part and makes three
products on the tensor cores (low times low is left out). Norm-wise error against float64 for a linear of 2048 x 4096
x 2048: tf32x3 2.4e-7, the library's fp32 1.1e-6, plain "tf32" 7.8e-4.

## When it pays
fp32 products that arithmetic limits, on GPUs where a third of the TF32 rate is well above the fp32 rate (the hardware
page has both). The same tile of gelu(linear), 2048 x 4096 x 2048, H100: ieee 1.636 ms, tf32x3 0.498; the library
takes 0.691.

The library computes convolutions of fp32 numbers in TF32, unless torch.backends.cudnn.allow_tf32 is off. Where the
reference is run on the GPU, "tf32" is allowed, a third of the work of "tf32x3". Tensor cores cut off what the library
rounds, and err 2.5 times as much: behind a minimum over channels 5 times, which is refused, as are many behind running
statistics and means. "tf32_rounded" is as exact as the library: filters are rounded once where `pack` keeps them, and
the operand where it is made, or in the copy that turns it. Work before the convolution in its kernel leaves
the operand to be rounded in its loop: 1.35 to 2.2 times the time on an H200 (1.85 ms cut, 4.14 with both so rounded).

## When it harms
- Products that memory limits gain nothing; small ones little: 512 cubed 0.021 ms, the library 0.018.
- The parts of the operands need registers. On A100, L4 and RTX4090 a tile of 128 x 64 with 4 warps spills, one of 64
  x 64 does not (compiled with triton 3.9).
- Triton refuses "tf32x3" on AMD; there "ieee" is the fp32 product of the matrix cores.
- Products of 8-bit floats: Hopper's tensor cores keep their sums in fewer bits than fp32 has. "sums" = "fp32" adds up
  each slice apart and then in fp32, for which a second tile stands in registers; "fast" is what torch._scaled_mm does
  with use_fast_accum. Only the check on a GPU sees the difference: the interpreter adds in fp32.
- Plain "tf32" on the fp32 inputs of a linear layer (0.165 ms) fails the check: it is some 700 times less exact than
  eager mode. tl.dot on NVIDIA GPUs is "tf32", so for fp32 inputs input_precision must always be given. fp16 and bf16
  inputs need none.
"""


class Precision(ScheduleChange):
    """How products of fp32 numbers are computed, and where sums of products of 8 bits are kept."""

    kind = "precision"
    page = PAGE
    weight = 2.5
    changes = ("device_ms",)

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        if stage.template not in PRODUCTS:
            return []
        if stage.setting("precision") == "input":
            other = {"fp32": "fast", "fast": "fp32"}.get(str(dict(stage.schedule).get("sums")), "")
            words = "leave the sums" if other == "fast" else "keep the sums in fp32"
            where = "to the tensor cores" if other == "fast" else "between slices"
            return [({"sums": other}, f"{words} of the {stage.title} kernel's 8-bit product {where}")] if other else []
        ways = {
            "tf32": "in one TF32 product, as the library's convolution does",
            ROUNDED: "in one TF32 product of operands that are rounded before, not cut off",
            "tf32x3": "in three TF32 products",
            "ieee": "in plain fp32",
        }
        return [
            ({"precision": way}, f"compute the {stage.title} kernel's product {ways[way]}")
            for way in version.fp32_products(stage.template)
            if stage.setting("precision") != "tf32"  # the fastest there is
            and not (way == "tf32" and _has_variance(version, stage))
        ]

    def sites(self, sites: Sites) -> Iterator[Action]:
        """Three TF32 products for kernels that multiply in plain fp32."""
        for kernel in sites.kernels:
            if kernel.exact_dot:
                sentence = f"compute the {kernel.region.name} kernel's product in three TF32 products"
                yield make_action(self.kind, kernel.region, sentence, precision="tf32x3")

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """The fastest way that is as exact as the reference."""
        sums = dict(action.params).get("sums")
        if sums is not None:
            return 0.0 if sums == "fast" else -1.0
        kernel = kernel_of(observation, action)
        if kernel is not None and dict(kernel.schedule).get("precision") == ROUNDED:  # nothing else is much faster
            return 0.0 if dict(action.params).get("precision") == "tf32" else -3.0
        # Rounded once in memory, operands cost a pass over it at most, and cut off they are refused often.
        return {ROUNDED: 1.5, "tf32": 1.2, "tf32x3": 1.0}.get(str(dict(action.params).get("precision")), -3.0)


def _has_variance(version: Version, stage: Stage) -> bool:
    """Whether a variance is taken of what a stage makes, which operands that are cut off make too small."""
    body = version.body(stage)
    return body is not None and has_variance(version.graph, body)
