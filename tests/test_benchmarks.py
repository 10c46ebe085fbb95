"""The benchmarks of the evaluators: their figures by hand, and each of them from end to end with an evaluator that answers
at once."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import logging
import math
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import (
    autotuned,
    clock_verdicts,
    common,
    estimate_quality,
    evaluator_on_gpu,
    faults,
    gpu_searches,
    kernelbench_adversarial,
    kernelbench_pairs,
    kernelbench_side,
    many_evaluators,
    repeatability,
    strategies,
    sustained_rate,
    two_gpus,
    versus_kernelbench,
)
from benchmarks.fault_kinds import FAULTS, faulty
from benchmarks.fault_kinds import task as fault_task
from benchmarks.figures import geometric_mean, header, percentile, ranks, row, spearman, spread
from benchmarks.workloads import small_versions, stepped_version, timed_versions
from mtmc.errors import ConfigError, EvaluatorError
from mtmc.evaluate import LabSettings
from mtmc.evaluate.audit.audit import audit
from mtmc.fakes import FakeEvaluator, draw
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import load_task
from tests.breadth import share


class Scripted(Evaluator):
    """An evaluator whose outcomes a function makes."""

    hardware = "H100"
    verifies = True

    def __init__(self, answer: Callable[[EvaluationRequest], Outcome]) -> None:
        self.answer = answer
        self.asked: list[EvaluationRequest] = []
        self.closed = False

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        self.asked += requests
        return [self.answer(request) for request in requests]

    def close(self) -> None:
        self.closed = True


def measured(ms: float, **metrics: float) -> Outcome:
    return Outcome("ok", ms, 0.99 * ms, 1.01 * ms, 50, "measured", metrics)


def wrong(message: str = "off") -> Outcome:
    return Outcome("wrong_result", diagnosis=Diagnosis("check", "WrongValues", message))


def given(monkeypatch: pytest.MonkeyPatch, script: Any, evaluator: Scripted, *words: str) -> None:
    """Let a script's `main` meet this evaluator and this command line."""
    monkeypatch.setattr(script, "settings_of", lambda *_, **__: SimpleNamespace(open=lambda: evaluator))
    monkeypatch.setattr(sys, "argv", [f"benchmarks/{script.__name__.split('.')[-1]}.py", *words])


# -- figures --------------------------------------------------------------------------------------------------------


def test_statistics_by_hand() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([1.0, 2.0], 25) == 1.25
    assert percentile([float(n) for n in range(11)], 90) == 9.0
    assert spread([100.0 + n for n in range(11)]) == pytest.approx(8 / 105)
    assert ranks([10, 20, 20, 5]) == [2.0, 3.5, 3.5, 1.0]
    for bad in ([], [1.0, 0.0], [-1.0]):
        with pytest.raises(ValueError, match="above 0"):
            geometric_mean(bad)
    with pytest.raises(ValueError, match="needs values"):
        percentile([], 50)


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3], [10, 20, 90]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(1 - 6 * 2 / (4 * 15))
    # With ties it is the correlation of the shared ranks: (1.5, 1.5, 3) against (1, 2, 3).
    assert spearman([5, 5, 9], [1, 2, 3]) == pytest.approx(1.5 / math.sqrt(1.5 * 2))
    assert spearman([1, 1], [1, 2]) is None and spearman([1], [1]) is None
    with pytest.raises(ValueError, match="pairs"):
        spearman([1, 2], [1])


def test_table_cells_do_not_break_the_table() -> None:
    assert header("a", "b") == "| a | b |\n|---|---|"
    assert row("x|y", "one\ntwo", 3) == "| x/y | one two | 3 |"


def test_rate_leaves_out_the_warm_up() -> None:
    ends = [10.0, 1.0, *[11.0 + n for n in range(8)]]
    rate = sustained_rate.rate_of(ends, warm_up=2)
    assert (rate.evaluations, rate.seconds, rate.per_second) == (8, 8.0, 1.0)
    assert sustained_rate.rate_of([0.0, 2.0, 4.0], warm_up=0).per_second == 0.5
    with pytest.raises(ValueError, match="warm-up of 3"):
        sustained_rate.rate_of([1.0, 2.0, 3.0], warm_up=3)


def test_the_longest_gaps_say_what_the_evaluation_that_ended_them_did() -> None:
    quick = measured(1.0, check_s=0.1, held_s=0.2, process_used=3.0, looks=1.0, rounds=4.0)
    slow = measured(
        1.0, check_s=0.1, held_s=4.4, again_s=4.0, loop_quiet_s=1e-5, process_used=0.0, looks=2.0, rounds=12.0
    )
    ends = [(0, quick, 1.0), (1, quick, 1.2), (2, slow, 5.6), (3, wrong(), 6.0)]
    ends += [(at, quick, 6.1 + at / 10) for at in range(4, 9)]
    found = sustained_rate.gap_table([common.Timed(at, outcome, 0.0, end) for at, outcome, end in ends]).splitlines()
    assert len(found) == 2 + sustained_rate.LONGEST
    assert found[2] == "| 4.400 | 5.6 | 2 | 0 | 2 | 12 | held 4.400, again 4.000, check 0.100 |"
    assert found[3].startswith("| 0.500 | 6.5 | 4 | 3 | 1 | 4 |") and found[4] == "| 0.400 | 6.0 | 3 |  |  |  |  |"


