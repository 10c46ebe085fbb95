"""What may be done to a version without a plan is read from its syntax tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtmc.action import STOP, Action
from mtmc.agents.policies import POLICIES
from mtmc.optimizations import site_actions
from mtmc.outcome import Outcome
from mtmc.protocols import Observation
from mtmc.rewrite.source import root_source
from mtmc.source.calls import forward_calls
from mtmc.source.structure import Structure
from mtmc.syntax import parse
from mtmc.task import builtin_names, load_task
from tests.agents.versions import CHILD, PARENT, small_task

CONTROLS = sorted((Path(__file__).parents[1] / "exploits" / "controls").glob("*.py"))

HEAD = """\
import torch
import triton
import triton.language as tl
from torch import nn
import torch.nn.functional as F
from torch.nn.functional import silu as swish


"""


def calls(body: str, more: str = "", arguments: str = "x", init: str = "") -> list[str]:
    """Names of the calls of a forward with this body."""
    lines = "\n        ".join(body.split("\n"))
    made = "\n        ".join(["super().__init__()", *init.split("\n")]).rstrip()
    source = f"{HEAD}{more}\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n        {made}\n\n"
    source += f"    def forward(self, {arguments}):\n        {lines}\n"
    return [call.name for call in forward_calls(Structure.of(parse(source)))]


def kinds(actions: list[Action]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for action in actions:
        found.setdefault(action.kind, []).append(action.region.name)
    return found


def test_torch_calls_can_be_lowered_and_fused() -> None:
    actions = site_actions(PARENT)
    assert [action.sentence for action in actions] == [
        "fuse relu and mul, lines 8-9",
        "lower relu to a Triton kernel, line 8",
        "lower mul to a Triton kernel, line 9",
        STOP.sentence,
    ]
    assert actions[0].region.name == "relu and mul"
    assert (actions[0].region.first_line, actions[0].region.last_line) == (8, 9)


def test_a_kernel_gets_the_kinds_that_make_sense_there() -> None:
    assert kinds(site_actions(CHILD)) == {"tile": ["double_relu"], "vectorize": ["double_relu"], "stop": ["module"]}
    lines = CHILD.splitlines()
    region = site_actions(CHILD)[0].region
    assert lines[region.first_line - 1] == "@triton.jit" and "tl.store" in lines[region.last_line - 1]


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        ("ieee_matmul", ["precision", "tile", "pipeline", "reorder", "vectorize", "split", "stop"]),
        ("autotuned_matmul", ["tile", "pipeline", "reorder", "vectorize", "split", "stop"]),
        ("several_rows_a_program", ["tile", "reorder", "vectorize", "split", "stop"]),
        ("cuda_softmax", ["tile", "pipeline", "reorder", "vectorize", "split", "stop"]),
        ("cuda_bias_gelu", ["tile", "pipeline", "reorder", "vectorize", "split", "stop"]),
    ],
)
def test_kinds_follow_from_what_the_kernel_does(control: str, expected: list[str]) -> None:
    source = next(path for path in CONTROLS if path.stem == control).read_text(encoding="utf-8")
    found = kinds(site_actions(source))
    assert [kind for kind in found if kind not in ("fuse", "lower")] == expected


@pytest.mark.parametrize("path", CONTROLS, ids=lambda path: path.stem)
def test_actions_of_any_version_are_well_formed(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    actions = site_actions(source)
    assert actions[-1] is STOP and actions.count(STOP) == 1 and len(actions) > 1
    assert len({action.key for action in actions}) == len(actions)
    assert actions == site_actions(source)
    seen = Observation(small_task(), source, None, Outcome("ok", 1.0), (), "H100")
    assert len(POLICIES["heuristic"]().prior(seen, actions)) == len(actions)
    for action in actions[:-1]:
        assert 1 <= action.region.first_line <= action.region.last_line <= len(source.splitlines())
        assert action.sentence.endswith(
            str(action.region).removeprefix(action.region.name).lstrip(", ").split(", ")[-1]
        )


@pytest.mark.parametrize("name", builtin_names())
def test_every_built_in_reference_has_something_to_lower(name: str) -> None:
    assert "lower" in kinds(site_actions(root_source(load_task(name))))


def test_attention_can_be_fused_as_a_whole() -> None:
    fusions = kinds(site_actions(root_source(load_task("transformer_block"))))["fuse"]
    assert "matmul, mul, softmax and matmul_1" in fusions and "norm1 and qkv" in fusions


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("return F.gelu(x)", ["gelu"]),
        ("return swish(x)", ["silu"]),
        ("return nn.functional.gelu(torch.exp(x))", ["exp", "gelu"]),
        ("return x.softmax(-1).sum(dim=0)", ["softmax", "sum"]),
        ("return (x @ x.T) * 0.5 + x", ["matmul", "mul", "add"]),
        ("x += 1\nreturn x", ["add"]),
        ("n = x.shape[0] * 2\nreturn x.view(n // 2, -1).transpose(0, 1)", []),
        ("y = torch.empty_like(x)\nreturn torch.exp(y) - torch.exp(x)", ["exp", "exp_1", "sub"]),
        ("a, b = x.chunk(2)\nreturn a * b", ["mul"]),
        ("return torch.relu(x) if x.dim() > 1 else torch.tanh(x)", ["relu", "tanh"]),
        ("with torch.no_grad():\n    x = torch.relu(x)\nreturn x", ["relu"]),
        ("names = [str(x.shape)]\nnames.append('a')\nreturn torch.relu(input=x)", ["relu"]),
        ("return (lambda y: torch.exp(y))(torch.relu(x))", ["relu"]),
    ],
)
def test_what_counts_as_a_call(body: str, names: list[str]) -> None:
    assert calls(body) == names


def test_submodules_methods_and_functions_of_the_file_are_followed() -> None:
    more = """\
