"""descriptors: a product's operands are read through tensor descriptors, by the tensor memory accelerator."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.families.product import analyse
from mtmc.rewrite.plan import Stage

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
stages. It is a first step to what the libraries do on these GPUs. Not timed here.

## When it harms
- Three TF32 products: the operands must be cut in two in registers all the same, so fewer instructions are saved.
- The rows of both operands must begin at multiples of 16 bytes: sizes like 1000 do in fp32, sizes like 1002 do not.
  Other shapes take the path with pointers in the same kernel.
- Work on the left operand before the product needs masks again.
"""

SINCE = ("sm_90", "sm_100")
"""Targets with a tensor memory accelerator."""


def _offer(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    if stage.family != "matmul" or version.hardware.target not in SINCE:
        return []
    body = version.body(stage)
    assert body is not None
    found = analyse(version.graph, body)
    size = 4 if version.graph.values[found.left].dtype == "float32" else 2
    rows = (found.k, found.k if found.transposed else found.n)
    if dict(stage.schedule).get("operands") == "descriptors":
        return [({"operands": "pointers"}, f"read the operands of the {stage.name} kernel through pointers again")]
    if any(length[0] * size % 16 for length in rows):
        return []
    return [({"operands": "descriptors"}, f"read the operands of the {stage.name} kernel through tensor descriptors")]


Descriptors = Settings("descriptors", PAGE, _offer)
