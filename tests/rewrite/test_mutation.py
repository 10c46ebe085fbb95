"""What a reference changes besides giving its result: a version changes the same, and what cannot be followed is refused."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from mtmc.errors import TaskError
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, graph_of, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.breadth import share
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret

TEXT = """
import torch
from torch import nn
from torch.nn import functional as F

n, m = 48, 64
VARIANTS = {{"small": {{"n": 6, "m": 10}}, "odd1": {{"n": 3, "m": 33}}}}


class Model(nn.Module):
    def __init__(self, m):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [m]
"""


def text(forward: str, init: str = "pass", inputs: str = "torch.randn(n, m)", arguments: str = "x") -> str:
    """A task's file; lines of `forward` and `init` are separated by ";"."""
    lines = [part.replace("; ", "\n        ") for part in (init, forward)]
    return TEXT.format(init=lines[0], forward=lines[1], inputs=inputs, arguments=arguments)


EMA = 'self.register_buffer("ema", torch.zeros(m))'
CACHE = 'self.register_buffer("cache", torch.zeros(2, n, m))'
COUNT = 'self.register_buffer("count", torch.zeros((), dtype=torch.int64))'
STATE = 'self.register_buffer("h", torch.ones(n, m))'
ROWS = "torch.randn(2, 2, m), torch.tensor([1, 2])"
IMAGE = "torch.randn(n, 4, 3, m // 2)"
REFERENCES = {
    "ema_then_read": (text("self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1); return x - self.ema", EMA), "self.ema"),
    "read_then_ema": (
        text("y = x - self.ema; self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1); return y", EMA),
        "self.ema",
    ),
    "ema_old_and_new": (
        text("old = self.ema.clone(); self.ema.lerp_(x.mean(0), 0.1); return old + x, self.ema", EMA),
        "self.ema",
    ),
    "cache_buffer": (
        text("self.cache.index_copy_(1, at, x); return torch.relu(self.cache.sum(1))", CACHE, ROWS, "x, at"),
        "self.cache.index_copy_(1, at, x)",
    ),
    "cache_argument": (
        text("cache.index_copy_(1, at, x); return F.gelu(x @ cache.transpose(1, 2))", "pass",
             "torch.randn(2, 2, m), torch.randn(2, n, m), torch.tensor([1, 2])", "x, cache, at"),
        "cache.index_copy_(1, at, x)",
    ),
    "cache_slice": (
        text("self.cache[:, 1:3] = x; return torch.relu(self.cache.sum(1)), self.cache[:, :3]", CACHE, ROWS, "x, at"),
        "self.cache",
    ),
    "batch_norm_1d": (text("return torch.relu(self.b(x))", "self.b = nn.BatchNorm1d(m)"), "self.b.running_mean"),
    "batch_norm_2d": (
        text("return torch.relu(self.b(x)) + 1", "self.b = nn.BatchNorm2d(4, momentum=0.3)", IMAGE),
        "self.b.num_batches_tracked.add_(1)",
    ),
    "batch_norm_twice": (text("return self.b(torch.relu(self.b(x)))", "self.b = nn.BatchNorm1d(m)"), "running_var"),
    "batch_norm_functional": (
        text("return torch.relu(F.batch_norm(x, self.ema, self.var, training=True))",
             f'{EMA}; self.register_buffer("var", torch.ones(m))'),
        "self.var",
    ),
    "input_in_place": (text("x.add_(1); return torch.relu(x * 2)"), "x.add_(1)"),
    "input_is_the_output": (text("y = torch.relu(x); x.mul_(y); return x"), "return x"),
    "column_of_an_input": (text("y = torch.exp(x); x[:, 0] = 0; return y * x"), "x"),
    "view_of_an_input": (text("x.view(-1)[1:3].mul_(5); return torch.relu(x)"), "x"),
    "counter": (text("self.count += 1; return torch.relu(x) * self.count", COUNT), "self.count.add_(1)"),
    "no_argument": (
        text("y = torch.relu(x); state = x.mean(0) if state is None else state; self.ema.copy_(state); return y", EMA)
        .replace("def forward(self, x)", "def forward(self, x, state=None)"),
        "self.ema.copy_(",
    ),
    "rebound_buffer": (text("self.h = torch.tanh(x + self.h); return self.h * 2", STATE), "self.h = "),
    "copied_and_returned": (text("h = torch.tanh(x + self.h); self.h.copy_(h); return h", STATE), "self.h.copy_("),
    "swapped": (
        text("old = self.h.clone(); self.h.copy_(self.g); self.g.copy_(old); return torch.relu(x) + self.h",
             f'{STATE}; self.register_buffer("g", torch.zeros(n, m))'),
        "self.g",
    ),
    "shifted": (
        text("self.h.copy_(self.g); self.g.copy_(torch.relu(x)); return x - self.h",
             f'{STATE}; self.register_buffer("g", torch.zeros(n, m))'),
        "self.g",
    ),
}  # fmt: skip


LEFT_OUT = ("counter", "no_argument", "read_then_ema", "batch_norm_1d")
"""Of the cases that are interpreted: others are like them."""
COMPUTED = share([name for name in REFERENCES if name not in LEFT_OUT], 5)


@functools.cache
def task_of(name: str) -> Task:
    """What changes something takes long to export: it is done once, for its kernels and for its torch calls."""
    return task_from_source(REFERENCES[name][0], name)


def candidate(name: str) -> str:
    """A version with kernels wherever there can be some."""
    task = task_of(name)
    plan = apply(task, ["lower", "fuse"])
    assert any(not stage.is_torch for stage in plan.stages), f"{name} was not lowered"
    return print_plan(task, graph_of(export_graph(task), plan), plan).source


