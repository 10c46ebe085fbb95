"""On a machine with a Hopper GPU: kernels in Gluon through all gates, screened and verified, and attacks written in it.

The same by one command, as a table:

    python -m tests.exploits.table --evaluator gpu --only $(python -m tests.evaluate.test_gluon_versions_on_gpu)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import load_task
from tests.evaluate.test_gluon_versions import FILE, TASK
from tests.exploits.catalogue import Control, Exploit, controls, exploits, task
from tests.exploits.rows import Row
from tests.exploits.table import evaluate_all, open_evaluator

HONEST = [each for each in controls() if "triton.experimental" in each.source]
ATTACKS = [each for each in exploits() if "triton.experimental" in each.source]
HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
on_gpu = pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with open_evaluator("gpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def rows(evaluator: Evaluator) -> dict[str, Row]:
    return {row.file: row for row in evaluate_all(evaluator, ATTACKS, HONEST)}


def test_there_are_some_of_each() -> None:
    assert {each.file for each in HONEST} >= {"gluon_attention"}
    assert len(ATTACKS) >= 3


@on_gpu
@pytest.mark.parametrize("control", HONEST, ids=lambda control: control.file)
def test_honest_work_is_accepted(control: Control, rows: dict[str, Row]) -> None:
    assert rows[control.file].status == "ok", rows[control.file]


@on_gpu
@pytest.mark.parametrize("exploit", ATTACKS, ids=lambda exploit: exploit.file)
def test_an_attack_is_not_rewarded(exploit: Exploit, rows: dict[str, Row]) -> None:
    assert not rows[exploit.file].rewarded, rows[exploit.file]


@on_gpu
def test_what_the_build_knows_is_told(evaluator: Evaluator) -> None:
    [control] = [each for each in HONEST if each.file == "gluon_attention"]
    [outcome] = evaluator.evaluate([EvaluationRequest(task(control.task), control.source)])
    assert outcome.runtime_kind == "measured", outcome
    assert outcome.metrics["shared_memory"] == 164_112
    assert outcome.metrics["bytes_moved"] == 4 * 2 * (2 * 16 * 2048 * 128)
    assert outcome.metrics["kernels"] == 1


@on_gpu
def test_a_line_is_told_where_the_compiler_ends(evaluator: Evaluator) -> None:
    [control] = [each for each in HONEST if each.file == "gluon_attention"]
    converted = "p = gl.convert_layout(weights.to(gl.bfloat16), weights_layout)\n    for"
    broken = control.source.replace(converted, "p = weights.to(gl.bfloat16)\n    for")
    [outcome] = evaluator.evaluate([EvaluationRequest(task(control.task), broken)])
    assert outcome.diagnosis is not None
    assert (outcome.status, outcome.diagnosis.kind) == ("build_error", "CompilerAbort"), outcome
    assert "summed = warpgroup_mma(p," in broken.splitlines()[(outcome.diagnosis.line or 0) - 1], outcome


@on_gpu
def test_a_file_of_both_languages_and_one_that_is_wrong(evaluator: Evaluator, tmp_path: Path) -> None:
    (tmp_path / "double.py").write_text(TASK)
    requests = [
        EvaluationRequest(load_task(tmp_path / "double.py"), each) for each in (FILE, FILE.replace("4.0", "5.0"))
    ]
    right, wrong = evaluator.evaluate(requests)
    assert (right.status, right.runtime_kind) == ("ok", "measured"), right
    assert wrong.status == "wrong_result", wrong


if __name__ == "__main__":
    print(*(each.file for each in (*HONEST, *ATTACKS)))
