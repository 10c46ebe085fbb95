"""specialize: groups of warps with work of their own, written in Gluon: one asks for tiles, the others multiply."""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.action import Action
from mtmc.optimizations.schedule_change import Choice, ScheduleChange
from mtmc.optimizations.starts import TRITON_ATTENTION, TRITON_PRODUCT, gluon_product_start, gluon_start
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.body import Body
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import gluon_product, product
from mtmc.rewrite.templates.gluon_text import LANGUAGE, is_gluon
from mtmc.rewrite.templates.softmax_product import analyse

PAGE = """\
# specialize

The kernel of attention or of a product is written in Gluon, Triton's language of layouts and barriers, for Hopper:
warps are specialized.

## What it does
One warp asks the tensor memory accelerator for blocks of keys and values; two to four groups of four warps multiply,
64 rows of queries each. They tell each other by barriers in shared memory which block is there and which place is
free. A group starts the next block's scores, then the last block's weighted sum of values (wgmma, asynchronous), and
works out exponentials meanwhile, which Triton's own pipelining does not do. Registers go from the loading warp to
the groups (setmaxnreg): 240 a thread for two groups, 160 for three, 112 for four. Blocks of keys are masked only
where a row's edge is in them. Of a product each group has 64 rows; slices of two right operands lie side by side, so
one instruction multiplies with both (256 columns) and reads the left operand once.

## When it pays
Attention of many queries in fp16 or bf16 with heads of 64, 128 or 256. With 128 keys at a time in two stages, heads
of 128 and scores that are scaled and shifted at once (bf16, H100) it has 1.04x of cuDNN's speed for 4096 queries and
0.94x of FlashAttention 3's, causal 1.21x and 0.95x by persistent programs whose blocks overlap, and for 16384
queries, causal, 1.17x and 0.91x by one block a program. Triton's start has 0.85x of cuDNN's. With heads of 64 there
is an exponential for half as many products, and both take the same time: there three groups (192 queries, 128 keys in
three stages) that rescale late have 1.05x and 1.00x. Under a window it takes 0.30 ms and Triton's kernel 0.42.
Two products and their gate: 1.380 ms, in Triton 1.488, torch.compile 1.441 (4096 x 4096 x 14336, bf16, H200); one
product gains 1%.

## When it harms
- A GELU behind one product: little of a group's work on its tile is hidden, 3% slower than Triton's.
- On other GPUs the file says so and stops: Ampere has no such instructions, Blackwell has others.
- Few queries: a program has 128 to 256 rows, and fills a multiprocessor by itself.
- Biases that are loaded for each score are loaded in the layout of the tensor cores, element by element.
- Nothing can run it without a GPU: it is no legal action where no version's calls were timed.
- Heads that are no power of two are padded to one: 80 costs as much as 128.
"""


class Specialize(ScheduleChange):
    """Attention and products in Gluon, and back."""

    kind = "specialize"
    page = PAGE
    weight = 2.0
    changes = ("device_ms", "registers")

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`. Nothing where no GPU evaluates: the lab compiles such a kernel and cannot run it."""
        body = version.body(stage)
        if version.hardware.target != "sm_90" or not version.on_gpu or body is None:
            return []
        back = f"write the {stage.title} kernel in Triton again"
        if stage.template == "matmul":
            return _product(version, stage, body, back)
        if stage.template != "attention":
            return []
        if is_gluon(stage):
            alone: Choice = {name: 0 for name in ("persistent", "overlap") if dict(stage.schedule).get(name)}
            return [({**TRITON_ATTENTION, **alone, "language": "triton"}, back)]
        words = f"write the {stage.title} kernel in Gluon: one warp loads, groups of four multiply 64 rows each"
        start = gluon_start(version.graph, analyse(version.graph, body), version.hardware.sms)
        return [({**start, "language": LANGUAGE}, words)]

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Towards Gluon rather than back."""
        return 2.0 if dict(action.params).get("language") == LANGUAGE else -2.0


def _product(version: Version, stage: Stage, body: Body, back: str) -> list[tuple[Choice, str]]:
    """The same of a product, or of two of one operand."""
    if is_gluon(stage):
        return [({**TRITON_PRODUCT, "language": "triton"}, back)]
    found = product.analyse(version.graph, body)
    if gluon_product.why_not(version.graph, body, found):
        return []
    words = f"write the {stage.title} kernel in Gluon: one warp loads, two groups of four multiply 64 rows each"
    return [({**gluon_product_start(found, stage, version.hardware.sms), "language": LANGUAGE}, words)]
