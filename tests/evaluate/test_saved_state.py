"""The weights of a live module are read once on a GPU, and models that are given them do not share them."""

from __future__ import annotations

import io
from types import ModuleType

import torch

from mtmc.evaluate.loading import saved_state as module
from mtmc.evaluate.loading.heavy_tails import with_tails
from mtmc.evaluate.loading.modules import construct
from mtmc.evaluate.loading.saved_state import saved_state


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4, 8))


def saved(value: float) -> bytes:
    buffer = io.BytesIO()
    torch.save({"weight": torch.full((4, 8), value) * torch.linspace(0.5, 1.0, 8)}, buffer)
    return buffer.getvalue()


def test_a_devices_weights_are_read_once() -> None:
    first, second = saved(1.0), saved(2.0)
    known = saved_state(first, "meta")
    assert saved_state(first, "meta") is known and known["weight"].is_meta
    assert saved_state(second, "meta") is not known
    assert module._kept.cache_info().currsize == 1


def test_a_hosts_are_not_kept() -> None:
    state = saved(1.0)
    assert saved_state(state, "cpu") is not saved_state(state, "cpu")


def test_models_have_weights_of_their_own() -> None:
    """Whatever is done to one, the next has those that were saved."""
    file, state = ModuleType("file"), saved(3.0)
    file.Model = Model  # type: ignore[attr-defined]
    expected = saved_state(state, "cpu")["weight"].clone()
    kept = {"weight": expected.clone()}
    read, reads = module.read_state, []
    try:
        module.read_state = lambda *_: reads.append(1) or kept  # type: ignore[assignment]
        for moved in (False, True, False):
            model = construct(file, "Model", [], 0, state, moved=moved)
            assert torch.equal(model.weight, expected) != moved
            with torch.no_grad():
                model.weight.zero_()
    finally:
        module.read_state = read
    assert len(reads) == 3 and torch.equal(kept["weight"], expected)


def test_tails_leave_what_they_grow_from() -> None:
    weights = {"a": torch.linspace(-1, 1, 4096), "one": torch.ones(64), "count": torch.arange(3)}
    before = {name: tensor.clone() for name, tensor in weights.items()}
    grown = with_tails(weights, 7)
    assert all(torch.equal(weights[name], before[name]) for name in weights)
    assert not torch.equal(grown["a"], before["a"])
    assert torch.equal(grown["one"], before["one"]) and torch.equal(grown["count"], before["count"])
