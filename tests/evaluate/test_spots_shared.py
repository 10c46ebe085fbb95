"""What a program writes at the full shapes is compared though others change a part of it, or it has not waited for them; and
with inputs of which only a part counts. Each way to hide has some others of its kind beside it."""

from __future__ import annotations

import array

import pytest

from mtmc.evaluate.counting.compared import Changed, Found, wrong, wrong_of
from mtmc.evaluate.lab import LabEvaluator
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.task.tolerance import DEFAULT
from tests.breadth import share
from tests.evaluate.test_spots import HONEST, KERNEL, ON_HOST, TASK

LIE = ON_HOST["no branch"]
LAST = "        return out\n"
STORE = "        tl.store(out_ptr + row * n_cols + at, tl.exp(x - most) / total, mask=at < n_cols)\n"
SECOND = """
@triton.jit
def again(x_ptr, top_ptr, sum_ptr, out_ptr, n_cols, n_seen, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + at)
    tl.store(out_ptr + row * n_cols + at, tl.exp(x - tl.load(top_ptr + row)) / tl.load(sum_ptr + row), mask=at < 1)


class ModelNew(nn.Module):
"""

SHARED = {
    "an atomic on its own row": (STORE, STORE + "    tl.atomic_add(out_ptr + row * n_cols, 0.0)\n"),
    "an atomic on another row": (STORE, STORE + "    tl.atomic_add(out_ptr + row // 8 * 8 * n_cols, 0.0)\n"),
    "a minimum of integers": (
        STORE,
        STORE + "    tl.atomic_and((out_ptr + row * n_cols).to(tl.pointer_type(tl.int32)), -1)\n",
    ),
    "an op on one element": (LAST, "        out[:1, :1].mul_(1.0)\n" + LAST),
    "an op on a row": (LAST, "        out[3].clamp_(min=0.0)\n" + LAST),
    "an op on a column": (LAST, "        out[:, 5] += 0.0\n" + LAST),
    "another launch": (LAST, "        again[(1,)](x, tops, totals, out, cols, cols, BLOCK=16)\n" + LAST),
}
"""What stands at the end, and in the place of which text."""


def hidden(how: str, seen: str) -> str:
    old, new = SHARED[how]
    text = KERNEL.format(in_first="", in_last="", on_host=seen)
    assert text.count(old) == 1
    return text.replace("\nclass ModelNew(nn.Module):\n", SECOND).replace(old, new)


@pytest.mark.parametrize("how", share(sorted(SHARED), 3))
def test_a_part_that_others_change_hides_nothing_else(usual_lab: LabEvaluator, how: str) -> None:
    outcome = one(usual_lab, hidden(how, LIE))
    assert outcome.status == "wrong_result" and outcome.diagnosis is not None
    assert "drawn in secret" in outcome.diagnosis.message


@pytest.mark.parametrize("how", share(sorted(SHARED), 3))
def test_honest_work_may_end_so(usual_lab: LabEvaluator, how: str) -> None:
    outcome = one(usual_lab, hidden(how, "seen = cols"))
    assert outcome.ok, outcome.diagnosis


def one(lab: LabEvaluator, source: str, depth: str = "screen") -> Outcome:
    return lab.evaluate([EvaluationRequest(TASK, source, depth=depth)])[0]  # type: ignore[arg-type]


MADE = {
    "a sum of many": ("tl.atomic_add(out_ptr, tl.where(row == 1, 0.125, 0.0))", "torch.zeros(1, device=x.device)"),
    "a sum for each row": ("tl.atomic_add(out_ptr + row, 0.125)", "torch.zeros(rows, device=x.device)"),
    "a largest integer": ("tl.atomic_max(out_ptr, 1)", "torch.zeros(1, device=x.device, dtype=torch.int32)"),
    "bits": ("tl.atomic_or(out_ptr, row & 1 | 1)", "torch.full((1,), 0, device=x.device, dtype=torch.int32)"),
}
"""What every program does to a number by atomics, and what it is before: one afterwards."""


