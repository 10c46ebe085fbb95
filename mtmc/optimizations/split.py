"""split: several programs share what one had to do alone; a second small kernel puts their shares together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtmc.action import Action, make_action
from mtmc.optimizations.schedule_change import Choice, ScheduleChange, kernel_of
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.attention_shares import can_pack
from mtmc.rewrite.templates.gluon_text import is_gluon
from mtmc.rewrite.templates.product import Product, analyse, tiles_of
from mtmc.rewrite.templates.rows import rows_of
from mtmc.rewrite.templates.rowwise import looping
from mtmc.rewrite.templates.scan_body import scanned
from mtmc.rewrite.templates.softmax_product import analyse as attention
from mtmc.source.sites import Sites

PAGE = """\
# split

Several programs share what one had to do alone; a second small kernel puts their shares together.

## What it does
Cuts the inner dimension of a product (split-K), the columns of a product that is reduced as it is made, or each row of
a reduction or a scan. Each program writes its share, a second kernel adds the shares up in a fixed order, so results
are the same every time (atomics would not give that). It costs the bytes of the shares, twice, and a launch (some 3.5
us).
Where each element needs what its row was reduced to (a norm, softmax), the second kernel goes over the rows once more,
from memory again if all rows are more than the cache holds.

Attention of few queries over many keys: programs share the keys, each keeps its largest scores and sums, and the second
kernel weighs them against each other. Heads of queries that share keys may stand in the rows of one program, which
reads the keys once for all of them and fills the tensor cores' 16 rows.

## When it pays
When there are fewer programs than multiprocessors. Sums of 64 rows of 2097152 fp32 numbers, H100 (132 SMs), blocks of
1024:

    1 program a row 0.724 ms    4 a row 0.246    32 a row 0.188    256 a row 0.187    the library 0.193

The 537 MB take 0.18 ms: two thousand programs (15 an SM) are enough, more change nothing. Products with small m and n
and a large k. 256 x 524288 x 256 in fp32, H200, tiles of 128 x 128 with swapped operands: 32 programs a tile 0.989 ms,
33 (one for each multiprocessor) 0.961, 64 1.050; the library 1.31.

## When it harms
When the chip is full already: the shares are written and read in vain, and a launch is added. A kernel of 0.02 ms
loses a sixth to the second launch alone.
"""

SPLITS_K = (1, 2, 4, 8, 16, 32, 64)
LEAST_INNER = 2048
"""Of a product for each program that shares it, where there are many."""
SPLITS_KEYS = (1, 2, 4, 8, 16, 32, 64)
LEAST_KEYS = 128
"""Of an attention for each program that shares them."""
MOST_QUERIES = 128
"""Of an attention whose keys are worth sharing: with more of them there are programs enough."""
SPLITS_N = (1, 4, 8, 16, 32)
SPLITS_SCAN = (1, 4, 8, 16, 32)
SPLITS_ROW = (1, 4, 16, 64, 256, 1024)
SHARES = ("split_k", "split_n", "split", "split_keys")
"""Settings that say among how many programs something is shared."""
LEAST_COLUMNS = 512
"""Of a row for each program that shares it, where there are many: fewer are not worth a program."""
FEW_PROGRAMS = 264
"""Two for each multiprocessor of an H100: with fewer, sharing pays."""
MOST_PROGRAMS = 16384
"""Of all rows together: far more than any GPU runs at once, so that more are of no use."""


class Split(ScheduleChange):
    """Several programs share what one had to do alone."""

    kind = "split"
    page = PAGE
    weight = 0.4
    changes = ("programs", "occupancy")

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """See `ScheduleChange.offer`."""
        if stage.template == "matmul":
            body = version.body(stage)
            if body is not None and any(node.kind == "reduce" for node in body.nodes):
                return [
                    ({"split_n": count}, f"split the columns of the {stage.title} kernel among {count} programs")
                    for count in SPLITS_N
                ]
            assert body is not None
            found = analyse(version.graph, body)
            inner = max(found.k)
            return [
                ({"split_k": count}, f"split the inner dimension of the {stage.title} kernel among {count} programs")
                for count in sorted({*SPLITS_K, *_filling(version, stage, found)})
                if count <= 8 or inner // count >= LEAST_INNER
            ]
        if stage.template == "attention":
            return [] if is_gluon(stage) else _keys(version, stage)
        if stage.template == "scan":
            body = version.body(stage)
            assert body is not None
            shape, dim = scanned(body)
            columns, block = max(shape[dim]), stage.number("block_cols")
            return [
                ({"split": count}, f"split each row of the {stage.title} kernel among {count} programs")
                for count in SPLITS_SCAN
                if count != dict(stage.schedule).get("split", 1) and (count == 1 or columns // count >= block)
            ]
        if stage.template == "rowwise":
            body = version.body(stage)
            assert body is not None
            layout = rows_of(version.graph, body, stage)
            rows, columns = max(layout.rows, default=1), max(layout.cols, default=1)
            loop = looping(version.graph, body, layout) if stage.setting("passes") != "loop" else {}
            return [
                (
                    {**loop, "split": count, "passes": "loop"},
                    f"split each row of the {stage.title} kernel among {count} programs",
                )
                for count in SPLITS_ROW
                if count != stage.number("split")
                and (
                    count == 1 or (rows * count <= MOST_PROGRAMS and (count <= 4 or columns // count >= LEAST_COLUMNS))
                )
            ]
        return []

    def sites(self, sites: Sites) -> Iterator[Action]:
        """Kernels that reduce, or read memory in a loop."""
        for kernel in sites.kernels:
            if kernel.loads_in_loop or kernel.reduction:
                sentence = f"split the {kernel.region.name} kernel's reduction among more programs"
                yield make_action(self.kind, kernel.region, sentence)

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Only where there are too few programs, and never among fewer of these."""
        programs, kernel = observation.outcome.metrics.get("programs"), kernel_of(observation, action)
        if programs is None or programs >= FEW_PROGRAMS:
            return -1.5
        now = {} if kernel is None else dict(kernel.schedule)
        fewer = any(int(now.get(name, 1)) > int(dict(action.params).get(name, MOST_PROGRAMS)) for name in SHARES)
        return -3.0 if fewer else 2.0


def _filling(version: Version, stage: Stage, found: Product) -> tuple[int, ...]:
    """Among how many programs each sum is shared where all multiprocessors have one, if a tile alone leaves most idle."""
    count = version.hardware.sms // tiles_of(found, stage.number("block_m"), stage.number("block_n"))
    return (count,) if count > 1 else ()


def _keys(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    """Among how many programs the keys of a block of queries are shared, and whether heads that share keys share one."""
    body, schedule = version.body(stage), dict(stage.schedule)
    assert body is not None
    found, name = attention(version.graph, body), stage.title
    offers: list[tuple[Choice, str]] = []
    if found.rows[0] <= MOST_QUERIES and not found.causal:
        for count in SPLITS_KEYS:
            if count == 1 or found.columns[0] // count >= LEAST_KEYS:
                choice: Choice = {"split_keys": count, "masks": "edges"}
                offers.append((choice, f"split the keys of the {name} kernel among {count} programs"))
    if schedule.get("packed"):
        offers.append(({"packed": 0}, f"give each head of the {name} kernel's queries programs of its own again"))
    elif can_pack(version.graph, found):
        words = f"pack the heads of the {name} kernel that share keys into the rows of one program"
        offers.append(({"packed": 1, "operands": "pointers", "specialized": 0}, words))
    return offers
