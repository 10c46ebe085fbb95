"""A gate that was asked for and did not come to an end is never passed, and no verdict hangs on how busy a machine is.

Load is made: jobs that find no time, no memory or no process, clocks that leap, an interpreter that is held up. Lies are
such as show at the full grid alone, where comparing takes longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import evaluate_jobs
import pytest
from test_few_that_write import ALL, ASKS, LIES, TASK, version
from test_spots import HONEST as TWO_KERNELS
from test_spots import TASK as SOFTMAX
from test_spots import with_lie

from mtmc.evaluate import lab as of_lab
from mtmc.evaluate.counting.floor import Floor
from mtmc.evaluate.lab import LabEvaluator, LabSettings
from mtmc.evaluate.of_task import KIND
from mtmc.evaluate.pool.job import JobResult, JobStatus
from mtmc.evaluate.pool.worker import Pool
from mtmc.outcome import Outcome
from mtmc.protocols import Depth, EvaluationRequest
from mtmc.task import Task, task_from_source
from tests.exploits.catalogue import exploits, task

OF_TASK, OF_VERSION = ("weaknesses", "floor", "standing_out"), ("check", "note", "count")
HONEST = version(ASKS, ALL)
LYING: list[tuple[Task, str]] = [
    *((task(each.task), each.source) for each in exploits() if each.number == 101),
    *((TASK, version(*LIES[name])) for name in sorted(LIES)),
    (SOFTMAX, with_lie("in_first", "a large grid")),
    (SOFTMAX, with_lie("on_host", "these shapes")),
]
Change = Callable[[str, Callable[..., Any], dict[str, Any]], JobResult[Any] | None]


@pytest.fixture
def lab(warm_pools: object) -> Iterator[LabEvaluator]:
    """One that has not looked any task over."""
    with LabSettings().open() as evaluator:
        yield evaluator


def under_load(lab: LabEvaluator, change: Change) -> None:
    """change: given a job's name, function and arguments, what comes of it; None for what would have come."""
    run = lab._check.run

    def loaded(function: Callable[..., Any], arguments: dict[str, Any], **more: Any) -> JobResult[Any]:
        return change(function.__name__, function, {**more, "arguments": arguments}) or run(function, arguments, **more)

    lab._check.run = loaded  # type: ignore[method-assign]


def judged(lab: LabEvaluator, of: Task, source: str, depth: Depth = "verify") -> Outcome:
    [outcome] = lab.evaluate([EvaluationRequest(of, source, depth=depth)])
    return outcome


def ends(status: JobStatus, *names: str) -> Change:
    return lambda name, function, given: JobResult(status) if name in names else None


@pytest.mark.parametrize("status", ["timeout", "out_of_memory", "crash", "output_limit"])
@pytest.mark.parametrize("job", [*OF_TASK, *OF_VERSION])
@pytest.mark.parametrize("source", [TWO_KERNELS, LYING[-2][1]], ids=["honest", "lying"])
def test_a_job_that_does_not_end_is_no_pass(job: str, status: JobStatus, source: str, lab: LabEvaluator) -> None:
    under_load(lab, ends(status, job))
    outcome = judged(lab, SOFTMAX, source)
    assert not outcome.ok and outcome.runtime_ms is None and outcome.diagnosis is not None
    assert outcome.diagnosis.message
    if job in OF_TASK:
        assert outcome.diagnosis.kind == KIND and "evaluator.timeout_s" in outcome.diagnosis.message


@pytest.mark.parametrize("job", OF_TASK)
@pytest.mark.parametrize("lie", range(len(LYING)))
def test_no_lie_about_the_full_grid_is_right_because_there_was_no_time(job: str, lie: int, lab: LabEvaluator) -> None:
    under_load(lab, ends("timeout", job))
    assert all(not judged(lab, *LYING[lie], depth).ok for depth in ("verify", "verify"))