def test_stages_are_read_from_records_with_and_without_the_greatest(tmp_path: Path) -> None:
    for at, table in enumerate(
        ("| check | 0.048 | 0.071 | 10.1 | 175 |", "| check | 0.048 | 0.071 | 0.4 | 10.1 | 175 |")
    ):
        record = tmp_path / f"{at}.md"
        record.write_text(f"| check, s | 1 | 2 | 3 | 4 | 5 |\n{table}\n")
        assert many_evaluators.recorded_stages(record) == {"check": (0.048, 0.071)}


def test_steps_of_a_version_5_percent_slower_by_hand() -> None:
    # 0.01 ms a step and 1 ms beside: 300 steps take 4 ms, 5% of that are 20 steps.
    assert repeatability.steps_for(0.05, 300, [(200, 3.0), (400, 5.0)]) == 320
    with pytest.raises(EvaluatorError, match="does not count"):
        repeatability.steps_for(0.05, 300, [(200, 3.0), (400, 3.0)])


def test_deviation_is_from_the_other_runs() -> None:
    assert faults.deviations([1.0, 1.0, 1.1]) == pytest.approx([abs(1 - 1.05) / 1.05, abs(1 - 1.05) / 1.05, 0.1])
    assert faults.deviations([1.0]) == []


def test_stages_are_the_metrics_in_seconds() -> None:
    outcomes = [measured(1.0, build_s=2.0, check_s=0.5, error=1e-7), measured(1.0, build_s=4.0)]
    assert common.stage_seconds(outcomes) == {"build": [2.0, 4.0], "check": [0.5]}
    assert "| build | 3.000 | 3.800 | 4.000 | 6.0 | 2 |" in common.stage_table(outcomes)


# -- what they share ------------------------------------------------------------------------------------------------


def options(*words: str) -> argparse.Namespace:
    return common.parser(None, "lab").parse_args(words)


def test_settings_come_from_the_command_line() -> None:
    chosen = common.settings_of(options("--setting", "timeout_s=7", "--setting", "target=sm_80"), workers=1, builders=3)
    assert chosen == LabSettings(target="sm_80", workers=1, timeout_s=7)
    assert common.settings_of(options("--evaluator", "gpu", "--setting", "devices=0")).devices == "0"
    for words, message in (
        (("--setting", "workers"), "NAME=VALUE"),
        (("--setting", "nonsense=1"), "nonsense"),
        (("--evaluator", "nothing"), "nothing"),
    ):
        with pytest.raises(ConfigError, match=message):
            common.settings_of(options(*words))


def test_a_stream_keeps_so_many_in_flight_and_goes_on_after_a_failure() -> None:
    together, most, lock = 0, 0, threading.Lock()
    meeting = threading.Barrier(3, timeout=300)

    def answer(request: EvaluationRequest) -> Outcome:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        meeting.wait()  # as there are 9, each finds two others
        time.sleep(0.02)
        with lock:
            together -= 1
        if request.seed == 3:
            raise EvaluatorError("the workers are gone")
        return measured(1.0)

    task = fault_task()
    requests = [EvaluationRequest(task, "", seed=number) for number in range(9)]
    found = list(common.stream(Scripted(answer), requests, 3))
    assert most == 3
    assert sorted(timed.index for timed in found) == list(range(9))
    assert [timed.ended for timed in found] == sorted(timed.ended for timed in found)
    assert all(timed.seconds >= 0.02 for timed in found)
    [failed] = [timed for timed in found if not timed.outcome.ok]
    assert failed.index == 3 and failed.outcome.diagnosis is not None
    assert failed.outcome.diagnosis.stage == common.EVALUATOR


def test_a_stream_starts_nothing_after_its_deadline() -> None:
    deadline = common.Deadline(1e-6)
    time.sleep(0.01)
    assert list(common.stream(FakeEvaluator(), [EvaluationRequest(fault_task(), "")], 1, deadline)) == []
    assert not common.Deadline(0.0).passed


def test_a_report_keeps_what_was_said_and_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "results" / "name.v1"
    monkeypatch.setattr(sys, "argv", ["/somewhere/benchmarks/x.py", "--out", str(out), f"--runs={tmp_path}/r", "--n=3"])
    with pytest.raises(ZeroDivisionError), common.Report("A title", out) as report:
        report.say("a line")
        report.data["figure"] = 7
        1 / 0  # noqa: B018
    text = Path(f"{out}.md").read_text()
    assert text.startswith("# A title\n\na line\n")
    assert "Ended early by ZeroDivisionError" in text
    assert "Command: `python benchmarks/x.py --out name.v1 --runs=r --n=3`" in text and str(tmp_path) not in text
    data = json.loads(Path(f"{out}.json").read_text())
    assert data["figure"] == 7 and data["ended_early"].startswith("ZeroDivisionError")
    assert {"gpus", "torch", "triton", "python", "cores", "date"} <= set(data["machine"])


