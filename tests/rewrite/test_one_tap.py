"""Convolutions of one tap as products of matrices."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.optimizations.resources import shared_bytes
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import Graph, lies_channels_last
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.templates.product_loads import left_tiles
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

HALF = ".bfloat16()"
MAPS = f"torch.randn(2, n, 6, 5){HALF}"
LAST = f"torch.randn(2, n, 6, 5){HALF}.to(memory_format=torch.channels_last)"


def module(layers: str) -> str:
    return f"{layers}\nself.bfloat16()"


ONE = module("self.f = nn.Conv2d(n, 24, 1)")
TWO = module("self.f, self.g = nn.Conv2d(n, 24, 1), nn.Conv2d(24, 16, 1, bias=False)")
LAYERS = {
    "first_channels": reference("self.f(x)", MAPS, ONE),
    "last_channels": reference("self.f(x)", LAST, ONE),
    "without_a_bias": reference("self.f(x).relu() + 1", MAPS, module("self.f = nn.Conv2d(n, 24, 1, bias=False)")),
    "sequences": reference(
        "torch.sigmoid(self.f(x))", f"torch.randn(2, n, 7){HALF}", module("self.f = nn.Conv1d(n, 24, 1)")
    ),
    "volumes": reference(
        "self.f(x)", f"torch.randn(2, n, 3, 4, 2){HALF}", module("self.f = nn.Conv3d(n, 24, 1)")
    ),
    "two_of_them": reference("self.g(torch.relu(self.f(x)))", MAPS, TWO),
    "two_of_last_channels": reference("self.g(torch.relu(self.f(x)))", LAST, TWO),
    "of_what_is_joined": reference(
        "self.f(torch.cat((x, y), dim=1))",
        f"{MAPS}, torch.randn(2, 8, 6, 5){HALF}",
        module("self.f = nn.Conv2d(n + 8, 24, 1)"),
    ),
    "of_joined_ones_last": reference(
        "self.f(torch.cat((x, y), dim=1))", f"{LAST}, {LAST}", module("self.f = nn.Conv2d(2 * n, 24, 1)")
    ),
    "of_what_is_enlarged": reference(
        "self.f(F.interpolate(x, scale_factor=2.0, mode='bilinear')) + 1", LAST, ONE
    ),
    "beside_one_of_more_taps": reference(
        "self.g(self.f(x).relu())",
        MAPS,
        module("self.f, self.g = nn.Conv2d(n, 24, 1), nn.Conv2d(24, 8, 3, padding=1)"),
    ),
    "before_one_of_more_taps": reference(
        "self.h(torch.relu(self.b(self.g(torch.relu(self.f(x))))))",
        MAPS,
        module(
            "self.f, self.g = nn.Conv2d(n, 24, 1), nn.Conv2d(24, 24, 3, padding=1)\n"
            "self.b, self.h = nn.BatchNorm2d(24).eval(), nn.Conv2d(24, n, 1)"
        ),
    ),
    "before_two_of_more_taps": reference(
        "(lambda y: self.g(y).sum((2, 3)) + self.h(y.sigmoid()).amax((2, 3)))(self.f(x).relu())",
        MAPS,
        module("self.f, self.g, self.h = nn.Conv2d(n, 24, 1), nn.Conv2d(24, 8, 3), nn.Conv2d(24, 8, 3)"),
    ),
    "of_one_image": reference("self.f(x).relu()", LAST.replace("(2,", "(1,"), ONE),
    "at_one_place": reference("self.f(x).relu()", f"torch.randn(3, n, 1, 1){HALF}", ONE),
    "of_a_mean": reference(
        "x * torch.sigmoid(self.f(x.mean((2, 3), keepdim=True)))", MAPS, module("self.f = nn.Conv2d(n, n, 1)")
    ),
    "with_its_operand": reference("x + self.f(F.gelu(x))", LAST, module("self.f = nn.Conv2d(n, n, 1)")),
    "twice": reference("self.f(x) + self.f(x.flip(2))", MAPS, ONE),
    "seen_otherwise": reference("self.f(x).flatten(2).softmax(-1)", MAPS, ONE),
    "with_a_norm": reference("self.b(self.f(x)).relu()", MAPS, ONE + "\nself.b = nn.BatchNorm2d(24).bfloat16().eval()"),
}  # fmt: skip
OTHERS = {
    "more_taps": reference("self.f(x)", MAPS, module("self.f = nn.Conv2d(n, 24, 3)")),
    "every_second_place": reference("self.f(x)", MAPS, module("self.f = nn.Conv2d(n, 24, 1, stride=2)")),
    "of_a_slice": reference("self.f(x[:, :, 1:, ::2])", MAPS, ONE),
    "padded": reference("self.f(x)", MAPS, module("self.f = nn.Conv2d(n, 24, 1, padding=1)")),
    "in_groups": reference("self.f(x)", MAPS, module("self.f = nn.Conv2d(n, n, 1, groups=n)")),
    "in_fp32": reference("self.f(x)", "torch.randn(2, n, 6, 5)", "self.f = nn.Conv2d(n, 24, 1)"),
    "transposed": reference("self.f(x)", MAPS, module("self.f = nn.ConvTranspose2d(n, 24, 1)")),
    "one_image": reference("self.f(x)", f"torch.randn(n, 6, 5){HALF}", ONE),
}  # fmt: skip


def after(source: str) -> tuple[Graph, tuple[str, ...]]:
    found = apply_rules(export_graph(task_from_source(source, "taps")), "one_tap")
    return found.graph, found.sentences


def joined(source: str) -> Version:
    """The version after the move that makes kernels of the layers."""
    task = task_from_source(source, "taps")
    root = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [move for move in legal_moves(root) if "stands around that" in move.action.sentence]
    assert move.child is not None
    return Version.of(task, move.child, hardware("H100"))


@pytest.mark.parametrize("name", LAYERS)
def test_no_convolution_of_one_tap_is_left(name: str) -> None:
    graph, sentences = after(LAYERS[name])
    assert sentences and "of one tap" in sentences[0]
    left = [op for op in graph.ops if "conv" in op.target]
    assert len(left) == {"beside_one_of_more_taps": 1, "before_one_of_more_taps": 1, "before_two_of_more_taps": 2}.get(
        name, 0
    )


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert not after(OTHERS[name])[1]


def test_the_result_lies_as_the_references_does() -> None:
    first, last = after(LAYERS["first_channels"])[0], after(LAYERS["last_channels"])[0]
    for graph, target in ((first, "aten.matmul.default"), (last, "aten.linear.default")):
        assert target in [op.target for op in graph.ops]
        assert not [op for op in graph.ops if "contiguous" in op.target], "nothing is copied"


def test_what_is_read_by_more_taps_lies_channels_last() -> None:
    """So the library copies neither its operand nor its result, and what is made of that is what the reference's is."""
    for name, last in (
        ("before_one_of_more_taps", True),
        ("before_two_of_more_taps", True),
        ("beside_one_of_more_taps", False),
    ):
        graph = after(LAYERS[name])[0]
        for op in (op for op in graph.ops if "conv" in op.target):
            assert lies_channels_last(graph.values[op.args[0].name]) is last, name
            assert lies_channels_last(graph.values[op.outputs[0]]) is last, name
        assert not [op for op in graph.ops if "contiguous" in op.target], "nothing is copied"


