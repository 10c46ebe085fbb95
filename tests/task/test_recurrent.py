"""Recurrent layers of fake tensors: what torch gives, without its steps."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from mtmc.rewrite.export import export_open, export_reference
from mtmc.task import task_from_source
from mtmc.task.recurrent import NAMES, QuickCall, exported_quickly, results

SOURCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.KIND

    def forward(self, x):
        out, state = self.net(x)
        return torch.relu(out)


steps = 700


def get_inputs():
    return [torch.rand(steps, 4, 8)]


def get_init_inputs():
    return []


VARIANTS = {"small": {"steps": 6}, "odd1": {"steps": 5}}
"""


class Calls(TorchFunctionMode):
    """Notes recurrent layers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any, Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "").partition(".")[0]
        if name in NAMES:
            self.seen.append((name, args, result))
        return result


def layer(draw: random.Random) -> nn.RNNBase:
    kind = draw.choice((nn.GRU, nn.LSTM, nn.RNN))
    more: dict[str, Any] = {"proj_size": 3} if kind is nn.LSTM and draw.random() < 0.5 else {}
    if kind is nn.RNN:
        more["nonlinearity"] = draw.choice(("tanh", "relu"))
    flags = {name: draw.random() < 0.5 for name in ("bidirectional", "batch_first", "bias")}
    dtype = draw.choice((torch.float32, torch.bfloat16))
    made: nn.RNNBase = kind(5, 7, num_layers=draw.choice((1, 2, 3)), dtype=dtype, **flags, **more)
    return made


def forms(tensors: Any) -> list[tuple[Any, ...]]:
    return [(tuple(each.shape), each.stride(), each.dtype, each.device) for each in tensors]


@pytest.mark.parametrize("seed", range(24))
def test_shapes_strides_and_dtypes_are_torchs(seed: int) -> None:
    with FakeTensorMode(), torch.no_grad(), Calls() as calls:
        net = layer(random.Random(seed))
        net(torch.rand(4, 2, 5, dtype=next(net.parameters()).dtype))
    [(name, arguments, result)] = calls.seen
    found = results(name, arguments)
    assert found is not None and forms(found) == forms(result)


def test_real_tensors_and_packed_steps_are_torchs() -> None:
    with torch.no_grad(), Calls() as calls:
        nn.GRU(5, 7)(torch.rand(4, 2, 5))
    with FakeTensorMode(), torch.no_grad():
        net = nn.GRU(5, 7)
        sizes = (
            torch.rand(6, 5),
            torch.tensor([2, 2, 1, 1]),
            torch.rand(1, 2, 7),
            list(net.parameters()),
            True,
            1,
            0.0,
        )
    assert results(*calls.seen[0][:2]) is None
    assert results("gru", (*sizes, False, False)) is None and results("linear", calls.seen[0][1]) is None


def test_modes_see_the_call_once() -> None:
    made = QuickCall("gru", torch._VF.gru)
    with FakeTensorMode(), torch.no_grad():
        net = nn.GRU(5, 7)
        arguments = (
            torch.rand(4, 2, 5),
            torch.rand(1, 2, 7),
            list(net.parameters()),
            True,
            1,
            0.0,
            False,
            False,
            False,
        )
        with Calls() as calls:
            made(*arguments)
    [(name, given, result)] = calls.seen
    assert name == "gru" and given == arguments and result[0].shape == (4, 2, 7)


@pytest.mark.parametrize("kind", ["GRU(8, 16, 2)", "LSTM(8, 16, bidirectional=True)", "RNN(8, 16)"])
def test_no_step_is_made_where_a_layer_is_exported(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a step was made")

    for cell in ("gru_cell", "one_layer_lstm", "one_layer_rnn", "one_layer_while_loop_lstm"):
        if hasattr(torch._decomp.decompositions, cell):
            monkeypatch.setattr(torch._decomp.decompositions, cell, never)
    task = task_from_source(SOURCE.replace("KIND", kind), "recurrent")
    with pytest.raises(AssertionError, match="a step was made"), FakeTensorMode():
        torch.export.export(nn.GRU(8, 16), (torch.rand(4, 2, 8),), strict=False)
    graph = export_reference(task, task.full).program.graph
    called = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    name = f"aten.{kind.partition('(')[0].lower()}".replace("rnn", "rnn_tanh")
    assert called.count(f"{name}.input") == 1 and len(called) < 12
    open_program = export_open(task, task.full, lambda tensor: {0: torch.export.Dim.DYNAMIC}).program()
    out = next(node for node in open_program.graph.nodes if str(node.target) == "aten.relu.default").meta["val"]
    assert isinstance(out.shape[0], torch.SymInt), "a length may vary: no loop fixes it"


def test_torch_is_left_as_it_was() -> None:
    before = {name: dict(getattr(torch.ops.aten, name).input.py_kernels) for name in NAMES}
    with pytest.raises(KeyError), exported_quickly():
        raise KeyError
    assert before == {name: dict(getattr(torch.ops.aten, name).input.py_kernels) for name in NAMES}
    model, x = nn.GRU(8, 16).eval(), torch.rand(4, 2, 8)
    with torch.no_grad():
        program = torch.export.export(model, (x,), strict=False)
        assert torch.equal(program.module()(x)[0], model(x)[0])