def test_a_task_keeps_its_shapes() -> None:
    task = load_task("softmax")
    assert common.task_from_json(json.loads(json.dumps(common.task_to_json(task))), task.source) == task


# -- workloads ------------------------------------------------------------------------------------------------------


def test_small_versions_are_all_different() -> None:
    cases = list(small_versions(500))
    assert len({case.task.name for case in cases}) == 5
    # Different beyond their names: without them and the launch options, each kernel's text is still its own.
    kernels = {re.sub(r"_\d+\b|num_warps=\d+", "", case.source) for case in cases}
    assert len(kernels) == 500
    assert all(audit(case.source, case.task.source) is None for case in cases)
    assert [case.source for case in cases] == [case.source for case in small_versions(500)]
    assert cases[0].source != next(small_versions(1, seed=1)).source or cases[1] != list(small_versions(2, seed=1))[1]


@pytest.fixture(scope="module")
def lab() -> Any:
    with LabSettings(workers=1, check_variants=1).open() as evaluator:
        yield evaluator


def test_workloads_are_right(lab: Any) -> None:
    small = share(list(small_versions(5, seed=3)), 3)
    cases = [*small, *timed_versions().values(), stepped_version(7)]
    outcomes = [lab.evaluate([EvaluationRequest(case.task, case.source)])[0] for case in cases]
    assert [common.failure(outcome) for outcome in outcomes] == ["ok"] * len(cases)
    silu, softmax, product = (outcome.runtime_ms for outcome in outcomes[-4:-1])
    assert silu < softmax < product
    more = stepped_version(150)
    assert lab.evaluate([EvaluationRequest(more.task, more.source)])[0].runtime_ms > 2 * outcomes[-1].runtime_ms


@pytest.mark.parametrize("kind", ["segmentation fault", "illegal address", "compile error", "wrong result"])
def test_faults_get_a_right_status(kind: str, lab: Any) -> None:
    [outcome] = lab.evaluate([EvaluationRequest(fault_task(), faulty(kind, 5))])
    assert outcome.status in FAULTS[kind].statuses


def test_faults_are_not_stopped_by_their_text() -> None:
    texts = {kind: faulty(kind, 0) for kind in FAULTS}
    assert len(FAULTS) >= 10
    stopped = {"fork bomb", "compile error"}  # that one has a name that is nowhere defined
    assert {kind for kind, text in texts.items() if audit(text, fault_task().source) is not None} <= stopped
    for text in texts.values():
        ast.parse(text)
    assert all(not fault.statuses & {"ok"} and (fault.forward or fault.kernel) for fault in FAULTS.values())


# -- each benchmark from end to end ---------------------------------------------------------------------------------


def test_sustained_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = Scripted(lambda request: wrong() if request.seed == 7 else measured(0.01, build_s=0.5))
    out = tmp_path / "rate"
    given(monkeypatch, sustained_rate, evaluator, "--limit", "20", "--warm-up", "5", "--in-flight", "2", f"--out={out}")
    sustained_rate.main()
    data = json.loads(Path(f"{out}.json").read_text())
    assert data["evaluations"] == 20 and data["statuses"] == {"ok": 24, "wrong_result": 1}
    assert data["per_second"] == pytest.approx(20 / data["seconds"])
    assert len({request.source for request in evaluator.asked}) == 25 and evaluator.closed
    printed = capsys.readouterr().out
    assert "version 7" in printed and "| build | 0.500 |" in printed


