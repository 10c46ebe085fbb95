"""A forward captured in a CUDA graph: where it is legal, and what the printed text does on a GPU that is played by the CPU.

Played: between the beginning and the end of a capture every op is noted with its operands; a replay does the same ops
again and puts what they give where the captured ones put it, as a graph does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.audit.audit import audit
from mtmc.evaluate.compiling import stand_in
from mtmc.hardware import hardware
from mtmc.optimizations.version import Version
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, plan_from_json, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.stepping import actions_on, child_of

DEEP = """
import torch
from torch import nn

rows = 64
VARIANTS = {"small": {"rows": 8}, "odd1": {"rows": 5}}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])

    def forward(self, x, y):
        for layer in self.layers:
            x = torch.relu(layer(x)) + y
        return x, x * 2


def get_inputs():
    return [torch.randn(rows, 16), torch.randn(rows, 16)]


def get_init_inputs():
    return [16]
"""


def version(task: Task, plan: Plan | None = None) -> Version:
    return Version.of(task, plan or root_plan(export_graph(task)), hardware("H100"))


def captured(source: str) -> Plan | None:
    start = version(task_from_source(source, "deep"))
    actions = [action for action in actions_on(start) if action.kind == "cuda_graph"]
    return child_of(start, actions[0]) if actions else None


@pytest.mark.parametrize(
    ("old", "new", "legal"),
    [
        ("", "", True),
        ("torch.relu(layer(x))", "nn.functional.dropout(layer(x), 0.5, True)", False),
        ("torch.relu(layer(x))", "nn.functional.dropout(layer(x), 0.5, False)", True),
        ("torch.relu(layer(x))", "layer(x) + torch.rand_like(x)", False),
        ("torch.relu(layer(x))", "layer(x) @ torch.linalg.inv(layer.weight)", False),
        ("torch.relu(layer(x))", "layer(x) * torch.log(torch.tensor(2.0))", True),  # filled on the device
        ("torch.relu(layer(x))", "layer(x) * torch.tensor([1.0, 2.0]).max()", False),  # copied from the host
        ("torch.relu(layer(x))", "layer(x) + y.repeat_interleave(4, 1)[:, ::4]", True),  # known how often
        ("torch.relu(layer(x))", "layer(x) + nn.functional.one_hot(y.long().abs() % 9, 9).sum(-1)", True),
        ("return x, x * 2", "return {'x': x, 'y': x * 2}", False),
        ("for _ in range(4)", "for _ in range(1)", False),  # fewer launches than copies
        ("rows = 64", "CUDA_GRAPH = True\nrows = 64", False),  # its caller captures it
        ("rows = 64", "rows = 262144", False),  # copies of 17 MB
    ],
)
def test_what_can_be_captured(old: str, new: str, legal: bool) -> None:
    assert (captured(DEEP.replace(old, new) if old else DEEP) is not None) is legal


def test_a_captured_plan_stays_captured_and_is_not_captured_again() -> None:
    plan = captured(DEEP)
    assert plan is not None and plan.cuda_graph and plan_from_json(plan.to_json()) == plan
    following = version(task_from_source(DEEP, "deep"), plan)
    actions = actions_on(following)
    assert "cuda_graph" not in {action.kind for action in actions}
    fuse = next(action for action in actions if action.kind == "fuse")
    child = child_of(following, fuse)
    assert child is not None and child.cuda_graph and len(child.stages) < len(plan.stages)


def test_names_of_the_reference_are_left_alone_and_the_text_passes_the_audit() -> None:
    taken = DEEP.replace("self.layers", "self.graphs")
    for source, method in ((DEEP, "self.graphs.replay("), (taken, "self.graphs_.replay(")):
        plan = captured(source)
        assert plan is not None
        task = task_from_source(source, "deep")
        text = print_plan(task, export_graph(task), plan).source
        assert method in text and audit(text, source) is None


class Played:
    """A GPU played by the CPU. captures: how many graphs were made. replays: how often one was launched.
    order: what became of captures and of the working memory that libraries keep."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        played = self
        played.captures = played.replays = 0
        played.order = list[str]()

        class Noting(TorchDispatchMode):
            def __init__(self) -> None:
                super().__init__()
                self.steps: list[Callable[[], None]] = []

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if func._schema.is_mutable:  # a capture does no work, and what stands elsewhere stays as it is
                    self.steps.append(lambda: func(*args, **(kwargs or {})))
                    return args[0] if func._schema.returns else None
                result = func(*args, **(kwargs or {}))
                given = {x.untyped_storage()._cdata for x in args if isinstance(x, torch.Tensor)}
                view = isinstance(result, torch.Tensor) and result.untyped_storage()._cdata in given
                if not view:
                    self.steps.append(lambda: result.copy_(func(*args, **(kwargs or {}))))
                return result

        class Graph(stand_in.CUDAGraph):
            def replay(self) -> None:
                played.replays += 1
                for step in self.noting.steps:
                    step()

        class Capture:
            def __init__(self, graph: Any, **kwargs: Any) -> None:
                self.noting = graph.noting = Noting()

            def __enter__(self) -> None:
                played.captures += 1
                played.order.append("begin")
                self.noting.__enter__()

            def __exit__(self, *error: Any) -> None:
                self.noting.__exit__(*error)
                played.order.append("end")

        for name, value in {**stand_in.replacements(True), "CUDAGraph": Graph, "graph": Capture}.items():
            patch.setattr(torch.cuda, name, value)
        for name in stand_in.OF_C:
            patch.setattr(torch._C, name, lambda: played.order.append("cleared"), raising=False)
        patch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True), raising=False)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(monkeypatch)


