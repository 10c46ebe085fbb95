"""torch.compile over a model with drop-ins inside: no graph break, and one custom operator for each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from mtmc.dropin import drop_in
from mtmc.task import Capture, capture_module
from tests.dropin.conftest import made
from tests.dropin.modules import COUNTER, Block, Counter

X = torch.linspace(-2, 2, 48).reshape(6, 8)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Seen:
    """A backend that notes the operators of each graph."""

    def __init__(self) -> None:
        self.graphs: list[list[str]] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph

    @property
    def operators(self) -> list[int]:
        """How many custom operators each graph has."""
        return [sum(name.startswith("mtmc.") for name in graph) for graph in self.graphs]


def around(block: nn.Module) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(8), block, nn.ReLU()).eval()


def test_one_graph_with_an_operator_for_each_drop_in(block: Block) -> None:
    model = around(nn.Sequential(block, copy.deepcopy(block)))
    with torch.no_grad():
        model[1][1].fc.weight.mul_(2)
        wanted = model(X)
        seen = Seen()
        compiled = torch.compile(model, backend=seen, fullgraph=True)
        assert torch.allclose(compiled(X), wanted, atol=1e-6)
        assert seen.operators == [2]
        assert torch.allclose(torch.compile(model, backend="aot_eager", fullgraph=True)(X), wanted, atol=1e-6)


def test_sizes_stay_open_and_what_the_kernels_do_not_hold_for_is_compiled_from_the_original(block: Block) -> None:
    model, seen = around(block), Seen()
    compiled = torch.compile(model, backend=seen, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for x in (X, X[:3], X.repeat(2, 1), X[None]):
            assert torch.allclose(compiled(x), model(x), atol=1e-6)
    assert seen.operators[0] == 1 and seen.operators[-1] == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.train(),
        lambda b: setattr(b, "limit", 0.5),
        lambda b: setattr(b, "act", nn.ReLU()),
        lambda b: b.double(),
    ],
)
def test_a_module_that_has_changed_is_compiled_anew_from_the_original(
    block: Block, change: Callable[[Block], Any]
) -> None:
    seen = Seen()
    compiled = torch.compile(around(block)[1:2], backend=seen, fullgraph=True)
    with torch.no_grad():
        compiled(X)
        change(block)
        x = X.to(block.shift.dtype)
        assert torch.allclose(compiled(x), block(x))
    assert seen.operators == [1, 0]


def test_hooks_that_are_there_at_compilation_run(block: Block) -> None:
    """Those that come later are not seen by torch.compile, of a drop-in or of any module."""
    block.act.register_forward_hook(lambda m, a, y: y + 1)
    seen = Seen()
    with torch.no_grad():
        assert torch.equal(torch.compile(block, backend=seen, fullgraph=True)(X), Block.forward(block, X))
    assert seen.operators == [0]


def test_gradients_and_autocast_are_the_originals(block: Block) -> None:
    seen = Seen()
    compiled = torch.compile(block, backend=seen, fullgraph=True)
    compiled(X).sum().backward()
    assert block.fc.weight.grad is not None
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(X), block.mtmc.original(X))
    assert seen.operators == [0, 0]


def test_changed_buffers_and_inputs_are_written_by_the_operator(counted: Capture) -> None:
    optimized, other = made(Counter(), counted, COUNTER), Counter()
    compiled = torch.compile(optimized, backend="aot_eager", fullgraph=True)
    x, cache, others = torch.randn(3, 8), torch.ones(4), torch.ones(4)
    with torch.no_grad():
        for _ in range(2):
            assert torch.allclose(compiled(x, cache), other(x, others), atol=1e-6)
    assert torch.allclose(optimized.total, other.total) and torch.equal(cache, others)


def test_an_export_holds_the_original(block: Block) -> None:
    program = torch.export.export(around(block), (X,))
    assert not any("mtmc" in str(node.target) for node in program.graph.nodes if node.op == "call_function")


def test_without_versions_the_original_is_compiled(captured: Capture) -> None:
    optimized = drop_in(Block().eval(), captured, [])
    with torch.no_grad():
        assert torch.equal(torch.compile(optimized, backend="eager", fullgraph=True)(X), optimized(X))


class Many(nn.Module):
    """More tensors than an operator may have arguments, and more that it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.LayerNorm(4) for _ in range(40)])
        for index in range(70):
            self.register_buffer(f"seen{index}", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(x)
        for index in range(70):
            getattr(self, f"seen{index}").add_(x[0])
        return x


def test_a_network_of_hundreds_of_tensors_is_one_operator() -> None:
    with torch.no_grad():
        captured = capture_module(Many().eval(), X[:, :4])
        text = captured.task.source.replace("class Model(", "class ModelNew(")
        optimized, other = made(Many().eval(), captured, text), Many().eval()
        assert optimized.mtmc.versions
        seen = Seen()
        compiled = torch.compile(optimized, backend="aot_eager", fullgraph=True)
        for _ in range(2):
            assert torch.allclose(compiled(X[:, :4]), other(X[:, :4]), atol=1e-6)
        assert torch.allclose(optimized.seen69, other.seen69, atol=1e-6)
        torch.compile(optimized, backend=seen, fullgraph=True)(X[:, :4])
    assert seen.operators == [1]