@pytest.mark.parametrize("job", OF_TASK)
def test_a_limit_of_next_to_nothing_is_no_pass(job: str, lab: LabEvaluator) -> None:
    run = lab._check.run

    def hurried(name: str, function: Callable[..., Any], given: dict[str, Any]) -> JobResult[Any] | None:
        return run(function, **{**given, "timeout_s": 1e-6}) if name == job else None

    under_load(lab, hurried)
    outcome = judged(lab, SOFTMAX, TWO_KERNELS)
    assert outcome.status == "timeout" and outcome.diagnosis is not None and outcome.diagnosis.kind == KIND


@pytest.mark.parametrize("job", OF_TASK)
def test_a_job_whose_process_was_killed_is_tried_again(job: str, lab: LabEvaluator) -> None:
    killed: list[str] = []

    def once(name: str, function: Callable[..., Any], given: dict[str, Any]) -> JobResult[Any] | None:
        if name != job or killed:
            return None
        killed.append(name)
        return JobResult("crash", signal="SIGTERM")

    under_load(lab, once)
    assert judged(lab, SOFTMAX, TWO_KERNELS).ok and killed == [job]


SLOW = {
    "floor": evaluate_jobs.slow_floor,
    "standing_out": evaluate_jobs.slow_standing_out,
    "weaknesses": evaluate_jobs.slow_weaknesses,
    "check": evaluate_jobs.slow_check,
    "count": evaluate_jobs.slow_count,
}


def slowed(lab: LabEvaluator) -> Change:
    run = lab._check.run
    return lambda name, function, given: run(SLOW[name], **given) if name in SLOW else None  # type: ignore[arg-type]


@pytest.mark.parametrize("depth", ["screen", "verify"])
@pytest.mark.parametrize(("of", "source"), [(SOFTMAX, TWO_KERNELS), (TASK, HONEST)], ids=["softmax", "mean"])
def test_clocks_that_leap_change_nothing_of_an_honest_version(
    depth: Depth, of: Task, source: str, lab: LabEvaluator, usual_lab: LabEvaluator
) -> None:
    under_load(lab, slowed(lab))
    slow, usual = judged(lab, of, source, depth), judged(usual_lab, of, source, depth)
    assert (slow.verdict, slow.runtime_ms, slow.unchecked) == (usual.verdict, usual.runtime_ms, usual.unchecked)
    assert slow.ok and slow.metrics["compared_at_full"] == usual.metrics["compared_at_full"]


@pytest.mark.parametrize("lie", range(len(LYING)))
def test_clocks_that_leap_help_no_lie(lie: int, lab: LabEvaluator) -> None:
    under_load(lab, slowed(lab))
    outcome = judged(lab, *LYING[lie])
    assert outcome.status in ("wrong_result", "rejected"), outcome.verdict


@pytest.mark.parametrize("of", [SOFTMAX, TASK], ids=["softmax", "mean"])
def test_a_floor_is_the_same_whatever_the_clock_says(of: Task, check_pool: Pool) -> None:
    slow = check_pool.run(evaluate_jobs.slow_floor, {"task": of, "secret": 7}).value
    usual = check_pool.run(evaluate_jobs.floor, {"task": of, "secret": 7}).value
    assert isinstance(slow, Floor) and slow == usual and slow.bytes and slow.tiles and not slow.left_out


MANY = task_from_source(
    SOFTMAX.source.replace("forward(self, x)", "forward(self, x, y, z)")
    .replace("softmax(x, dim", "softmax(x * y + z, dim")
    .replace("[torch.randn(rows, cols)]", "[torch.randn(rows, cols) for _ in range(3)]"),
    "many",
)