@pytest.fixture(scope="module")
def model_class() -> Any:
    plan = captured(DEEP)
    assert plan is not None
    task = task_from_source(DEEP, "deep")
    module: dict[str, Any] = {}
    exec(print_plan(task, export_graph(task), plan).source, module)
    return module["ModelNew"]


def same(model: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    for found, wanted in zip(model(x, y), model.launches(x, y), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@torch.no_grad()
def test_calls_are_replayed_and_leave_each_other_alone(played: Played, model_class: Any) -> None:
    model = model_class(16)
    x, y = torch.randn(3, 16), torch.randn(3, 16)
    first = model(x, y)
    kept = [each.clone() for each in first]
    same(model, torch.randn(3, 16), torch.randn(3, 16))
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    assert (played.captures, played.replays) == (1, 2)
    same(model, torch.randn(5, 16), torch.randn(5, 16))
    same(model, torch.randn(16, 3).t(), y)
    assert played.captures == 3
    same(model, x, y)
    assert (played.captures, played.replays) == (3, 5)


@torch.no_grad()
def test_changed_parameters_are_seen_and_replaced_ones_make_new_graphs(played: Played, model_class: Any) -> None:
    model, x, y = model_class(16), torch.randn(3, 16), torch.randn(3, 16)
    same(model, x, y)
    model.layers[1].weight.mul_(-1.0)
    same(model, x, y)
    assert played.captures == 1
    old = model.layers[1].weight
    model.layers[1].weight = torch.nn.Parameter(torch.randn(16, 16))
    same(model, x, y)
    model.layers[2].bias.data = torch.randn(16)
    same(model, x, y)
    assert played.captures == 3 and old is not model.layers[1].weight
    other = copy.deepcopy(model)
    other.layers[0].weight.mul_(3.0)
    same(other, x, y)
    same(model, x, y)
    assert played.captures == 4


@torch.no_grad()
def test_a_graph_shares_no_working_memory_of_libraries(played: Played, model_class: Any) -> None:
    model = model_class(16)
    for rows in (3, 4):
        same(model, torch.randn(rows, 16), torch.randn(rows, 16))
    assert played.order == ["cleared", "begin", "end", "cleared"] * 2


def test_gradients_and_many_forms_take_the_plain_way(played: Played, model_class: Any) -> None:
    model = model_class(16)
    same(model, torch.randn(3, 16), torch.randn(3, 16))
    assert played.captures == 0 and model(torch.randn(3, 16), torch.randn(3, 16))[0].requires_grad
    with torch.no_grad():
        for rows in range(1, 12):
            same(model, torch.randn(rows, 16), torch.randn(rows, 16))
    assert played.captures == 8 == played.replays


KEEPING = DEEP.replace(
    "for _ in range(4)])",
    "for _ in range(4)])\n"
    '        self.register_buffer("seen", torch.zeros(width))\n'
    '        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))',
).replace(
    "return x, x * 2",
    "self.seen.lerp_(x.mean(0), 0.5)\n        y.add_(x)\n        self.calls += 1\n        return x, x * 2",
)


@pytest.fixture(scope="module")
def keeping() -> str:
    plan = captured(KEEPING)
    assert plan is not None
    assert captured(KEEPING.replace("self.seen.lerp_(x.mean(0), 0.5)", "self.seen = self.seen + x.mean(0)")) is None
    task = task_from_source(KEEPING, "keeping")
    return print_plan(task, export_graph(task), plan).source


@torch.no_grad()
def test_what_the_reference_changes_is_changed_once_a_call(keeping: str, played: Played) -> None:
    assert "inputs[1].copy_(own[1])" in keeping and audit(keeping, KEEPING) is None
    module: dict[str, Any] = {}
    exec(keeping, module)
    model = module["ModelNew"](16)
    plain = copy.deepcopy(model)
    for _ in range(3):
        x, y = torch.randn(3, 16), torch.randn(3, 16)
        other = y.clone()
        results, wanted = model(x, y), plain.launches(x, other)
        for found, expected in zip((*results, y, *model.buffers()), (*wanted, other, *plain.buffers()), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert (played.captures, played.replays) == (1, 3)
