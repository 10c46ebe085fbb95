"""Which blocks of queries each program of a persistent attention in Gluon makes: the printed kernel itself is asked, on a
CPU, program by program, and its warps do nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from mtmc.rewrite.templates import gluon_programs
from tests.breadth import share
from tests.rewrite import gluon_on_cpu
from tests.rewrite.gluon_cases import CAUSAL, FULL, GLUON, inputs_of, printed, task_of
from tests.rewrite.gluon_on_cpu import Kernel, module_on_cpu

Work = list[list[tuple[int, int, int]]]
"""Of each program, turn by turn: the head, the block of queries, and how many blocks of keys it sees."""


def work_of(monkeypatch: pytest.MonkeyPatch, heads: int, blocks: int, programs: int, work: str, order: str) -> Work:
    """What the programs of a printed kernel are to do. blocks: of 128 queries of each head, the last one ragged."""
    rows = 128 * blocks - 28
    task = task_of(work, (heads, 1, 1, rows, rows, 16))
    settings = {**GLUON, "block_n": 128, "persistent": programs, "order": order}
    module, found = module_on_cpu(printed(task, settings)), Work()
    (place,) = (value for name, value in vars(module).items() if name.endswith("_place"))

    def note(parts: Any, warps: Any, registers: Any) -> None:
        for function, arguments in parts:
            (rounds, _), given = arguments[-2:]
            turns = [place(turn, False, given) for turn in range(int(rounds))]
            own = [(int(batch), int(block), int(steps)) for batch, block, _, steps in turns]
            if function is parts[0][0] and arguments is parts[0][1]:
                found.append(own)
            assert own == found[-1]  # all warps of a program are of one mind

    monkeypatch.setattr(gluon_on_cpu.gl, "warp_specialize", note)
    module.ModelNew()(*inputs_of(task))
    assert len(found) == Kernel.grid[0] == min(programs, heads * blocks)
    return found


ODD = {
    "fewer blocks than programs": (5, 7, 132),
    "one head": (1, 33, 132),
    "blocks of several heads are no whole round": (40, 9, 132),
    "one head, several rounds": (1, 33, 4),
    "rounds that end within a head": (5, 7, 3),
    "an even number of programs and an odd one of blocks": (3, 11, 4),
    "one program": (3, 5, 1),
    "one block a head": (9, 1, 4),
    "as many blocks as programs": (2, 3, 6),
    "two rounds of pairs exactly": (4, 6, 3),
}


@pytest.mark.parametrize("order", ["heavy", "forward"])
@pytest.mark.parametrize("name", list(ODD))
def test_every_block_has_one_turn(name: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, blocks, programs = ODD[name]
    monkeypatch.setattr(gluon_programs, "CACHED", 13)  # sections of a few heads
    made = work_of(monkeypatch, heads, blocks, programs, CAUSAL, order)
    every = [(head, block, block + 1) for head in range(heads) for block in range(blocks)]
    assert sorted(each for own in made for each in own) == every


LARGE = {
    "4096 queries": (64, 32, 132),
    "16384 queries": (16, 128, 132),
    "an odd number": (24, 43, 132),
    "small": (64, 9, 7),
}


@pytest.mark.parametrize("name", [*share(list(LARGE), 2), *ODD])
def test_causal_programs_have_as_much_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of keys of the busiest program: of many within 2% of the mean, of few within one heaviest block of it."""
    heads, blocks, programs = {**LARGE, **ODD}[name]
    monkeypatch.setattr(gluon_programs, "CACHED", 22)  # sections of as many heads as there are of a width of 128
    made = work_of(monkeypatch, heads, blocks, programs, CAUSAL, "heavy")
    loads = [sum(steps for _, _, steps in own) for own in made]
    mean = heads * blocks * (blocks + 1) / 2 / len(made)
    assert sum(loads) == mean * len(made)
    assert max(loads) < (1.02 * mean if name in LARGE else mean + blocks)
    assert len({len(own) for own in made}) <= 2


def test_causal_programs_work_on_few_heads_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So their keys stay in the L2 cache: in a turn those of the programs' pairs, in the end what few rounds take."""
    heads, blocks, programs = 64, 16, 22
    made = work_of(monkeypatch, heads, blocks, programs, CAUSAL, "heavy")
    turns = [{own[turn][0] for own in made if turn < len(own)} for turn in range(max(map(len, made)))]
    assert max(map(len, turns)) <= 6 * programs / blocks + 4
    assert [min(each) for each in turns[::2]] == sorted(min(each) for each in turns[::2])


def test_full_attention_goes_by_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two heads' keys and values fit: their blocks of one number come one after the other, then the next two heads'."""
    monkeypatch.setattr(gluon_programs, "CACHED", 15)
    made = work_of(monkeypatch, 4, 2, 3, FULL, "forward")
    order = [own[turn][:2] for turn in range(3) for own in made if turn < len(own)]
    assert order == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1)]
