"""The time of registers that did not fit: words that threads store to local memory and load again."""

from __future__ import annotations

from mtmc.evaluate.estimates.loop_time import turns_of
from mtmc.evaluate.estimates.resources import Resources
from mtmc.evaluate.estimates.roofline import SM_BYTES_NS, Record, l2_miss, to_ms
from mtmc.hardware import Hardware

_WORD = 4
_L1_BYTES_CLOCK = 128
L1_SHARE = 0.5  # a kernel on an H100 that spills 133 KB an SM misses it, one that spills 66 KB does not


def words_spilled(record: Record, resources: Resources) -> float:
    """Words that one thread stores or loads: those outside of loops once, those inside in each round of loads.

    The rounds are shared among the loops that load. Where the machine code was not read, each spilled word is stored and
    loaded once. A loop of products spills in each of its turns.
    """
    local = resources.local
    if local is None:
        return 2.0 * resources.spill_bytes / _WORD
    turns = turns_of(record) if record["dot_flops"] else record["rounds"] / max(1, local.loops)
    return local.outside + local.inside * max(1.0, turns)


def spill_times(record: Record, resources: Resources, gpu: Hardware, here: int) -> tuple[float, float]:
    """(milliseconds that the SMs take to pass spilled words on, bytes of them that reach DRAM).

    here: programs that share an SM. Local memory lies in L1 if L1_SHARE of that holds what all threads of an SM spilled (the
    rest is full of other data); L1 is what shared memory leaves of `shared_per_sm`, and passes on 128 bytes a clock.
    Otherwise the words go to L2, at SM_BYTES_NS an SM, and of those that L2 does not hold (see `l2_miss`) to DRAM.
    """
    if not resources.spill_bytes:
        return 0.0, 0.0
    threads = record["num_warps"] * gpu.warp_size
    held = float(resources.spill_bytes * threads * here)
    moved = words_spilled(record, resources) * _WORD * threads * record["programs"]
    busy = min(record["programs"], gpu.sms)
    if held <= L1_SHARE * (gpu.shared_per_sm - here * resources.shared_bytes):
        return to_ms(moved / busy / (_L1_BYTES_CLOCK * gpu.clock_ghz)), 0.0
    return to_ms(moved / busy / SM_BYTES_NS), moved * l2_miss(held * busy, gpu)
