"""What a kernel joins from parts: it is written where it lies, and a kernel's own names are no others."""

from __future__ import annotations

import pytest

from tests.rewrite.interpreting import interpret

JOINED = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one, self.other = nn.Conv2d(channels, 16, 3, padding=1), nn.Conv2d(channels, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)

    def forward(self, x):
        y = torch.cat((self.one(x), self.other(x)), 1)
        return self.norm(y), y


def get_inputs():
    return [torch.randn(BATCH, 16, 6, 5)]


def get_init_inputs():
    return [16]


BATCH = 8
VARIANTS = {"small": {"BATCH": 2}, "odd1": {"BATCH": 3}}
"""


NAMED = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(2 * channels)

    def forward(self, FIRST, SECOND):
        FIRST, SECOND = torch.tanh(FIRST), torch.exp(SECOND)
        return self.norm(torch.cat((FIRST, SECOND), 1)), torch.softmax(torch.cat((SECOND, FIRST), 3), 1)


def get_inputs():
    return [torch.randn(BATCH, 16, 6, 5), torch.randn(BATCH, 16, 6, 5)]


def get_init_inputs():
    return [16]


BATCH = 8
VARIANTS = {"small": {"BATCH": 2}, "odd1": {"BATCH": 3}}
"""
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
