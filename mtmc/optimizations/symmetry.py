"""symmetry: of a product whose result is symmetric, half is computed, and stored twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from mtmc.action import Action, make_action
from mtmc.hardware import Hardware
from mtmc.optimizations.move import Move
from mtmc.optimizations.resources import shared_bytes
from mtmc.optimizations.schedule_change import Choice, ScheduleChange
from mtmc.optimizations.version import Version, also
from mtmc.protocols import Observation
from mtmc.rewrite.graph import product
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.product import Product, analyse
from mtmc.rewrite.templates.product_symmetric import SETTING, is_symmetric

PAGE = """\
# symmetry

Of a product whose result is symmetric only the tiles on and above the diagonal are computed; each is stored, and
its transpose on the other side.

## What it does
x @ x.T is symmetric, and so is its square, what is added to it that is symmetric, and every elementwise function of
these and of numbers. With T square tiles along a side, T (T + 1) / 2 programs have work instead of T * T: 36 of 64 for
1024 x 1024 in tiles of 128. The operands are read less often as well, and what comes after the product (b * s + c * s
@ s) is computed once for both sides. No library call does that in 16 bits: cuBLAS has it for fp32 and fp64 alone.
Calls of the library are made such kernels in the same step. Where there are fewer tiles than multiprocessors, programs
share the inner dimension, and the kernel that adds up their shares makes half of the result, too.

## When it pays
Gram and covariance matrices, the squares in Newton and Schulz's steps (Muon, Shampoo, matrix roots), where the product
is large enough to fill the chip: from some 2000 rows on, or some 1000 with a long inner dimension that is shared.
By estimate alone, H200, bf16, x @ x.T beside our best kernel of all tiles: 1024 x 4096 takes 0.79 of the time (shared
by three programs), 4096 x 4096 0.43, and 0.64 of the library's. 2048 x 2048 gains nothing. None was timed on a GPU.

## When it harms
- Few tiles: 512 x 512 in tiles of 128 are 10 instead of 16, which ran side by side anyway.
- Tiles must be square: the library's 128 x 256 are faster, each by itself.
- The transposed store writes a tile once more through shared memory.
- Elements on both sides are the same to the last bit, where the reference's may differ by roundings.
"""

SIDES = {128: (8, 0.85), 64: (4, 0.55)}
"""Of a tile: its warps, and how fast the tensor cores are beside their peak with it (`starts`)."""
LEAST_INNER = 512
"""Of a product for each program that shares it: its share is written and read once more."""
MOST_SPLIT = 16
SECOND_US = 4.0
"""What the kernel takes that adds up shares: its launch, and the shares' bytes from the cache."""
OFFERED = 2
"""Tiles and numbers of shares: the best by `_time_us`."""
FIRST, OTHER, BACK = 1.5, -0.5, -2.0
"""Logits: of the best tile for a product, of others, and of all tiles again."""


class Symmetry(ScheduleChange):
    """Half of a symmetric product."""

    kind = "symmetry"
    page = PAGE
    weight = 1.2
    changes = ("flops", "programs")

    def legal(self, version: Version) -> Iterator[Move]:
        """For each kernel and call of the library whose result is symmetric, and those like it: half of it in tiles of some
        sizes; and all of it again."""
        once = version.kept()
        found = [
            (stage, kernel) for stage in version.working() if (kernel := _kernel(version, stage)) and stage not in once
        ]
        kernels = dict(found)
        for stage, others in version.isomorphic(list(kernels)):
            for choice, sentence in self.offer(version, kernels[stage]):
                changed = kernels[stage].scheduled(choice)
                if changed == stage or not version.prints(changed):
                    continue
                action = make_action(self.kind, version.region(stage), sentence + also(others), **choice)
                halves = {each: kernels[each].scheduled(choice) for each in (stage, *others)}
                yield Move(action, partial(version.plan.with_stages, halves), changed)

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        body = version.body(stage)
        assert body is not None
        found, schedule, name = analyse(version.graph, body), dict(stage.schedule), stage.title
        offers: list[tuple[Choice, str]] = []
        ways = [(side, split) for side in SIDES for split in _splits(found, side, version.hardware.sms)]
        for side, split in sorted(ways, key=lambda way: _time_us(found, way[0], way[1], version.hardware))[:OFFERED]:
            choice: Choice = {
                **{SETTING: 1, "block_m": side, "block_n": side, "num_warps": SIDES[side][0], "split_k": split},
                **{each: 0 for each in ("persistent", "stream_k", "specialized", "dispatch") if schedule.get(each)},
                **({"epilogue": 1} if "epilogue" in schedule else {}),
                **({"results": "pointers"} if split > 1 and "results" in schedule else {}),
            }
            shares = f", its inner dimension shared by {split} programs" if split > 1 else ""
            words = f"make half of the symmetric {name} kernel in tiles of {side}x{side}{shares}"
            if shared_bytes(version.graph, stage.scheduled(choice)) <= version.hardware.shared_per_block:
                offers.append((choice, words))
        if schedule.get(SETTING):
            offers.append(({SETTING: 0}, f"make all tiles of the {name} kernel again"))
        return offers

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Towards half of the work, in the tile that is thought best."""
        if not dict(action.params).get(SETTING):
            return BACK
        same = [each for each in actions if each.kind == self.kind and each.region.name == action.region.name]
        halved = any(not dict(each.params).get(SETTING) for each in same)
        return FIRST if not halved and same[:1] and same[0].key == action.key else OTHER


def _kernel(version: Version, stage: Stage) -> Stage | None:
    """A stage as a kernel of a symmetric product; None where it is none."""
    if not stage.is_torch and stage.template != "matmul":
        return None
    if stage.is_torch and version.template(stage) != "matmul":
        return None
    kernel = version.as_kernel(stage.ops, {}) if stage.is_torch else stage
    body = None if kernel is None else version.body(kernel)
    if body is None or not is_symmetric(version.graph, body, analyse(version.graph, body)):
        return None
    return kernel


def _tiles(found: Product, side: int) -> int:
    """How many tiles of that side are made."""
    across = math.ceil(found.n[0] / side)
    return across * (across + 1) // 2 * (product(found.batch)[0] if found.batch else 1)


def _splits(found: Product, side: int, sms: int) -> tuple[int, ...]:
    """Among how many programs a tile's inner dimension may be shared: one, and as many as there are places for."""
    most = min(MOST_SPLIT, found.k[0] // LEAST_INNER, max(1, sms // _tiles(found, side)))
    return (1, most) if most > 1 else (1,)


def _time_us(found: Product, side: int, split: int, gpu: Hardware) -> float:
    """Microseconds of half a product by the tensor cores' peak: of the multiprocessor that has the most tiles."""
    rate = gpu.fp16_tflops if found.short else gpu.tf32_tflops / 3
    flops = 2 * side * side * found.k[0] / split * math.ceil(_tiles(found, side) * split / gpu.sms)
    return flops / (rate / gpu.sms * 1e6 * SIDES[side][1]) + (SECOND_US if split > 1 else 0.0)
