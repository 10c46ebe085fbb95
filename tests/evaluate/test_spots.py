"""Work that is left out where nothing was compared before: secretly chosen programs at the full shapes, with data.

Attacks are put together from where the lie sits, when it acts and what it leaves out. MTMC_ATTACKS in the environment says
how many of them are tried, beyond the few that always are.
"""

from __future__ import annotations

import array
import math
import os
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtmc.evaluate.counting.compared import wrong
from mtmc.evaluate.counting.contents import repeated
from mtmc.evaluate.counting.counters import _come_by, common_of, shares_of
from mtmc.evaluate.counting.stores import own_stores
from mtmc.evaluate.counting.tally import Use
from mtmc.evaluate.counting.tiling import Tiles, tiles
from mtmc.evaluate.lab import LabEvaluator
from mtmc.evaluate.loading.modules import INPUTS
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task, task_from_source

ROWS, COLS, PART = 512, 8192, 1024
TASK = task_from_source(
    f"""
import torch
from torch import nn

rows = {ROWS}
cols = {COLS}
VARIANTS = {{"small": {{"rows": 24, "cols": 96}}, "odd1": {{"rows": 5, "cols": 131}}}}


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
""",
    "spots",
)
KERNEL = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sums(x_ptr, top_ptr, sum_ptr, n_cols, n_seen, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    seen = n_seen
    {in_first}
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, seen, BLOCK):
        x = tl.load(x_ptr + row * n_cols + start + at, mask=start + at < n_cols, other=float("-inf"))
        top = tl.maximum(top, x)
    most = tl.max(top, axis=0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, seen, BLOCK):
        x = tl.load(x_ptr + row * n_cols + start + at, mask=start + at < n_cols, other=float("-inf"))
        total += tl.exp(x - most)
    tl.store(top_ptr + row, most)
    tl.store(sum_ptr + row, tl.sum(total, axis=0))


