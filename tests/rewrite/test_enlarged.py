"""Convolutions of maps that were enlarged by their nearest places, as transposed convolutions of the maps."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

MAPS, SMALL = "torch.randn(2, n, 6, 5)", "torch.randn(2, n, 3, 4, 2)"
TWICE = "F.interpolate({}, scale_factor=2.0)"
LAYER = "self.f = nn.Conv2d(n, 24, 3, padding=1)"
ENLARGED = {
    "twice": reference(f"self.f({TWICE.format('x')})", MAPS, LAYER),
    "repeated": reference("self.f(x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)).relu()", MAPS, LAYER),
    "repeated_in_one_dimension": reference("self.f(x.repeat_interleave(3, -1))", MAPS, LAYER),
    "to_a_size": reference("self.f(F.interpolate(x, size=(12, 20)))", MAPS, "self.f = nn.Conv2d(n, 8, 5, padding=2)"),
    "exactly_the_nearest": reference("self.f(F.interpolate(x, scale_factor=3.0, mode='nearest-exact'))", MAPS, LAYER),
    "by_a_layer_without_padding": reference(
        "torch.tanh(self.f(self.up(x + 1)))", MAPS,
        "self.up, self.f = nn.Upsample(scale_factor=2), nn.Conv2d(n, 8, 3, bias=False)",
    ),
    "taps_and_padding_of_each_dimension": reference(
        f"self.f({TWICE.format('x')})", MAPS, "self.f = nn.Conv2d(n, 8, (2, 5), padding=(1, 3))"
    ),
    "two_layers_and_a_norm": reference(
        f"self.g({TWICE.format(f'self.norm(self.f({TWICE})).relu()')})".format("x"), MAPS,
        f"{LAYER}\nself.g, self.norm = nn.Conv2d(24, 8, 3, padding=1), nn.GroupNorm(4, 24)",
    ),
    "twice_in_a_row": reference(f"self.f({TWICE.format(TWICE.format('x'))})", MAPS, LAYER),
    "channels_last": reference(
        f"self.f({TWICE.format('x')})", f"{MAPS}.to(memory_format=torch.channels_last)", LAYER
    ),
    "a_volume": reference(f"self.f({TWICE.format('x')})", SMALL, "self.f = nn.Conv3d(n, 8, 3, padding=1)"),
    "a_sequence": reference(
        "self.f(F.interpolate(x, scale_factor=4.0))", "torch.randn(2, n, 7)", "self.f = nn.Conv1d(n, 8, 3, padding=1)"
    ),
    "halves": reference(f"self.f({TWICE.format('x')})", f"{MAPS}.half()", f"{LAYER}\nself.half()"),
    "bfloat16": reference(f"self.f({TWICE.format('x')})", f"{SMALL}.bfloat16()",
                          "self.f = nn.Conv3d(n, 8, 3, padding=1)\nself.bfloat16()"),
}  # fmt: skip
OTHERS = {
    "one_tap": reference(f"self.f({TWICE.format('x')})", MAPS, "self.f = nn.Conv2d(n, 24, 1)"),
    "not_by_a_whole_number": reference("self.f(F.interpolate(x, size=(9, 10)))", MAPS, LAYER),
    "made_smaller": reference("self.f(F.interpolate(x, scale_factor=0.5))", MAPS, LAYER),
    "by_means": reference("self.f(F.interpolate(x, scale_factor=2.0, mode='bilinear'))", MAPS, LAYER),
    "needed_elsewhere": reference(f"self.f(y := {TWICE.format('x')}) + y.sum()", MAPS, LAYER),
    "more_padding_than_taps": reference(f"self.f({TWICE.format('x')})", MAPS, "self.f = nn.Conv2d(n, 8, 3, padding=3)"),
    "every_second_place": reference(f"self.f({TWICE.format('x')})", MAPS, "self.f = nn.Conv2d(n, 8, 3, 2, 1)"),
    "taps_apart": reference(f"self.f({TWICE.format('x')})", MAPS, "self.f = nn.Conv2d(n, 8, 3, padding=2, dilation=2)"),
    "in_groups": reference(f"self.f({TWICE.format('x')})", MAPS, "self.f = nn.Conv2d(n, n, 3, padding=1, groups=n)"),
    "padded_by_its_border": reference(
        f"self.f({TWICE.format('x')})", MAPS, "self.f = nn.Conv2d(n, 8, 3, padding=1, padding_mode='replicate')"
    ),
    "channels_too": reference("self.f(x.repeat_interleave(2, 1))", MAPS, "self.f = nn.Conv2d(2 * n, 8, 3)"),
    "made_weights": reference(
        f"F.conv2d({TWICE.format('x')}, self.f.weight * 2, padding=1)", MAPS, LAYER
    ),
}  # fmt: skip


def after(source: str) -> tuple[Graph, tuple[str, ...]]:
    found = apply_rules(export_graph(task_from_source(source, "enlarged")), "enlarged")
    return found.graph, found.sentences


@pytest.mark.parametrize("name", ENLARGED)
def test_the_map_itself_is_convolved(name: str) -> None:
    graph, sentences = after(ENLARGED[name])
    assert sentences and "is a transposed convolution of the map" in sentences[0]
    left = [op.target for op in graph.ops if any(each in op.target for each in ("upsample", "repeat", "conv"))]
    assert left and all("conv_transpose" in each for each in left)


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert not after(OTHERS[name])[1]


def test_weights_are_made_once() -> None:
    task = task_from_source(ENLARGED["halves"], "enlarged")
    root = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [move for move in legal_moves(root) if "transposed convolution of the map" in move.action.sentence]
    assert move.child is not None and move.child.packed
    version = Version.of(task, move.child, hardware("H100"))
    kept = {stage.name for stage in version.kept()}
    assert {"conv2d_flipped", "conv2d_summed", "conv2d_weights"} <= kept and "conv2d_turned" not in kept


def test_all_are_right() -> None:
    ways = [["rewrite by algebra", "lower"], ["rewrite by algebra", "keep tensors channels last", "fuse", "lower"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in share(list(ENLARGED.items()), 3)]
    assert interpret(cases) == {case["name"]: None for case in cases}
