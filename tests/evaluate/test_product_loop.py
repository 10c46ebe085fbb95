"""Loops of tile products read from machine code, and their times: formulas by hand, the whole against times of an H100."""

from __future__ import annotations

from typing import Any

import pytest

from mtmc.evaluate.estimates.lanes import LaneValues, wavefronts
from mtmc.evaluate.estimates.launch_time import estimate_launch
from mtmc.evaluate.estimates.loop_time import loop_times, turns_of
from mtmc.evaluate.estimates.machine_code import LocalWords, Loop, local_words, product_loop
from mtmc.evaluate.estimates.resources import Resources
from mtmc.evaluate.estimates.spills import spill_times, words_spilled
from mtmc.hardware import HARDWARE

H100 = HARDWARE["H100"]
WGMMA, HMMA = {"HGMMA": 12}, {"HMMA": 48}


def product(
    programs: int,
    tile: tuple[int, int, int],
    turns: int,
    precision: str,
    warps: int = 4,
    stages: int = 2,
    **fields: Any,
) -> dict[str, Any]:
    """A launch whose programs multiply `turns` tiles each; what they read is in L2 already."""
    m, n, k = tile
    flops, read = 2 * m * n * k * turns * programs, (m + n) * k * turns * 4
    record = {
        "kernel": "k", "programs": programs, "bytes_read": read * programs, "bytes_written": 0, "unique_read": 0,
        "unique_written": m * n * 4 * programs, "sector_read": read * programs, "sector_written": m * n * 4 * programs,
        "hot_read": 0, "program_read": 0, "window_read": {}, "flops": flops, "dot_flops": flops, "dots": float(turns),
        "dot_precision": precision, "dot_dtype": "fp32", "dot_shape": list(tile), "alu_ops": 0, "rounds": float(turns),
        "num_warps": warps, "num_stages": stages,
    }  # fmt: skip
    return {**record, **fields}


