"""What is computed from weights alone is kept until a weight changes: what is packed, and what a kept result survives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from mtmc.evaluate.audit.audit import audit
from mtmc.hardware import hardware
from mtmc.optimizations import KINDS
from mtmc.optimizations.version import Version
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.packing import packed_stages
from mtmc.rewrite.plan import Plan, plan_from_json, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.stepping import actions_on, after, child_of, version
from tests.rewrite.test_cuda_graph import Played

SCALED = """
import torch
from torch import nn

rows = 64
VARIANTS = {"small": {"rows": 8}, "odd1": {"rows": 5}}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.packs = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.rand(width, 1) + 0.5)
        self.register_buffer("seen", torch.zeros(width))

    def forward(self, x):
        weight = (self.packs.weight * self.scale).t()
        return x @ weight + self.packs.bias.exp()


def get_inputs():
    return [torch.randn(rows, 16)]


def get_init_inputs():
    return [16]
"""


def packed(source: str, **more: bool) -> tuple[Task, Plan] | None:
    task = task_from_source(source, "scaled")
    start = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    moves = list(KINDS["pack"].legal(start))
    return (task, replace(moves[0].child, **more)) if moves and moves[0].child else None


def module_of(source: str, **more: bool) -> Any:
    found = packed(source, **more)
    assert found is not None
    task, plan = found
    text = print_plan(task, export_graph(task), plan).source
    assert audit(text, source) is None
    names: dict[str, Any] = {}
    exec(text, names)
    torch.manual_seed(0)
    return names["ModelNew"](16)


def reference_of(source: str, model: Any) -> Any:
    names: dict[str, Any] = {}
    exec(source, names)
    made = names["Model"](16)
    made.load_state_dict(model.state_dict())
    return made


@pytest.mark.parametrize(
    ("old", "new", "packs"),
    [
        ("", "", ["mul", "exp"]),
        ("self.packs.bias.exp()", "self.packs.bias", ["mul"]),
        ("self.packs.weight * self.scale", "self.packs.weight * (self.scale * x.sum())", ["exp"]),
        ("self.packs.bias.exp()", "torch.rand_like(self.packs.bias)", ["mul"]),
        ("self.packs.bias.exp()", "nn.functional.dropout(self.packs.bias, 0.5, True)", ["mul"]),
        ("return x @ weight", "self.seen.add_(1)\n        return x @ weight + self.seen.cos()", ["mul", "exp"]),
        ("return x @ weight + self.packs.bias.exp()", "return x @ weight, weight", []),  # handed out
        ("x @ weight + self.packs.bias.exp()", "x * self.packs.bias", []),
    ],
)
def test_what_is_packed(old: str, new: str, packs: list[str]) -> None:
    found = packed(SCALED.replace(old, new) if old else SCALED)
    assert (found is not None) is bool(packs)
    if found is not None:
        task, plan = found
        graph = export_graph(task)
        targets = [graph.by_name[stage.ops[0]].target.split(".")[1] for stage in packed_stages(graph, plan)]
        assert targets == packs and plan_from_json(plan.to_json()) == plan
        again = Version.of(task, plan, hardware("H100"))
        assert not list(KINDS["pack"].legal(again))


@pytest.mark.parametrize(
    ("added", "packs"),
    [
        ("torch.outer(torch.arange(x.shape[0]), self.packs.bias).cos()", False),  # angles of so many tokens
        ("torch.outer(torch.arange(x.shape[1]), self.packs.bias).cos()[:1]", True),  # as wide as the weights
        ("self.packs.bias.cos().expand(x.shape[0], -1)", True),
        ("(self.packs.bias.cos() * torch.ones(x.shape[0], 1)).sin()", False),
        ("(self.packs.bias.cos() * torch.ones(3, 1)).sin()[:1]", True),
    ],
)
def test_a_kernel_of_weights_is_packed_where_no_input_says_how_large_it_is(added: str, packs: bool) -> None:
    source = SCALED.replace("self.packs.bias.exp()", added).replace(
        "self.packs.weight * self.scale", "self.packs.weight"
    )
    _, fused = after(version(task_from_source(source, "angles")), "lower cos")
    while actions := [each for each in actions_on(fused) if each.kind == "fuse" and "add" not in each.sentence]:
        fused = version(fused.task, child_of(fused, actions[0]))
    plan = replace(fused.plan, packed=True)
    kernels = [stage for stage in packed_stages(fused.graph, plan) if not stage.is_torch]
    assert bool(kernels) is packs
    assert "ModelNew" in print_plan(fused.task, fused.graph, plan).source  # every number can be written where it stands


@pytest.mark.parametrize(
    ("weight", "made_by"),
    [
        ("(self.packs.weight * self.scale).t()", ""),  # fewer bytes than what it is made of
        ("torch.cat((self.packs.weight, self.other)).t()", ""),  # joined: as many bytes
        ("self.packs.weight.t().exp()", ""),
        ("(self.codes.float() * self.scale).t()", "mul"),  # unpacked: a kernel reads a quarter
        ("torch.cat((self.codes, self.codes)).float().t()", "to"),
    ],
)
def test_a_product_takes_in_what_is_kept_where_it_reads_less_then(weight: str, made_by: str) -> None:
    buffers = """self.register_buffer("codes", torch.randint(-9, 9, (width, width), dtype=torch.int8))
        self.register_buffer("other", torch.randn(width, width))"""
    source = SCALED.replace("(self.packs.weight * self.scale).t()", weight).replace(" + self.packs.bias.exp()", "")
    source = source.replace('self.register_buffer("seen", torch.zeros(width))', buffers)
    start = version(task_from_source(source, "unpacked"))
    _, first = after(start, "lower") if "codes" in weight else (None, start)
    while fusions := [each for each in actions_on(first) if each.kind == "fuse" and "matmul" not in each.sentence]:
        first = version(first.task, child_of(first, fusions[0]))
    last = version(first.task, replace(first.plan, packed=True))
    offered = [each.sentence for each in actions_on(last) if each.kind == "fuse" and "matmul" in each.sentence]
    assert len(offered) == bool(made_by) and all(made_by in each for each in offered), offered
    assert any("matmul" in each.sentence for each in actions_on(first) if each.kind == "fuse")  # where nothing is kept


def replaced(model: Any) -> None:
    model.packs.weight = torch.nn.Parameter(torch.randn(16, 16))


def in_place(model: Any) -> None:
    model.scale.mul_(-2.0)


def other_data(model: Any) -> None:
    model.packs.bias.data = torch.randn(16)


def turned(model: Any) -> None:
    """At the same address, of the same version."""
    model.packs.weight.data = model.packs.weight.data.t()


def loaded(model: Any) -> None:
    model.load_state_dict({name: torch.randn_like(value) for name, value in model.state_dict().items()})


def at_a_known_address(model: Any) -> None:
    """Storage that is given back and taken again at once would lie where the first one lay."""
    before = model.packs.weight.data_ptr()
    for _ in range(20):
        model.packs.weight.data = torch.empty(0)
        model.packs.weight.data = torch.randn(16, 16)
        assert model.packs.weight.data_ptr() != before


@torch.no_grad()
@pytest.mark.parametrize("change", [replaced, in_place, other_data, turned, loaded, at_a_known_address])
def test_weights_that_change_are_packed_anew_and_others_are_not(change: Callable[[Any], None]) -> None:
    model, x = module_of(SCALED), torch.randn(3, 16)
    made = []
    original = type(model).pack
    type(model).pack = lambda self: made.append(1) or original(self)
    for rounds in (1, 2):
        for _ in range(3):
            torch.testing.assert_close(model(x), reference_of(SCALED, model)(x))
        assert len(made) == rounds
        change(model)
    other = copy.deepcopy(model)
    other.scale.fill_(3.0)
    for each in (other, model, other):
        torch.testing.assert_close(each(x), reference_of(SCALED, each)(x))


def test_gradients_flow_into_weights_and_nothing_is_kept() -> None:
    model, x = module_of(SCALED), torch.randn(3, 16)
    reference = reference_of(SCALED, model)
    for each in (model, reference):
        each(x).square().sum().backward()
    for (name, mine), theirs in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, msg=name)
    assert model.packs_.key is None
    model.requires_grad_(False)
    model(x)
    assert model.packs_.key is not None


def test_tensors_without_a_version_are_packed_at_every_call() -> None:
    with torch.inference_mode():
        model, x = module_of(SCALED), torch.randn(3, 16)
        for _ in range(2):
            torch.testing.assert_close(model(x), reference_of(SCALED, model)(x))
            model.scale.mul_(2.0)
    assert model.packs_.key is None


@torch.no_grad()
@pytest.mark.parametrize("change", [replaced, in_place, other_data, loaded])
def test_a_cuda_graph_reads_what_is_packed(change: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    model, x = module_of(SCALED, cuda_graph=True), torch.randn(3, 16)
    for _ in range(2):
        for _ in range(2):
            torch.testing.assert_close(model(x), reference_of(SCALED, model)(x))
        change(model)
    assert (played.captures, played.replays) == (2, 4)


CONVOLVED = """
import torch
from torch import nn

