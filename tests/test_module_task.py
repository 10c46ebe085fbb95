"""Tasks from live modules: the printed file computes what the module does, at every set of shapes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mtmc.errors import TaskError
from mtmc.search import search
from mtmc.task import capture_module, load_task, resolve, task_from_module
from mtmc.task.live_call import flat_inputs, restore
from mtmc.task.tensors import flat_tensors
from tests.task.printed import printed


class Everything(nn.Module):
    """Containers, a tied weight, buffers of both kinds, a constant tensor, no_grad, in place, keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 16)])
        self.norm = nn.BatchNorm1d(16)
        self.encode = nn.Linear(16, 8, bias=False)
        self.decode = nn.Linear(8, 16, bias=False)
        self.decode.weight = nn.Parameter(self.encode.weight.T.detach().clone())
        self.again = nn.Linear(16, 8, bias=False)
        self.again.weight = self.encode.weight
        self.dropout = nn.Dropout(0.3)
        self.register_buffer("mask", torch.rand(16), persistent=False)
        self.constant = torch.rand(16)
        self.table = nn.Embedding(10, 16)

    def forward(
        self, x: torch.Tensor, ids: torch.Tensor, *, double: bool = False, pair: dict[str, torch.Tensor]
    ) -> dict[str, Any]:
        for layer in self.layers:
            x = nn.functional.gelu(layer(x))
        with torch.no_grad():
            x = self.norm(x) * (2 if double else 1)
        x = self.dropout(x)
        x = x.mul(self.mask)
        x += self.constant + torch.tensor([1.0, 2.0]).repeat(8)
        x = x.view(x.shape[0], 4, 4).transpose(1, 2).reshape(-1, 16) + torch.arange(16, device=x.device)
        x = x + self.table(ids) + pair["a"] - pair["b"]
        return {"out": self.decode(self.encode(x)), "rest": [self.again(x), None]}


def everything() -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(0)
    module = Everything()
    module.norm.running_mean.uniform_(-1, 1)
    module.norm.running_var.uniform_(0.5, 2)
    pair = {"a": torch.randn(6, 16), "b": torch.randn(6, 16)}
    return module.eval(), (torch.randn(6, 8), torch.randint(0, 10, (6,))), {"double": True, "pair": pair}


def test_the_printed_model_with_its_state_computes_what_the_module_does() -> None:
    module, args, kwargs = everything()
    task = task_from_module(module, args, kwargs, name="everything")
    for variant in task.variants:
        model, inputs = printed(task, variant.label)
        x, ids, a, b = inputs
        with torch.no_grad():
            expected = module(x, ids, double=True, pair={"a": a, "b": b})
            assert all(
                torch.allclose(got, want, atol=1e-6)
                for got, want in zip(model(*inputs), flat_tensors(expected), strict=True)
            )
    assert [dict(variant.constants) for variant in task.held_out] == [{"size0": 3}, {"size0": 5}, {"size0": 7}]


def test_attributes_are_flat_and_lead_back_to_the_modules_own_tensors() -> None:
    module, args, kwargs = everything()
    capture = capture_module(module, args, kwargs)
    task = capture.task
    state = torch.load(io.BytesIO(task.state or b""), weights_only=True)
    model, _ = printed(task)
    assert set(state) == set(model.state_dict()) and not list(model.children())
    assert {key: capture.places[key] for key in ("layers_0_weight", "norm_running_var", "mask", "constant")} == {
        "layers_0_weight": "layers.0.weight",
        "norm_running_var": "norm.running_var",
        "mask": "mask",
        "constant": "constant",
    }
    made = [name for name in state if name not in capture.places]
    assert len(made) == 1 and state[made[0]].tolist() == [1.0, 2.0]  # torch.tensor([1.0, 2.0]) in forward
    for attribute, path in capture.places.items():
        assert torch.equal(state[attribute], resolve(module, path))
        assert isinstance(getattr(model, attribute), nn.Parameter) == isinstance(resolve(module, path), nn.Parameter)
    with torch.no_grad():
        module.table.weight.zero_()
    assert torch.load(io.BytesIO(task.state or b""), weights_only=True)["table_weight"].abs().max() > 0
    assert task.name == "Everything"
    assert pickle.loads(pickle.dumps(task)) == task


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.tables = [torch.rand(16), {"a": torch.rand(16)}]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x) * self.tables[0] - self.tables[1]["a"]


