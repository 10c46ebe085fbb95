"""Many outputs of a call, and many tensors that it leaves in the model, handed over with few launches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.measure.clock import TOGETHER, TimingBudget, more_outputs_ms
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.handing_over import hand_over
from mtmc.evaluate.measure.host_backend import HostBackend
from mtmc.evaluate.reference.effects import Remembered
from mtmc.task import Task, Variant
from tests.evaluate import test_calls_in_a_row as calls
from tests.evaluate.test_calls_in_a_row import ROUNDS, in_a_row, side_by_side
from tests.exploits.judging import reference_as_candidate

DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16)


class Launches(TorchDispatchMode):
    """The names of the copies that are made while it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "copy" in str(function):
            self.copies.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def many(count: int) -> list[torch.Tensor]:
    """Of several types and layouts, one without elements and one without dimensions among them."""
    torch.manual_seed(0)
    made = [torch.randn(at % 7, 5, 3).permute(at % 2, 2, 1 - at % 2) for at in range(count - 1)]
    return [each.to(DTYPES[at % 4]) for at, each in enumerate([*made, torch.tensor(3.0)])]


@pytest.mark.parametrize(("count", "launches"), [(TOGETHER - 1, TOGETHER - 1), (TOGETHER, 4), (200, 4)])
def test_many_are_few_launches_and_each_arrives(count: int, launches: int) -> None:
    tensors = many(count)
    places = [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype) for each in tensors]
    with Launches() as seen:
        hand_over(list(zip(places, tensors, strict=True)))
    assert len(seen.copies) == launches
    assert all(torch.equal(place, tensor) for place, tensor in zip(places, tensors, strict=True))
    with Launches() as seen:
        hand_over(list(zip(places, tensors, strict=True)), together=False)
    assert len(seen.copies) == count, "the profiler's count of other work hangs on that"


def test_what_a_candidate_assigns_to_torch_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_foreach_copy_", lambda places, tensors: None)
    tensors = many(40)
    places = [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype) for each in tensors]
    hand_over(list(zip(places, tensors, strict=True)))
    assert all(torch.equal(place, tensor) for place, tensor in zip(places, tensors, strict=True))


def test_what_the_clock_forgives_many_outputs() -> None:
    """4 us for each further copy, and no more for a hundred than for sixteen, since they are no more launches: a version
    could hide its work in the rest."""
    assert more_outputs_ms(1) == 0.0
    assert more_outputs_ms(3) == pytest.approx(0.008)
    assert more_outputs_ms(310) == more_outputs_ms(TOGETHER) == pytest.approx(0.06)


KEEPING = """import torch

rows = 8


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for at in range(20):
            self.register_buffer(f"mean_{at}", torch.zeros(4))
            self.register_buffer(f"count_{at}", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        for at in range(20):
            getattr(self, f"mean_{at}").add_(x.mean(0) * at)
            getattr(self, f"count_{at}").add_(1)
        return [x * at if at % 2 else (x > at / 10) for at in range(18)]


def get_inputs():
    return [torch.randn(rows, 4)]


def get_init_inputs():
    return []
"""


KEPT = Task("keeping", KEEPING, Variant("full", (("rows", 8),)), Variant("small", (("rows", 2),)))


def test_what_a_model_keeps_is_put_back_before_the_clock_of_a_call_with_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a network with more launches than a waiting stream takes; each call begins with what was kept at first."""
    restored, restore = list[int](), Remembered.restore

    def slowly(remembered: Remembered, paths: Iterable[str]) -> None:
        restored.append(len(list(paths)))
        time.sleep(0.2)
        restore(remembered, paths)

    monkeypatch.setattr(Remembered, "restore", slowly)
    with side_by_side(KEPT, reference_as_candidate(KEEPING), tmp_path) as (examination, reference, _):
        examination.ask_for(reference.timed(2), 0, "the first call")
        restored.clear()
        found = examination.time(reference.timed, 0, TimingBudget(4, 4, 0.0, 60.0), ahead=False)
    assert not found.ahead and len(found.walls) == 4
    assert len(restored) >= 4 and {*restored} == {39}, "all but a mean of zeros"
    assert max(found.walls) < 200.0


class Device(HostBackend):
    """Marks when the host is there, or when a device would be. gap_s: what the host takes for a join. work_ms: what other
    streams still have to do then."""

    gap_s, work_ms = 0.0, 0.0

    def join(self) -> None:
        time.sleep(self.gap_s)

    def beyond_ms(self, first: Any, last: Any) -> float:
        return max(self.elapsed_ms(first, last), self.work_ms)


@pytest.mark.parametrize(("gap_s", "work_ms", "least", "most"), [(0.05, 0.0, 0.0, 0.5), (0.0, 50.0, 45.0, 50.0)])
def test_a_slow_host_is_no_work_left_behind(
    gap_s: float, work_ms: float, least: float, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the gate is open the device has nothing to do between two marks but to wait for the host."""
    monkeypatch.setattr(Device, "gap_s", gap_s)
    monkeypatch.setattr(Device, "work_ms", work_ms)
    monkeypatch.setattr(calls, "HostBackend", Device)
    with side_by_side(KEPT, reference_as_candidate(KEEPING), tmp_path) as (examination, reference, _):
        examination.ask_for(reference.timed(2), 0, "the first call")
        found = examination.time(reference.timed, 0, TimingBudget(3, 3, 0.0, 60.0), ahead=False)
    assert least <= min(found.behind) <= most, found.behind


@pytest.mark.parametrize(
    ("honest", "lie", "told"),
    [
        ("[x * at if", "[x * 1.1 if at == 17 and self.count_0 > 1 else x * at if", "output 17"),
        (".add_(1)", ".add_(1 if at != 13 or self.count_0 < 2 else 2)", "buffer 'count_13' after the call"),
        (
            ".add_(x.mean(0) * at)",
            ".add_(x.mean(0) * (at if at != 19 or self.count_0 < 1 else 18))",
            "buffer 'mean_19'",
        ),
    ],
)
def test_one_of_many_that_is_wrong_in_a_row_is_told(honest: str, lie: str, told: str, tmp_path: Path) -> None:
    source = reference_as_candidate(KEEPING)
    assert len(in_a_row(KEPT, source, tmp_path).hosts) == ROUNDS
    assert honest in source
    with pytest.raises(Failed) as caught:
        in_a_row(KEPT, source.replace(honest, lie), tmp_path)
    assert told in caught.value.diagnosis.message, caught.value.diagnosis
