"""Blocks of queries of a persistent attention in Gluon as one pipeline: right on a CPU, with loads that come late,
compiled for Hopper, and legal where a program makes several blocks and the next queries have a place."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest

from mtmc.errors import CoderError
from mtmc.optimizations import Version, legal_moves
from mtmc.optimizations.resources import shared_bytes
from mtmc.optimizations.version import CallTimes
from tests.breadth import share
from tests.rewrite import gluon_on_cpu
from tests.rewrite.gluon_cases import (
    BIASED,
    CAUSAL,
    FULL,
    GLUON,
    GROUPED_CAUSAL,
    OVERLAPPED,
    WINDOW,
    inputs_of,
    kernel_of,
    printed,
    task_of,
)  # fmt: skip
from tests.rewrite.gluon_on_cpu import module_on_cpu
from tests.rewrite.test_gluon import error_of

OVERLAP: dict[str, int | str] = {**GLUON, "persistent": 3, "overlap": 1}
TILES = ((128, 64, 2), (128, 128, 2), (192, 64, 3), (192, 128, 2), (256, 64, 4), (256, 128, 3))
"""Rows, columns, stages: all groups see all keys, or some skip one, two, or three blocks of them."""
PLACES = {
    "an odd number of blocks": ((1, 3, 3, 300, 300, 16), 2),
    "one block": ((1, 1, 1, 100, 100, 16), 1),
    "one program": ((2, 1, 1, 400, 90, 16), 1),
    "more programs than blocks": ((1, 1, 1, 400, 170, 16), 1000),
    "one block of keys": ((2, 3, 3, 140, 20, 16), 4),
}
WAYS = list(product(("early", "late"), ("apart", "joined"), ("forward", "backward"), (0, 1), ("heavy", "forward")))
"""Rescale, scaling, keys, turns, order."""


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("tile", TILES)
def test_as_exact_as_torch_in_16_bits(tile: tuple[int, int, int], place: str) -> None:
    sizes, programs = PLACES[place]
    rows, columns, stages = tile
    for rescale, scaling, keys, turns, order in share(WAYS, 8):
        settings = {"block_m": rows, "block_n": columns, "num_stages": stages, "persistent": programs, "order": order}
        ways = {"rescale": rescale, "scaling": scaling, "keys": keys, "turns": turns}
        for work in (CAUSAL, FULL if keys == "backward" else WINDOW):
            task = task_of(work, sizes)
            ours, theirs = error_of(task, printed(task, {**OVERLAP, **settings, **ways}), inputs_of(task))
            assert ours < 1.1 * theirs + 1e-4, (work, ways, ours, theirs)


@pytest.mark.parametrize("name", list(OVERLAPPED))
def test_loads_that_come_late(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gluon_on_cpu, "LOAD_S", 0.001)
    work, sizes, settings = OVERLAPPED[name]
    task = task_of(work, sizes)
    ours, theirs = error_of(task, printed(task, {**GLUON, **settings}), inputs_of(task))
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


def test_results_are_those_of_separate_blocks() -> None:
    """Bit by bit: what is computed, and in which order, is the same."""
    task = task_of(GROUPED_CAUSAL, (1, 4, 2, 300, 333, 16))
    for keys in ("forward", "backward"):
        settings = {**OVERLAP, "keys": keys, "block_n": 128}
        sources = [printed(task, {**settings, "overlap": overlap}) for overlap in (0, 1)]
        assert sources[0] != sources[1]
        one, other = (module_on_cpu(source).ModelNew()(*inputs_of(task)) for source in sources)
        assert one.equal(other)


SKIPS: dict[str, int | str] = {"block_m": 192, "block_n": 128, "keys": "backward"}
SHORT: dict[str, int | str] = {"block_n": 256, "num_stages": 4}
WRONG = [
    (r"hopper\.mbarrier\.wait\(q_full\.index\(\(turn \+ 1\) % 2\).*", "pass", SKIPS),
    (r"hopper\.mbarrier\.wait\(q_free\.index.*", "pass", SHORT),
    (r"hopper\.mbarrier\.arrive\(q_free\.index.*", "pass", SKIPS),
    (r"hopper\.mbarrier\.wait\(v_full\.index\(done %.*", "pass", {"block_n": 128}),
    (r"hopper\.mbarrier\.arrive\(v_free\.index\(last\), count=1\)", "pass", SKIPS),
    (r"hopper\.mbarrier\.arrive\(k_free\.index\(.*, pred=more\)", "pass", SKIPS),
    (r"(mbarrier\.wait\(k_full\.index\(.*), pred=more\)", r"\1)", SKIPS),
    (r"skipped \*= more.*", "pass", SKIPS),
    (r"\(turn \+ 1\) // 2 & 1, pred=more", "0, pred=more", SKIPS),
    (r"made_batch, made_total = own, batch, total", "made_batch, made_total = own, batch, 1 + total", SKIPS),
    (r"made_batch, made_total = own, batch, total", "made_batch, made_total = own, 0 * batch, total", SKIPS),
    (r"done \+= steps", "pass", SKIPS),
    (r" q = q_mem\.index\(turn % 2", " q = q_mem.index((turn + 1) % 2", SKIPS),
    (r"next_q = q_mem\.index\(\(turn \+ 1\) % 2", "next_q = q_mem.index(turn % 2", SKIPS),
    (r"gl\.minimum\(turn \+ 1, rounds - 1\)", "gl.minimum(turn, rounds - 1)", SKIPS),
    (r"\(done \+ -1\) & 1 if GROUP", "done & 1 if GROUP", {"turns": 1}),
]
"""What stands in a kernel, what would be wrong in its place, and of which settings."""


@pytest.mark.parametrize(("line", "instead", "settings"), WRONG)
def test_a_line_that_is_wrong_is_seen(
    line: str, instead: str, settings: Mapping[str, int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gluon_on_cpu, "STUCK_S", 0.5)
    monkeypatch.setattr(gluon_on_cpu, "LOAD_S", 0.003)
    task = task_of(CAUSAL, (1, 3, 3, 500, 200 if settings is SHORT else 500, 16))
    source = printed(task, {**OVERLAP, "persistent": 2, **settings})
    broken, count = re.subn(line, instead, source, count=1)
    assert count == 1
    try:
        ours, theirs = error_of(task, broken, inputs_of(task))
    except AssertionError:
        return
    assert not ours < 2 * theirs


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"persistent": 0}, "programs that make one each"),
        ({"overlap": 2}, "it is 0 or 1"),
        ({"block_m": 192, "keys": "backward"}, "2 of keys are skipped in 2 stages"),
        ({"block_m": 256, "keys": "backward", "num_stages": 3}, "3 of keys are skipped in 3 stages"),
    ],
)
def test_what_it_cannot_do_is_refused(settings: Mapping[str, int | str], words: str) -> None:
    with pytest.raises(CoderError, match=words):
        printed(task_of(CAUSAL, (1, 1, 1, 600, 600, 64)), {**OVERLAP, **settings})


@pytest.mark.parametrize(
    ("width", "settings", "room"),
    [
        (128, {"block_n": 128}, 229_376),
        (128, {"block_n": 64, "num_stages": 4}, 229_376),
        (64, {"block_m": 192, "block_n": 128, "num_stages": 3}, 172_032),
        (64, {"block_n": 128, "num_stages": 3}, 147_456),
    ],
)
def test_the_next_queries_have_a_place_of_their_own(width: int, settings: Mapping[str, int | str], room: int) -> None:
    root, _, stage = kernel_of(task_of(CAUSAL, (4, 16, 16, 1024, 1024, width)), {**OVERLAP, **settings})
    rows = int(dict(stage.schedule)["block_m"])
    assert (
        shared_bytes(root.graph, stage)
        == room
        == shared_bytes(root.graph, stage.scheduled({"overlap": 0})) + 2 * rows * width
    )


@pytest.mark.parametrize(
    ("work", "settings", "there"),
    [
        (CAUSAL, {"persistent": 132}, True),
        (FULL, {"persistent": 132}, True),
        (BIASED, {"persistent": 132, "block_n": 64}, True),
        (CAUSAL, {"persistent": 0}, False),
        (CAUSAL, {"persistent": 132, "block_n": 64, "num_stages": 5}, False),  # no room for the next queries
    ],
)
def test_an_action_leads_there_and_back(work: str, settings: Mapping[str, int | str], there: bool) -> None:
    times = CallTimes(1.0, 1.0)
    task = task_of(work, (4, 16, 16, 1024, 1024, 128))
    root, plan, _ = kernel_of(task, {**OVERLAP, "overlap": 0, "block_n": 128, **settings}, times)
    at = Version.of(task, plan, root.hardware, times=times)
    moves = [move for move in legal_moves(at) if ("overlap", 1) in move.action.params]
    assert len(moves) == there and all(move.action.kind == "reorder" for move in moves)
    for move in moves:
        assert move.child is not None
        child = Version.of(task, move.child, root.hardware, times=times)
        back = [each for each in legal_moves(child) if ("overlap", 0) in each.action.params]
        assert {each.action.kind for each in back} == {"reorder", "persist", "specialize"}


def test_compiles_for_hopper_with_exponentials_during_both_sums(tmp_path: Path) -> None:
    """Two groups of heads of 128 without spills, three of heads of 64: in a process of its own, which gets a driver."""
    program = """
