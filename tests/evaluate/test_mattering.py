"""What of its inputs a reference's result hangs on, found by trying; and which times are refused for it."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from mtmc.evaluate.measure.clock import Overhead, OverheadTable, floor_ms
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.host_backend import HostBackend
from mtmc.evaluate.measure.reference_state import ReferenceState
from mtmc.evaluate.measure.samples import Samples
from mtmc.evaluate.measure.timing_validation import FLOOR_SHARE, runtime, validate
from mtmc.evaluate.reference import mattering
from mtmc.evaluate.reference.mattering import at_least, mattering_bytes
from mtmc.hardware import HARDWARE
from mtmc.task import task_from_source

HEADS, KEYS, WIDTH = 4, 512, 64
SPARE = 1e-6
Forward = Callable[..., torch.Tensor]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) * WIDTH**-0.5
    behind = torch.arange(k.shape[2]) >= lengths[:, None, None, None]
    return torch.softmax(scores.float().masked_fill(behind, float("-inf")), -1).to(q.dtype) @ v


def decode(share: float, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    """Inputs of which so much of the keys and values counts."""
    torch.manual_seed(0)
    q = torch.randn(8, HEADS, 1, WIDTH, dtype=dtype)
    k, v = (torch.randn(8, HEADS, KEYS, WIDTH, dtype=dtype) for _ in range(2))
    return [q, k, v, torch.full((8,), int(share * KEYS))]


@pytest.mark.parametrize(("found", "tried", "share"), [(48, 48, 1.0), (24, 48, 0.34062), (0, 48, 0.0)])
def test_a_share_is_at_least_what_wilson_says(found: int, tried: int, share: float) -> None:
    """By hand, of 24 in 48: (0.5 + 2.33^2/96 - 2.33 sqrt(0.25/48 + 2.33^2/(4 48^2))) / (1 + 2.33^2/48)."""
    assert at_least(found, tried) == pytest.approx(share, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_keys_behind_the_lengths_do_not_matter(share: float, dtype: torch.dtype) -> None:
    inputs = decode(share, dtype)
    before = [each.clone() for each in inputs]
    found = mattering_bytes(inputs, lambda: [attention(*inputs)], seed=1)
    rest, both = inputs[0].nbytes + inputs[3].nbytes, 2 * inputs[1].nbytes
    assert (found - rest) / both == 1.0 if share == 1.0 else 0.3 * share < (found - rest) / both <= share + 0.1
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True)), "all is put back"


@pytest.mark.parametrize(
    ("forward", "least", "most"),
    [
        (lambda x, y: x + y, 1.0, 1.0),
        (lambda x, y: torch.where(torch.arange(len(x))[:, None] < len(x) // 2, x, y), 0.3, 0.6),
        (lambda x, y: x[: len(x) // 4].sum() + y.sum(), 0.5, 0.7),
        (lambda x, y: (x * 1e-30 + y).to(torch.bfloat16), 0.5, 0.5),
        (lambda x, y: (x.double() + y).sum(), 1.0, 1.0),
        (lambda x, y: torch.fft.rfft(x).abs() + y[:, :257], 0.75, 0.9),
    ],
)
def test_what_matters_of_two_inputs(forward: Forward, least: float, most: float) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(1024, 512) for _ in range(2)]
    share = mattering_bytes(inputs, lambda: [forward(*inputs)], seed=3) / (2 * inputs[0].nbytes)
    assert least - SPARE <= share <= most + SPARE


def test_what_cannot_be_tried_counts_wholly() -> None:
    whole, across = torch.arange(1 << 19), torch.randn(512, 1024).t()
    small, ignored = torch.randn(16), torch.randn(1 << 19)
    inputs = [whole, across, small, ignored]
    found = mattering_bytes(inputs, lambda: [whole[:3] + small[:3]], seed=2, tries=4)
    assert found == whole.nbytes + across.nbytes + small.nbytes


def _tried(inputs: list[torch.Tensor], forward: Callable[[], list[torch.Tensor]], **more: float) -> int:
    """How many pieces of each input are tried, all of which matter."""
    calls = list[int]()

    def counted() -> list[torch.Tensor]:
        calls.append(1)
        return forward()

    mattering_bytes(inputs, counted, seed=5, **more)  # type: ignore[arg-type]
    return (len(calls) - 2) // len(inputs)


def test_how_much_is_tried_follows_from_the_work_of_the_forward() -> None:
    inputs = [torch.randn(1 << 19)]
    once, often = (
        (lambda: [inputs[0] * 2]),
        (lambda: [inputs[0].sum() + sum(inputs[0][at : at + 1] for at in range(64))]),
    )
    by_hand = 2e-3 / (2 * (10e-6 + 1e-12 * 2 * inputs[0].nbytes))  # one op that reads and writes 2 MiB
    assert _tried(inputs, once, work_s=2e-3) == int(by_hand)
    assert _tried(inputs, once, work_s=2e-3, flops=10**10) == int(2e-3 / (2 * (10e-6 + 4.2e-6 + 200e-6)))
    assert mattering.FEWEST <= _tried(inputs, often, work_s=2e-3) < 5
    assert _tried(inputs, once) == 96, "no more than is asked for"


def test_no_clock_decides_how_much_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, leaps, here = [torch.randn(1 << 19)], itertools.count(0, 10**4), threading.get_ident()

    def leaping(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: float(next(leaps)) if threading.get_ident() == here else clock()  # others have work of their own

    for name in ("monotonic", "perf_counter", "time", "process_time"):
        monkeypatch.setattr(time, name, leaping(getattr(time, name)))
    assert _tried(inputs, lambda: [inputs[0] * 2], tries=24) == 24


def test_where_there_is_no_work_to_do_few_pieces_are_tried_of_each_input() -> None:
    inputs, calls = [torch.randn(1 << 19) for _ in range(3)], list[int]()

    def forward() -> list[torch.Tensor]:
        calls.append(1)
        return [inputs[0] + inputs[2]]

    found = mattering_bytes(inputs, forward, seed=5, work_s=0.0)
    assert found == 2 * inputs[0].nbytes and len(calls) == 2 + 2 * (1 + 2 + 1), "the second is tried with both signs"


TEXT = """
import torch
from torch import nn

