"""A drop-in that keeps what it makes of weights, and best.py, whatever becomes of the weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mtmc
from mtmc.action import Action
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator, Observation, Policy

X = torch.linspace(-2, 2, 48).reshape(6, 8)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.register_buffer("scale", torch.tensor([[0.5], [1.0], [2.0], [3.0]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ (self.fc.weight * self.scale).t() + self.fc.bias)


class Packing(Policy):
    """Packs first."""

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        weights = [100.0 if action.kind == "pack" else 1.0 for action in actions]
        return [each / sum(weights) for each in weights]


class Times(Evaluator):
    """A packed version takes half as long."""

    hardware, verifies = "H100", False

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        return [Outcome("ok", 4.0 if "Packs" in r.source else 8.0, runtime_kind="estimated") for r in requests]

    def close(self) -> None:
        pass


def same(made: nn.Module, right: nn.Module) -> None:
    for x in (X, X.flip(0)):
        torch.testing.assert_close(made(x), right(x))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MTMC_CACHE", str(tmp_path / "cache"))
    found = mtmc.optimize(Scaled().eval(), X, policy=Packing(), evaluator=Times(), budget=2)
    assert "Packs" in found.mtmc.result.best_file
    return found


@torch.no_grad()
def test_a_drop_in_sees_weights_that_change(made: Any) -> None:
    right = Scaled().eval()
    right.load_state_dict(made.state_dict())
    same(made, right)
    for each in (made, right):
        each.fc.weight.mul_(2.0)
        each.scale.add_(1.0)
    same(made, right)
    state = {name: torch.randn_like(value) for name, value in right.state_dict().items()}
    for each in (made, right):
        each.load_state_dict(state)
    same(made, right)
    for each in (made, right):
        each.fc.weight = nn.Parameter(torch.ones(4, 8))
        each.fc.bias.data = torch.ones(4)
    before = made.mtmc.kernel_calls
    same(made, right)
    assert made.mtmc.kernel_calls == before + 2
    other = copy.deepcopy(made)
    other.fc.weight.fill_(0.25)
    same(made, right)
    right.fc.weight.fill_(0.25)
    same(other, right)
    assert set(made.state_dict()) == set(right.state_dict())


@torch.no_grad()
def test_best_py_sees_weights_that_change(made: Any) -> None:
    names: dict[str, Any] = {}
    exec(made.mtmc.result.best_file, names)
    model, right = names["ModelNew"](), Scaled().eval()
    model.load_state_dict({name.replace(".", "_"): value for name, value in right.state_dict().items()})
    for weights in ((model.fc_weight, right.fc.weight), (model.scale, right.scale)):
        same(model, right)
        for each in weights:
            each.mul_(-2.0)
    same(model, right)
