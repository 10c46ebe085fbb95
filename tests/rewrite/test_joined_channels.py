"""What a kernel joins from parts: it is written where it lies, and a kernel's own names are no others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import forward_of

TEMPLATE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        {layers}

    def forward(self, {arguments}):
        {lines}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [16]


BATCH = 8
VARIANTS = {{"small": {{"BATCH": 2}}, "odd1": {{"BATCH": 3}}}}
"""


def module(layers: Sequence[str], lines: Sequence[str], arguments: str = "x") -> str:
    """A module of channels by these lines of its constructor and of its forward. arguments: images of 16 channels."""
    inputs = ", ".join("torch.randn(BATCH, 16, 6, 5)" for _ in arguments.split(", "))
    texts = {name: "\n        ".join(each) for name, each in (("layers", layers), ("lines", lines))}
    return TEMPLATE.format(**texts, arguments=arguments, inputs=inputs)


JOINED = module(
    [
        "self.one, self.other = nn.Conv2d(channels, 16, 3, padding=1), nn.Conv2d(channels, 16, 3, padding=1)",
        "self.norm = nn.BatchNorm2d(32)",
    ],
    ["y = torch.cat((self.one(x), self.other(x)), 1)", "return self.norm(y), y"],
)
NAMED = module(
    ["self.norm = nn.BatchNorm2d(2 * channels)"],
    [
        "FIRST, SECOND = torch.tanh(FIRST), torch.exp(SECOND)",
        "return self.norm(torch.cat((FIRST, SECOND), 1)), torch.softmax(torch.cat((SECOND, FIRST), 3), 1)",
    ],
    "FIRST, SECOND",
)
"""Kernels call what they count `rows`, `lead` and so on; so may who writes a module."""


@pytest.mark.parametrize(
    "names",
    ["inside lead", "rows cols", "row_mask mask", "place outer", "inner col_mask", "inside_2 place_2", "start lanes"],
)
def test_names_of_a_module_are_not_those_of_a_kernel(names: str) -> None:
    first, second = names.split()
    text = NAMED.replace("FIRST", first).replace("SECOND", second)
    ways = [["fuse"], ["lower", "lower", "lower", "lower"], ["keep tensors channels last", "fuse"]]
    assert interpret([{"name": "named", "source": text, "ways": ways}]) == {"named": None}


@pytest.mark.parametrize(
    "text",
    [
        JOINED,
        JOINED.replace("2d", "3d").replace("6, 5", "4, 3, 5"),
        JOINED.replace("self.norm(y), y", "torch.relu(y), y").replace(", y), 1)", ", y), 1)"),
        JOINED.replace(
            "torch.cat((self.one(x), self.other(x)), 1)", "torch.cat((self.one(x), self.other(x)), 1).half()"
        ).replace("self.norm(y)", "torch.tanh(y)"),
    ],
    ids=["norm", "volumes", "elementwise", "cast"],
)
def test_what_is_joined_and_kept_lies_channels_last(text: str) -> None:
    ways = [["keep tensors channels last", "fuse"], ["fuse", "keep tensors channels last"]]
    assert interpret([{"name": "joined", "source": text, "ways": ways}]) == {"joined": None}


GROWING = module(
    [
        "self.one, self.two = nn.Conv2d(channels, 8, 3, padding=1), nn.Conv2d(channels + 8, 8, 3, padding=1)",
        "self.first, self.second = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels + 8)",
        "self.drop = nn.Dropout(0.0)",
    ],
    [
        "y = self.drop(self.one(F.relu(self.first(x))))",
        "z = self.drop(self.two(F.relu(self.second(torch.cat((x, y), 1)))))",
        "return RESULT",
    ],
)
RESULTS = {
    "joined": "torch.cat((x, y, z), 1)",
    "two": "torch.cat((y, z), 1).sum((2, 3)), torch.cat((z, y), 1).amax((2, 3))",
    "along_rows": "torch.relu(torch.cat((y, z), 2) * 2).mean(1)",
    "of_batches": "torch.cat((y, z), 0).relu().amax((2, 3))",
    "gated": "torch.cat((y, z), 1)[:, 4:12].sigmoid() * z",
    "chunks": "(lambda a, b: a.sigmoid() * b)(*z.chunk(2, 1))",
    "of_a_slice": "z[:, 2:7].mean((2, 3)) + z[:, :5, 1:, ::2].amax((2, 3))",
}


@pytest.mark.parametrize("name", RESULTS)
def test_kernels_take_what_they_join_channels_last(name: str) -> None:
    text = GROWING.replace("RESULT", RESULTS[name])
    every = "keep tensors channels last around the library's convolutions, and fuse"
    ways = [[every], [every, "compute", "lower all"], ["fuse all", "keep tensors channels last"]]
    assert interpret([{"name": name, "source": text, "ways": ways}]) == {name: None}


def test_what_grows_is_turned_once() -> None:
    task = task_from_source(GROWING.replace("RESULT", "torch.cat((x, y, z), 1), (x + y.sum()).mean(1)"), "growing")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H200"), True)
    [move] = [
        move
        for move in legal_moves(version)
        if move.action.sentence.startswith("keep tensors channels last") and "fuse all" in move.action.sentence
    ]
    assert move.child is not None
    kernels = [stage for stage in move.child.stages if not stage.is_torch and stage.name.startswith("cat")]
    assert kernels and all(dict(stage.schedule).get("layout") == "channels_last" for stage in kernels)
    forward = forward_of(print_plan(task, version.graph, move.child).source)
    assert forward.count("launch_channels_last(x)") == 1 and "in_order" not in forward