n = 2
VARIANTS = {"small": {"n": 1}, "odd1": {"n": 3}}


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(16, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, 16, 1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) * self.first.bias.exp()[:, None, None]


def get_inputs():
    return [torch.randn(n, 16, 9, 9)]


def get_init_inputs():
    return [16]
"""


def packed_channels_last(task: Task) -> tuple[str, str]:
    """What a version with tensors channels last and its weights kept so is told by, and its text."""
    graph = export_graph(task)
    start = Version.of(task, root_plan(graph), hardware("H100"))
    move = next(iter(KINDS["layout"].legal(start)))
    assert move.child is not None
    [packing] = KINDS["pack"].legal(Version.of(task, move.child, hardware("H100")))
    assert packing.child is not None
    return packing.action.sentence, print_plan(task, graph, packing.child).source


@torch.no_grad()
def test_weights_of_convolutions_are_permuted_once() -> None:
    sentence, text = packed_channels_last(task_from_source(CONVOLVED, "convolved"))
    assert "exp and 2 more" in sentence
    packs, forward = text[text.index("def pack(") :].split("def forward")
    assert packs.count("memory_format") == 2 and "exp(" in packs
    assert "memory_format" not in forward and "exp(" not in forward


@torch.no_grad()
def test_a_convolution_whose_bias_is_packed_too_reads_it() -> None:
    """Of the weight it is given a copy, of the bias what was made."""
    made = "torch.conv2d(x, self.first.weight * 2, self.first.bias.exp(), padding=1)"
    text = CONVOLVED.replace(" * self.first.bias.exp()[:, None, None]", "").replace("self.first(x)", made)
    _, source = packed_channels_last(task_from_source(text, "made"))
    packs, forward = source.split("def pack(")[1].split("def forward")
    assert "exp(" in packs and "exp" in packs.split("return")[1] and "exp" in forward


def test_a_kernel_that_makes_its_mask_itself_is_kept() -> None:
    masked = "(self.packs.weight * self.scale).masked_fill(torch.ones(16, 16, dtype=torch.bool).triu(1), 0.0).exp().t()"
    task = task_from_source(SCALED.replace("(self.packs.weight * self.scale).t()", masked), "masked")
    start = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    fused = next(move.child for move in KINDS["fuse"].legal(start) if "calls from" in move.action.sentence)
    assert fused is not None
    kernels = [stage for stage in fused.stages if not stage.is_torch and len(stage.ops) > 3]
    assert len(kernels) == 1 and set(kernels) <= set(packed_stages(start.graph, fused))


JOINED = """
import torch
from torch import nn

