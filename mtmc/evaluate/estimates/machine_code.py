"""The loop of a kernel that multiplies tiles, from NVIDIA machine code: what one turn of it asks of a multiprocessor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.evaluate.estimates.lanes import WARP, LaneValues, wavefronts


@dataclass(frozen=True)
class Loop:
    """What one warp does in one turn of the innermost loop with products.

    issued: instructions. tensor_flops: of tensor core instructions, a multiply-add being 2, as their shapes say; those of
    a warp group are shared among its 4 warps, and work that is done twice counts twice. fma_flops: of fused multiply-adds
    on CUDA cores, of all lanes. shared_clocks: of the SM's shared memory, bank conflicts counted (`lanes.wavefronts`).
    """

    issued: int
    tensor_flops: float
    fma_flops: float
    shared_clocks: int


@dataclass(frozen=True)
class LocalWords:
    """4-byte words that a thread stores to local memory or loads from it, because registers ran out.

    outside: of all loops. inside: of innermost loops, in one turn of each, summed. loops: innermost ones that load from
    global memory.
    """

    outside: int
    inside: int
    loops: int


@dataclass(frozen=True)
class _Instruction:
    at: int
    guard: str
    opcode: str
    operands: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.opcode.partition(".")[0]


_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+) )?\s*([A-Z][A-Z0-9_.a-z]*)\s*([^;]*);", re.MULTILINE)
_TENSOR = ("HGMMA", "QGMMA", "IGMMA", "HMMA", "IMMA", "QMMA")
_SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)\.")
_SMALL_SHAPE = re.compile(r"\.(16)(8)(\d+)(?:\.|$)")
_LEAST_FMAS = 16  # fewer are not a product of tiles
_TENSOR_FIRST = 1e6
_SHARED = ("LDS", "STS", "LDSM", "STSM", "LDGSTS")


def product_loop(code: str) -> Loop | None:
    """The loop of a disassembly (`cuobjdump -sass`) that has most products, tensor cores before CUDA cores; None: none."""
    instructions = _instructions(code)
    loops = [[each for each in instructions if first <= each.at <= last] for first, last in _inner_loops(instructions)]
    body = max(loops, key=_products, default=[])
    if not _products(body):
        return None
    lanes, shared = LaneValues(), 0
    for each in instructions:
        if body[0].at <= each.at <= body[-1].at and each.name in _SHARED:
            shared += _shared_clocks(each, lanes)
        lanes.run(each.opcode, each.operands, each.guard)
    return Loop(len(body), sum(map(_tensor_flops, body)), 2.0 * WARP * _fmas(body), shared)


def local_words(code: str) -> LocalWords:
    """Spilled words of a disassembly (`cuobjdump -sass`)."""
    instructions = _instructions(code)
    loops = _inner_loops(instructions)
    outside = inside = 0
    for each in instructions:
        if each.name in ("LDL", "STL"):
            looped = any(first <= each.at <= last for first, last in loops)
            inside += _bits(each) // 32 * looped
            outside += _bits(each) // 32 * (not looped)
    loading = sum(
        any(first <= each.at <= last and each.name in ("LDG", "LDGSTS") for each in instructions)
        for first, last in loops
    )
    return LocalWords(outside, inside, loading)


def _instructions(code: str) -> list[_Instruction]:
    return [
        _Instruction(int(at, 16), guard, opcode, tuple(part.strip() for part in operands.split(",")))
        for at, guard, opcode, operands in _LINE.findall(code)
        if opcode != "NOP"
    ]


def _inner_loops(instructions: Sequence[_Instruction]) -> list[tuple[int, int]]:
    """First and last address of each loop that holds no other: what a branch backwards repeats."""
    loops = set()
    for each in instructions:
        target = re.search(r"0x([0-9a-f]+)", each.operands[-1]) if each.name == "BRA" else None
        if target and int(target[1], 16) < each.at:
            loops.add((int(target[1], 16), each.at))
    return sorted(a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops))


def _products(body: Sequence[_Instruction]) -> float:
    tensor = sum(each.name in _TENSOR for each in body)
    fmas = _fmas(body)
    return tensor * _TENSOR_FIRST + (fmas if fmas >= _LEAST_FMAS else 0)


def _fmas(body: Sequence[_Instruction]) -> int:
    return sum(each.name in ("FFMA", "DFMA") for each in body)


def _tensor_flops(each: _Instruction) -> float:
    if each.name not in _TENSOR:
        return 0.0
    shape = _SHAPE.search(each.opcode)
    if shape:
        return 2.0 * int(shape[1]) * int(shape[2]) * int(shape[3]) / 4
    small = _SMALL_SHAPE.search(each.opcode)
    return 2.0 * int(small[1]) * int(small[2]) * int(small[3]) if small else 0.0


def _bits(each: _Instruction) -> int:
    widths = [part for part in each.opcode.split(".") if part in ("64", "128")]
    return int(widths[-1]) if widths else 32


def _shared_clocks(each: _Instruction, lanes: LaneValues) -> int:
    if each.guard == "!PT":  # never runs; only orders other instructions
        return 0
    if each.name in ("LDSM", "STSM"):  # 8 rows of 16 bytes a matrix; laid out so that they do not collide
        return int(each.opcode[-1]) if each.opcode[-1].isdigit() else 1
    operand = next(part for part in each.operands if part.startswith("["))
    addresses = lanes.addresses(operand)
    return _bits(each) // 32 if addresses is None else wavefronts(addresses, _bits(each))
