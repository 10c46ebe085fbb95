"""Each status of an outcome, earned by a real version that goes through the whole lab.

Versions that break their process get there by means that no reading of text forbids: an endless loop, a recursion in C,
an endless list. Every test asks afterwards that the evaluator still works: by what the next test gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from evaluate_sources import HONEST, REFERENCE, TASK, changed, line_of

from mtmc.errors import ConfigError, EvaluatorError
from mtmc.evaluate import LabEvaluator, LabSettings
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.failures import failed_gate, failed_job, taken
from mtmc.evaluate.pool.job import JobResult
from mtmc.outcome import Diagnosis, Outcome, outcome_from_json, outcome_to_json
from mtmc.protocols import EvaluationRequest

TIMEOUT_S = 4.0
ROOT = REFERENCE.replace("class Model", "class ModelNew")
RETURN = "        return out\n"


@pytest.fixture(scope="module")
def lab() -> Iterator[LabEvaluator]:
    with LabSettings(workers=2, timeout_s=TIMEOUT_S, memory_mib=512).open() as evaluator:
        yield evaluator


def outcome_of(lab: LabEvaluator, source: str) -> Outcome:
    (outcome,) = lab.evaluate([EvaluationRequest(TASK, source)])
    assert outcome_from_json(outcome_to_json(outcome)) == outcome
    return outcome


def failed(lab: LabEvaluator, status: str, old: str, new: str) -> Diagnosis:
    outcome = outcome_of(lab, changed(old, new))
    assert outcome.status == status, outcome
    assert outcome.runtime_ms is None and outcome.runtime_kind is None and outcome.diagnosis is not None
    return outcome.diagnosis


def test_ok_has_an_estimated_runtime_and_its_metrics(lab: LabEvaluator) -> None:
    outcome = outcome_of(lab, HONEST)
    assert outcome.ok, outcome
    assert outcome.runtime_kind == "estimated" and outcome.trials == 0 and outcome.runtime_low_ms is None
    assert outcome.runtime_ms is not None and 0.001 < outcome.runtime_ms < 0.1
    assert outcome.metrics["kernels"] == 1.0
    moved = 4.0 * (2 * 256 * 4096 + 4096)
    assert 0.9 * moved <= outcome.metrics["bytes_min"] <= outcome.metrics["bytes_moved"] <= 1.5 * moved
    assert 0.0 < outcome.metrics["roofline"] <= 1.0
    assert outcome.metrics["error"] < 4e-7 and outcome.metrics["cases"] == 4.0


def test_the_reference_itself_is_slower_than_the_fused_version(lab: LabEvaluator) -> None:
    root, fused = lab.evaluate([EvaluationRequest(TASK, ROOT), EvaluationRequest(TASK, HONEST)])
    assert root.ok and fused.ok and root.runtime_ms is not None and fused.runtime_ms is not None
    assert root.metrics["kernels"] == 2.0 and root.metrics["bytes_moved"] > fused.metrics["bytes_moved"]
    assert root.runtime_ms > fused.runtime_ms


def test_syntax_error(lab: LabEvaluator) -> None:
    diagnosis = failed(lab, "build_error", "index = tl.arange(0, BLOCK)", "index = tl.arange(0, BLOCK")
    assert (diagnosis.stage, diagnosis.kind) == ("audit", "SyntaxError") and diagnosis.line is not None


def test_refused_text(lab: LabEvaluator) -> None:
    source = HONEST.replace("import triton\n", "import triton\nimport subprocess\n", 1)
    outcome = outcome_of(lab, source)
    diagnosis = outcome.diagnosis
    assert outcome.status == "rejected" and diagnosis is not None
    assert diagnosis.line == line_of("import subprocess", source) and "subprocess" in diagnosis.excerpt


def test_compile_error_has_its_line(lab: LabEvaluator) -> None:
    source = changed("tl.max(value, axis=0)", "tl.max(value, axis=0, of=3)")
    outcome = outcome_of(lab, source)
    assert outcome.status == "build_error" and outcome.diagnosis is not None
    assert outcome.diagnosis.kind == "CompilationError" and outcome.diagnosis.line == line_of("of=3", source)


def test_out_of_shared_memory() -> None:
    body = (
        "    i, acc = tl.arange(0, 128), tl.zeros((128, 128), tl.float32)\n"
        "    for k in range(0, cols, 64):\n"
        "        a = tl.load(x_ptr + i[:, None] * cols + k + tl.arange(0, 64)[None, :])\n"
        "        b = tl.load(w_ptr + (k + tl.arange(0, 64))[:, None] * cols + i[None, :])\n"
        "        acc = tl.dot(a, b, acc)\n"
        "    tl.store(out_ptr + i[:, None] * cols + i[None, :], acc)\n"
    )
    source = changed("    index = tl.arange(0, BLOCK)\n", body + "    index = tl.arange(0, BLOCK)\n")
    with LabSettings(workers=1).open() as patient:  # a slow machine may take longer than TIMEOUT_S to compile it
        outcome = outcome_of(patient, changed("BLOCK=block)", "BLOCK=block, num_stages=6)", source))
    assert outcome.status == "build_error" and outcome.diagnosis is not None
    assert outcome.diagnosis.kind == "OutOfResources" and "shared memory" in outcome.diagnosis.message


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("tl.exp(value - tl.max(value, axis=0))", "tl.exp(value - tl.max(value, axis=0)) + 0.01", "WrongValues"),
        ("tl.exp(value - tl.max(value, axis=0))", "tl.exp(value * 100)", "NaN"),
        (RETURN, "        return out.reshape(-1)\n", "Shape"),
        (RETURN, "        return out.double()\n", "DType"),
        ("tl.store(out_ptr + row", "tl.store(x_ptr + row * cols + index, value, mask=inside)\n    tl.store(out_ptr + row",
         "InputMutated"),
    ],
)  # fmt: skip
def test_wrong_results(lab: LabEvaluator, old: str, new: str, kind: str) -> None:
    diagnosis = failed(lab, "wrong_result", old, new)
    assert (diagnosis.stage, diagnosis.kind) == ("check", kind)


def test_other_launches_where_they_are_counted(lab: LabEvaluator) -> None:
    again = "scaled_softmax[(x.shape[0],)](x, self.weight, out, x.shape[1], BLOCK=block)\n"
    twice = f"        if type(scaled_softmax).__name__ == 'JITFunction':\n            {again}"
    diagnosis = failed(lab, "rejected", RETURN, twice + RETURN)
    assert (diagnosis.stage, diagnosis.kind) == ("estimate", "OtherLaunches")
    assert "launches scaled_softmax, scaled_softmax when it is built" in diagnosis.message


def test_other_arguments_where_they_are_counted(lab: LabEvaluator) -> None:
    compiled = "BLOCK=block * 2 if type(scaled_softmax).__name__ == 'JITFunction' else block"
    diagnosis = failed(lab, "rejected", "BLOCK=block", compiled)
    assert (diagnosis.stage, diagnosis.kind) == ("estimate", "OtherLaunches")
    assert "scaled_softmax with BLOCK" in diagnosis.message


def test_endless_loop_on_the_host() -> None:
    with LabSettings(workers=2, timeout_s=0.5, memory_mib=512).open() as impatient:
        diagnosis = failed(impatient, "timeout", RETURN, "        while True:\n            pass\n")
    assert diagnosis.stage == "build" and "0.5 s" in diagnosis.message


def test_endless_loop_in_a_kernel(lab: LabEvaluator) -> None:
    loop = "    left = cols\n    while left > 0:\n        left = tl.where(left > 1, left - 1, cols)\n"
    diagnosis = failed(lab, "timeout", "    index = tl.arange(0, BLOCK)\n", loop + "    index = tl.arange(0, BLOCK)\n")
    assert diagnosis.stage == "check"


def test_segmentation_fault(lab: LabEvaluator) -> None:
    # Hashing a tuple nested a million deep recurses in C without a limit.
    deep = "        deep = ()\n        for _ in range(1_000_000):\n            deep = (deep,)\n        hash(deep)\n"
    diagnosis = failed(lab, "crash", RETURN, deep + RETURN)
    assert diagnosis.kind == "SIGSEGV"


def test_segmentation_fault_under_real_inputs_only(lab: LabEvaluator) -> None:
    deep = "        deep = ()\n        for _ in range(10**6 if x.shape[0] < 100 else 1):\n            deep = (deep,)\n"
    diagnosis = failed(lab, "crash", RETURN, deep + "        hash(deep)\n" + RETURN)
    assert (diagnosis.stage, diagnosis.kind) == ("check", "SIGSEGV")


def test_access_out_of_bounds_in_a_kernel(lab: LabEvaluator) -> None:
    diagnosis = failed(lab, "crash", "w_ptr + index, mask=inside, other=0.0", "w_ptr + index + (1 << 40)")
    assert diagnosis.kind == "OutOfBoundsError" and diagnosis.line is not None


def test_memory_blow_up_on_the_host(lab: LabEvaluator) -> None:
    diagnosis = failed(
        lab, "out_of_memory", RETURN, "        keep = [bytearray(1 << 26) for _ in range(10_000)]\n" + RETURN
    )
    assert "512 MiB" in diagnosis.message


def test_memory_blow_up_in_torch(lab: LabEvaluator) -> None:
    huge = "        out = out + torch.ones(1 << 36 if x.shape[0] < 100 else 1).sum() * 0\n"
    diagnosis = failed(lab, "out_of_memory", RETURN, huge + RETURN)
    assert diagnosis.stage == "check"


def test_printing_100_mb(lab: LabEvaluator) -> None:
    diagnosis = failed(
        lab, "crash", RETURN, "        for _ in range(100):\n            print('x' * 1_000_000)\n" + RETURN
    )
    assert diagnosis.kind == "OutputLimit" and len(diagnosis.excerpt) < 2000


def test_batch_keeps_its_order_and_equal_requests_equal_outcomes(lab: LabEvaluator) -> None:
    sources = [HONEST, changed(RETURN, "        return out * 2\n"), "def", HONEST, ROOT]
    outcomes = lab.evaluate([EvaluationRequest(TASK, source, seed=3) for source in sources])
    assert [outcome.status for outcome in outcomes] == ["ok", "wrong_result", "build_error", "ok", "ok"]
    assert outcomes[0] == outcomes[3]


def test_settings_that_cannot_be() -> None:
    for settings in (LabSettings(workers=0), LabSettings(timeout_s=-1.0), LabSettings(check_variants=-1)):
        with pytest.raises(ConfigError, match="evaluator"):
            settings.open()
    with pytest.raises(EvaluatorError, match=r"sm_12345.*sm_90"):
        LabSettings(target="sm_12345").open()
    with pytest.raises(ConfigError, match="sm_80"):
        LabSettings(target="sm_90", hardware="A100").open()


def test_closed_evaluator_says_so() -> None:
    evaluator = LabSettings().open()
    evaluator.close()
    evaluator.close()
    with pytest.raises(EvaluatorError, match="closed"):
        evaluator.evaluate([EvaluationRequest(TASK, HONEST)])
    with pytest.raises(EvaluatorError, match="closed"):
        evaluator.evaluate([EvaluationRequest(TASK, HONEST)] * 2)


@pytest.mark.parametrize(
    ("ended", "status", "kind", "words"),
    [
        (JobResult("timeout"), "timeout", "Timeout", "after 7.5 s"),
        (JobResult("out_of_memory"), "out_of_memory", "MemoryError", "more than 64 MiB"),
        (JobResult("output_limit"), "crash", "OutputLimit", "4 MiB"),
        (JobResult("process_limit"), "crash", "ProcessLimit", "256 processes"),
        (JobResult("crash", signal="SIGBUS"), "crash", "SIGBUS", "by SIGBUS"),
        (JobResult("crash"), "crash", "ProcessExit", "early exit"),
    ],
)
def test_each_way_in_which_a_job_fails_has_an_outcome(ended: JobResult, status: str, kind: str, words: str) -> None:
    outcome = failed_job("build", replace(ended, output="a\nlast words\n"), 7.5, 64)
    diagnosis = outcome.diagnosis
    assert outcome.status == status and diagnosis is not None
    assert (diagnosis.stage, diagnosis.kind) == ("build", kind) and words in diagnosis.message
    assert diagnosis.excerpt.endswith("last words")


def test_a_compiler_that_ends_its_process_has_refused_the_kernel() -> None:
    said = 'loc("p"("mtmc_candidate.py":2:1)): error: unexpected layout\nLLVM ERROR: no type\n'
    outcome = taken("build", JobResult("crash", signal="SIGABRT", output=said), "first\nsecond", 0.0, 0)
    assert outcome.status == "build_error" and outcome.diagnosis is not None
    assert (outcome.diagnosis.kind, outcome.diagnosis.line) == ("CompilerAbort", 2)
    assert outcome.diagnosis.message == "the process of the build was ended by SIGABRT; unexpected layout"
    assert "> 2 | second" in outcome.diagnosis.excerpt
    silent = taken("build", JobResult("crash", signal="SIGABRT", output="no error here\n"), "first", 0.0, 0)
    assert (silent.status, silent.diagnosis and silent.diagnosis.kind) == ("crash", "SIGABRT")
    slow = taken("build", JobResult("timeout", output=said), "first", 1.0, 0)
    assert slow.status == "timeout"
    checked = taken("check", JobResult("crash", signal="SIGABRT", output=said), "first", 0.0, 0)
    assert checked.status == "crash"


def test_limits_that_are_not_known_are_not_named() -> None:
    for ended in (JobResult("timeout"), JobResult("out_of_memory")):
        diagnosis = failed_job("check", ended, 0.0, 0).diagnosis
        assert diagnosis is not None and "0 s" not in diagnosis.message and "0 MiB" not in diagnosis.message


def test_a_killed_candidate_of_a_gate_is_out_of_memory_and_a_line_is_quoted() -> None:
    failure = Failure("crash", Diagnosis("check", "SIGKILL", "it ended"))
    assert failed_gate(failure, JobResult("ok", output="noise"), "x").status == "out_of_memory"
    named = Failure("crash", Diagnosis("check", "KeyError", "a", 2))
    diagnosis = failed_gate(named, JobResult("ok", output="noise"), "first\nsecond").diagnosis
    assert diagnosis is not None and "> 2 | second" in diagnosis.excerpt and "noise" not in diagnosis.excerpt


def test_a_crash_in_native_code_is_told_with_where_python_was() -> None:
    """By its innermost calls: the end of the output is faulthandler's list of modules."""
    calls = "".join(f'  File "/lib/step{at}.py", line {at} in step{at}\n' for at in range(30))
    output = f"before\nFatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n{calls}"
    output += "\nExtension modules: numpy, torch._C (total: 2)\n"
    outcome = failed_job("build", JobResult("crash", signal="SIGSEGV", output=output), 5.0, 100)
    assert outcome.diagnosis is not None and outcome.diagnosis.kind == "SIGSEGV"
    told = outcome.diagnosis.excerpt
    assert told.startswith("Fatal Python error: Segmentation fault") and "line 0 in step0" in told
    assert "step29" not in told and "torch._C" not in told and "before" not in told
    plain = failed_job("build", JobResult("crash", signal="SIGSEGV", output="one\ntwo"), 5.0, 100)
    assert plain.diagnosis is not None and plain.diagnosis.excerpt == "one\ntwo"
