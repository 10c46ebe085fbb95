"""schedules: a kernel's settings as numbers, and how they suit what it computes and the GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from mtmc.agents.policies.learned.stages import StageFacts
from mtmc.hardware import Hardware
from mtmc.rewrite.plan import Setting, Stage

Features = dict[str, float]
Schedule = tuple[tuple[str, Setting], ...]


def settings_features(old: Stage, new: Stage) -> Mapping[str, float]:
    """What a kernel's settings are, and how they differ from those that it had before.

    Of a whole number `set:NAME` is log2(1 + new) / 4 and `change:NAME` log2 of (1 + new) over (1 + old) / 2, of a word
    `with:NAME=WORD` and, where it was not so before, `to:NAME=WORD` are 1. `settings_changed`: how many / 4.
    """
    return _settings(old.schedule, new.schedule)


@lru_cache(maxsize=65536)
def _settings(old: Schedule, new: Schedule) -> Features:
    before, found = dict(old), Features()
    found["settings_changed"] = sum(before.get(name) != value for name, value in new) / 4
    for name, value in new:
        then = before.get(name)
        if isinstance(value, int):
            found[f"set:{name}"] = math.log2(1 + value) / 4
            if value != then:
                found[f"change:{name}"] = math.log2((1 + value) / (1 + (then if isinstance(then, int) else 0))) / 2
        else:
            found[f"with:{name}={value}"] = 1.0
            if value != then:
                found[f"to:{name}={value}"] = 1.0
    return found


def fit_features(stage: Stage, facts: StageFacts, gpu: Hardware) -> Features:
    """How a kernel's schedule suits what it computes and the GPU; nothing for a stage that touches no memory.

    fit_programs: log2 / 4. fit_waves: log2 of programs over multiprocessors / 4. fit_last_wave: share of the last round of
    programs that is filled. fit_thread: log2 of elements a thread / 4. fit_shared: share of the shared memory that is asked
    for. fit_steps: log2 of turns of the inner loop / 4. fit_waste: share of the tiles that lies outside of the result.
    """
    if not facts.elements:
        return {}
    settings = {name: int(value) for name, value in stage.schedule if isinstance(value, int)}
    threads = 32 * settings.get("num_warps", 4)
    if "block_m" in settings and "block_n" in settings and facts.n:
        return _tiled(settings, facts, gpu, threads)
    if "block_rows" in settings:
        return _rows(settings, facts, gpu, threads)
    block = settings.get("block", 1024)
    return _numbers(math.ceil(facts.elements / block), gpu, block / threads, 0.0, 1.0, 0.0)


def _tiled(settings: dict[str, int], facts: StageFacts, gpu: Hardware, threads: int) -> Features:
    m, n = settings["block_m"], settings["block_n"]
    k = settings.get("block_k", 32)
    tiles = math.ceil(facts.m / m) * math.ceil(facts.n / n)
    split = settings.get("split_k", 1)
    shared = settings.get("num_stages", 1) * (m * k + k * n) * facts.width / gpu.shared_per_block
    waste = 1.0 - facts.m * facts.n / (tiles * m * n)
    if settings.get("symmetric"):  # half of the tiles, and the diagonal
        tiles = (tiles + math.ceil(facts.m / m)) // 2
    programs = settings.get("stream_k") or tiles * split
    steps = max(1.0, facts.k * tiles / (k * programs))
    numbers = _numbers(programs, gpu, m * n / threads, shared, steps, waste)
    if persistent := settings.get("persistent"):  # fewer programs, as many tiles in the last round
        numbers["fit_programs"] = math.log2(min(programs, persistent)) / 4
    return numbers


def _rows(settings: dict[str, int], facts: StageFacts, gpu: Hardware, threads: int) -> Features:
    cols = max(1, facts.cols)
    rows = max(1, facts.elements // cols)
    columns = settings.get("block_cols") or 1 << (cols - 1).bit_length()
    split = max(1, settings.get("split", 1))
    programs = math.ceil(rows / settings["block_rows"]) * split
    steps = math.ceil(cols / (columns * split))
    waste = max(0.0, 1.0 - cols / (steps * columns * split))
    return _numbers(programs, gpu, settings["block_rows"] * columns / threads, 0.0, steps, waste)


def _numbers(programs: int, gpu: Hardware, thread: float, shared: float, steps: float, waste: float) -> Features:
    programs = max(1, programs)
    waves = programs / gpu.sms
    return {
        "fit_known": 1.0,
        "fit_programs": math.log2(programs) / 4,
        "fit_waves": math.log2(waves) / 4,
        "fit_last_wave": waves / math.ceil(waves),
        "fit_thread": math.log2(thread) / 4,
        "fit_shared": shared,
        "fit_steps": math.log2(steps) / 4,
        "fit_waste": waste,
    }
