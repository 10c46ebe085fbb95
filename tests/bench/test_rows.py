"""Rows: reasons, what is kept, and how it is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mtmc.action import Action, Region
from mtmc.bench.facts import gpu_seconds, has_kernel, launches, library_steps, stopped
from mtmc.bench.failures import failure_of
from mtmc.bench.folder import BenchFolder
from mtmc.bench.plot import curves
from mtmc.bench.report import markdown, note, what_stopped, write_report
from mtmc.bench.row import BETTER, COMPILE, EAGER, Failure, Row, Stopped, Why, row_from_json, row_text
from mtmc.errors import ConfigError, EvaluatorError, ModelError, RunError, TaskError
from mtmc.evaluate.reference.admission import _too_large
from mtmc.evaluate.reference.memory import Footprint
from mtmc.outcome import TF32_LAST, Cost, Diagnosis, Outcome
from mtmc.renamed import RENAMED
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from mtmc.tree import KernelNode
from tests.bench.faults import TEXT, problem, row
from tests.rewrite.references import reference
from tests.rewrite.stepping import after, version

SAME = {"suite": "kernelbench", "dtype": "fp32", "hardware": "H100", "budget": {"evaluations": 4}}


@pytest.mark.parametrize(
    ("error", "loaded", "evaluated", "kind"),
    [
        (TaskError("defines no class"), False, False, "not_loaded"),
        (TaskError("does not export"), True, False, "not_exported"),
        (TaskError("two runs differ"), True, True, "refused"),
        (TaskError("fails its own evaluation: out_of_memory: MemoryError: x"), True, True, "too_large"),
        (MemoryError(), False, False, "too_large"),
        (EvaluatorError("no GPU"), True, True, "evaluator"),
        (ModelError("no key"), True, True, "model"),
        (RunError("no space"), True, True, "error"),
        (KeyError("x"), True, True, "error"),
    ],
)
def test_the_kind_of_a_reason(error: Exception, loaded: bool, evaluated: bool, kind: str) -> None:
    assert failure_of(error, loaded, evaluated).kind == kind


def test_where_only_the_library_channels_last_has_tf32_is_told() -> None:
    rows = [row("a", 2.0, metrics={TF32_LAST: 1.0}), row("b", 2.0)]
    text = markdown(rows, [], SAME, picture=False)
    assert "## TF32" in text and "In 1 problems" in text and text.rstrip().endswith(f"{rows[0].id}.")
    assert "## TF32" not in markdown(rows[1:], [], SAME, picture=False)


def test_what_admission_says_of_memory_is_too_large() -> None:
    error = _too_large(Footprint(1 << 40, 0, 1 << 40, 0), "cpu", "task x at its full shapes")
    found = failure_of(error, True, True)
    assert found.kind == "too_large" and found.message.startswith("at its full shapes needs about")


def test_the_reason_for_no_small_shapes_is_what_stands_in_the_row() -> None:
    with pytest.raises(TaskError) as caught:
        task_from_source(
            TEXT.replace("import torch\n", "import torch, no_such_package\n", 1).replace("VARIANTS", "X"), "a"
        )
    found = failure_of(caught.value, False, False)
    assert found.kind == "not_loaded" and "no_such_package" in found.message
    assert "get_small_inputs" not in found.message


def test_a_wrong_setting_is_wrong_for_all() -> None:
    with pytest.raises(ConfigError):
        failure_of(ConfigError("no model is named"), True, True)


def test_speedups_need_a_right_version_and_both_times() -> None:
    assert row("a", 3.0).speedup() == 3.0
    assert row("a", 3.0).speedup(COMPILE) == 1.5
    assert row("a", 3.0).better_baseline == "torch.compile max-autotune"
    assert row("a", 3.0, correct=False).speedup() is None
    assert row("a", 3.0).speedup("other") is None
    assert (row("a").speedup(), row("a").better_baseline) == (None, None)


def test_a_row_is_kept_whole(tmp_path: Path) -> None:
    kept = row("good", 2.0, steps=("fuse a",), why=Why("ended", "x"), statuses={"ok": 2}, verified=True)
    assert row_from_json(json.loads(row_text(kept))) == kept
    old = row("good", why=Why("template_missing", "x"))
    assert row_from_json(json.loads(row_text(old).replace("template_missing", "family_missing"))) == old
    failed = row("good", failure=Failure("crash", "SIGSEGV"))
    folder = BenchFolder(tmp_path)
    assert folder.find(problem()) is None
    for each in (kept, failed):
        folder.keep(each)
        assert folder.find(problem()) == each


def test_a_folder_from_before_a_setting_was_renamed_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(**settings: float) -> dict[str, object]:
        return {**SAME, "policy": {"name": "careful", "settings": settings}}

    folder = BenchFolder(tmp_path / "new")
    with folder.opened(same(fear=2.0)):
        pass
    monkeypatch.setitem(RENAMED, "policy.fear", "policy.caution")
    with folder.opened(same(caution=2.0)):
        pass
    with pytest.raises(RunError, match=r"policy\.settings\.caution 2\.0, not 3\.0"), folder.opened(same(caution=3.0)):
        pass


def test_a_folder_is_of_one_benchmark(tmp_path: Path) -> None:
    folder = BenchFolder(tmp_path / "new")
    with folder.opened(SAME), pytest.raises(RunError, match="is open already"), folder.opened(SAME):
        pass
    with folder.opened(dict(reversed(SAME.items()))):
        pass
    for changed, said in (
        ({"dtype": "fp16"}, "dtype 'fp32', not 'fp16'"),
        ({"budget": {"evaluations": 8}}, "budget.evaluations 4, not 8"),
        ({"more": 1}, "more None, not 1"),
    ):
        with pytest.raises(RunError, match=f"were made with {said}"), folder.opened({**SAME, **changed}):
            pass
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "x").write_text("")
    (tmp_path / "file").write_text("")
    for name, said in (("used", "holds something else than a benchmark"), ("file", "cannot be used")):
        with pytest.raises(RunError, match=said), BenchFolder(tmp_path / name).opened(SAME):
            pass
    (tmp_path / "loaded" / "tasks").mkdir(parents=True)
    with BenchFolder(tmp_path / "loaded").opened(SAME):
        pass
    (folder.path / "rows" / "level1").mkdir(parents=True)
    (folder.path / "rows" / "level1" / "good.json").write_text("{")
    with pytest.raises(RunError, match="holds no row"):
        folder.find(problem())


def test_gpu_seconds_are_what_measured_outcomes_state() -> None:
    stages = {"ready_s": 0.5, "check_s": 1.0, "time_s": 2.0, "verify_s": 4.0, "build_s": 64.0, "queued_s": 32.0}
    measured = Outcome("ok", 1.0, runtime_kind="measured", metrics=stages)
    on_device = Outcome("wrong_result", diagnosis=Diagnosis("check", "Mismatch", ""))
    before = Outcome("build_error", diagnosis=Diagnosis("build", "CompilationError", ""))
    estimated = Outcome("ok", 1.0, runtime_kind="estimated", metrics=stages)
    made = [("screen", 99.0, measured), ("screen", 3.0, on_device), ("screen", 5.0, before), ("screen", 7.0, estimated)]
    assert gpu_seconds(made) == 7.5 + 3.0  # type: ignore[arg-type]
    waited = replace(on_device, metrics={"queued_s": 90.0, "held_s": 0.25})
    assert gpu_seconds([*made, ("screen", 91.0, waited)]) == 7.5 + 3.0 + 0.25  # type: ignore[arg-type]
    assert gpu_seconds(made[1:]) == 0.0  # type: ignore[arg-type]


def test_launches_are_counted_or_seen() -> None:
    assert launches({"kernels": 4.0, "activities": 9.0}) == 4.0
    assert launches({"activities": 3.0}) == 2.0  # handing the outputs over is one
    assert launches({}) is None


def test_what_a_kernel_is() -> None:
    assert has_kernel("@triton.jit\ndef f(x): ...\n")
    assert has_kernel("@triton.autotune(configs=[])\n@jit\ndef f(x): ...\n")
    assert not has_kernel("# @triton.jit\ndef f(x): ...\n")
    assert not has_kernel("@torch.jit.script\ndef f(x): ...\n")
    assert not has_kernel("def f(:\n")


ROWS = [
    row("1_a", 4.0, triton=True, evaluations=4, roofline=0.5),
    row("2_b", 1.0, is_reference=True, evaluations=4, why=Why("at_the_roof", "eager takes 1 ms")),
    row("3_c", failure=Failure("not_exported", "an op | of no kind")),
    row("4_d", 2.0, correct=False, finished="wrong_result: Mismatch: off", level="level2"),
]


def test_the_tables(tmp_path: Path) -> None:
    text = markdown(ROWS, ["level1/9_z"], SAME, picture=True)
    lines = text.splitlines()
    assert "4 of 5 problems have ended." in lines
    assert "Not yet: level1/9_z. The same command goes on with them." in lines
    assert "Runtimes are measured on H100." in lines
    assert "| problems | 3 | 1 | 4 |" in lines
    assert "| correct | 2 | 0 | 2 |" in lines
    assert "| fast_1 | 0.33 | 0.00 | 0.25 |" in lines
    assert "| over eager, geometric mean | 2.00x (2) | \u2013 | 2.00x (2) |" in lines
    assert "| over max-autotune, mean | 0.62x (2) | \u2013 | 0.62x (2) |" in lines  # (1 + 0.25) / 2
    assert "| tokens |" not in text
    assert "| 1_a | 1 ms | 4 ms | 2 ms | 1 ms | 4.00x | 2.00x | 1.00x | 1.00x | 50% | 4 |  |" in lines
    assert "the reference itself; at the roof: eager takes 1 ms" in text
    assert "not exported: an op \\| of no kind" in text
    assert "Under 1.05x of the better baseline: 1 at the roof." in lines
    assert "Without a result: 1 not exported." in lines


def test_estimates_are_called_so(tmp_path: Path) -> None:
    text = markdown([row("a", 2.0, runtime_kind="estimated")], [], SAME, picture=False)
    assert "**All runtimes are estimates for H100; nothing was measured.**" in text and "bench.png" not in text
    assert "measured and estimated" not in text


def test_a_note_says_what_is_to_be_said() -> None:
    assert note(row("a", 2.0)) == ""
    assert note(row("a", 2.0, finished="4 evaluations are spent")) == ""
    assert note(row("a", 2.0, finished="cut off: it took too long")) == "cut off: it took too long"
    assert note(row("a", 2.0, correct=False, finished="crash: x")) == "not right: crash: x"


def test_the_files(tmp_path: Path) -> None:
    write_report(ROWS, ["level1/9_z"], SAME, tmp_path)
    data = json.loads((tmp_path / "bench.json").read_text())
    assert [row_from_json(each) for each in data["rows"]] == ROWS
    assert (data["left"], data["settings"]) == (["level1/9_z"], SAME)
    assert [each["level"] for each in data["figures"]] == ["level1", "level2", "all"]
    assert data["figures"][0]["over"][EAGER]["geometric"] == pytest.approx(2.0)
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "none").mkdir()
    write_report([], [], SAME, tmp_path / "none")
    assert not (tmp_path / "none" / "bench.png").exists() and (tmp_path / "none" / "bench.md").exists()


def test_curves_are_sorted_and_take_the_better_compiler() -> None:
    rows: list[Row] = [row("a", 1.0), row("b", 4.0), row("c", 2.0, level="level2"), row("d")]
    assert curves(rows) == {"level1": [4.0, 1.0], "level2": [2.0]}
    assert curves(rows, BETTER) == {"level1": [1.0, 0.25], "level2": [0.5]}  # over max-autotune, the faster one


def test_what_stopped_versions_is_told_by_gate_and_reason(tmp_path: Path) -> None:
    def failed(kind: str, message: str, number: int) -> KernelNode:
        action = Action("fuse", Region("forward", 1, 2), (), f"fuse {number}")
        outcome = Outcome("rejected", diagnosis=Diagnosis("check", kind, message))
        return KernelNode(number, 0, action, f"# {number}", "", outcome, number, 1, Cost())

    nodes = [failed("Mismatch", "far\noff", 1), failed("LowPrecision", "one", 2), failed("LowPrecision", "two", 3)]
    found = stopped(nodes)
    assert found == (
        Stopped("check", "LowPrecision", 2, "fuse 2", "one"),
        Stopped("check", "Mismatch", 1, "fuse 1", "far off"),
    )
    rows = [row("a", 2.0, stopped=found), row("b", 1.5, stopped=found[1:])]
    assert row_from_json(json.loads(row_text(rows[0]))) == rows[0]
    section = what_stopped(rows)
    assert "| check | LowPrecision | 2 | 1 | level1/a | fuse 2 | one |" in section
    assert "| check | Mismatch | 2 | 2 | level1/a | fuse 1 | far off |" in section
    assert section in markdown(rows, [], {}, False) and what_stopped([row("a", 2.0)]) == ""


def test_steps_of_the_library_are_those_that_launch_something_and_no_counters() -> None:
    result = "torch.fft.rfft(torch.minimum(self.norm(x), torch.tensor(0.5))).real"
    task = task_from_source(reference(result, "torch.randn(n, 4, 2048)", "self.norm = nn.BatchNorm1d(4)"), "counted")
    at = version(task, root_plan(export_graph(task)))
    assert "num_batches_tracked" in print_plan(task, at.graph, at.plan).source

    def steps() -> tuple[dict[str, int], int] | None:
        return library_steps(task, KernelNode(1, 0, None, "", at.plan.to_json(), Outcome("ok")))

    assert steps() == ({"fft_rfft": 1, "constant": 1}, 5)  # the reference makes a tensor of its number
    at = after(at, "fuse")[1]
    assert steps() == ({"fft_rfft": 1}, 2)
    assert library_steps(task, KernelNode(1, 0, None, "", None, Outcome("ok"))) is None
