"""How many programs a multiprocessor holds at once, and how they come in waves."""

from __future__ import annotations

from mtmc.evaluate.estimates.resources import Resources
from mtmc.hardware import Hardware

START_NS = 350.0
"""Of a program: being placed, first instructions, its stores leaving."""


def blocks_per_sm(warps: int, resources: Resources, gpu: Hardware) -> int:
    """How many programs an SM can hold at once: the least of four limits.

    threads: max_threads_per_sm / threads; blocks: max_blocks_per_sm; shared memory: shared_per_sm / (bytes, and 1 KiB
    that the system keeps of each block); registers: 4 partitions of registers_per_sm / 4, a warp's share of one being
    its registers a thread, rounded up to 8, x warp size.
    """
    threads = warps * gpu.warp_size
    by_threads = gpu.max_threads_per_sm // threads
    warp_registers = -(-max(1, resources.registers) // 8) * 8 * gpu.warp_size
    by_registers = 4 * (gpu.registers_per_sm // 4 // warp_registers) // warps
    kept = 1024 if gpu.warp_size == 32 else 0
    by_shared = gpu.shared_per_sm // max(1, resources.shared_bytes + kept)
    return min(by_threads, gpu.max_blocks_per_sm, by_shared, by_registers)


def waves(programs: int, blocks: int, gpu: Hardware) -> float:
    """Times that the SMs are filled with programs, `blocks` on each; at least 1."""
    return max(1.0, programs / (blocks * gpu.sms))
