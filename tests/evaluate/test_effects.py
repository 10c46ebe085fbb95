"""What a model keeps is looked up where it lies: no code of its class runs, and what it works out is not kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mtmc.evaluate.reference.blocks import differ, fingerprint
from mtmc.evaluate.reference.effects import Remembered, changed_buffers, find, kept_tensors, parameters, values

ran: list[str] = []


class Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.norm = nn.BatchNorm1d(3)
        self.table = torch.ones(2)
        self.layers = nn.ModuleList([nn.Linear(2, 2, bias=False)])
        self.tied = self.layers[0].weight


class Computing(Kept):
    """Says something else to whoever asks by the usual ways."""

    @property
    def late(self) -> torch.Tensor:
        ran.append("late")
        return torch.ones(3)

    def __getattr__(self, name: str) -> Any:
        ran.append(name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        ran.append(name)
        super().__setattr__(name, value)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        ran.append("parameters")
        return iter(())

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        ran.append("modules")
        return iter(())


def test_what_lies_there_is_found() -> None:
    model = Kept()
    assert find(model, "mean") is model.mean and find(model, "norm.running_mean") is model.norm.running_mean
    assert find(model, "layers.0.weight") is model.tied and find(model, "none.mean") is None
    assert list(kept_tensors(model)) == [
        "mean",
        "table",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    ]
    assert [id(each) for each in parameters(model).values()] == [id(each) for each in model.parameters()]
    assert find(torch.relu, "mean") is None and kept_tensors(torch.relu) == {} and parameters(torch.relu) == {}


def test_no_code_of_its_class_runs() -> None:
    model = Computing()
    ran.clear()
    remembered = Remembered(model)
    remembered.restore(["mean", "table", "norm.running_var"])
    before = values(model, ["mean", "late"])
    assert find(model, "late") is None and list(before) == ["mean"]
    assert len(parameters(model)) == 3 and len(kept_tensors(model)) == 5
    vars(model)["_buffers"]["mean"].add_(1)
    assert changed_buffers(model, before) == ("mean",)
    remembered.restore(["mean"])
    assert ran == [] and changed_buffers(model, before) == ()


def test_what_is_put_back_is_where_it_was() -> None:
    model = Kept()
    model.cache = None
    remembered = Remembered(model)
    remembered.restore(["mean", "table"])
    model.mean, model.table = torch.ones(5), torch.zeros(2)
    remembered.restore(["mean", "table"])
    assert model.mean.tolist() == [0.0] * 3 and model.table.tolist() == [1.0, 1.0]
    assert "mean" in model._buffers and "mean" not in vars(model)


def test_bits_that_are_to_be_conjugated_or_negated_are_those_that_a_reader_sees() -> None:
    numbers = torch.randn(3, 4, dtype=torch.complex64)
    written = numbers.conj().resolve_conj()
    assert differ(numbers, numbers.conj()) and not differ(written, numbers.conj())
    assert not differ(written.imag, numbers.conj().imag) and differ(numbers.imag, numbers.conj().imag)
    assert int(fingerprint(written, 3)) == int(fingerprint(numbers.conj(), 3))


def test_copies_are_of_the_same_bits_and_share_no_memory() -> None:
    """Of any dtype, order in memory and overlap."""
    model = Kept()
    numbers = torch.randn(3, 4, dtype=torch.complex64)
    others = {
        "turned": torch.arange(6.0).view(2, 3).t(),
        "apart": torch.arange(12.0)[::3],
        "repeated": torch.ones(1).expand(4),
        "conjugated": numbers.conj(),
        "negated": numbers.conj().imag,
        "small": torch.ones(3, dtype=torch.float8_e4m3fn),
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "one": torch.tensor(float("nan")),
    }
    for name, tensor in others.items():
        setattr(model, name, tensor)
    copies = values(model)
    assert {*others} < {*copies} and changed_buffers(model, copies) == ()
    for name, tensor in others.items():
        assert copies[name].untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr() or not tensor.numel()
        assert copies[name].dtype == tensor.dtype and copies[name].shape == tensor.shape
    model.flags[1], model.mean[2] = True, 1.0
    assert changed_buffers(model, copies) == ("mean", "flags")
    assert values(model, ["none", "layers"]) == {}