def test_what_is_read_at_several_places_takes_as_many_tiles() -> None:
    wide = {"of_what_is_enlarged": 4, "of_joined_ones_last": 2, "two_of_last_channels": 1}
    for name, loads in wide.items():
        version = joined(LAYERS[name].replace("n = 64", "n = 256"))
        stages = [stage for stage in version.plan.stages if stage.template == "matmul"]
        assert max(left_tiles(version.graph, stage.ops) for stage in stages) == loads, name
        for stage in stages:
            assert shared_bytes(version.graph, stage) <= hardware("H100").shared_per_block


@pytest.mark.parametrize("name", ["with_its_operand", "of_what_is_enlarged", "two_of_last_channels"])
def test_work_behind_channels_that_lie_last_goes_into_the_product(name: str) -> None:
    stages = joined(LAYERS[name]).working()
    assert [stage.template for stage in stages] == ["matmul"] * len(stages)


def test_what_is_read_elsewhere_leaves_room_in_shared_memory() -> None:
    """The largest tile, beside a map that is enlarged behind the product, asked for 246 kB of an H100's 232."""
    text = "self.f(x) + F.interpolate(y, scale_factor=2.0, mode='nearest')"
    inputs = f"torch.randn(8, n, 64, 64){HALF}, torch.randn(8, 256, 32, 32){HALF}"
    source = reference(text, inputs, module("self.f = nn.Conv2d(n, 256, 1)")).replace("n = 64", "n = 1024")
    [stage] = joined(source).working()
    assert stage.template == "matmul" and int(stage.setting("block_m")) * int(stage.setting("block_n")) <= 128 * 128


def test_all_are_right() -> None:
    ways = [
        ["rewrite by algebra", "lower"],
        ["rewrite by algebra", "fuse all", "fuse", "lower"],
        ["rewrite by algebra", "fuse", "lower"],
    ]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in LAYERS.items()]
    assert interpret(cases) == dict.fromkeys(LAYERS)
