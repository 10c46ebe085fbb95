"""torch.compile(backend="mtmc"): kernels for parts of a captured graph, with an evaluator that takes no time."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.registry import lookup_backend
from torch.fx import GraphModule

from mtmc.whole import backend, regions
from mtmc.whole.backend import mtmc
from mtmc.whole.regions import nested, unsafe, weight_inputs, with_weights, wrapped
from tests.whole.toy import KernelCounter, decoder, inputs


class Inner:
    """The backend for the rest: keeps the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs: list[GraphModule] = []

    def __call__(self, graph: GraphModule, example: Any) -> Callable[..., Any]:
        self.graphs.append(graph)
        return lookup_backend("aot_eager")(graph, example)

    def calls(self) -> int:
        """Of regions, in all graphs inside of those that came."""
        parts = [part for graph in self.graphs for part in graph.modules() if isinstance(part, GraphModule)]
        return sum(node.target is torch.ops.mtmc.region.default for part in parts for node in part.graph.nodes)


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()


def captured(model: nn.Module, *args: Any) -> tuple[GraphModule, list[Any]]:
    """What dynamo hands to a backend."""
    found: list[Any] = []

    def keep(graph: GraphModule, example: list[Any]) -> Callable[..., Any]:
        found.append((graph, list(example)))
        return graph.forward

    with torch.no_grad():
        torch.compile(model, backend=keep)(*args)
    return found[0]


def test_a_graph_is_split_as_its_modules_were_and_weights_go_back_into_them() -> None:
    model = decoder(2)
    graph, example = captured(model, *inputs())
    given = {node.name: value for node, value in zip(graph.graph.find_nodes(op="placeholder"), example, strict=True)}
    split = nested(graph)
    assert [name for name, _ in split.named_children()] == [f"submod_{index}" for index in range(5)]
    assert len(list(split.submod_1.children())) == 7  # norm, gate, silu, up, times, down, plus
    whole, weights = wrapped(graph), {name: each for name, each in given.items() if isinstance(each, nn.Parameter)}
    places = weight_inputs(whole, weights)
    assert len(places["whole.submod_1"]) == 4 and set(places["whole.submod_1"].values()) <= set(weights)
    slots = with_weights(whole, weights)
    held = {name: [getattr(module, key) for module, key in each] for name, each in slots.items()}
    assert all(len(each) == 1 and each[0] is weights[name] for name, each in held.items())
    with torch.no_grad():
        assert torch.equal(whole(*inputs())[0], model(*inputs()))


class Kernels(nn.Module):
    """Stands for a drop-in: computes what the part does, and counts its calls."""

    def __init__(self, part: nn.Module, versions: tuple[str, ...]) -> None:
        super().__init__()
        self.part, self.mtmc = part, SimpleNamespace(versions=versions, reason=None, calls=0)

    def forward(self, *inputs: torch.Tensor) -> Any:
        self.mtmc.calls += 1
        return self.part(*inputs)


def test_equal_layers_of_a_graph_are_one_search_and_kernels_get_the_weights_of_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "drop_in", lambda part, capture, sources: Kernels(part, tuple(sources)))
    model, inner = decoder(2), Inner()
    options = {"budget": 4, "policy": "heuristic", "evaluator": KernelCounter(), "inner": inner, "most_kernels": 12}
    before = len(regions.REGIONS)
    with torch.no_grad():
        compiled = torch.compile(model, backend=mtmc, options=options)
        assert torch.equal(compiled(*inputs()), model(*inputs()))
        new = [region.kernels.mtmc for region in regions.REGIONS[before:]]
        assert inner.calls() == len(new) == 2  # the layers; the rest is the inner backend's
        assert new[0].versions == new[1].versions and "@triton.jit" in new[0].versions[0]
        model.layers[1].up.weight.mul_(2)
        model.layers[0].down.weight = nn.Parameter(torch.randn_like(model.layers[0].down.weight))
        assert torch.equal(compiled(*inputs()), model(*inputs()))
        assert [each.calls for each in new] == [2, 2] and len(inner.graphs) == 1


def test_what_a_region_returns_lies_as_it_was_traced_and_in_memory_of_its_own() -> None:
    part = Part(lambda self, x: (x, x.t()))
    made = regions.Region(part, part, {})  # type: ignore[arg-type]
    x = torch.randn(3, 5)
    wanted = made.fake([x])
    found = made.run([x])
    assert torch.equal(found[0], x) and torch.equal(found[1], x.t())
    assert [y.stride() for y in found] == [y.stride() for y in wanted] == [(5, 1), (1, 5)]
    assert len({y.untyped_storage().data_ptr() for y in (x, *found)}) == 3


def test_what_wants_gradients_or_has_open_sizes_goes_to_the_inner_backend(caplog: pytest.LogCaptureFixture) -> None:
    model, inner = decoder(1), Inner()
    with caplog.at_level(logging.WARNING, "mtmc"):
        compiled = torch.compile(model, backend=mtmc, options={"inner": inner, "budget": 0})
        compiled(*inputs()).sum().backward()
        assert "gradients are wanted" in caplog.text and model.head.weight.grad is not None
        with torch.no_grad():
            torch.compile(model, backend=mtmc, dynamic=True, options={"inner": inner, "budget": 0})(*inputs())
        assert "sizes are not fixed" in caplog.text
    assert inner.calls() == 0 and len(inner.graphs) >= 2


def test_bad_options_are_said() -> None:
    for options, told in (({"budgets": 3}, "no setting 'budgets'"), ({"inner": "indoctor"}, "no backend 'indoctor'")):
        torch._dynamo.reset()
        with torch.no_grad(), pytest.raises(Exception, match=told):
            torch.compile(decoder(1), backend=mtmc, options={"evaluator": KernelCounter(), **options})(*inputs())


class Part(nn.Module):
    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 4))
        self._forward = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self._forward(self, x)


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda self, x: x * 2, None),
        (lambda self, x: (x * 2, x + 1), None),
        (lambda self, x: x.t(), "it returns a view of what it takes"),
        (lambda self, x: self.state, "it returns a view of what it takes"),
        (lambda self, x: (lambda y: (y, y[0]))(x * 2), "it returns a view of what it takes"),
        (lambda self, x: x.add_(1) * 2, "it changes tensors in place"),
        (lambda self, x: self.state.copy_(x) * 2, "it changes tensors in place"),
        (lambda self, x: (x * 2, 3), "it returns something that is no tensor"),
    ],
)
def test_a_part_that_is_more_than_a_function_is_left_alone(forward: Callable[..., Any], reason: str | None) -> None:
    assert unsafe(Part(forward), [torch.randn(2, 4)]) == reason


def test_the_name_mtmc_is_an_entry_point_for_torch() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    found = re.search(r'\[project\.entry-points\."torch_dynamo_backends"\]\nmtmc = "([\w.]+):(\w+)"', text)
    assert found is not None and getattr(import_module(found[1]), found[2]) is mtmc