class _Awkward(nn.Module):
    """Two levels, numbers, names of torch's, of modules, of Python's; a name that another path's flat one is."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = Inner()
        self.mlp_up = nn.ParameterDict({"weight": torch.rand(16)})
        self.rest = nn.Sequential(nn.Linear(16, 8), nn.Sequential(nn.GELU(), nn.LayerNorm(8)))
        self.blocks = nn.ModuleList([nn.Linear(8, 8)])
        self.os = nn.Parameter(torch.rand(8))
        self._type = nn.Parameter(torch.rand(8))
        self.register_buffer("2", torch.rand(8))

    def forward(s, input: torch.Tensor, Input: torch.Tensor, *open: torch.Tensor) -> torch.Tensor:  # noqa: N803, N805
        y = s.rest(s.mlp(input) + s.mlp_up["weight"]) * s.os * s._type + getattr(s, "2")
        return s.blocks[0](y) + Input - open[0]


def test_a_module_of_several_levels_is_searched_and_its_versions_are_right(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    capture = capture_module(_Awkward(), (x, x, x))
    assert capture.task.name == "Awkward"
    assert " ".join(sorted(capture.places.values())) == (
        "2 _type blocks.0.bias blocks.0.weight mlp.tables.0 mlp.tables.1.a mlp.up.bias mlp.up.weight mlp_up.weight os "
        "rest.0.bias rest.0.weight rest.1.1.bias rest.1.1.weight"
    )
    assert set(capture.places) == set(torch.load(io.BytesIO(capture.task.state or b""), weights_only=True))
    assert "def forward(self, input_2, input_3, open_0):" in capture.task.source
    result = search(capture.task, budget=2, out=tmp_path / "run")
    assert [node.outcome.status for node in result.tree if node.outcome is not None] == ["ok"] * 2


def test_a_place_that_holds_no_tensor_any_more_is_refused() -> None:
    module = _Awkward()
    assert resolve(module, "mlp.tables.1.a") is module.mlp.tables[1]["a"]
    assert resolve(module, "blocks.0.weight") is module.blocks[0].weight
    module.mlp.tables = []
    with pytest.raises(TaskError, match=r"_Awkward has no tensor at 'mlp\.tables\.1\.a' any more"):
        resolve(module, "mlp.tables.1.a")


def test_the_text_is_a_task_file_of_its_own_without_devices_and_deterministic() -> None:
    module, args, kwargs = everything()
    task = task_from_module(module, args, kwargs)
    assert task.source == task_from_module(module, args, kwargs).source
    assert "cpu" not in task.source and "torch.arange" not in task.source
    assert "arange.default(16, device=x.device)" in task.source
    assert "torch.nn.functional.linear(x, self.layers_0_weight, self.layers_0_bias)" in task.source
    assert load_task(task.source).full == task.full


def test_flat_inputs_and_restore_are_the_way_in_and_out() -> None:
    module, args, kwargs = everything()
    task = task_from_module(module, args, kwargs)
    model, _ = printed(task)
    template = module(*args, **kwargs)
    swapped = {"pair": kwargs["pair"], "double": True, "ids": args[1], "x": args[0]}
    with torch.no_grad():
        result = restore(template, model(*flat_inputs(module, (), swapped)))
    assert set(result) == {"out", "rest"} and result["rest"][1] is None
    assert torch.allclose(result["out"], template["out"], atol=1e-6)
    assert torch.allclose(result["rest"][0], template["rest"][0], atol=1e-6)
    with pytest.raises(ValueError, match="1 tensors for a structure that holds 2"):
        restore(template, [args[0]])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)).bool(), persistent=False)
        self.position = nn.Parameter(torch.randn(64, 16))
        self.linear = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        q, k, v = self.linear(x + self.position[:length]).split(16, 2)
        scores = (q @ k.transpose(1, 2)).masked_fill(~self.mask[:length, :length], float("-inf"))
        return scores.softmax(-1) @ v


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.GroupNorm(4, 8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
        nn.Softmax(-1),
    ).eval()


@pytest.mark.parametrize(
    ("make", "example", "open_sizes"),
    [
        (Attention, torch.randn(4, 24, 16), 2),  # batch and length
        (images, torch.rand(4, 3, 16, 16), 3),  # batch, height, width
        (lambda: nn.GRU(8, 16, 2, batch_first=True), torch.randn(3, 7, 8), 1),
        (lambda: nn.Linear(16, 8).bfloat16(), torch.randn(6, 16).bfloat16(), 1),
        (lambda: nn.Linear(16, 8), torch.randn(1, 16), 0),  # A size of 1 is never left open.
    ],
)
def test_dimensions_that_the_module_leaves_open_become_constants(
    make: Callable[[], nn.Module], example: torch.Tensor, open_sizes: int
) -> None:
    module = make()
    task = task_from_module(module, example)
    assert task.source.count("\nsize") == open_sizes
    assert len(task.held_out) == (3 if open_sizes else 0)
    for variant in task.variants:
        model, inputs = printed(task, variant.label)
        assert inputs[0].dtype == example.dtype
        with torch.no_grad():
            for got, want in zip(flat_tensors(model(*inputs)), flat_tensors(module(*inputs)), strict=True):
                assert torch.allclose(got, want, atol=1e-5)


def test_held_out_shapes_stay_where_text_and_module_agree() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3 if x.shape[0] > 16 else x * 2

    task = task_from_module(Branch(), torch.randn(40, 24))
    assert all(dict(variant.constants)["size0"] > 16 for variant in (task.small, *task.held_out))
    assert "size0 = 40  # at least 17" in task.source


def test_one_tensor_passed_twice_is_two_inputs() -> None:
    x = torch.randn(3, 5, 16)
    task = task_from_module(nn.MultiheadAttention(16, 2, batch_first=True).eval(), (x, x, x))
    model, (query, key, value) = printed(task)
    with torch.no_grad():
        assert not torch.allclose(model(query, key, value)[0], model(query, key, key)[0])


def test_weights_that_cannot_shrink_are_kept_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    task = task_from_module(nn.Linear(1024, 1024, bias=False), torch.randn(256, 1024))
    assert dict(task.small.constants) == {"size0": 4}
    assert "4194304 multiply-adds at its small shapes, slow to interpret" in caplog.text


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return x * 2


class Random(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            noise = torch.rand_like(x)
        return x + noise


class Unset(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((8,), float("nan")))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Size(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x * 2, x.shape[0]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Branches(), r"cannot be exported: test_module_task.py, line \d+, `if x.sum\(\) > 0:`: .*torch.where"),
        (Random(), r"random numbers \(aten.rand_like.default at test_module_task.py, line \d+\): call its eval"),
        (nn.Sequential(nn.Linear(8, 8), nn.Dropout()), r"random numbers \(aten.dropout.default\): call its eval\(\)"),
        (
            torch.compile(nn.Linear(8, 8)),
            r"compiled by torch.compile: give the one that it was made of \(its _orig_mod\)",
        ),
        (torch.jit.script(nn.Linear(8, 8)), "compiled by torch.jit: give the module that it was made of"),
        (nn.DataParallel(nn.Linear(8, 8)), r"on several devices: give that module \(its .module\)"),
        (Unset(), r"gives NaN for its example inputs, .* are all its weights set \(torch.empty"),
        (Size(), r"returns a size that depends on its inputs \(output\[1\]\): return tensors only"),
        (nn.Linear(8, 8, device="meta"), "on the meta device: use dense real tensors"),
        (nn.Linear(8, 8, dtype=torch.complex64), "complex64: use dense real"),
    ],
)
def test_modules_that_cannot_be_a_file_are_refused_with_the_reason(
    module: nn.Module, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        task_from_module(module, torch.randn(6, 8))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")  # torch.export's own report is not shown besides.


def test_example_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TaskError, match="do not fit forward of Linear: too many positional"):
        task_from_module(nn.Linear(8, 8), (torch.randn(6, 8), 3))
    with pytest.raises(TaskError, match="hold no tensor"):
        task_from_module(nn.Linear(8, 8), (3,))
    with pytest.raises(TaskError, match="gives no elements for its example inputs: one of their sizes is 0"):
        task_from_module(nn.Linear(8, 8), torch.randn(0, 8))
    with pytest.raises(TaskError, match="cannot name a folder"):
        task_from_module(nn.Linear(8, 8), torch.randn(6, 8), name="a/b")


def test_a_module_in_training_mode_that_does_nothing_else_there_is_taken() -> None:
    task = task_from_module(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.0), nn.GELU()).train(), torch.randn(6, 8))
    assert len(task.held_out) == 3


def test_a_layer_that_rounds_less_often_inside_is_printed_in_half_precision_too() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True).eval().bfloat16()
    task = task_from_module(layer, torch.randn(2, 16, 64, dtype=torch.bfloat16), name="layer")
    assert "scaled_dot_product_attention" in task.source
