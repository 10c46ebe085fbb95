"""Modules that change their inputs, buffers or attributes: printed so, and left as they were by the capture."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from mtmc.errors import TaskError
from mtmc.evaluate.audit.audit import audit
from mtmc.rewrite.source import root_source
from mtmc.task import capture_module, resolve
from tests.task.printed import printed


class Average(nn.Module):
    """A buffer changed in place, one bound anew, a plain tensor changed in place; a table made at the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(8))
        self.register_buffer("calls", torch.zeros(()))
        self.plain = torch.zeros(8)
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(8.0)
        self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        self.calls = self.calls + 1
        self.plain += 1
        return x * self.average * self.calls + self.plain + self.table


class Cast(nn.Module):
    """Casts that autocast makes, and a buffer changed where no gradient is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("one", torch.ones(8))
        self.register_buffer("other", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            one = self.one.clone()
            self.one.copy_(self.other)
            self.other.copy_(one)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                return x @ self.linear.weight + y + self.one


class Quiet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.sum += x.sum(0)
        return x * 2


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(4, 16, 8))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(1, position, self.project(x))
        return x @ self.keys.transpose(1, 2)


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.add_(1)
        y[:, 0] = x[:, 1]
        return x.view(-1), x * y


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).train()


@pytest.mark.parametrize(
    ("make", "example", "changes"),
    [
        (Average, (torch.randn(6, 8),), ["average", "calls", "plain"]),
        (Cache, (torch.randn(4, 3, 8), torch.arange(3)), ["keys"]),
        (Cast, (torch.randn(6, 8),), []),
        (Quiet, (torch.randn(6, 8),), ["sum"]),
        (InPlace, (torch.randn(6, 8), torch.randn(6, 8)), []),
        (batch_norm, (torch.randn(6, 8),), ["1.num_batches_tracked", "1.running_mean", "1.running_var"]),
    ],
)
def test_what_a_module_changes_is_changed_by_the_printed_one_in_every_call(
    make: Any, example: tuple[torch.Tensor, ...], changes: list[str]
) -> None:
    torch.manual_seed(0)
    module, before = make(), [tensor.clone() for tensor in example]
    capture = capture_module(module, example)
    assert audit(root_source(capture.task)) is None
    assert all(torch.equal(one, other) for one, other in zip(example, before, strict=True))
    for label in ("full", "small"):
        model, _ = printed(capture.task, label)
        live = copy.deepcopy(module)
        for seed in range(2):
            _, inputs = printed(capture.task, label, seed)
            own = [tensor.clone() for tensor in inputs]
            with torch.no_grad():
                expected, found = live(*own), model(*inputs)
            pairs = [(expected, found)] if isinstance(expected, torch.Tensor) else zip(expected, found, strict=True)
            assert all(torch.allclose(one, other, atol=1e-6) for one, other in pairs)
            assert all(torch.allclose(one, other) for one, other in zip(inputs, own, strict=True))
            for attribute, path in capture.places.items():
                assert torch.allclose(getattr(model, attribute), resolve(live, path), atol=1e-6)
        changed = [
            path for path in capture.places.values() if not torch.equal(resolve(live, path), resolve(module, path))
        ]
        assert sorted(changed) == changes


def test_a_capture_leaves_the_module_and_the_random_state_as_they_were() -> None:
    module = Average().train()
    state, attributes, random = copy.deepcopy(module.state_dict()), dict(vars(module)), torch.get_rng_state()
    capture_module(module, torch.randn(6, 8, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[key]) for key, value in module.state_dict().items())
    assert {key: value for key, value in vars(module).items() if key != "table"} == {
        key: value for key, value in attributes.items() if key != "table"
    }
    assert module.plain.abs().max() == 0 and "plain" not in module._buffers
    assert type(module.table) is torch.Tensor  # filled by the first call, as by any


class Count(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class Keep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner.last = x * 2
        return x


class Log(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return x * 2


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Count(), r"sets its attribute calls \(which was 0\) at every call"),
        (Keep(), r"sets its attribute inner\.last \(which was a tensor of shape \(6, 8\)\) at every call"),
        (Log(), r"sets its attribute seen \(which was \[\]\) at every call"),
    ],
)
def test_what_no_file_can_keep_from_call_to_call_is_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        capture_module(module, torch.randn(6, 8))
    assert getattr(module, "calls", 0) == 0 and getattr(module, "seen", []) == []


def test_inputs_that_share_memory_and_are_changed_are_refused() -> None:
    x = torch.randn(6, 8)
    with pytest.raises(TaskError, match="changes tensor 0 of its example inputs, which shares memory with another"):
        capture_module(InPlace(), (x, x))


def test_a_capture_under_autocast_is_refused() -> None:
    with torch.autocast("cpu"), pytest.raises(TaskError, match=r"captured under torch.autocast\('cpu'\): leave that"):
        capture_module(nn.Linear(8, 8), torch.randn(6, 8))


def test_weights_that_no_run_can_keep_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtmc.task.live.MOST_STATE", 1000)
    layer = nn.Linear(16, 16)
    assert capture_module(nn.Linear(8, 8), torch.randn(2, 8)).task.state
    with pytest.raises(TaskError, match=r"its weights take 0 MB, and a run keeps 0 MB at most: hand over a part"):
        capture_module(layer, torch.randn(2, 16))
    shared = nn.Sequential(nn.Linear(12, 12, bias=False), nn.Linear(12, 12, bias=False))
    shared[1].weight = shared[0].weight
    assert capture_module(shared, torch.randn(2, 12)).task.state, "what is shared counts once"
