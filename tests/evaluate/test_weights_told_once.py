"""An oracle is told the weights of a network once, and takes each request for what it was."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
import torch
from evaluate_sources import TASK

from mtmc.evaluate.gpu import GpuEvaluator, GpuSettings
from mtmc.evaluate.measure.oracle import Oracle
from mtmc.evaluate.measure.oracle_process import OracleProcess
from mtmc.evaluate.measure.questions import Ahead, Calibrate, Examine, Same
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task, capture_module

WEIGHTS = b"w" * 100_000
HEAVY = dataclasses.replace(TASK, state=WEIGHTS)
OTHER = dataclasses.replace(TASK, state=b"v" * 100_000)


def examine(task: Task, source: str = "x") -> Examine:
    return Examine("token", task, source, "screen", 1, 1.0)


@pytest.mark.parametrize(
    ("requests", "heavy"),
    [
        ([examine(HEAVY), examine(HEAVY, "y"), examine(dataclasses.replace(HEAVY))], [True, False, False]),
        ([examine(HEAVY), examine(OTHER), examine(HEAVY)], [True, True, True]),
        ([examine(HEAVY), Calibrate("a"), Ahead(1), Calibrate("b", (), HEAVY), examine(HEAVY)], [True] + 4 * [False]),
        ([examine(HEAVY), examine(TASK), examine(TASK), examine(HEAVY)], [True, False, False, True]),
        ([examine(HEAVY), examine(dataclasses.replace(HEAVY, source="z"))], [True, True]),
    ],
)
def test_each_request_comes_as_it_was_and_weights_once(requests: list[Any], heavy: list[bool]) -> None:
    ours, theirs = object.__new__(OracleProcess), object.__new__(Oracle)
    ours._told = theirs._told = None
    sizes = []
    for request in requests:
        body = pickle.dumps(ours._without_known(request))
        sizes.append(len(body) > len(WEIGHTS))
        assert theirs.whole(pickle.loads(body)) == request
    assert sizes == heavy


def test_an_oracle_that_was_lost_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    without = OracleProcess._without_known

    def watched(self: OracleProcess, request: Any) -> Any:
        found = without(self, request)
        sent.extend([type(found)] if isinstance(request, Examine) else [])
        return found

    monkeypatch.setattr(OracleProcess, "_without_known", watched)
    task = capture_module(torch.nn.Linear(24, 40), [torch.randn(6, 24)], name="linear").task
    assert task.state is not None
    source = task.source.replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")
    with GpuEvaluator(GpuSettings(builders=1, timeout_s=60.0, baselines=()), backend="host") as evaluator:
        for at in range(2):
            assert evaluator.evaluate([EvaluationRequest(task, f"{source}\n# {at}\n", 0, "screen")])[0].ok
        [worker] = evaluator._all
        assert worker._oracle.process is not None
        worker._oracle.process._process.kill()
        worker._oracle.process._process.wait()
        outcome = evaluator.evaluate([EvaluationRequest(task, f"{source}\n# 2\n", 0, "verify")])[0]
        assert outcome.ok, outcome
    assert sent[:2] == [Examine, Same] and sent[-1] is Examine, "the lost one's successor knows nothing"
