"""Keys from the last to the first in attention in Gluon: masks in the first steps alone, and right on a CPU."""

from __future__ import annotations

import re
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from mtmc.errors import CoderError
from mtmc.optimizations import Version, legal_moves
from mtmc.optimizations.version import CallTimes
from mtmc.rewrite.templates.gluon_keys import keys_of
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct, analyse
from tests.breadth import share
from tests.rewrite import gluon_on_cpu
from tests.rewrite.gluon_cases import (
    BACKWARD,
    BIASED,
    CAUSAL,
    FULL,
    GLUON,
    WINDOW,
    inputs_of,
    kernel_of,
    printed,
    task_of,
)  # fmt: skip
from tests.rewrite.test_gluon import error_of

PLAIN = SimpleNamespace(minimum=min)
"""A word of the kernel's, of whole numbers."""


TOO_WIDE = (CAUSAL, (1, 1, 1, 600, 600, 16), {"block_m": 192, "block_n": 256, "keys": "backward"})
"""For the registers of a GPU."""


@pytest.mark.parametrize("name", [*share(list(BACKWARD), 2), "too wide"])
def test_as_exact_as_torch_in_16_bits(name: str) -> None:
    work, sizes, settings = {**BACKWARD, "too wide": TOO_WIDE}[name]
    task = task_of(work, sizes)
    ours, theirs = error_of(task, printed(task, {**GLUON, **settings}), inputs_of(task))
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize(("rows", "columns"), list(product((128, 192, 256), (64, 128, 256))))
def test_all_masks_of_a_group_are_in_its_first_step(rows: int, columns: int) -> None:
    """Score by score, for each group of each block of queries and every few numbers of keys."""
    keys = keys_of(analyse_of(CAUSAL, rows, columns), {"block_m": rows, "block_n": columns, "keys": "backward"})
    skips = 0
    for own, n_cols in product(range(0, 6 * rows, 64), range(1, 7 * rows, 37)):
        known = {
            "steps": -(-min(n_cols, (own // rows + 1) * rows) // columns),
            "own": own,
            "n_cols": n_cols,
            "tl": PLAIN,
        }
        skipped = eval(keys.skipped("n_cols"), known)
        first, *others = (eval(keys.start(str(step or "")), known) for step in range(skipped, known["steps"]))
        assert first <= own and first < n_cols  # no row sees nothing
        assert first + columns > min(own + 63, n_cols - 1)  # and none sees what is skipped
        assert others == list(range(0, first, columns))[::-1]
        assert all(start + columns - 1 <= min(own, n_cols - 1) for start in others)
        skips = max(skips, skipped)
    assert bool(skips) == keys.skips == bool(columns % rows)


def analyse_of(work: str, rows: int, columns: int) -> SoftmaxProduct:
    root, _, stage = kernel_of(task_of(work, (1, 1, 1, rows, columns, 16)), {})
    body = root.body(stage)
    assert body is not None
    return analyse(root.graph, body)


@pytest.mark.parametrize("block_n", [64, 128, 256])
def test_the_loop_has_no_masks(block_n: int) -> None:
    source = printed(task_of(CAUSAL, (1, 1, 1, 999, 999, 32)), {**GLUON, "keys": "backward", "block_n": block_n})
    group = source[source.index("_group(") : source.index("_loads(")]
    before, loop = re.split(r"\n +for step in range\((?:skipped \+ )?1, steps\):", group)
    assert before.count("_scores(scores, EVEN") == 1 and "_scores(" not in loop
    assert ("skipped" in before) == (block_n < 128)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ('scores = gl.where(rows >= cols, scores, float("-inf"))', "pass"),
        ('scores = gl.where(cols < n_cols, scores, float("-inf"))', "pass"),
        ("skipped = steps - 1", "skipped = 0 * steps"),
        ("range(skipped + 1, steps)", "range(1, steps)"),
        ("hopper.mbarrier.arrive(k_free.index(at), count=1)", "pass"),
        ("hopper.mbarrier.arrive(turns.index((GROUP + 1) % 4), count=1)", "pass"),
        ("(steps - 1 - step) * 64, 0]", "step * 64, 0]"),
        ("own, (steps - 1 - skipped) * 64, batch", "own, first, batch"),
    ],
)
def test_a_line_that_is_wrong_is_seen(line: str, instead: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gluon_on_cpu, "STUCK_S", 0.5)
    monkeypatch.setattr(gluon_on_cpu, "LOAD_S", 0.003)
    task = task_of(CAUSAL, (1, 1, 1, 400, 333, 16))
    source = printed(task, {**GLUON, "keys": "backward", "turns": 1, "block_m": 256})
    assert line in source
    broken = source.replace(line, instead, 1)
    try:
        ours, theirs = error_of(task, broken, inputs_of(task))
    except AssertionError:
        return
    assert not ours < 2 * theirs


def test_the_largest_score_may_be_in_any_block() -> None:
    """Sums of later blocks of keys come to the scale of an earlier one, and those of earlier ones are scaled down."""
    task = task_of(CAUSAL, (1, 1, 1, 400, 400, 16))
    q, k, v, bias = inputs_of(task)
    growing = torch.linspace(0.1, 30, 400)[None, None, :, None].to(k.dtype)
    for each in (k * growing, k * growing.flip(2)):
        ours, theirs = error_of(task, printed(task, {**GLUON, "keys": "backward"}), [q, each, v, bias])
        assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize(
    ("work", "block_n", "words"),
    [
        (WINDOW, 64, "more than causal masks"),
        (BIASED, 64, "more than causal masks"),
        (CAUSAL, 32, "several have masks"),
    ],
)
def test_other_masks_are_refused(work: str, block_n: int, words: str) -> None:
    with pytest.raises(CoderError, match=words):
        printed(task_of(work, (1, 1, 1, 256, 256, 64)), {**GLUON, "keys": "backward", "block_n": block_n})


def test_other_orders_are_refused() -> None:
    with pytest.raises(CoderError, match="'forward' or 'backward'"):
        printed(task_of(FULL, (1, 1, 1, 256, 256, 64)), {**GLUON, "keys": "sideways"})


@pytest.mark.parametrize(
    ("work", "columns", "there"), [(CAUSAL, 1024, True), (FULL, 1000, True), (FULL, 1024, False), (WINDOW, 1000, False)]
)
def test_an_action_leads_there_and_back(work: str, columns: int, there: bool) -> None:
    times = CallTimes(1.0, 1.0)
    task = task_of(work, (4, 16, 16, 1024, columns, 128))
    root, plan, _ = kernel_of(task, {"language": "gluon"}, times)
    at = Version.of(task, plan, root.hardware, times=times)
    moves = [move for move in legal_moves(at) if ("keys", "backward") in move.action.params]
    assert len(moves) == there and all(move.action.kind == "reorder" for move in moves)
    for move in moves:
        assert move.child is not None
        child = Version.of(task, move.child, root.hardware, times=times)
        assert [each for each in legal_moves(child) if ("keys", "forward") in each.action.params]
