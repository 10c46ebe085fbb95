"""fit: how a schedule suits what it computes and the GPU: programs, waves, elements a thread, shared memory, waste."""

from __future__ import annotations

import math

from mtmc.agents.learned.stages import StageFacts
from mtmc.evaluate.hardware import Hardware
from mtmc.rewrite.plan import Stage

SETTINGS = (
    *("block_m", "block_n", "block_k", "num_warps", "num_stages", "group_m", "split_k", "split_n", "split"),
    *("block_rows", "block_cols", "block"),
)
"""Settings of schedules that are whole numbers, with a number of their own; block_cols is 0 for a row held whole."""

FIT_NAMES = (
    "fit_known",
    "fit_programs",
    "fit_waves",
    "fit_last_wave",
    "fit_thread",
    "fit_shared",
    "fit_steps",
    "fit_waste",
)
"""fit_programs: log2 / 4. fit_waves: log2 of programs over multiprocessors / 4. fit_last_wave: share of the last round of
programs that is filled. fit_thread: log2 of elements a thread / 4. fit_shared: share of the shared memory that is asked
for. fit_steps: log2 of turns of the inner loop / 4. fit_waste: share of the tiles that lies outside of the result."""


def settings_values(old: Stage | None, new: Stage | None) -> list[float]:
    """Two numbers for each of `SETTINGS` (log2(1 + new) / 4, and log2 of new over old / 2), then what changes in words: to
    tf32x3, to ieee, to registers, to a loop, to columns first. Zeros where there is no kernel."""
    before, after = (dict(each.schedule) if each is not None else {} for each in (old, new))
    values: list[float] = []
    for name in SETTINGS:
        now, then = after.get(name), before.get(name)
        known = isinstance(now, int) and isinstance(then, int)
        values.append(math.log2(1 + int(now)) / 4 if known and now is not None else 0.0)
        values.append(
            math.log2((1 + int(now)) / (1 + int(then))) / 2 if known and now is not None and then is not None else 0.0
        )
    for name, word in (
        ("precision", "tf32x3"),
        ("precision", "ieee"),
        ("passes", "registers"),
        ("passes", "loop"),
        ("order", "nm"),
    ):
        values.append(float(after.get(name) == word and before.get(name) != word))
    return values


def fit(stage: Stage | None, facts: StageFacts, gpu: Hardware) -> list[float]:
    """The numbers of `FIT_NAMES` for a kernel with its schedule; zeros where there is none."""
    if stage is None or not facts.elements:
        return [0.0] * len(FIT_NAMES)
    settings = {name: int(value) for name, value in stage.schedule if isinstance(value, int)}
    threads = 32 * settings.get("num_warps", 4)
    if "block_m" in settings and "block_n" in settings and facts.n:
        return _tiled(settings, facts, gpu, threads)
    if "block_rows" in settings:
        return _rows(settings, facts, gpu, threads)
    block = settings.get("block", 1024)
    return _numbers(math.ceil(facts.elements / block), gpu, block / threads, 0.0, 1.0, 0.0)


def _tiled(settings: dict[str, int], facts: StageFacts, gpu: Hardware, threads: int) -> list[float]:
    m, n = settings["block_m"], settings["block_n"]
    k = settings.get("block_k", 32)
    tiles = math.ceil(facts.m / m) * math.ceil(facts.n / n)
    split = settings.get("split_k", 1)
    shared = settings.get("num_stages", 1) * (m * k + k * n) * facts.width / gpu.shared_per_block
    waste = 1.0 - facts.m * facts.n / (tiles * m * n)
    return _numbers(tiles * split, gpu, m * n / threads, shared, max(1.0, facts.k / (k * split)), waste)


def _rows(settings: dict[str, int], facts: StageFacts, gpu: Hardware, threads: int) -> list[float]:
    cols = max(1, facts.cols)
    rows = max(1, facts.elements // cols)
    columns = settings.get("block_cols") or 1 << (cols - 1).bit_length()
    split = max(1, settings.get("split", 1))
    programs = math.ceil(rows / settings["block_rows"]) * split
    steps = math.ceil(cols / (columns * split))
    waste = max(0.0, 1.0 - cols / (steps * columns * split))
    return _numbers(programs, gpu, settings["block_rows"] * columns / threads, 0.0, steps, waste)


def _numbers(programs: int, gpu: Hardware, thread: float, shared: float, steps: float, waste: float) -> list[float]:
    programs = max(1, programs)
    waves = programs / gpu.sms
    last = waves / math.ceil(waves)
    return [
        1.0,
        math.log2(programs) / 4,
        math.log2(waves) / 4,
        last,
        math.log2(thread) / 4,
        shared,
        math.log2(steps) / 4,
        waste,
    ]
