"""The GPU evaluator on a GPU. These run where torch sees one; the conversation alone is tested in test_measure.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from evaluate_sources import HONEST, TASK, changed

from mtmc.evaluate.gpu import GpuEvaluator, GpuSettings
from mtmc.outcome import Outcome
from mtmc.protocols import Depth, EvaluationRequest

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[GpuEvaluator]:
    with GpuSettings(timeout_s=20.0, check_variants=1).open() as opened:
        yield opened


def found(evaluator: GpuEvaluator, source: str, depth: Depth = "screen") -> Outcome:
    [outcome] = evaluator.evaluate([EvaluationRequest(TASK, source, 0, depth)])
    return outcome


@pytest.mark.parametrize("depth", ["screen", "verify"])
def test_the_clocks_agree_on_an_honest_kernel(evaluator: GpuEvaluator, depth: Depth) -> None:
    outcome = found(evaluator, HONEST, depth)
    assert outcome.ok, outcome
    assert outcome.runtime_ms is not None and outcome.runtime_ms > 0
    assert abs(outcome.metrics["clock_ms"] - outcome.runtime_ms) < 0.02
    assert 0 < outcome.metrics["roofline"] <= 1


def test_work_on_an_unjoined_stream_is_seen(evaluator: GpuEvaluator) -> None:
    source = changed(
        "        scaled_softmax[(x.shape[0],)](x, self.weight, out, x.shape[1], BLOCK=block)",
        "        with torch.cuda.stream(torch.cuda.Stream()):\n"
        "            scaled_softmax[(x.shape[0],)](x, self.weight, out, x.shape[1], BLOCK=block)",
    )
    assert not found(evaluator, source).ok


def test_an_illegal_address_is_a_crash_and_the_next_one_lives(evaluator: GpuEvaluator) -> None:
    source = changed(
        "tl.store(out_ptr + row * cols + index, value", "tl.store(out_ptr + row * cols + index + (1 << 40), value"
    )
    assert found(evaluator, source).status == "crash"
    assert found(evaluator, HONEST).ok


def test_an_endless_kernel_is_stopped_and_the_next_one_lives(evaluator: GpuEvaluator) -> None:
    # The atomic keeps the compiler from leaving the loop out.
    spinning = "turn = 0\n    while turn >= 0:\n        turn = (turn + 1) % 1000\n        tl.atomic_add(out_ptr, 0.0)\n"
    spinning += "    tl.store(out_ptr"
    assert found(evaluator, changed("tl.store(out_ptr", spinning)).status == "timeout"
    assert found(evaluator, HONEST).ok


def test_no_memory_stays_behind(evaluator: GpuEvaluator) -> None:
    found(evaluator, HONEST)
    before = torch.cuda.mem_get_info()[0]
    for _ in range(5):
        found(evaluator, HONEST)
    assert torch.cuda.mem_get_info()[0] > before - (1 << 30)
