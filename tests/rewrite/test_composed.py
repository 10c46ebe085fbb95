"""Layers of layers, of enlarged maps and of both side by side, as layers of what those are of."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

MAPS = "torch.randn(2, n, 6, 5)"
PYRAMID = "torch.randn(2, 8, 6, 5), torch.randn(2, n, 3, 2)"
ONE, TWO = "self.f = nn.Conv2d(n, 24, 1)", "self.f, self.g = nn.Linear(n, 40), nn.Linear(40, 24)"
ENLARGED = "F.interpolate({}, scale_factor=2.0, mode='bilinear')"
LAYERS = {
    "two_layers": reference("self.g(self.f(x)).relu()", "torch.randn(5, n)", TWO),
    "three_layers": reference(
        "self.h(self.g(self.f(x)))", "torch.randn(2, 3, n)", f"{TWO}\nself.h = nn.Linear(24, 12, bias=False)"
    ),
    "without_biases": reference(
        "self.g(self.f(x))",
        MAPS,
        "self.f, self.g = nn.Conv2d(n, 40, 1, bias=False), nn.Conv2d(40, 24, 1, bias=False)",
    ),
    "one_bias": reference(
        "self.g(self.f(x)).exp()", MAPS, "self.f, self.g = nn.Conv2d(n, 40, 1), nn.Conv2d(40, 24, 1, bias=False)"
    ),
    "of_an_enlarged_map": reference(f"self.f({ENLARGED.format('x')})", MAPS, ONE),
    "of_one_channels_last": reference(
        f"self.f({ENLARGED.format('x')})", f"{MAPS}.to(memory_format=torch.channels_last)", ONE
    ),
    "of_the_nearest": reference("self.f(F.interpolate(x, size=(12, 7))).relu()", MAPS, ONE),
    "of_a_sequence": reference(
        "self.f(F.interpolate(x, scale_factor=3.0, mode='linear'))", "torch.randn(2, n, 7)", "self.f = nn.Conv1d(n, 8, 1)"
    ),
    "a_skip_connection": reference(
        "self.f(torch.cat((F.interpolate(y, size=x.shape[2:], mode='bicubic'), x), dim=1)).relu()",
        PYRAMID,
        "self.f = nn.Conv2d(n + 8, 24, 1)",
    ),
    "three_maps": reference(
        "self.f(torch.cat((x, F.interpolate(self.g(y), size=x.shape[2:]), F.interpolate(y, size=x.shape[2:])), dim=1))",
        PYRAMID,
        "self.f, self.g = nn.Conv2d(n + 48, 24, 1), nn.Conv2d(n, 40, 1)",
    ),
    "a_layer_of_tokens": reference(
        "self.f(F.interpolate(self.g(x.flatten(2).mT).mT.unflatten(2, x.shape[2:]), scale_factor=2.0, mode='bilinear'))",
        MAPS,
        "self.f, self.g = nn.Conv2d(40, 24, 1), nn.Linear(n, 40)",
    ),
    "tokens_of_maps": reference(
        f"self.g({ENLARGED.format('x')}.flatten(2).transpose(1, 2)).softmax(-1)", MAPS, "self.g = nn.Linear(n, 24)"
    ),
    "tokens_and_a_map_in_halves": reference(
        "self.f(torch.cat((self.g(x.flatten(2).mT).mT.unflatten(2, x.shape[2:]), F.interpolate(y, size=x.shape[2:], "
        "mode='bilinear')), dim=1)).relu()",
        PYRAMID.replace(", torch", ".half(), torch") + ".half()",
        "self.f, self.g = nn.Conv2d(n + 40, 24, 1), nn.Linear(8, 40)\nself.half()",
    ),
    "halves": reference("self.g(self.f(x)).relu()", "torch.randn(5, n).half()", f"{TWO}\nself.half()"),
}  # fmt: skip
OTHERS = {
    "with_work_between": reference("self.g(self.f(x).relu())", "torch.randn(5, n)", TWO),
    "needed_elsewhere": reference("self.g((y := self.f(x))) + y.sum()", "torch.randn(5, n)", TWO),
    "few_channels_between": reference(
        "self.g(self.f(x))", "torch.randn(5, n)", "self.f, self.g = nn.Linear(n, 4), nn.Linear(4, n)"
    ),
    "made_smaller": reference("self.f(F.interpolate(x, scale_factor=0.5))", MAPS.replace("6, 5", "8, 6"), ONE),
    "more_taps": reference(f"self.f({ENLARGED.format('x')})", MAPS, "self.f = nn.Conv2d(n, 24, 3)"),
    "in_groups": reference(f"self.f({ENLARGED.format('x')})", MAPS, "self.f = nn.Conv2d(n, n, 1, groups=n)"),
    "every_second_place": reference(f"self.f({ENLARGED.format('x')})", MAPS, "self.f = nn.Conv2d(n, 24, 1, stride=2)"),
    "made_weights": reference(
        "F.linear(self.f(x), self.g.weight * 2)", "torch.randn(5, n)", TWO
    ),
    "along_other_dimensions": reference(
        "self.g(self.f(x).mT)", "torch.randn(2, m, n)", "self.f, self.g = nn.Linear(n, 40), nn.Linear(m, 24)"
    ),
    "joined_along_places": reference(
        "self.f(torch.cat((F.interpolate(x, size=(9, 5)), x), dim=2))", MAPS, ONE
    ),
    "mostly_at_all_places": reference(
        "self.f(torch.cat((F.interpolate(y, size=x.shape[2:]), x), dim=1))",
        "torch.randn(2, n, 6, 5), torch.randn(2, 2, 3, 5)",
        "self.f = nn.Conv2d(n + 2, 24, 1)",
    ),
}  # fmt: skip


def after(source: str) -> tuple[Graph, tuple[str, ...]]:
    found = apply_rules(export_graph(task_from_source(source, "layers")), "composed")
    return found.graph, found.sentences


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_done_on_less(name: str) -> None:
    graph, sentences = after(LAYERS[name])
    assert sentences and "is done on what that is of" in sentences[0]
    enlarging = [graph.op_places[op.name] for op in graph.ops if "upsample" in op.target]
    wide = [graph.op_places[op.name] for op in graph.ops if "conv" in op.target or "linear.default" in op.target]
    assert not enlarging or min(wide) < max(enlarging), "nothing mixes channels behind all that enlarges"
    assert not [op for op in graph.ops if op.target == "aten.cat.default"]


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert not after(OTHERS[name])[1]


def test_what_stands_around_goes_into_the_products_and_weights_are_multiplied_once() -> None:
    task = task_from_source(LAYERS["tokens_and_a_map_in_halves"], "layers")
    root = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [move for move in legal_moves(root) if "is of, and fuse" in move.action.sentence]
    assert move.child is not None and move.child.packed
    version = Version.of(task, move.child, hardware("H100"))
    assert not [stage for stage in version.kernels() if any("weights" in name for name in stage.ops)]
    once = {stage.name for stage in version.kept()}
    assert any("weights" in name for name in once)
    assert not [move for move in legal_moves(version) if set(move.action.region.name.split(" and ")) <= once]


def test_all_are_right() -> None:
    ways = [["rewrite by algebra", "lower"], ["rewrite by algebra", "fuse all", "fuse", "lower"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in LAYERS.items()]
    assert interpret(cases) == dict.fromkeys(LAYERS)
