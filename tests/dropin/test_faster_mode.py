"""What is handed back is never slower than torch.compile, where that was measured."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from mtmc.dropin.compiled import MODES, FasterMode, faster_mode
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task
from tests.dropin.modules import Block
from tests.dropin.test_again import Times, X, optimized

DEFAULT, AUTOTUNE = MODES


@dataclass
class Measured(Times):
    """Times of a GPU: 8 ms for the root, `ms` for every other version, `compiled_ms` under torch.compile."""

    compiled_ms: float = 2.0

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        self.asked += [request.source for request in requests]
        return [Outcome("ok", self.ms if "triton" in r.source else 8.0, runtime_kind="measured") for r in requests]

    def baselines(self, task: Task) -> dict[str, Outcome]:
        return {DEFAULT: Outcome("ok", self.compiled_ms, runtime_kind="measured"), AUTOTUNE: Outcome("timeout")}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of each test's own, and nothing that is really compiled."""
    monkeypatch.setenv("MTMC_CACHE", str(tmp_path / "cache"))
    torch.compiler.set_stance("force_eager")
    yield
    torch.compiler.set_stance("default")


def is_compiled(made: Any) -> bool:
    return made._compiled_call_impl is not None


def right(made: Any) -> bool:
    with torch.no_grad():
        return torch.allclose(made(X), Block.forward(made, X), rtol=1e-4, atol=1e-5)


def test_the_fastest_mode_counts_where_it_is_clearly_faster() -> None:
    times = {"eager": 0.5, DEFAULT: 2.0, AUTOTUNE: 1.5}
    assert faster_mode(4.0, "measured", times) == FasterMode(AUTOTUNE, 1.5, 4.0)
    assert faster_mode(1.52, "measured", times) is None, "1.5 of 1.52 is 0.987"
    assert faster_mode(1.54, "measured", times) is not None, "1.5 of 1.54 is 0.974"
    assert faster_mode(4.0, "measured", {DEFAULT: None}) is faster_mode(4.0, "measured", {}) is None
    assert faster_mode(4.0, "estimated", times) is faster_mode(None, None, times) is None


def test_torch_compile_is_handed_back_where_it_is_faster() -> None:
    made = optimized(Measured(ms=4.0, compiled_ms=2.0))
    assert is_compiled(made) and not made.mtmc.versions and right(made)
    assert made.mtmc.reason == "torch.compile is faster: 2 ms a call, 4 ms with the best version"
    assert made.mtmc.found.speedup == 2.0 and isinstance(made, Block)


def test_it_is_so_where_no_version_beats_eager() -> None:
    made = optimized(Measured(ms=9.0, compiled_ms=2.0))
    assert is_compiled(made) and made.mtmc.reason.startswith("torch.compile is faster: 2 ms a call, 8 ms")


def test_kernels_are_used_where_they_are_faster_or_asked_for() -> None:
    for made in (
        optimized(Measured(ms=2.0, compiled_ms=4.0)),
        optimized(Measured(ms=4.0, compiled_ms=2.0), cache=False, compiled=False),
    ):
        assert not is_compiled(made) and made.mtmc.reason is None and right(made) and made.mtmc.kernel_calls == 1


def test_the_cache_keeps_the_version_and_decides_again() -> None:
    times = Measured(ms=4.0, compiled_ms=2.0)
    optimized(times)
    again, kernels = optimized(times), optimized(times, compiled=False)
    assert len(times.asked) == 2, "nothing was searched again"
    assert (
        is_compiled(again) and "torch.compile is faster" in again.mtmc.reason and "from the cache" in again.mtmc.reason
    )
    assert not is_compiled(kernels) and right(kernels) and kernels.mtmc.kernel_calls == 1


def test_a_copy_is_the_module_as_it_was() -> None:
    made = copy.deepcopy(optimized(Measured(ms=4.0, compiled_ms=2.0)))
    assert right(made) and not made.mtmc.versions