@pytest.fixture(scope="module")
def problems() -> dict[str, str | None]:
    return interpret([{"name": name, "source": REFERENCES[name][0], "candidate": candidate(name)} for name in COMPUTED])


@pytest.mark.parametrize("name", COMPUTED)
def test_kernels_leave_behind_what_torch_does(problems: dict[str, str | None], name: str) -> None:
    assert problems[name] is None


@pytest.mark.parametrize("name", REFERENCES)
def test_torch_leaves_it_behind_too_and_where_the_reference_does(name: str) -> None:
    """The plan of torch calls: values as in the reference, and a result lies in a changed tensor where its own does."""
    source, part = REFERENCES[name]
    task = task_of(name)
    graph = export_graph(task)
    printed = print_plan(task, graph, root_plan(graph)).source
    assert part in printed[printed.index("def forward") :]
    made: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for text_of, names in zip((source, printed), made, strict=True):
        exec(text_of, names)
    models = made[0]["Model"](64), made[1]["ModelNew"](64)
    for call in range(3):
        torch.manual_seed(call)
        inputs = made[0]["get_inputs"]()
        given = [[x.clone() for x in inputs] for _ in models]
        with torch.no_grad():
            results = [flat(model(*each)) for model, each in zip(models, given, strict=True)]
        for mine, other in zip(*results, strict=True):
            assert torch.allclose(mine, other, atol=1e-6), name
        for mine, other in zip(given[0], given[1], strict=True):
            assert torch.allclose(mine, other, atol=1e-6), name
        for (path, mine), other in zip(models[0].named_buffers(), models[1].buffers(), strict=True):
            assert torch.allclose(mine, other, atol=1e-6), path
        assert shared(results[0], models[0], given[0]) == shared(results[1], models[1], given[1])


def shared(results: list[torch.Tensor], model: Any, inputs: list[torch.Tensor]) -> list[tuple[int, int]]:
    """Which results lie in which of a model's buffers or of the inputs."""
    kept = [tensor.untyped_storage().data_ptr() for tensor in (*inputs, *model.buffers())]
    found = [result.untyped_storage().data_ptr() for result in results]
    return [(at, kept.index(each)) for at, each in enumerate(found) if each in kept]


def test_many_norms_take_two_launches_to_leave_their_statistics_behind() -> None:
    init = "self.n = nn.ModuleList([nn.BatchNorm1d(m) for _ in range(5)])"
    task = task_from_source(
        text("for n in self.n: x = torch.relu(n(x))", init).replace("relu(n(x))", "relu(n(x))\n        return x"),
        "norms",
    )
    plan = lowered(task)
    printed = print_plan(task, export_graph(task), plan).source
    assert printed.count("_foreach_copy_") == printed.count("_foreach_add_") == 1 and "copy_(" not in printed.replace(
        "_foreach_copy_(", ""
    )
    assert printed.count("num_batches_tracked") == 5


def test_a_change_of_what_forward_makes_itself_is_none() -> None:
    task = task_from_source(text("y = x * 2; y.add_(1); y[:, 0] = 3; return y"), "fresh")
    graph = export_graph(task)
    assert graph.mutations == () and "copy_" not in print_plan(task, graph, root_plan(graph)).source


REFUSED = {
    "parameter": ("self.w.mul_(2); return x * self.w", "LINE.*changes the parameter 'w' in place"),
    "view_of_a_parameter": ("self.w[1:].mul_(2); return x * self.w", "LINE.*changes the parameter 'w' in place"),
    "data": ("self.w.data.mul_(2); return x * self.w", "LINE.*through .data"),
    "set_data": ("x.data = x + 1; return x * 2", "LINE.*assigns to .data"),
    "resize": ("x.resize_(x.shape[0] * x.shape[1]); return x * 2", "LINE.*changes the form of its argument 'x'"),
    "transposed": ("x.t_(); return x * 2", "LINE.*changes the form of its argument 'x'"),
    "set": ("x.set_(x + 1); return x * 2", "LINE.*changes the form of its argument 'x'"),
    "instance_norm": ("return self.i(x.t().unsqueeze(0))", "running statistics of an instance norm: build it with"),
    "overlap": (
        "self.twin.add_(1); return x * self.first",
        "the buffer 'twin', which shares memory with the buffer 'first'",
    ),
    "read_out": ("y = x * float(self.c); self.c += 1; return y", "LINE"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused_with_its_line(name: str) -> None:
    forward, message = REFUSED[name]
    init = (
        "self.w = nn.Parameter(torch.ones(m)); self.i = nn.InstanceNorm1d(m, track_running_stats=True); "
        'whole = torch.zeros(2 * m); self.register_buffer("first", whole[:m]); self.register_buffer("twin", whole[m:]); '
        'self.register_buffer("c", torch.zeros(()))'
    )
    source = text(forward, init)
    line = source.splitlines().index(f"        {forward.split('; ')[0]}") + 1
    with pytest.raises(TaskError, match=message.replace("LINE", f"line {line} of the reference")):
        export_graph(task_from_source(source, name))


def lowered(task: Task) -> Plan:
    """Every op a kernel that can be one."""
    plan = root_plan(export_graph(task))
    for _ in range(40):
        moves = [each for each in legal_moves(Version.of(task, plan, hardware("H100"))) if each.action.kind == "lower"]
        if not moves or moves[0].child is None:
            break
        plan = moves[0].child
    return plan


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [tensor for part in value for tensor in flat(part)]