def double(y, factor):
    return y * factor


class Block(nn.Module):
    def forward(self, y):
        return torch.tanh(y)
"""
    init = "self.linear = nn.Linear(3, 3)\nself.block = Block()\nself.layers = nn.ModuleList([nn.ReLU()])"
    init += "\nself.scale = nn.Parameter(torch.ones(3))"
    body = "x = self.block(self.linear(x))\nfor layer in self.layers:\n    x = layer(x)\n"
    body += "return double(self.layers[0](x) + self.scale, 2)"
    assert calls(body, more, init=init) == ["linear", "tanh", "layers", "layers_1", "add", "mul"]


def test_arguments_that_are_numbers_are_no_tensors() -> None:
    body = "n = a * 2\nm = b + 1\nk = c * 2\nreturn torch.relu(x)"
    assert calls(body, arguments="x, a: int, b=3, *, c=None") == ["mul", "relu"]


def test_a_function_that_calls_itself_ends() -> None:
    assert calls("return f(x)", "def f(y):\n    return f(torch.exp(y))\n") == ["exp"]


def test_branches_and_loops_break_a_row() -> None:
    source = PARENT.replace(
        "        return y * 2.0", "        if x.numel():\n            y = torch.exp(y)\n        return y * 2.0"
    )
    assert kinds(site_actions(source)) == {"lower": ["relu", "exp", "mul"], "stop": ["module"]}


def test_launchers_can_be_fused_with_torch_calls_but_not_lowered() -> None:
    source = CHILD.replace("        return out", "        return torch.exp(out)")
    found = kinds(site_actions(source))
    assert found["fuse"] == ["double_relu_kernel and exp"] and found["lower"] == ["exp"]


def test_helpers_of_kernels_are_no_kernels() -> None:
    helper = "@triton.jit\ndef double(x):\n    return x * tl.load(x)\n\n\n"
    source = CHILD.replace("@triton.jit", f"{helper}@triton.jit", 1).replace("tl.maximum(x, 0.0) * 2.0", "double(x)")
    assert kinds(site_actions(source))["tile"] == ["double_relu"]


def test_long_rows_are_offered_in_parts() -> None:
    body = "\n        ".join(f"x = torch.exp(x - {number})" for number in range(5))
    fusions = kinds(site_actions(PARENT.replace("y = torch.relu(x)", body)))["fuse"]
    assert max(name.count(",") for name in fusions) == 2  # four names at most: the row of eleven is too long as a whole
    few = "\n        ".join(f"x = torch.exp(x - {number})" for number in range(3))
    fusions = kinds(site_actions(PARENT.replace("y = torch.relu(x)", few).replace("return y * 2.0", "return x")))[
        "fuse"
    ]
    assert "sub, exp, sub_1, exp_1, sub_2 and exp_2" in fusions


@pytest.mark.parametrize("source", ["", "class Model: ...", "def (", "\0", f"x = {'-' * 200_000}1"])
def test_a_text_without_a_version_leaves_only_stop(source: str) -> None:
    assert site_actions(source) == [STOP]


@pytest.mark.parametrize(
    "change",
    [
        ("class ModelNew(torch.nn.Module):", "class Base(torch.nn.Module):", "\n\nclass ModelNew(Base):\n    pass\n"),
        ("class ModelNew(torch.nn.Module):", "class Base(torch.nn.Module):", "\n\nModelNew = Base\n"),
    ],
)
def test_forward_may_stand_in_a_class_under_another_name(change: tuple[str, str, str]) -> None:
    source = PARENT.replace(change[0], change[1]) + change[2]
    assert kinds(site_actions(source))["lower"] == ["relu", "mul"]