rows = 4096
VARIANTS = {"small": {"rows": 6}, "odd1": {"rows": 5}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x, kept, count):
        RESULT


def get_inputs():
    return [torch.randn(rows, 128), torch.randn(rows, 128), torch.randint(rows // 2, rows // 2 + 1, (1,))]


def get_init_inputs():
    return []
"""
MASKED = "return torch.where(torch.arange(x.shape[0])[:, None] < count, x, 0.0).sum(0) + kept.sum()"
CHANGING = "kept.mul_(2.0); self.calls += 1; return x * (kept > 0) + self.calls[0]"
NO_OVERHEAD = OverheadTable(Overhead(((0, 0.0), (1, 0.0))), Overhead(((0, 0.0), (1, 0.0))), 0.0)
UNCACHED = dataclasses.replace(HARDWARE["H100"], l2_bytes=0)


def state_of(result: str, folder: Path) -> ReferenceState:
    seeds: Iterator[int] = iter(range(100))
    return ReferenceState(
        task_from_source(TEXT.replace("RESULT", result), "counted"), HostBackend(), folder, seeds.__next__
    )


def test_of_a_task_whose_numbers_say_how_much_counts(tmp_path: Path) -> None:
    state = state_of(MASKED, tmp_path)
    half, whole = (4096 * 128 * 4) // 2, 4096 * 128 * 4
    assert state.work.input_bytes >= 2 * whole
    assert whole + 0.5 * half < state.bytes_that_matter < whole + 1.2 * half + 100


def test_calls_that_change_what_they_read_are_made_from_the_same_start(tmp_path: Path) -> None:
    state = state_of(CHANGING, tmp_path)
    assert state.bytes_that_matter > 0.5 * 2 * 4096 * 128 * 4


@pytest.mark.parametrize(("asked", "refused"), [(MASKED, False), ("return (x + kept).sum(0) + count", True)])
def test_half_the_time_of_reading_all_is_refused_unless_half_matters(asked: str, refused: bool, tmp_path: Path) -> None:
    state = state_of(asked, tmp_path)
    work, written = state.work, state.work.output_bytes
    stated = 1.1 * FLOOR_SHARE * floor_ms(work.input_bytes * 3 // 4, written, 0, UNCACHED.dram_gbs)
    assert stated < FLOOR_SHARE * floor_ms(work.input_bytes, written, 0, UNCACHED.dram_gbs)
    given = Samples(
        [stated] * 12, [stated] * 12, [0.0] * 12, True, written, 1, input_bytes=work.input_bytes, lates=[0.0] * 12
    )
    found = runtime(given, [1e9], work, NO_OVERHEAD, UNCACHED)
    arguments = (given, found, NO_OVERHEAD, UNCACHED, work, lambda: state.bytes_that_matter)
    if refused:
        with pytest.raises(Failed, match="some of it was not done"):
            validate(*arguments)
    else:
        validate(*arguments)


def test_nothing_is_tried_where_the_time_allows_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(MASKED, tmp_path)
    monkeypatch.setattr(mattering, "_matters", None)
    stated = floor_ms(state.work.input_bytes, state.work.output_bytes, 0, UNCACHED.dram_gbs)
    given = Samples(
        [stated] * 12, [stated] * 12, [0.0] * 12, True, 512, 1, input_bytes=state.work.input_bytes, lates=[0.0] * 12
    )
    found = runtime(given, [1e9], state.work, NO_OVERHEAD, UNCACHED)
    validate(given, found, NO_OVERHEAD, UNCACHED, state.work, lambda: state.bytes_that_matter)
