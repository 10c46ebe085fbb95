"""fit: how a schedule suits what it computes and the GPU: programs, waves, elements a thread, shared memory, waste."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from mtmc.agents.policies.learned.stages import StageFacts
from mtmc.hardware import Hardware
from mtmc.rewrite.plan import Setting, Stage

Schedule = tuple[tuple[str, Setting], ...]

SETTINGS = (
    *("block_m", "block_n", "block_k", "block_v", "num_warps", "num_stages", "group_m", "split_k", "split_n", "split"),
    *("block_rows", "block_cols", "block", "persistent", "stream_k"),
)
"""Settings of schedules that are whole numbers, with a number of their own; block_cols is 0 for a row held whole. One that
a schedule does not have counts as 0."""

WORDS = (
    *(
        ("precision", "tf32"),
        ("precision", "tf32x3"),
        ("precision", "ieee"),
        ("passes", "registers"),
        ("passes", "loop"),
    ),
    *(("order", "mn"), ("order", "nm"), ("walk", "taps"), ("walk", "channels"), ("right", "turned")),
    *(
        ("walk", "flat"),
        ("operands", "descriptors"),
        ("layout", "channels_last"),
        ("cache", "keep"),
        ("cache", "let go"),
    ),
)
"""Settings that are words, and the words that have numbers of their own. A schedule without one has its other word."""

SETTING_NAMES: tuple[str, ...] = (
    *(f"{name}_{part}" for name in SETTINGS for part in ("value", "change")),
    *(f"{part}_{word.replace(' ', '_')}" for _, word in WORDS for part in ("with", "to")),
    *("settings_changed", "settings_other"),
)
"""NAME_value: log2(1 + new) / 4. NAME_change: log2 of (1 + new) over (1 + old) / 2. with_WORD: whether it is so after the
action, to_WORD: and was not before. settings_changed: how many / 4; settings_other: those of them without a number here."""

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


def settings_values(old: Stage | None, new: Stage | None) -> Sequence[float]:
    """The numbers of `SETTING_NAMES`. Zeros where there is no kernel."""
    if old is None or new is None:
        return [0.0] * len(SETTING_NAMES)
    return _settings_values(old.schedule, new.schedule)


@lru_cache(maxsize=65536)
def _settings_values(old: Schedule, new: Schedule) -> Sequence[float]:
    before, after = dict(old), dict(new)
    values: list[float] = []
    for name in SETTINGS:
        now, then = (_number(each.get(name)) for each in (after, before))
        values += [math.log2(1 + now) / 4, math.log2((1 + now) / (1 + then)) / 2]
    for name, word in WORDS:
        so = after.get(name) == word
        values += [float(so), float(so and before.get(name) != word)]
    changed = [name for name, value in after.items() if before.get(name) != value]
    known = {*SETTINGS, *(name for name, _ in WORDS)}
    return [*values, len(changed) / 4, float(sum(name not in known for name in changed))]


def _number(value: int | str | None) -> int:
    return value if isinstance(value, int) else 0


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
    programs = settings.get("stream_k") or tiles * split
    steps = max(1.0, facts.k * tiles / (k * programs))
    numbers = _numbers(programs, gpu, m * n / threads, shared, steps, waste)
    if persistent := settings.get("persistent"):  # fewer programs, as many tiles in the last round
        numbers[FIT_NAMES.index("fit_programs")] = math.log2(min(programs, persistent)) / 4
    return numbers


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