def test_what_is_too_much_work_to_try_is_told(check_pool: Pool) -> None:
    found = check_pool.run(evaluate_jobs.floor_of_little_work, {"task": MANY, "secret": 7}).value
    assert found is not None and all(found.outputs)  # of one input at least
    assert [told for told in found.left_out if told.startswith("2 inputs need not be read")]
    whole = check_pool.run(evaluate_jobs.floor, {"task": MANY, "secret": 7}).value
    assert whole is not None and not whole.left_out and whole.bytes > found.bytes


@pytest.mark.parametrize(
    ("job", "told"),
    [("floor_of_little_work", "2 inputs need not be read"), ("floor_of_little_memory", "evaluator.memory_mib")],
)
def test_what_was_left_out_is_in_the_outcome(job: str, told: str, lab: LabEvaluator) -> None:
    run, function = lab._check.run, getattr(evaluate_jobs, job)
    under_load(lab, lambda name, _, given: run(function, **given) if name == "floor" else None)
    source = MANY.source.replace("class Model(", "class ModelNew(")
    outcome = judged(lab, MANY, source)
    assert outcome.ok and told in outcome.unchecked


LARGE = task_from_source(
    """
import torch
from torch import nn

side = 8192
VARIANTS = {"small": {"side": 24}, "odd1": {"side": 33}}


class Model(nn.Module):
    def forward(self, x):
        return x + x.roll(1, 0) + x.roll(1, 1)


def get_inputs():
    return [torch.randn(side, side)]


def get_init_inputs():
    return []
""",
    "large",
)


def test_a_task_too_large_to_compare_can_be_searched_and_says_why(usual_lab: LabEvaluator) -> None:
    outcome = judged(usual_lab, LARGE, LARGE.source.replace("class Model(", "class ModelNew("))
    assert outcome.ok and outcome.metrics["compared_at_full"] == 0.0
    assert "numbers in inputs, of at most" in outcome.unchecked


def test_what_takes_too_much_work_to_compare_is_refused(lab: LabEvaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted work: the second kernel reads what the first one has left, and nothing of that may be computed."""
    monkeypatch.setitem(of_lab.LOOKING_BACK, "verify", 0.0)
    outcome = judged(lab, SOFTMAX, TWO_KERNELS)
    assert outcome.diagnosis is not None and outcome.diagnosis.kind == "TooLongToCompare"
    assert "what apply writes" in outcome.diagnosis.message


TWO_OUTPUTS = task_from_source(
    SOFTMAX.source.replace("return torch.softmax(x, dim=-1)", "return torch.softmax(x, dim=-1), x * 2"), "two_outputs"
)
WITH_A_CHEAP_ONE = (
    TWO_KERNELS.replace(
        "class ModelNew",
        "@triton.jit\ndef double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)\n\n\nclass ModelNew",
    )
    .replace("return out\n", "CHEAP\n        return out, twice\n")
    .replace("CHEAP", "double[(triton.cdiv(x.numel(), 1024),)](x, twice, x.numel(), BLOCK=1024)")
    .replace("tops, totals, out =", "twice, tops, totals, out = torch.empty_like(x),")
)


def test_one_output_that_is_compared_does_not_stand_for_another(
    lab: LabEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(lab, TWO_OUTPUTS, WITH_A_CHEAP_ONE).ok
    monkeypatch.setitem(of_lab.LOOKING_BACK, "verify", 0.0)
    outcome = judged(lab, TWO_OUTPUTS, WITH_A_CHEAP_ONE)
    assert outcome.diagnosis is not None and outcome.diagnosis.kind == "TooLongToCompare", outcome.verdict


def test_the_lab_asks_no_clock() -> None:
    """But where a process that hangs is ended. What is timed on a device has clocks, and they are no gate of the lab."""
    root = Path(of_lab.__file__).parent
    parts = [
        *root.glob("*.py"),
        *(path for name in ("check", "counting", "reference") for path in (root / name).glob("*.py")),
    ]
    asking = {path.name for path in parts if "import time\n" in path.read_text()}
    assert asking == {"gpu.py", "ray_slots.py"}  # of measured runtimes, and of Ray