def test_two_gpus(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    opened: list[list[str]] = []
    seen: list[set[str]] = []
    passed: list[float] = []
    monkeypatch.setattr(common, "time", SimpleNamespace(**{**vars(time), "monotonic": lambda: sum(passed)}))

    def settings(arguments: argparse.Namespace) -> Any:
        opened.append(arguments.setting)
        pause = 4.0 if arguments.setting[-1] == "devices=0" else 1.0
        seen.append(set())

        def answer(request: EvaluationRequest) -> Outcome:
            passed.append(pause)
            seen[-1].add(request.source)
            return measured(1.0)

        evaluator = Scripted(answer)
        return SimpleNamespace(open=lambda: evaluator)

    monkeypatch.setattr(two_gpus, "settings_of", settings)
    words = ["--limit", "30", "--warm-up", "3", "--in-flight", "1", "--setting", "builders=4"]
    monkeypatch.setattr(sys, "argv", ["two_gpus.py", *words])
    two_gpus.main()
    assert opened == [["builders=4", "devices=0"], ["builders=4", "devices=0,1"]]
    assert not seen[0] & seen[1]  # the second round meets nothing that the first has compiled
    ratio = float(re.findall(r"\*\*([\d.]+)\*\* times", capsys.readouterr().out)[0])
    assert ratio == 4.0


def test_repeatability(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def answer(request: EvaluationRequest) -> Outcome:
        steps = re.search(r"STEPS = (\d+)", request.source)
        if steps is None:
            return measured(1.0 + 0.001 * (request.seed % 11))
        if request.seed == 9:
            return wrong()
        return measured(1.0 + 0.01 * int(steps[1]))

    out = tmp_path / "repeat"
    words = ["--times", "11", "--tries", "10", "--in-flight", "2", f"--out={out}"]
    given(monkeypatch, repeatability, Scripted(answer), *words)
    repeatability.main()
    data = json.loads(Path(f"{out}.json").read_text())
    spreads = [each["spread"] for each in data["spreads"].values()]
    assert spreads == pytest.approx([0.008 / 1.005] * 3)
    ranking = data["ranking"]
    assert ranking["steps"] == [301, 321] and ranking["gap"] == pytest.approx(0.2 / 4.01)
    assert (ranking["right"], ranking["tries"]) == (9, 10)  # the try with a failed evaluation is no right one
    assert "meets" not in Path(f"{out}.md").read_text().split("ranked right")[1]


def clock_answer(request: EvaluationRequest) -> Outcome:
    if request.task.name == "busy":
        time.sleep(0.001)
        return Outcome("build_error", diagnosis=Diagnosis("build", "OutOfResources", "too much"))
    if "_elapsed" in request.source or "_record" in request.source:
        return Outcome("rejected", diagnosis=Diagnosis("time", "HiddenTime", "forged"))
    logging.getLogger("mtmc.evaluate.measure.gpu_worker").info("examined a second time: %s", "noise")
    return measured(1.0, clock_ms=1.002, disturbed=0.25)


@pytest.mark.parametrize("wrong_about", ["", clock_verdicts.HONEST, "states a tenth, always"])
def test_clock_verdicts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong_about: str
) -> None:
    texts = clock_verdicts.versions(load_task("elementwise_chain"))
    audits = [audit(text, load_task("elementwise_chain").source) for text in texts.values()]
    assert [each is None for each in audits] == [True, False, False, False]

    def answer(request: EvaluationRequest) -> Outcome:
        if request.source != texts.get(wrong_about):
            return clock_answer(request)
        return measured(0.1, clock_ms=1.0) if wrong_about != clock_verdicts.HONEST else wrong()

    out = tmp_path / "clock"
    words = ["--times", "8", "--forged-times", "2", "--load", "2", "--in-flight", "2", f"--out={out}"]
    given(monkeypatch, clock_verdicts, Scripted(answer), *words)
    assert clock_verdicts.main() == (1 if wrong_about else 0)
    data = json.loads(Path(f"{out}.json").read_text())
    assert set(data["load"]) == {"build_error"}
    if not wrong_about:
        assert data["honest"]["statuses"] == {"ok": 8} and data["second"] == 8
        assert all(data[name]["statuses"] == {"rejected": 2} for name in clock_verdicts.FORGERIES)
        assert "| honest | 8 | 8 | 1.0000 | 25% | 25% | 25% |  |" in capsys.readouterr().out


def test_forged_evaluations_lie_between_honest_ones() -> None:
    first, second, third = clock_verdicts.FORGERIES
    honest = clock_verdicts.HONEST
    assert clock_verdicts.plan(8, 1) == [
        honest,
        honest,
        first,
        honest,
        honest,
        second,
        honest,
        honest,
        third,
        honest,
        honest,
    ]
    assert clock_verdicts.plan(1, 1) == [honest, first, second, third]


def test_forgeries_forge(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(name: str, calls: int) -> list[float]:
        backend = SimpleNamespace(_elapsed=lambda *_: 1.0, _record=lambda *_: None)
        monkeypatch.setitem(sys.modules, "mtmc.evaluate.measure.cuda_backend", backend)
        exec(clock_verdicts.FORGERIES[name], {"Model": object})
        return [backend._elapsed(0, 1) for _ in range(calls)]

    always, most, _ = clock_verdicts.FORGERIES
    assert state(always, 3) == [0.1] * 3
    assert state(most, 8) == [1.0, 0.1, 0.1, 0.1] * 2


def fault_statuses(request: EvaluationRequest) -> Outcome:
    if request.task.name != fault_task().name:
        return measured(0.05)
    for kind, fault in FAULTS.items():
        serial = int(re.findall(r"SERIAL = (\d+)", request.source)[0])
        if request.source == faulty(kind, serial):
            return Outcome(min(fault.statuses), diagnosis=Diagnosis("check", kind, "as it must be"))
    raise AssertionError("no such fault")


def run_faults(monkeypatch: pytest.MonkeyPatch, answer: Callable[[EvaluationRequest], Outcome], *words: str) -> int:
    given(monkeypatch, faults, Scripted(answer), "--limit", "60", "--in-flight", "2", *words)
    monkeypatch.setattr(faults, "adopt_orphans", lambda: None)
    monkeypatch.setattr(faults, "left_processes", lambda _: [])
    return faults.main()


def test_faults_all_as_they_must_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run_faults(monkeypatch, fault_statuses, f"--out={tmp_path / 'faults'}") == 0
    data = json.loads((tmp_path / "faults.json").read_text())
    kinds = [kind for kind, *_ in data["evaluations"]]
    assert len(kinds) == 60 and {kinds.count(kind) for kind in FAULTS} == {1, 2}
    assert kinds.count(faults.HONEST) == 60 - round(0.36 * 60)


def test_faults_see_what_is_not_as_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def disturbed(request: EvaluationRequest) -> Outcome:
        found = fault_statuses(request)
        return measured(0.06) if found.ok and request.seed == 59 else found

    def lost(request: EvaluationRequest) -> Outcome:
        found = fault_statuses(request)
        return Outcome("crash", diagnosis=Diagnosis("time", "Lost", "")) if found.ok and request.seed > 50 else found

    def broken(request: EvaluationRequest) -> Outcome:
        found = fault_statuses(request)
        if found.diagnosis is not None and found.diagnosis.kind == "SystemExit":
            raise EvaluatorError("the worker is gone")  # a crash of the evaluator is not the version's
        return found

    assert run_faults(monkeypatch, fault_statuses) == 0
    items = faults.mix(60, 0.36, 0, list(FAULTS), 3)
    assert items[59].kind == faults.HONEST or run_faults(monkeypatch, fault_statuses) == 0
    for answer in (disturbed, lost, broken):
        assert run_faults(monkeypatch, answer) == 1


def test_mix_is_the_seeds() -> None:
    kinds = ("a", "b", "c")
    first = faults.mix(20, 0.4, 1, kinds, 2)
    assert first == faults.mix(20, 0.4, 1, kinds, 2) != faults.mix(20, 0.4, 2, kinds, 2)
    assert [sum(item.kind == kind for item in first) for kind in (*kinds, faults.HONEST)] == [3, 3, 2, 12]
    assert sorted(item.version for item in first if item.kind == faults.HONEST) == [0] * 6 + [1] * 6


def test_processes_left_behind_are_found() -> None:
    before = faults.left_processes(0.0)
    child = faults.psutil.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert len(faults.left_processes(0.0)) == len(before) + 1
    finally:
        child.kill()
        child.wait()
    assert len(faults.left_processes(1.0)) == len(before)


def test_estimate_quality(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    met: dict[str, int] = {}

    def answer(request: EvaluationRequest) -> Outcome:
        number = met.setdefault(request.source, len(met))
        return wrong() if number == 3 else measured(1 + draw(request.source))

    lab = Scripted(answer)
    found = list(estimate_quality.walked(load_task("softmax"), 0, 6, lab))
    assert len({each.key for each in found}) == 6 and found[0].steps == ()
    assert all(each.estimate.ok for each in found) and all("ModelNew" in each.source for each in found)

    arguments = argparse.Namespace(minutes=0.0, prepare=tmp_path / "made", tasks=["softmax"], versions=6, seed=0)
    estimate_quality.prepare(arguments, lab)
    prepared = estimate_quality.read_prepared(tmp_path / "made", ["softmax"])
    assert prepared == found
    by_source = {each.source: float(each.estimate.runtime_ms or 0) for each in found}

    failing = found[2].source
    evaluator = Scripted(lambda r: wrong() if r.source == failing else measured(2 * by_source[r.source]))
    given(monkeypatch, estimate_quality, evaluator, f"--measure={tmp_path / 'made'}", f"--out={tmp_path / 'quality'}")
    estimate_quality.main()
    data = json.loads((tmp_path / "quality.json").read_text())
    assert len(data["pairs"]) == 5 and len(data["failed"]) == 1
    assert data["tasks"] == {"softmax": pytest.approx(1.0)} and data["error"] == pytest.approx(2.0)

    again = Scripted(lambda r: measured(2 * by_source[r.source]))
    merge = [f"--merge={tmp_path / 'quality.json'}", f"--measure={tmp_path / 'made'}"]
    given(monkeypatch, estimate_quality, again, *merge)
    estimate_quality.main()
    assert [request.source for request in again.asked] == [failing]  # the others are known
    assert "6 versions of 1 tasks" in capsys.readouterr().out

    reversed_ = Scripted(lambda r: measured(1 / by_source[r.source]))
    estimate_quality.estimate_again(arguments, reversed_)
    given(
        monkeypatch, estimate_quality, again, merge[0], f"--estimates={tmp_path / 'made'}", f"--out={tmp_path / 'new'}"
    )
    estimate_quality.main()
    assert json.loads((tmp_path / "new.json").read_text())["tasks"] == {"softmax": pytest.approx(-1.0)}


def test_wrong_rankings_by_hand() -> None:
    def pair(key: str, estimated: float, ms: float, task: str = "t") -> estimate_quality.Pair:
        return estimate_quality.Pair(key, task, (), estimated, ms, {})

    pairs = [pair("a", 1.0, 4.0), pair("b", 2.0, 1.0), pair("c", 3.0, 2.0), pair("d", 0.5, 9.0, "other")]
    ranked = [(regret, thought.key, better.key) for regret, thought, better in estimate_quality.misranked(pairs)]
    assert ranked == [(4.0, "a", "b"), (2.0, "a", "c")]
    assert estimate_quality.error_of(pairs[:2]) == pytest.approx(math.sqrt(4 * 2))
    with pytest.raises(ConfigError, match="--prepare"):
        estimate_quality.read_prepared(Path("/nonexistent"), ["softmax"])


def test_gpu_searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeEvaluator(failing=0.0, rejecting=0.1)
    scripted = Scripted(lambda request: fake.evaluate([request])[0])
    scripted.baselines = fake.baselines  # type: ignore[attr-defined]
    out = tmp_path / "searches"
    words = ["--tasks", "softmax", "--evaluations", "5", "--batch", "2", f"--out={out}"]
    given(monkeypatch, gpu_searches, scripted, *words)
    status = gpu_searches.main()
    [found] = json.loads(Path(f"{out}.json").read_text())["rows"]
    assert found["verified"] and found["evaluations"] == 5 and found["best_ms"] <= found["root_ms"]
    assert status == 1  # this evaluator has no runtime of eager
    assert "ModelNew" in (tmp_path / "searches_best" / "softmax.py").read_text()
    assert [each.task for each in gpu_searches.merged([Path(f"{out}.json")] * 2)] == ["softmax"]


def test_what_is_wrong_with_a_search() -> None:
    def made(eager: float | None, best: float, verified: bool = True) -> gpu_searches.Row:
        compiled = {"eager": 2.0, "torch.compile": 1.5, "torch.compile max-autotune": None}
        return gpu_searches.Row("t", compiled, 2.0, eager, best, best, 0.5, 3, verified, 64, {}, 1.0)

    assert made(2.0, 1.0).speedup == 2.0 and made(2.0, 1.0).over_compile == 1.5 and made(2.0, 1.0).problem is None
    assert made(2.0, 2.03).problem is None  # within the band of repeated measurements
    assert "slower" in str(made(2.0, 2.1).problem)
    assert "verified" in str(made(2.0, 1.0, verified=False).problem)
    assert made(None, 1.0).problem is not None
    assert gpu_searches.roofline_of(measured(1.0, achieved_gbs=1675.0), "H100") == pytest.approx(0.5)
    assert gpu_searches.roofline_of(measured(1.0, achieved_gbs=1675.0, roofline=0.9), "H100") == 0.9
    assert gpu_searches.roofline_of(measured(1.0), "H100") is None


# -- KernelBench ----------------------------------------------------------------------------------------------------

PROBLEM = """\
import torch
from torch import nn

rows = 64
cols = 128


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(rows, cols)]


def get_init_inputs():
    return []
"""

SERVER = """\
import json, os, sys, time
print(json.dumps({"replaced": ["nothing"]}), flush=True)
for line in sys.stdin:
    pair = json.loads(line)
    if "SLOW" in pair["candidate"]:
        time.sleep(60)
    if "DEAD" in pair["candidate"]:
        os._exit(3)
    correct = "WRONG" not in pair["candidate"]
    print(json.dumps({"seconds": 30.0, "compiled": True, "correct": correct, "runtime_ms": 1.5}), flush=True)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "kernelbench" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for name in ("19_ReLU", "1_Square", "190_Other"):
        (folder / f"{name}.py").write_text(PROBLEM)
    return tmp_path / "kernelbench"


def test_kernelbench_process(tmp_path: Path) -> None:
    with kernelbench_side.KernelBench(tmp_path, [sys.executable, "-c", SERVER]) as kernelbench:
        verdict = kernelbench.evaluate(PROBLEM, "fine", 300)
        assert verdict == kernelbench_side.Verdict(30.0, True, True, 1.5)
        assert kernelbench.replaced == ["nothing"]
        slow = kernelbench.evaluate(PROBLEM, "SLOW", 0.3)
        assert "time limit" in slow.note and not slow.correct and slow.seconds < 60
        assert "status 3" in kernelbench.evaluate(PROBLEM, "DEAD", 300).note
        assert kernelbench.evaluate(PROBLEM, "fine", 300).correct  # started anew
    with (
        pytest.raises(RuntimeError, match="did not start"),
        kernelbench_side.KernelBench(tmp_path, [sys.executable, "-c", ""]) as gone,
    ):
        gone.evaluate(PROBLEM, "fine", 300)


def test_kernelbench_results_are_read_right() -> None:
    result = SimpleNamespace(compiled=True, correctness=True, runtime=1.25, metadata={"hardware": "x"})
    assert kernelbench_side.verdict_of(result, 7.0) == kernelbench_side.Verdict(7.0, True, True, 1.25)
    failed = SimpleNamespace(
        compiled=True, correctness=False, runtime=-1.0, metadata={"runtime_error": ValueError("x")}
    )
    verdict = kernelbench_side.verdict_of(failed, 1.0)
    assert verdict.runtime_ms is None and not verdict.correct and verdict.note == "runtime_error: x"
    assert kernelbench_side.verdict_of(None, 1.0).note == "no result"


def test_a_stand_in_of_a_record() -> None:
    class Result(kernelbench_side._Record):
        correct: bool = False
        metadata: dict = {}  # noqa: RUF012

    first, second = Result(correct=True), Result()
    first.metadata["x"] = 1
    assert first.correct and not second.correct and second.metadata == {}


def test_problems_are_found_by_number(checkout: Path) -> None:
    assert kernelbench_pairs.problem_file(checkout, "level1/19").stem == "19_ReLU"
    assert kernelbench_pairs.problem_file(checkout, "level1/190_Other").stem == "190_Other"
    with pytest.raises(ConfigError, match="level1/77"):
        kernelbench_pairs.problem_file(checkout, "level1/77")


def test_versus_kernelbench(monkeypatch: pytest.MonkeyPatch, checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pairs"
    problems = ["level1/19", "level1/1"]
    kernelbench_pairs.prepare(checkout, problems, folder, FakeEvaluator(failing=0.0))
    [first, second] = kernelbench_pairs.read_candidates(checkout, folder, problems)
    assert first.problem == "level1/19_ReLU" and first.task == load_task(checkout / "KernelBench/level1/19_ReLU.py")
    assert "@triton.jit" in first.source
    assert kernelbench_pairs.read_candidates(checkout, folder, ["level1/1"]) == [second]

    def answer(request: EvaluationRequest) -> Outcome:
        time.sleep(0.02 if request.depth == "screen" else 0.05)
        return (
            wrong()
            if request.depth == "verify" and request.task.name == second.task.name
            else measured(1.5, time_s=0.01)
        )

    process = kernelbench_side.KernelBench(checkout, [sys.executable, "-c", SERVER])
    monkeypatch.setattr(versus_kernelbench, "KernelBench", lambda _, gpu, cores: process)
    out = tmp_path / "versus"
    words = [
        f"--kernelbench={checkout}",
        f"--candidates={folder}",
        "--warm-up=2",
        f"--out={out}",
        "--problems",
        *problems,
    ]
    given(monkeypatch, versus_kernelbench, Scripted(answer), *words)
    versus_kernelbench.main()
    data = json.loads(Path(f"{out}.json").read_text())
    assert [pair["counts"] for pair in data["pairs"]] == [True, False]  # the second failed its verification
    one = data["pairs"][0]
    means = data["all pairs that count"]
    assert means == data["inputs below 4 GiB"]
    assert means["screening"] == pytest.approx(30 / one["screen_s"])
    assert means["screening and verification"] == pytest.approx(30 / (one["screen_s"] + one["verify_s"]))
    assert means["admission and screening"] == pytest.approx(30 / (one["admit_s"] + one["screen_s"]))
    assert 0.02 <= one["screen_s"] < one["verify_s"]

    shares = versus_kernelbench.shares(["1", "3"])
    assert [gpu for gpu, _ in shares] == ["1", "3"] and len(shares[0][1]) == len(shares[1][1]) > 0
    assert versus_kernelbench.shares([]) == [("", [])]

    (checkout / "KernelBench" / "level1" / "1_Square.py").write_text(PROBLEM + "\n# changed\n")
    with pytest.raises(ConfigError, match="prepare again"):
        kernelbench_pairs.read_candidates(checkout, folder, problems)


def test_kernelbench_adversarial(monkeypatch: pytest.MonkeyPatch, checkout: Path, tmp_path: Path) -> None:
    package = checkout / "src" / "kernelbench"
    kernels, prompts = package / "unit_tests" / "test_kernels", package / "prompts"
    for folder in (kernels, prompts):
        folder.mkdir(parents=True)
    for name in kernelbench_adversarial.IDEAS:
        (kernels / f"{name}.py").write_text("from torch.utils.cpp_extension import load_inline\n")
    (prompts / "model_ex_add.py").write_text(PROBLEM.replace("torch.rand(rows, cols)", "torch.rand(64, 128).cuda()"))
    (prompts / "model_new_ex_add.py").write_text("load_inline()\n")
    (prompts / "model_new_ex_add_triton.py").write_text("@triton.jit\ndef kernel(): ...\n")
    (prompts / "model_new_ex_orphan.py").write_text("@triton.jit\n")
    trials = [*kernelbench_adversarial.adversarial(checkout), *kernelbench_adversarial.examples(checkout)]
    assert [trial.group for trial in trials] == ["adversarial"] * 6 + ["not Triton", "honest"]
    assert ".cuda()" not in trials[-1].task.source
    assert all(audit(source) is None for source in kernelbench_adversarial.IDEAS.values())

    def strict(request: EvaluationRequest) -> Outcome:
        return measured(1.0) if "@triton.jit\ndef kernel" in request.source else wrong()

    words = [f"--kernelbench={checkout}", f"--out={tmp_path / 'adversarial'}"]
    given(monkeypatch, kernelbench_adversarial, Scripted(strict), *words)
    assert kernelbench_adversarial.main() == 0
    assert len(json.loads((tmp_path / "adversarial.json").read_text())["trials"]) == 8

    def naive(request: EvaluationRequest) -> Outcome:  # one that screens an adversarial kernel as right
        return measured(1.0) if request.depth == "screen" else strict(request)

    given(monkeypatch, kernelbench_adversarial, Scripted(naive), *words)
    assert kernelbench_adversarial.main() == 1
    (kernels / "new_trick_kernel.py").write_text("")
    with pytest.raises(ConfigError, match="new_trick_kernel"):
        list(kernelbench_adversarial.adversarial(checkout))


@pytest.mark.parametrize(
    ("beginning", "reference"),
    [("model_new_ex_add_triton", "model_ex_add"), ("model_new_ex_add_x_y", "model_ex_add_x")],
)
def test_the_reference_of_an_example_is_its_longest_beginning(beginning: str, reference: str, tmp_path: Path) -> None:
    for name in ("model_ex_add", "model_ex_add_x"):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent("pass"))
    assert kernelbench_adversarial.reference_of(tmp_path / f"{beginning}.py") == tmp_path / f"{reference}.py"
    assert kernelbench_adversarial.reference_of(tmp_path / "model_new_ex_gelu.py") is None


# -- strategies -----------------------------------------------------------------------------------------------------


def test_the_autotuner_spends_an_evaluation_on_each_configuration() -> None:
    def answer(request: EvaluationRequest) -> Outcome:
        count = request.source.count("triton.Config(")
        return wrong() if count == 2 else measured(8.0 / count)

    evaluator = Scripted(answer)
    report = SimpleNamespace(say=lambda text: None)
    curve = strategies.autotuned("softmax", 0, 8.0, evaluator, 6, report)
    assert [request.source.count("triton.Config(") for request in evaluator.asked] == [1, 2, 4, 6]
    assert curve == [1.0, 1.0, 1.0, 1.0, 4.0, 4.0, 6.0]
    assert strategies.marks(64) == [4, 8, 16, 32, 64] and strategies.marks(6) == [4, 6]


@pytest.mark.parametrize("task", list(autotuned.SPACES))
def test_configurations_are_distinct_and_shuffled_by_seed(task: str) -> None:
    space = autotuned.SPACES[task]
    first, second = space.configs(1), space.configs(2)
    assert len(set(first)) == len(first) >= 48 and sorted(first) == sorted(second) and first != second
    compile(space.source(first), "autotuned", "exec")


def test_parts_that_ended_are_not_run_again_and_what_was_cut_off_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    part, copy, out = evaluator_on_gpu.Part, tmp_path / "copy", tmp_path / "out"
    waits = "import time; time.sleep(600)"
    parts = [
        part("well", ("-c", "print('once')"), 60.0, "once"),
        part("badly", ("-c", "import sys; sys.exit(3)"), 60.0, ""),
        part("long", ("-c", waits), 0.5, ""),
        part("cut", ("-c", waits), 600.0, ""),
        part("late", ("-c", ""), 60.0, ""),
    ]
    monkeypatch.setattr(evaluator_on_gpu, "LEAST_S", 0.0)
    command = ["--out", str(out), "--copy", str(copy)]
    assert evaluator_on_gpu.main([*command, "--only", "well", "badly", "long"], parts) == 1
    assert evaluator_on_gpu.main([*command, "--only", "cut", "--minutes", "0.01"], parts) == 2
    ended = json.loads((copy / "parts.json").read_text())
    assert (ended["well"]["status"], ended["badly"]["status"]) == (0, 3)
    assert ended["long"]["status"] == "ran into its limit of 0.5 s"
    assert list(ended) == ["well", "badly", "long"]  # the time was up in the fourth
    assert evaluator_on_gpu.main([*command, "--only", "well", "late"], parts) == 0
    assert (copy / "well.log").read_text() == "once\n" and "late             0 (" in capsys.readouterr().out
    assert evaluator_on_gpu.main([*command, "--only", "well", "--again", "well"], parts) == 0
    assert (copy / "well.log").read_text() == "once\nonce\n"


def test_each_part_for_the_gpu_is_a_command_that_there_is() -> None:
    for part in evaluator_on_gpu.PARTS:
        files = [word for word in part.words if word.endswith(".py")]
        module = part.words[1] if part.words[0] == "-m" and part.words[1] != "pytest" else ""
        assert files or module or part.words[0] == "-c", part
        assert all((evaluator_on_gpu.ROOT / name).exists() for name in files), part
        assert not module or importlib.util.find_spec(module) is not None, part


def test_parts_of_a_runtime_in_repeatability() -> None:
    assert repeatability.three([float(number) for number in range(11)]) == "1.00000 / 5.00000 / 9.00000"
    assert repeatability.three([]) == ""
