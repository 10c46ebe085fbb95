"""descriptors: tiles of products come and go through tensor descriptors, by the tensor memory accelerator."""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.action import Action
from mtmc.optimizations.schedule_change import Choice, ScheduleChange
from mtmc.optimizations.starts import WITH_DESCRIPTORS
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates import attention_tiles, softmax_product
from mtmc.rewrite.templates.gluon_text import is_gluon
from mtmc.rewrite.templates.product import analyse, describable

PAGE = """\
# descriptors

Tiles of a product, or of attention, are read and written through tensor descriptors (TensorDescriptor on the host,
.load and .store in the kernel).

## What it does
A descriptor holds a matrix' address, sizes, strides and the size of a tile. On Hopper and Blackwell the tensor memory
accelerator copies a whole tile to shared memory on behalf of one thread, and puts 0 where the tile reaches over the
matrix: no addresses and masks are worked out for each element, and their registers are free. Elsewhere, and with
pointers, every thread copies its own 16 bytes (cp.async). A result that is stored so goes through shared memory as
well: one thread sends it on its way, and a persistent program begins its next tile meanwhile. It may be finished and
stored in two or four parts of neighbouring columns, each of which needs a half or a quarter of the registers and the
memory.

## When it pays
Large tiles in fp16 and bf16, whose products go straight from shared memory to the tensor cores, in loops of several
stages. It is a first step to what the libraries do on these GPUs. fp32 in three TF32 products gains as well: linear,
2048 x 4096 x 2048, H200, 128 x 128 x 64 tiles 0.42 ms with pointers and 0.37 with descriptors, 64 x 64 x 32 tiles in
two stages 0.65 and 0.46. Parts pay for tiles of 128 x 256, where shared memory limits the number of stages, and for
long epilogues that would spill.

## When it harms
- The rows of all operands must begin at multiples of 16 bytes: sizes like 1000 do in fp32, sizes like 1002 do not.
  Other shapes take the path with pointers in the same kernel.
- Work on the left operand before the product needs masks again.
- A stored tile needs shared memory of its own where the next one is read meanwhile: 64 KiB for 128 x 256 in bf16, in
  two parts 32, which leaves room for a fourth stage of 48 KiB.
- Parts are cut by moving columns among threads, which costs some instructions a tile; small tiles have no use for
  them.
"""


PARTS = (1, 2, 4)
"""In which a tile is stored."""
LEAST_COLUMNS = 64
"""Of a part: 128 bytes in bf16, a line of memory."""


class Descriptors(ScheduleChange):
    """Tensor descriptors for the operands and results of a product."""

    kind = "descriptors"
    page = PAGE
    weight = 0.5
    changes = ("registers",)

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        if version.hardware.target not in WITH_DESCRIPTORS or not suits_descriptors(version, stage):
            return []
        if is_gluon(stage):  # which has them anyway
            return _parts(version, stage) if stage.template == "matmul" else []
        schedule, name = dict(stage.schedule), stage.title
        offers: list[tuple[Choice, str]] = []
        if schedule.get("operands", "pointers") != "pointers":
            words = f"read the operands of the {name} kernel through pointers again"
            offers.append(({"operands": "pointers", "results": "pointers", "specialized": 0}, words))
        else:
            words = f"read the operands of the {name} kernel through tensor descriptors"
            offers.append(({"operands": "descriptors"}, words))
        if stage.template == "attention":
            return offers
        if schedule.get("results", "pointers") != "pointers":
            offers.append(({"results": "pointers"}, f"write the {name} kernel's result through pointers again"))
        else:
            operands = {} if schedule.get("operands") == "own_descriptors" else {"operands": "descriptors"}
            words = f"read the operands of the {name} kernel and write its result through tensor descriptors"
            offers.append(({**operands, "results": "descriptors"}, words))
        return [*offers, *_parts(version, stage)]

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Towards descriptors rather than back."""
        return -1.0 if "pointers" in dict(action.params).values() else 0.5


def _parts(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """In how many parts a tile is stored, where a program makes all of its result."""
    body, schedule = version.body(stage), dict(stage.schedule)
    assert body is not None
    shared = stage.number("split_k") > 1 or schedule.get("stream_k") or analyse(version.graph, body).reduces
    now, offers = int(schedule.get("epilogue", 1)), list[tuple[Choice, str]]()
    for parts in () if shared or schedule.get("specialized") else PARTS:
        if parts != now and (parts == 1 or stage.number("block_n") // parts >= LEAST_COLUMNS):
            words = "in one part" if parts == 1 else f"in {parts} parts one after the other"
            offers.append(({"epilogue": parts}, f"store the tiles of the {stage.title} kernel {words}"))
    return offers


def suits_descriptors(version: Version, stage: Stage) -> bool:
    """Whether operands may have descriptors at the full shapes."""
    if stage.template not in ("matmul", "attention"):
        return False
    body = version.body(stage)
    assert body is not None
    if stage.template == "attention":
        return attention_tiles.describable(version.graph, softmax_product.analyse(version.graph, body))
    transposed_copy = dict(stage.schedule).get("right") == "transposed"
    return describable(version.graph, analyse(version.graph, body), transposed_copy)
