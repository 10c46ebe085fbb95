"""Kernels get tensors that lie as exported, though torch hands out some results as the device likes them."""

from __future__ import annotations

import re

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.lying import is_unsettled
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import text_after
from tests.rewrite.references import reference

LAST = "torch.randn(2, n, 5, 3).to(memory_format=torch.channels_last)"
HEADS = "torch.randn(2, 3, n, 9)"
SEQUENCES = "torch.randn(2, n, 3, 9)"
ATTENTION = "F.scaled_dot_product_attention({0}, {0}, {0})"
SEEN = {
    "attention": (reference(f"{ATTENTION.format('x')} * 2", HEADS), ".contiguous()"),
    "a_view_of_it": (
        reference(f"{ATTENTION.format('x')}.transpose(1, 2).reshape(2, n, 27).tanh()", HEADS),
        ".contiguous()",
    ),
    "attention_of_turned_heads": (
        reference(f"{ATTENTION.format('x.transpose(1, 2)')} * 2", SEQUENCES),
        ".permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3)",
    ),
    "an_enlarged_map": (
        reference("F.interpolate(x, scale_factor=2.0, mode='bilinear').relu()", LAST),
        ".contiguous(memory_format=torch.channels_last)",
    ),
    "what_torch_makes_of_it": (
        reference("F.avg_pool2d(F.interpolate(x, scale_factor=2.0, mode='bilinear'), 2).relu()", LAST),
        ".contiguous(memory_format=torch.channels_last)",
    ),
}
SETTLED = {
    "of_an_input": reference("(x * 2).tanh()", LAST),
    "of_a_layer": reference("self.f(x).tanh()", "torch.randn(n, m)", "self.f = nn.Linear(m, 8)"),
    "of_a_convolution": reference("self.f(x).tanh()", "torch.randn(2, n, 6, 5)", "self.f = nn.Conv2d(n, 8, 3)"),
}
OTHERWISE = """
import torch as _torch
_attends, _enlarges = _torch.nn.functional.scaled_dot_product_attention, _torch.ops.aten.upsample_bilinear2d.vec


def _in_wider_rows(*given, **named):
    found = _attends(*given, **named)
    return _torch.nn.functional.pad(found, (0, 7))[..., : found.shape[-1]]


_torch.nn.functional.scaled_dot_product_attention = _in_wider_rows
_torch.ops.aten.upsample_bilinear2d.vec = lambda *given: _enlarges(*given).contiguous()
"""
"""What a GPU does, done on the CPU."""
LAST_OP = {"attention": "mul", "a_view_of_it": "tanh", "attention_of_turned_heads": "mul"}


def lowered(name: str, source: str) -> str:
    """The version in which the last op alone is a kernel."""
    task = task_from_source(source, "lying")
    return text_after(task, [f"lower {LAST_OP.get(name, 'relu' if 'relu' in source else 'tanh')}"])


@pytest.mark.parametrize("name", SEEN)
def test_what_lies_as_the_device_likes_is_given_as_exported(name: str) -> None:
    source, made = SEEN[name]
    [call] = re.findall(r"= launch_\w+\((.*)\)$", lowered(name, source), re.MULTILINE)
    assert re.fullmatch(r"\w+" + re.escape(made), call.split(", ")[0] if "(" not in made[1:] else call), call


@pytest.mark.parametrize("name", SETTLED)
def test_the_rest_is_given_as_it_is(name: str) -> None:
    source = SETTLED[name]
    [call] = re.findall(r"= launch_\w+\((.*)\)$", lowered(name, source), re.MULTILINE)
    assert re.fullmatch(r"\w+", call)
    graph = export_graph(task_from_source(source, "lying"))
    assert not any(is_unsettled(graph, op) for op in graph.ops)


def test_versions_are_right_where_a_device_has_its_own_way() -> None:
    cases = [
        {"name": name, "source": source, "candidate": OTHERWISE + lowered(name, source)}
        for name, (source, _) in SEEN.items()
    ]
    assert interpret(cases) == dict.fromkeys(SEEN)


ONE = {"b": (2, 1, 3), "n": (64, 6, 19)}
"""A batch that has one element at some shapes."""
ENLARGED = "(lambda y: (F.interpolate(y, scale_factor=2.0, mode='linear'), y))({})"


@pytest.mark.parametrize(
    ("result", "init", "inputs", "zeroed"),
    [
        (
            f"{ENLARGED.format('self.f(x.transpose(1, 2)).transpose(1, 2)')}",
            "self.f = nn.Linear(n, 8)",
            "torch.randn(b, n, 7)",
            True,
        ),
        (f"{ENLARGED.format('x')}", "pass", "torch.randn(b, n, 7).transpose(1, 2)", False),
        (f"{ENLARGED.format('self.f(x).transpose(1, 2)')}", "self.f = nn.Linear(n, 8)", "torch.randn(5, 7, n)", False),
    ],
    ids=["a_layers", "an_input", "of_more_elements"],
)
def test_a_stride_along_one_element_chooses_no_kernel(result: str, init: str, inputs: str, zeroed: bool) -> None:
    """Devices give other ones for what torch makes, and whether one divides by 16 is part of a compiled kernel's key."""
    text = text_after(reference(result, inputs, init, ONE), ["lower upsample"])
    assert bool(re.search(r"\.stride\(0\) \* \(\w+\.shape\[0\] > 1\)", text)) == zeroed