import json, re, sys
from pathlib import Path
from benchmarks.hopper_build import build, prepared
from benchmarks.hopper_attention import CAUSAL, attention_case, gluon
from mtmc.evaluate.compiling.cuobjdump import disassembled
for width, label in ((128, "over_several_joined_gluon_128x128_s2"), (128, "over_back_several_joined_late_128x128_s2"),
                     (64, "over_back_several_joined_gluon_192x128_s2")):
    case = attention_case("case", 1, 2, 512, width, {label: gluon(width, True)[label]}, CAUSAL)
    built = build(case, label, Path(sys.argv[1]))
    print("BUILT", json.dumps([built.failure, built.kernels]))
    cubin = Path(sys.argv[1]) / "kernel.cubin"
    cubin.write_bytes(prepared(132)[-1].asm["cubin"])
    print("ORDER", *re.findall(r"MUFU.EX2|WARPGROUP.DEPBAR.LE gsb0, 0x[01]|HGMMA", disassembled(cubin)), sep="|")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=300
    )
    rows = re.findall(r"^BUILT (.*)$", done.stdout, re.MULTILINE)
    assert len(rows) == 3 and all('["", [' in row for row in rows), done.stdout
    assert all('"local": 0' in row for row in rows[:-1])
    loops = re.findall(r"gsb0, 0x1\|((?:MUFU.EX2\|)+)WARPGROUP.DEPBAR.LE gsb0, 0x0", done.stdout)
    # of a thread: two rows' columns over four threads, in the loop and at the end of a block, for each group
    during = [loop.count("MUFU") for loop in loops]
    assert len(during) == 2 * (2 + 2 + 3) and min(during) > 128 // 2, during
