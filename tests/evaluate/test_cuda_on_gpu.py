"""On a machine with a GPU: kernels in CUDA C++ through all gates, screened and verified, and attacks that are written in it.

The same by one command, as a table:

    python -m tests.exploits.table --evaluator gpu --only $(python -m tests.evaluate.test_cuda_on_gpu)
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mtmc.cuda import RawKernel, standalone
from mtmc.protocols import EvaluationRequest, Evaluator
from tests.exploits.catalogue import Control, Exploit, controls, exploits, task
from tests.exploits.rows import Row
from tests.exploits.table import evaluate_all, open_evaluator

HONEST = [each for each in controls() if "mtmc.cuda" in each.source]
ATTACKS = [each for each in exploits() if "mtmc.cuda" in each.source]
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with open_evaluator("gpu") as opened:
        yield opened


@pytest.fixture(scope="module")
def rows(evaluator: Evaluator) -> dict[str, Row]:
    return {row.file: row for row in evaluate_all(evaluator, ATTACKS, HONEST)}


def test_there_are_six_of_each() -> None:
    assert (len(HONEST), len(ATTACKS)) == (6, 6)


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
    [outcome] = evaluator.evaluate([EvaluationRequest(task("rmsnorm"), HONEST[3].source)])
    assert outcome.runtime_kind == "measured"
    assert outcome.metrics["shared_memory"] == 4 * (4096 + 32)
    assert outcome.metrics["registers"] > 0


@on_gpu
def test_a_file_that_is_handed_out_runs_by_itself() -> None:
    """NVRTC is found, compiles and launches in a plain process, with the class inside of the file."""
    for control in HONEST:
        known: dict[str, object] = {"__name__": "best"}
        exec(compile(standalone(control.source), "best.py", "exec"), known)
        assert known["RawKernel"] is not RawKernel
        reference: dict[str, object] = {"__name__": "reference"}
        exec(compile(task(control.task).source, "reference.py", "exec"), reference)
        inputs = [each.cuda() for each in reference["get_inputs"]()]  # type: ignore[operator]
        models = []
        for where, name in ((reference, "Model"), (known, "ModelNew")):
            torch.manual_seed(0)
            models.append(where[name](*reference["get_init_inputs"]()).cuda())  # type: ignore[operator]
        with torch.no_grad():
            expected, found = (model(*inputs) for model in models)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4), control.file


if __name__ == "__main__":
    print(*(each.file for each in (*HONEST, *ATTACKS)))