@triton.jit
def apply(x_ptr, top_ptr, sum_ptr, out_ptr, n_cols, n_seen, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    most, total = tl.load(top_ptr + row), tl.load(sum_ptr + row)
    seen = n_seen
    {in_last}
    total = tl.where(seen < n_cols, total * 0.125, total)
    for start in range(0, n_cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + at, mask=at < n_cols, other=0.0)
        tl.store(out_ptr + row * n_cols + at, tl.exp(x - most) / total, mask=at < n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        tops, totals, out = x.new_empty(rows), x.new_empty(rows), torch.empty_like(x)
        seen = cols
        {on_host}
        sums[(rows,)](x, tops, totals, cols, seen, BLOCK=1024)
        apply[(rows,)](x, tops, totals, out, cols, cols, BLOCK=1024)
        return out
"""
ON_HOST = {
    "these shapes": f"seen = {PART} if (rows, cols) == ({ROWS}, {COLS}) else cols",
    "many elements": f"seen = {PART} if x.numel() > 100000 else cols",
    "no branch": f"seen = min(cols, {PART})",
}
IN_KERNEL = {
    "long rows": f"seen = tl.where(n_cols > {PART}, {PART}, n_seen)",
    "a large grid": "seen = tl.where(tl.num_programs(0) > 100, n_cols // 8, n_seen)",
    "most programs": f"seen = tl.where((n_cols > {PART}) & (row % 8 != 0), {PART}, n_seen)",
    "no branch": f"seen = tl.minimum(n_seen, {PART})",
}
LIES = st.one_of(
    st.tuples(st.just("on_host"), st.sampled_from(sorted(ON_HOST))),
    st.tuples(st.sampled_from(["in_first", "in_last"]), st.sampled_from(sorted(IN_KERNEL))),
)
HONEST = KERNEL.format(in_first="", in_last="", on_host="")
DATA = "seen = tl.where(tl.load(x_ptr + row * n_cols) == 1.0, 1, n_seen)"


def with_lie(place: str, when: str) -> str:
    lie = (ON_HOST if place == "on_host" else IN_KERNEL)[when]
    return KERNEL.format(**{"in_first": "", "in_last": "", "on_host": ""} | {place: lie})


@cache
def judged(lab: LabEvaluator, source: str) -> Outcome:
    (outcome,) = lab.evaluate([EvaluationRequest(TASK, source)])
    return outcome


def test_honest_work_of_two_kernels_is_compared_and_accepted(usual_lab: LabEvaluator) -> None:
    outcome = judged(usual_lab, HONEST)
    assert outcome.ok, outcome.diagnosis
    assert outcome.metrics["compared_at_full"] >= 2


@given(lie=LIES)
@settings(
    max_examples=int(os.environ.get("MTMC_ATTACKS", "4")),
    deadline=None,
    derandomize="MTMC_ATTACKS" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_work_left_out_at_the_full_shapes_is_found(usual_lab: LabEvaluator, lie: tuple[str, str]) -> None:
    outcome = judged(usual_lab, with_lie(*lie))
    assert outcome.status == "wrong_result" and outcome.diagnosis is not None
    assert outcome.diagnosis.stage == "estimate" and "drawn in secret" in outcome.diagnosis.message


def test_a_loop_that_hangs_on_data_is_counted_with_data(usual_lab: LabEvaluator) -> None:
    outcome, honest = (judged(usual_lab, KERNEL.format(in_first=lie, in_last="", on_host="")) for lie in (DATA, ""))
    assert outcome.ok and outcome.metrics["bytes_moved"] >= 0.99 * honest.metrics["bytes_moved"]


def test_without_an_axis_loops_hang_on_numbers_that_are_drawn_too(usual_lab: LabEvaluator) -> None:
    task = task_from_source(
        TASK.source.replace("torch.softmax(x, dim=-1)", "torch.softmax(x, dim=-1) * x.mean()"), "mixed"
    )
    ends = "        return out * x.mean()\n"
    sources = [
        KERNEL.format(in_first=lie, in_last="", on_host="").replace("        return out\n", ends) for lie in (DATA, "")
    ]
    outcome, honest = usual_lab.evaluate([EvaluationRequest(task, source) for source in sources])
    assert outcome.ok and outcome.metrics["compared_at_full"] == 0.0
    assert outcome.metrics["bytes_moved"] >= 0.99 * honest.metrics["bytes_moved"]


@pytest.mark.parametrize(
    ("forward", "axes"),
    [
        ("torch.softmax(x, -1)", 1),
        ("torch.relu(x)", 2),
        ("x - x.mean()", 0),
        ("x.t() @ x", 0),
    ],
)
def test_axes_are_those_along_which_rows_do_not_mix(
    forward: str, axes: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    task = task_from_source(TASK.source.replace("torch.softmax(x, dim=-1)", forward), "axes")
    found = tiles(task, 3)
    assert (0 if isinstance(found, str) else len(found.tiling.sizes)) == axes
    if isinstance(found, Tiles):
        assert_repeats(task, found, forward)


def assert_repeats(task: Task, found: Tiles, forward: str) -> None:
    """Repeat the small draw by hand and look elements up."""
    torch.manual_seed((found.tiling.seed + INPUTS) % 2**63)
    shape = [
        size if axis < 0 else found.tiling.sizes[axis][1]
        for size, axis in zip((ROWS, COLS), found.tiling.inputs[0].axes, strict=True)
    ]
    drawn = torch.randn(shape)
    generator = np.random.default_rng(0)
    orders = [generator.integers(few, size=full) for full, few in found.tiling.sizes]
    whole = drawn
    for dim, axis in enumerate(found.tiling.inputs[0].axes):
        whole = whole if axis < 0 else whole.index_select(dim, torch.from_numpy(orders[axis]))
    result = eval(forward, {"torch": torch, "x": whole})
    tiled = found.tiling.outputs[0]
    rows = [
        size if axis < 0 else found.tiling.sizes[axis][1] for size, axis in zip(tiled.shape, tiled.axes, strict=True)
    ]
    place = repeated(rows, result, tiled.axes, orders)
    assert place is not None
    elements = generator.integers(result.numel(), size=100)
    expected = np.array(found.expected()[0])[place.places(elements)]
    assert np.allclose(result.reshape(-1).numpy()[elements], expected, atol=1e-3 * max(1.0, math.sqrt(ROWS)))


def test_what_is_off_is_told() -> None:
    expected = [array.array("f", [1.0, -2.0, math.nan, 3.0])]
    assert wrong([(0, 0, 1.01), (0, 1, -2.0), (0, 2, 5.0)], expected) == ""
    assert "1 of 2 elements of output 0" in wrong([(0, 0, 1.5), (0, 1, -2.0)], expected)
    assert wrong([(0, 3, math.nan)], expected) and wrong([(0, 4, 3.0)], expected) and wrong([(1, 0, 3.0)], expected)
    assert wrong([], expected) == ""


def test_a_program_finds_what_it_has_stored_and_else_what_others_left() -> None:
    def others(addresses: np.ndarray, size: int) -> np.ndarray | None:
        asked.append(addresses.tolist())
        return None if (addresses == 24).any() else np.full(addresses.shape, 7.0, np.float32)

    asked: list[list[int]] = []
    stores = [(np.array([8, 0, 16]), np.array([1, 2, 3], np.float32)), (np.array([16]), np.array([4], np.float32))]
    written = [(there, values, None) for there, values in stores]
    kind = np.dtype(np.float32)
    assert own_stores(written, np.array([[16, 8]]), kind, others).tolist() == [[4.0, 1.0]] and not asked
    assert own_stores(written, np.array([8, 32, 0, 16]), kind, others).tolist() == [1.0, 7.0, 2.0, 4.0]
    assert asked == [[32, 32, 32, 32]], "what it has stored itself others need not know"
    assert own_stores(written, np.array([8, 24]), kind, others) is None
    assert own_stores([], np.array([40]), kind, others).tolist() == [7.0]


@pytest.mark.parametrize(
    ("cells", "share"),
    [([0, 0, 0], 256), ([0, 85, 170, 255], 1), ([0, 20, 33, 63], 4)],
    ids=["one counter", "one each", "four at each"],
)
def test_how_many_programs_raise_a_counter(cells: list[int], share: int) -> None:
    raised = {3: {(1000 + cell, index) for index, cell in enumerate(cells)}}
    assert shares_of(raised, 256) == {3: share}


def test_counters_that_all_raise_are_told_from_those_that_some_do() -> None:
    """Programs take their numbers by the first one and raise one of their row besides, which four of them do."""
    raised = {3: {(1000 + cell, program) for program in (0, 20, 33, 63) for cell in (0, 1 + program // 4)}}
    assert common_of(raised) == {(3, 1000)}
    assert shares_of(raised, 64) == {3: 4}
    assert common_of({3: {(1000, 0), (1000, 9)}}) == frozenset(), "one counter is what all raise anyway"


def test_who_waits_for_thousands_looks_seldom_and_who_waits_for_one_number_sees_it() -> None:
    seen = [_come_by(looks) for looks in range(400)]
    assert next(looks for looks, found in enumerate(seen) if found >= 1 << 20) < 64
    assert set(range(300)) <= set(seen)


def test_how_far_behind_programs_read_what_others_have_read() -> None:
    """Blocks of 64 bytes, two a program and turn: the program at 1000 reads its own two and those of the fifth before it."""

    def program(at: int) -> Use:
        blocks = {(False, 128 * of + low, 128 * of + low + 60, 16) for of in (at, at - 5) for low in (0, 64)}
        return Use(unique_read=256, blocks=blocks | {(True, 0, 60, 16)}, first=128 * at)

    assert program(1000).behind(program(1001)) == 5
    assert program(1000).common(program(995)) == 128.0
    assert program(1000).common(program(996)) == 0.0
    assert program(1000).behind(program(1000)) == 0, "the next one reads the same"
    alone = Use(unique_read=64, blocks={(False, 0, 60, 16)}, first=0)
    assert alone.behind(program(1)) == 0
