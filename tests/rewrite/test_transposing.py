"""Elementwise work between tensors whose neighbours lie along different dimensions, in tiles."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import actions_on, version

REFERENCE = """
import torch
from torch import nn

N, C, H, W = 4, 48, 20, 24
VARIANTS = {{
    "small": {{"N": 2, "C": 8, "H": 6, "W": 7}},
    "odd1": {{"N": 1, "C": 13, "H": 9, "W": 5}},
    "odd2": {{"N": 3, "C": 70, "H": 4, "W": 1}},
}}


class Model(nn.Module):
    def forward(self, x, y, scale):
        {body}


def get_inputs():
    return [torch.randn(N, C, H, W), torch.randn(N, H, W, C), torch.randn(C)]


def get_init_inputs():
    return []
"""
TILED = {
    "added": ("return x + y.permute(0, 3, 1, 2)", (480, 48)),
    "copied": ("return x.permute(0, 2, 3, 1).contiguous() * scale", (48, 480)),
    "with_work_on_both": (
        "z = torch.sigmoid(y * scale).permute(0, 3, 1, 2); return z * torch.tanh(x), z - x",
        (480, 48),
    ),
    "to_the_front": ("return y.permute(3, 0, 1, 2).contiguous() * 2.0", (1920, 48)),
    "of_matrices": ("return x.transpose(2, 3).contiguous() + 1.0", (20, 24)),
    "twice_turned": ("return (x.permute(0, 2, 3, 1) + y).permute(0, 3, 1, 2) * x", (480, 48)),
}
FLAT = {
    "in_order": "return x * 2.0 + x",
    "the_same_for_all_neighbours": "return x * x[..., :1]",
    "as_it_lies": "return y.permute(3, 0, 1, 2) * 2.0",
    "few": "return y[..., :8].permute(0, 3, 1, 2) * 2.0",
    "other_rows": "return x.transpose(1, 2) * 2.0",
    "broadcast": "return x + scale[:, None, None]",
}


def task_of(body: str) -> Task:
    return task_from_source(REFERENCE.format(body=body), "tiles")


def test_they_are_right_at_all_shapes() -> None:
    bodies = {**{name: body for name, (body, _) in TILED.items()}, **FLAT}
    cases = [
        {"name": name, "source": REFERENCE.format(body=body), "ways": [["lower", "fuse"]]}
        for name, body in bodies.items()
    ]
    assert interpret(cases) == {case["name"]: None for case in cases}


@pytest.mark.parametrize("name", TILED)
def test_tiles_are_as_large_as_the_tensors_let_them(name: str) -> None:
    body, (along, across) = TILED[name]
    plan = apply(task_of(body), ["lower", "fuse"])
    [kernel] = [stage for stage in plan.stages if not stage.is_torch]
    schedule = dict(kernel.schedule)
    sizes = [min(64, 1 << (size - 1).bit_length()) for size in (across, along)]
    assert (schedule["tile"], schedule["block"]) == (sizes[0], sizes[0] * sizes[1])


@pytest.mark.parametrize("name", FLAT)
def test_what_lies_as_it_is_read_has_none(name: str) -> None:
    plan = apply(task_of(FLAT[name]), ["lower", "fuse"])
    assert not [stage for stage in plan.stages if "tile" in dict(stage.schedule)]


def test_tiles_have_other_forms_as_actions() -> None:
    task = task_of(TILED["added"][0])
    plan = apply(task, ["lower", "fuse"])
    sentences = [each.sentence for each in actions_on(version(task, plan))]
    [title] = [stage.title for stage in plan.stages if not stage.is_torch]
    offered = [each.removeprefix(f"retile the {title} kernel to ").partition(",")[0] for each in sentences]
    assert "32 x 32 elements" in offered
    assert "64 x 64 elements" not in offered  # what it is
    assert "go by the order of its result" in offered


def test_the_root_has_no_tiles() -> None:
    task = task_of(TILED["added"][0])
    assert all(stage.is_torch for stage in root_plan(export_graph(task)).stages)