rows, a, b, c = 64, 48, 20, 15
VARIANTS = {"small": {"rows": 8, "a": 12, "b": 7, "c": 5}, "odd1": {"rows": 5, "a": 10, "b": 6, "c": 9}}


class Model(nn.Module):
    def __init__(self, width, a, b, c):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, height) for height in (a, b, c))
        self.e, self.f = nn.Linear(width, a), nn.Linear(width, b)

    def forward(self, x):
        return JOINED


def get_inputs():
    return [torch.randn(rows, 16)]


def get_init_inputs():
    return [16, a, b, c]
"""


@pytest.mark.parametrize(
    ("joined", "packs"),
    [
        ("x @ torch.cat((self.q.weight, self.k.weight, self.v.weight)).t()", True),
        ("x @ torch.cat((self.q.weight, self.k.weight, self.v.weight, self.e.weight, self.f.weight)).t()", True),
        ("x.sum() + torch.cat((self.q.bias, self.k.bias, self.v.bias)).exp()", True),
        ("x @ torch.cat((self.q.weight, self.k.weight, self.v.weight, x)).t()", False),
        ("x.sum() + torch.nn.functional.pad(self.q.bias, (0, x.shape[0]))", False),
        ("x.sum() + torch.fft.rfft(self.q.bias, n=2 * self.q.bias.shape[0]).abs()", True),  # a + 1 numbers
    ],
)
def test_what_is_joined_is_packed_however_high_it_is(joined: str, packs: bool) -> None:
    source = JOINED.replace("JOINED", joined)
    found = packed(source)
    assert (found is not None) is packs
    if found is not None:
        names: dict[str, Any] = {}
        exec(print_plan(found[0], export_graph(found[0]), found[1]).source, names)
        model, x = names["ModelNew"](16, 12, 7, 5), torch.randn(3, 16)
        exec(source, names)
        reference = names["Model"](16, 12, 7, 5)
        reference.load_state_dict(model.state_dict())
        with torch.no_grad():
            torch.testing.assert_close(model(x), reference(x))
            model.q.weight.mul_(2)
            reference.q.weight.mul_(2)
            torch.testing.assert_close(model(x), reference(x))