def multiplied(how: str, seen: str) -> str:
    """A version that multiplies by a number which atomics have made."""
    step, before = MADE[how]
    programs = "rows" if "ptr + row" in step else "16"
    text = KERNEL.format(in_first="", in_last="", on_host=f"{seen}; one = {before}; raised[(8, {programs})](one)")
    raised = f"@triton.jit\ndef raised(out_ptr):\n    row = tl.program_id(1)\n    {step}\n\n\nclass ModelNew"
    place = "row" if "ptr + row" in step else "0"
    text = text.replace("class ModelNew", raised).replace("x_ptr, top_ptr", "one_ptr, x_ptr, top_ptr")
    text = text.replace("(x, tops,", "(one, x, tops,")
    load = f"        x = tl.load(x_ptr + row * n_cols + at, mask=at < n_cols, other=0.0) * tl.load(one_ptr + {place})\n"
    return text.replace("        x = tl.load(x_ptr + row * n_cols + at, mask=at < n_cols, other=0.0)\n", load)


@pytest.mark.parametrize("how", share(sorted(MADE), 2))
def test_what_atomics_have_made_is_known(usual_lab: LabEvaluator, how: str) -> None:
    honest, lie = (one(usual_lab, multiplied(how, seen)) for seen in ("seen = cols", LIE))
    assert honest.ok, honest.diagnosis
    assert honest.metrics["compared_at_full"] >= 2
    assert lie.status == "wrong_result" and lie.diagnosis is not None and "drawn in secret" in lie.diagnosis.message


NO_MAXIMUM = HONEST.replace("most = tl.max(top, axis=0)", "most = tl.where(n_cols > 4096, 0.0, tl.max(top, axis=0))")
NO_MAXIMUM_NOR_NAN = NO_MAXIMUM.replace("tl.exp(x - most)", "tl.exp(tl.minimum(x - most, 80.0))")


@pytest.mark.parametrize("source", share([NO_MAXIMUM, NO_MAXIMUM_NOR_NAN], 1), ids=["none", "cut off"])
def test_what_is_right_for_easy_inputs_alone_is_found_when_it_is_verified(usual_lab: LabEvaluator, source: str) -> None:
    outcome = one(usual_lab, source, "verify")
    assert outcome.status == "wrong_result" and outcome.diagnosis is not None
    assert "of which only a part counts" in outcome.diagnosis.message


def test_honest_work_stands_it(usual_lab: LabEvaluator) -> None:
    outcome = one(usual_lab, HONEST, "verify")
    assert outcome.ok, outcome.diagnosis
    assert outcome.metrics["compared_at_full"] > 12


def test_how_many_elements_others_may_have_changed() -> None:
    assert Changed((), 1e-8, 24).allowed == pytest.approx(3e-8)
    assert Changed((), 0.02, 24).allowed == 6 / 24  # more than six of 24 lie in a fiftieth once in a million times
    assert Changed((), 0.4, 2).allowed == pytest.approx(1.2)


def test_numbers_of_full_precision_are_nearer_than_others() -> None:
    expected = [array.array("f", [float(n % 7 - 3) for n in range(1000)])]
    off = [(0, n, want * 1.0005) for n, want in enumerate(expected[0])]
    assert wrong(off, expected, DEFAULT, 24) == ""
    assert "0.05% off as a whole" in wrong(off, expected, DEFAULT, 24, (1e-6,))
    assert wrong(off, expected, DEFAULT, 24, (1e-3,)) == ""
    assert wrong([(0, 0, float("nan")), *off[1:]], expected, DEFAULT, 24)
    half = Changed(tuple((0, n, 9.0) for n in range(200)) + tuple(off[200:]), 0.1, 20)
    assert wrong_of(Found(changed=(half,)), expected, DEFAULT, 24, ()) == ""
    assert wrong_of(Found(written=half.written), expected, DEFAULT, 24, ())
