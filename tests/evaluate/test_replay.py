"""Recorded outcomes come back as they were; what was not recorded is an error that says what to do."""

from __future__ import annotations

import pytest
from evaluate_sources import HONEST, TASK, changed

from mtmc.errors import EvaluatorError
from mtmc.evaluate import EVALUATORS, GpuSettings, LabSettings, RaySettings, ReplaySettings
from mtmc.evaluate.replay import ReplayEvaluator
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.tree import source_hash

FAILED = changed("return out", "return out + 1")
OUTCOMES = {
    source_hash(HONEST): Outcome("ok", runtime_ms=1.25, runtime_kind="estimated", metrics={"flops": 3.0}),
    source_hash(FAILED): Outcome("wrong_result", diagnosis=Diagnosis("check", "WrongValues", "off")),
}


def test_outcomes_by_source_in_the_order_asked_for() -> None:
    evaluator = ReplayEvaluator(OUTCOMES, "A100", TASK.source)
    requests = [EvaluationRequest(TASK, source) for source in (FAILED, HONEST, HONEST + "\n\n")]
    outcomes = evaluator.evaluate(requests)
    assert [outcome.status for outcome in outcomes] == ["wrong_result", "ok", "ok"]
    assert outcomes[1] == OUTCOMES[source_hash(HONEST)] and evaluator.hardware == "A100"
    evaluator.close()
    evaluator.close()


def test_unknown_source_names_its_hash_and_the_mend() -> None:
    unknown = changed("return out", "return out + 2")
    with pytest.raises(EvaluatorError, match=f"{source_hash(unknown)}.*evaluator=lab"):
        ReplayEvaluator(OUTCOMES, "H100").evaluate([EvaluationRequest(TASK, unknown)])


def test_another_task_is_refused() -> None:
    with pytest.raises(EvaluatorError, match="another task"):
        ReplayEvaluator(OUTCOMES, "H100", "other").evaluate([EvaluationRequest(TASK, HONEST)])


def test_registry_names_all_evaluators() -> None:
    assert {"lab": LabSettings, "gpu": GpuSettings, "replay": ReplaySettings, "ray": RaySettings} == EVALUATORS
