"""Inputs of a printed module: drawn like the examples, or with the examples' own values where these mean something."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mtmc.task import task_from_module
from mtmc.task.live_examples import print_inputs
from tests.task.printed import printed


class Inputs(nn.Module):
    """Takes anything: sums of all its inputs."""

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return torch.stack([tensor.float().nan_to_num().sum() for tensor in tensors]).sum(0)


def test_floating_inputs_are_drawn_in_the_range_of_the_examples() -> None:
    examples = (torch.rand(64) * 100 + 10, torch.randn(64) * 50, torch.zeros(64), torch.zeros(0, 4))
    _, (positive, normal, dummy, nothing) = printed(task_from_module(Inputs(), examples))
    assert positive.min() >= 10 and positive.max() <= 110
    assert 25 < normal.std() < 100 and normal.min() < 0
    assert dummy.std() > 0.5
    assert nothing.shape == (0, 4)


LEAST = torch.finfo(torch.bfloat16).min
LENGTHS = torch.arange(24) < torch.tensor([24, 20, 1, 12])[:, None]
KEPT = {
    "causal": torch.full((24, 24), float("-inf")).triu(1),
    "causal of the least number, expanded": torch.full((24, 24), LEAST).bfloat16().triu(1).expand(4, 1, 24, 24),
    "causal bool": torch.ones(24, 24, dtype=torch.bool).tril(),
    "padding": LENGTHS,
    "padding as integers": LENGTHS.long(),
    "padding, additive": (1 - LENGTHS.float())[:, None, None, :] * torch.finfo(torch.float32).min,
    "padding on the left": LENGTHS.flip(1),
    "both": LENGTHS[:, None] & torch.ones(24, 24, dtype=torch.bool).tril(),
    "no structure": torch.rand(4, 24, generator=torch.Generator().manual_seed(0)) > 0.5,
    "positions": torch.arange(24).expand(4, 24),
    "tokens": torch.randint(0, 1000, (4, 24), generator=torch.Generator().manual_seed(0)),
    "labels": torch.tensor([1, 0, 3, 2], dtype=torch.int32),
    "one number": torch.tensor(7),
    "offsets": torch.tensor([0, 5, 6, 24]),
}


@pytest.mark.parametrize("kind", KEPT)
def test_masks_and_integers_keep_the_examples_values_and_their_kind_at_other_sizes(kind: str) -> None:
    example, sizes = KEPT[kind], {4: "size0", 24: "size1"}
    shape = [sizes.get(size, str(size)) for size in example.shape]
    lines = print_inputs(["x"], [example], [shape], {"size0": 4, "size1": 24}, "task")
    text = "\n".join(["import math, torch", "def get_inputs():", *lines])
    for size0, size1 in ((4, 24), (3, 7), (5, 29)):
        names: dict[str, Any] = {"size0": size0, "size1": size1}
        exec(text, names)
        (found,) = names["get_inputs"]()
        assert found.dtype == example.dtype and found.dim() == example.dim()
        if (size0, size1) == (4, 24):
            assert torch.equal(found, example) and found.stride() == example.stride()
        assert set(found.unique().tolist()) <= {*example.unique().tolist(), *range(size1 + 1)}
        if kind.startswith("causal"):
            seen = found if found.dtype == torch.bool else found == 0
            assert (seen == torch.ones(size1, size1, dtype=torch.bool).tril()).all()
        if "padding" in kind:
            assert (found == 0 if found.is_floating_point() else found.bool()).any(-1).all()
        if kind == "positions":
            assert torch.equal(found, torch.arange(size1).expand(size0, size1))
        if kind in ("labels", "one number"):
            assert found.max() < max(size0, size1) and found.min() >= 0
        if kind == "offsets":
            assert found[0] == 0 and found[-1] == size1 and (found.diff() >= 0).all()
        with torch.device("meta"):
            assert names["get_inputs"]()[0].shape == found.shape


@pytest.mark.parametrize(
    "example",
    [
        torch.randn(4, 24, 8).transpose(1, 2),
        torch.randn(4, 3, 8, 24).to(memory_format=torch.channels_last),
        torch.randn(4, 24, 48)[..., 24:36],
        torch.randn(4, 48, 8)[:, ::2],
        torch.randn(4, 24, 8)[..., ::2],
        torch.randn(24, 1).expand(4, 24, 8),
        torch.randint(0, 99, (24, 4)).t(),
    ],
)
def test_inputs_have_the_strides_of_the_examples(example: torch.Tensor) -> None:
    sizes = {4: "size0", 24: "size1"}
    shape = [sizes.get(size, str(size)) for size in example.shape]
    lines = print_inputs(["x"], [example], [shape], {"size0": 4, "size1": 24}, "task")
    for size0, size1 in ((4, 24), (3, 7)):
        names: dict[str, Any] = {"size0": size0, "size1": size1}
        exec("\n".join(["import math, torch", "def get_inputs():", *lines]), names)
        (found,) = names["get_inputs"]()
        order = sorted(range(example.dim()), key=lambda dim: -example.stride(dim))
        assert [step == 0 for step in found.stride()] == [step == 0 for step in example.stride()]
        assert sorted(range(found.dim()), key=lambda dim: -found.stride(dim)) == order
        assert found.stride() == example.stride() if size0 == 4 else not found.is_contiguous()


def test_a_long_mask_is_repeated_and_long_integers_are_drawn_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    mask, tokens = torch.rand(256, 256) > 0.5, torch.randint(0, 10**6, (64, 256))
    task = task_from_module(Inputs(), (mask, tokens), name="long")
    assert len(task.source) < 40_000
    assert "task long: input tensors_0 repeats the beginning of the example" in caplog.text
    assert "task long: input tensors_1 is drawn from its range" in caplog.text
    _, (found, _) = printed(task)
    assert torch.equal(found[:32, :32], mask[:32, :32]) and found.float().mean() > 0.4


def test_parameters_keep_their_strides() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(16, 8).t())
            self.register_buffer("part", torch.randn(8, 32)[:, ::2])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight + self.part.sum(0)

    module = Turned()
    task = task_from_module(module, torch.randn(6, 8))
    model, (x,) = printed(task)
    assert model.weight.stride() == (1, 8) and model.part.stride() == module.part.stride()
    assert torch.equal(model.weight, module.weight) and isinstance(model.weight, nn.Parameter)
    with torch.no_grad():
        assert torch.allclose(model(x), module(x), atol=1e-5)


class Tokens(nn.Module):
    """Looks up rows in a way of its own. kind: what else happens to the indices."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.table = kind, nn.Embedding(50, 8)

    def forward(self, at: torch.Tensor) -> torch.Tensor:
        rows = self.table(at.flatten() if self.kind == "flattened" else at)
        if self.kind == "compared":
            return rows * (at != 3)[..., None]
        if self.kind == "moved":
            return rows + torch.gather(rows[..., 0], 1, at % 4)[..., None]
        if self.kind == "twice":
            return rows + self.table(at.int())
        return rows


@pytest.mark.parametrize(
    ("kind", "redrawn"), [("plain", True), ("flattened", True), ("twice", True), ("compared", False), ("moved", False)]
)
def test_tokens_are_drawn_anew_and_integers_that_mean_more_are_kept(kind: str, redrawn: bool) -> None:
    example = torch.randint(5, 40, (4, 24))
    task = task_from_module(Tokens(kind), (example,))
    (first,), (second,) = (printed(task, seed=seed)[1] for seed in (0, 1))
    assert torch.equal(first, second) is not redrawn
    assert first.min() >= example.min() and first.max() <= example.max()
    assert redrawn or torch.equal(first, example)


def test_positions_that_are_looked_up_stay_positions() -> None:
    task = task_from_module(Tokens("plain"), (torch.arange(24).expand(4, 24),))
    _, (found,) = printed(task)
    assert torch.equal(found, torch.arange(24).expand(4, 24))