# --- bank conflicts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "bits", "clocks"),
    [
        ([4 * lane for lane in range(32)], 32, 1),
        ([128 * lane for lane in range(32)], 32, 32),  # all in one bank
        ([0] * 32, 32, 1),  # one word for all
        ([8 * (lane % 16) + 128 * (lane // 16) for lane in range(32)], 32, 2),  # even banks, two rows each
        ([8 * lane for lane in range(32)], 64, 2),
        ([16 * lane for lane in range(32)], 128, 4),
        ([16 * (lane % 16) for lane in range(32)], 128, 4),  # the halves of a warp do not share
        ([4096 * (lane // 16) for lane in range(32)], 128, 2),  # groups of one half do
        ([512 * (lane % 16) for lane in range(32)], 128, 32),  # rows of 512 bytes: 8 of a group in the same 4 banks
    ],
)
def test_clocks_of_an_access_to_shared_memory(addresses: list[int], bits: int, clocks: int) -> None:
    assert wavefronts(addresses, bits) == clocks


def lanes_after(code: str) -> LaneValues:
    lanes = LaneValues()
    for line in code.strip().splitlines():
        guard, _, rest = line.strip().rpartition("@")[2].partition(" ") if "@" in line else ("", "", line.strip())
        opcode, _, operands = rest.strip().partition(" ")
        lanes.run(opcode, [part.strip() for part in operands.split(",")], guard)
    return lanes


def test_addresses_of_the_lanes() -> None:
    """Bits 0 to 2 of the lane times 16, exclusive or bit 3 times 64, and a row of 128 bytes for each 4 lanes."""
    lanes = lanes_after(
        """S2R R0, SR_TID.X
        LOP3.LUT R1, R0.reuse, 0x7, RZ, 0xc0, !PT
        IMAD.SHL.U32 R2, R1, 0x10, RZ
        SHF.R.U32.HI R3, RZ, 0x2, R0
        LEA R4, R3, R2, 0x7
        SGXT.U32 R5, R3, 0x3
        LOP3.LUT R6, R2, 0x40, R0, 0x78, !PT
        IADD3 R7, R4, UR4, -R2
        VIADD R8, R7, 0x5"""
    )
    assert lanes.addresses("[R2+UR6+0x100]") is None  # UR6 was never set
    assert lanes.addresses("[R2+0x100]") == tuple(256 + 16 * (lane % 8) for lane in range(32))
    assert lanes.addresses("[R4]") == tuple(128 * (lane // 4) + 16 * (lane % 8) for lane in range(32))
    assert lanes.addresses("[R5.X4]") == tuple(4 * (lane // 4) for lane in range(32))
    assert lanes.addresses("[R6]") == tuple((16 * (lane % 8)) ^ (0x40 & lane) for lane in range(32))
    assert lanes.addresses("[R8]") is None


def test_predicates_choose_by_lane() -> None:
    lanes = lanes_after(
        """S2R R0, SR_TID.X
        ULDC UR4, c[0x0][0x210]
        ISETP.GE.AND P0, PT, R0, 0x10, PT
        SEL R1, R0, 0x7, !P0
        MOV R2, UR4
        @P0 MOV R2, 0x40
        LOP3.LUT P1, RZ, R0, 0x1, RZ, 0xc0, !PT
        SEL R3, 0x8, RZ, P1"""
    )
    assert lanes.addresses("[R1]") == tuple(lane if lane < 16 else 7 for lane in range(32))
    assert lanes.addresses("[R2]") == (0,) * 16 + (64,) * 16
    assert lanes.addresses("[R3]") == (0, 8) * 16


# --- the machine code ------------------------------------------------------------------------------------------------


def sass(*lines: str) -> str:
    """A listing as cuobjdump prints it, addresses in steps of 16."""
    return "\n".join(f"        /*{16 * i:04x}*/    {line} ;   /* 0x0 */" for i, line in enumerate(lines))


def test_loop_with_tensor_cores() -> None:
    """Of 9 instructions, 6 are in the loop; 2 x 64 x 32 x 8 x 2 flops of 4 warps; a store of 32 rows of 128 bytes."""
    code = sass(
        "S2R R0, SR_TID.X", "IMAD.SHL.U32 R1, R0, 0x80, RZ",
        "LDGSTS.E.BYPASS.128 [R9], desc[UR24][R2.64]", "STS [R1+UR4], R5", "@!PT LDS RZ, [RZ]",
        "HGMMA.64x32x8.F32.TF32 R24, R8, gdesc[UR4], R24", "HGMMA.64x32x8.F32.TF32 R24, R12, gdesc[UR8], R24, gsb0",
        "@P0 BRA 0x20", "STS.128 [R1], R24", "EXIT", "BRA 0xa0",
    )  # fmt: skip
    # UR4 is not known, so neither is the store's address: a clock; R9 is not either: 4.
    assert product_loop(code) == Loop(6, 2 * 2 * 64 * 32 * 8 / 4, 0.0, 5)
    known = code.replace("R1+UR4", "R1+0x4000")
    assert product_loop(known) == Loop(6, 2 * 2 * 64 * 32 * 8 / 4, 0.0, 36)


def test_loop_on_cuda_cores_and_small_tensor_shapes() -> None:
    fmas = sass(*["FFMA R1, R2, R3, R1"] * 20, "@P0 BRA 0x0", *["FFMA R1, R2, R3, R1"] * 50, "EXIT")
    assert product_loop(fmas) == Loop(21, 0.0, 2.0 * 32 * 20, 0)
    small = sass("HMMA.1688.F32.TF32 R4, R8, R12, R4", "HMMA.16816.F32 R4, R8, R12, R4", "@P0 BRA 0x0")
    assert product_loop(small) == Loop(3, 2.0 * 16 * 8 * (8 + 16), 0.0, 0)
    assert product_loop(sass(*["FFMA R1, R2, R3, R1"] * 20, "EXIT")) is None


def test_words_spilled_inside_and_outside_of_loops() -> None:
    code = sass(
        "STL.64 [R1+0x8], R4", "LDG.E R2, desc[UR4][R6.64]", "STL [R1], R2", "LDL.128 R8, [R1]", "@P0 BRA 0x10",
        "LDL R3, [R1]", "LDL R4, [R1]", "@P1 BRA 0x60", "EXIT",
    )  # fmt: skip
    assert local_words(code) == LocalWords(outside=3, inside=6, loops=1)


# --- times -----------------------------------------------------------------------------------------------------------


def test_time_of_a_turn() -> None:
    """132 programs of 4 warps, alone on an SM: 3 x 65536 x 4 flops at 0.75 of 494.7 TFLOP/s / 132 take 279.8 ns,
    400 x 4 / 4 instructions and 100 x 4 clocks of shared memory 202.0 ns each at 1.98 GHz, and 0.7 of 600 ns are waited
    for. They add up with power 1.15: 928.1 ns a turn, 350 + 600 ns once.
    """
    record, loop = product(132, (64, 64, 32), 100, "tf32x3"), Loop(400, 3 * 65536.0, 0.0, 100)
    times, busy = loop_times(record, Resources(128, 0, 32768, WGMMA, loop), loop, H100, 4)
    assert times["tensor"] == pytest.approx(100 * 279.8e-6, rel=1e-3)
    assert times["issue"] == times["shared"] == pytest.approx(100 * 202.0e-6, rel=1e-3)
    assert times["latency"] == pytest.approx((100 * 420 + 950) / 1e6)
    turn = (279.8**1.15 + 2 * 202.0**1.15 + 420**1.15) ** (1 / 1.15)
    assert turn == pytest.approx(928.1, abs=0.1)
    assert busy == pytest.approx((100 * turn + 950) / 1e6, rel=1e-3)


def test_programs_come_in_groups() -> None:
    """Five programs an SM, two at a time: two groups of 2 and one of 1, whose wait nobody shares."""
    loop = Loop(400, 3 * 65536.0, 0.0, 100)
    taken = Resources(128, 0, 32768, WGMMA, loop)

    def busy(programs: int, blocks: int) -> float:
        return loop_times(product(programs, (64, 64, 32), 100, "tf32x3"), taken, loop, H100, blocks)[1]

    assert busy(5 * 132, 2) == pytest.approx(2 * busy(2 * 132, 2) + busy(132, 2))
    assert busy(2 * 132, 2) < 2 * busy(132, 2)
    assert busy(133, 1) == pytest.approx(2 * busy(132, 1))


def test_cuda_cores_overlap_with_more_warps() -> None:
    """One warp a scheduler adds the times up; FMAs go no faster than 128 lanes a clock, the instructions 4 warps a clock."""
    loop = Loop(1200, 0.0, 2.0 * 32 * 1000, 300)
    taken = Resources(128, 0, 16384, {}, loop)
    record = product(132, (64, 64, 32), 10, "ieee", stages=3)
    times, alone = loop_times(record, taken, loop, H100, 4)
    assert times["issue"] == pytest.approx(10 * 1200 / 1.98 / 1e6)
    assert times["shared"] == pytest.approx(10 * 300 * 4 / 1.98 / 1e6)
    assert alone == pytest.approx(times["issue"] + times["shared"] + 950e-6)
    four = loop_times(record | {"programs": 4 * 132}, taken, loop, H100, 4)[1] - 950e-6
    assert four == pytest.approx(4 * times["issue"] * 2 ** (1 / (1 + 0.45 * 3)))


def test_one_warp_keeps_one_scheduler_busy() -> None:
    loop = Loop(400, 65536.0, 0.0, 0)
    times, _ = loop_times(product(132, (64, 64, 32), 1, "tf32", warps=1), Resources(255, 0, 0, HMMA), loop, H100, 1)
    assert times["issue"] == pytest.approx(400 / 1.98 / 1e6)


def test_programs_that_all_run_at_once_wait_for_the_one_with_most_products() -> None:
    """132 programs of 10 products on average, of which one has 15: half as long again. Of ten waves the mean counts."""
    loop = Loop(200, 1e6, 0.0, 100)
    for programs, factor in ((132, 1.5), (1320, 1.0)):
        even = product(programs, (128, 128, 32), 10, "tf32x3", stages=3)
        times = [
            loop_times(record, Resources(100, 0, 0, WGMMA, loop, None), loop, H100, 1)[0]["tensor"]
            for record in (even, {**even, "dots_most": 15.0})
        ]
        assert times[1] == pytest.approx(factor * times[0])


def test_turns_of_a_loop_with_two_products() -> None:
    assert turns_of({"dots": 64.0, "rounds": 32.0}) == 32
    assert turns_of({"dots": 128.0, "rounds": 129.0}) == 128
    assert turns_of({"dots": 1.0, "rounds": 0.0}) == 1


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"dot_flops": 0, "rounds": 8.0}, 500 + 400 * 8),
        ({"dot_flops": 1, "dots": 16.0, "rounds": 17.0}, 500 + 400 * 16),
    ],
)
def test_words_spilled_in_each_turn(record: dict[str, Any], words: float) -> None:
    assert words_spilled(record, Resources(255, 1192, 0, {}, None, LocalWords(500, 400, 1))) == words
    two = words_spilled({"dot_flops": 0, "rounds": 8.0}, Resources(255, 1192, 0, {}, None, LocalWords(500, 400, 2)))
    assert two == 500 + 400 * 4
    assert words_spilled(record, Resources(255, 1192, 0)) == 2 * 1192 / 4


def test_spills_lie_in_l1_or_l2_or_dram() -> None:
    """512 threads spill 100 words of 4 bytes, in 264 programs. L1: 128 bytes a clock; L2: 60 bytes a nanosecond an SM."""

    def times(spill_bytes: int, here: int, programs: int = 264) -> tuple[float, float]:
        record = {"dot_flops": 0, "rounds": 1.0, "num_warps": 16, "programs": programs}
        return spill_times(record, Resources(64, spill_bytes, 0, {}, None, LocalWords(100, 0, 0)), H100, here)

    moved = 100 * 4 * 512 * 264
    assert times(0, 1) == (0.0, 0.0)
    assert times(200, 1) == (pytest.approx(moved / 132 / (128 * 1.98) / 1e6), 0.0)  # 102 KB, of 114 KiB
    assert times(300, 1) == (
        pytest.approx(moved / 132 / 60 / 1e6),
        0.0,
    )  # 154 KB; on all SMs 20 MB: less than half of L2
    assert times(1200, 1) == (pytest.approx(moved / 132 / 60 / 1e6), moved)  # 81 MB
    assert times(1200, 1, 16) == (pytest.approx(moved / 264 / 60 / 1e6), 0.0)  # of 16 SMs 10 MB


# One H100 80GB HBM3, torch 2.11, triton 3.6; the kernels are those that triton 3.9 makes of the same source.
TILE = (64, 64, 32)
MEASURED = [  # programs, tile, turns, precision, warps, stages, registers, shared, opcodes, loop, measured ms
    (16384, TILE, 16, "ieee", 4, 2, 118, 16384, {}, Loop(1187, 0.0, 65536.0, 290), 1.615),
    (16384, TILE, 16, "ieee", 8, 2, 80, 16384, {}, Loop(624, 0.0, 32768.0, 210), 1.917),
    (16384, TILE, 16, "tf32x3", 4, 2, 133, 32768, WGMMA, Loop(409, 196608.0, 0.0, 320), 1.988),
    (16384, TILE, 16, "tf32x3", 8, 2, 118, 32768, WGMMA, Loop(393, 163840.0, 0.0, 216), 2.928),
    (1024, TILE, 128, "ieee", 4, 2, 162, 16384, {}, Loop(1188, 0.0, 65536.0, 1218), 2.607),
    (1024, TILE, 128, "ieee", 8, 2, 94, 16384, {}, Loop(613, 0.0, 32768.0, 1138), 4.639),
    (1024, TILE, 128, "tf32x3", 4, 2, 140, 32768, WGMMA, Loop(367, 196608.0, 0.0, 96), 0.631),
    (1024, TILE, 128, "tf32x3", 4, 5, 140, 81920, WGMMA, Loop(383, 196608.0, 0.0, 96), 0.619),
    (1024, TILE, 128, "tf32x3", 8, 2, 116, 32768, WGMMA, Loop(371, 163840.0, 0.0, 104), 1.048),
    (2048, (64, 32, 32), 128, "tf32x3", 4, 5, 100, 57344, WGMMA, Loop(277, 98304.0, 0.0, 64), 0.616),
    (2048, (64, 32, 32), 128, "tf32x3", 8, 5, 90, 57344, WGMMA, Loop(298, 81920.0, 0.0, 64), 1.341),
    (2048, (32, 64, 32), 128, "tf32x3", 4, 2, 156, 12288, HMMA, Loop(418, 98304.0, 0.0, 72), 0.861),
    (256, (128, 128, 32), 128, "tf32x3", 8, 2, 210, 65536, WGMMA, Loop(473, 393216.0, 0.0, 96), 0.600),
    (256, (128, 128, 32), 128, "tf32x3", 8, 2, 229, 65536, WGMMA, Loop(511, 393216.0, 0.0, 576), 1.112),
    (128, (128, 128, 32), 256, "ieee", 8, 2, 218, 32768, {}, Loop(2284, 0.0, 131072.0, 418), 0.943),
]  # fmt: skip


def estimates() -> list[tuple[float, float]]:
    found = []
    for programs, tile, turns, precision, warps, stages, registers, shared, mix, loop, measured in MEASURED:
        record = product(programs, tile, turns, precision, warps, stages)
        found.append((estimate_launch(record, Resources(registers, 0, shared, mix, loop), H100).ms, measured))
    return found


def test_measured_times_are_met_within_a_fifth() -> None:
    ratios = [max(estimated / measured, measured / estimated) for estimated, measured in estimates()]
    assert sorted(ratio for ratio in ratios if ratio > 1.2) == []


def test_measured_order_is_kept() -> None:
    """Of all pairs whose times are a tenth apart, 95% are ranked rightly."""
    found = estimates()
    pairs = [(a, b) for a in found for b in found if a[1] > 1.1 * b[1]]
    assert sum(a[0] > b[0] for a, b in pairs) >= 0.95 * len(pairs)
