"""descriptors: a product's operands are read through tensor descriptors, by the tensor memory accelerator."""

from __future__ import annotations

from mtmc.optimizations.schedule_change import Choice, ScheduleChange
from mtmc.optimizations.starts import WITH_DESCRIPTORS
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.product import analyse, describable

PAGE = """\
# descriptors

A product's tiles are read through tensor descriptors (TensorDescriptor on the host, .load in the kernel).

## What it does
A descriptor holds a matrix' address, sizes, strides and the size of a tile. On Hopper and Blackwell the tensor memory
accelerator copies a whole tile to shared memory on behalf of one thread, and puts 0 where the tile reaches over the
matrix: no addresses and masks are worked out for each element, and their registers are free. Elsewhere, and with
pointers, every thread copies its own 16 bytes (cp.async).

## When it pays
Large tiles in fp16 and bf16, whose products go straight from shared memory to the tensor cores, in loops of several
stages. It is a first step to what the libraries do on these GPUs. fp32 in three TF32 products gains as well: linear,
2048 x 4096 x 2048, H200, 128 x 128 x 64 tiles 0.42 ms with pointers and 0.37 with descriptors, 64 x 64 x 32 tiles in
two stages 0.65 and 0.46.

## When it harms
- The rows of both operands must begin at multiples of 16 bytes: sizes like 1000 do in fp32, sizes like 1002 do not.
  Other shapes take the path with pointers in the same kernel.
- Work on the left operand before the product needs masks again.
"""


class Descriptors(ScheduleChange):
    """Tensor descriptors for the operands of a product."""

    kind = "descriptors"
    page = PAGE
    weight = 0.5

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        if stage.template != "matmul" or version.hardware.target not in WITH_DESCRIPTORS:
            return []
        body = version.body(stage)
        assert body is not None
        if dict(stage.schedule).get("operands") == "descriptors":
            return [({"operands": "pointers"}, f"read the operands of the {stage.title} kernel through pointers again")]
        transposed_copy = dict(stage.schedule).get("right") == "transposed"
        if not describable(version.graph, analyse(version.graph, body), transposed_copy):
            return []
        return [
            ({"operands": "descriptors"}, f"read the operands of the {stage.title} kernel through tensor descriptors")
        ]
