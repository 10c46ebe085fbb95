"""Depthwise convolutions between others of one tap: all of them take their channels last."""

from __future__ import annotations

import pytest

from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

SIZES = {"n": (64, 24, 19), "m": (32, 16, 17), "k": (7, 3, 5)}
HALF = "dtype=torch.bfloat16"
ROWS, MAPS = f"torch.randn(2, 11, n, {HALF})", f"torch.randn(2, n, 6, 5, {HALF})"
PLACES, LAST = f"torch.randn(2, n, 11, {HALF})", f"{MAPS}.to(memory_format=torch.channels_last)"
AROUND = """self.f, self.g = nn.Conv{d}d(n, {wide}, 1), nn.Conv{d}d(m, n, 1)
self.d = nn.Conv{d}d(m, m, k, padding=k // 2, groups=m)
self.b = nn.BatchNorm{d}d(m).eval()
self.b.running_mean, self.b.running_var = torch.randn(m) / 4, torch.rand(m) + 0.5
self.bfloat16()"""


def around(d: int, wide: str = "m") -> str:
    return AROUND.format(d=d, wide=wide)


def of(result: str, inputs: str, init: str) -> str:
    return reference(result, inputs, init, SIZES)


MIXED = {
    "conformer": of(
        "x + self.g(F.silu(self.b(self.d(F.glu(self.f(x.transpose(1, 2)), dim=1))))).transpose(1, 2)",
        ROWS, around(1, "2 * m"),
    ),
    "without_a_gate": of("self.g(F.silu(self.d(self.f(x.transpose(1, 2))))).transpose(1, 2) + x", ROWS, around(1)),
    "of_rows_of_places": of("self.g(torch.relu(self.d(F.glu(self.f(x), dim=1)))) + x", PLACES, around(1, "2 * m")),
    "maps": of("self.g(torch.relu(self.b(self.d(torch.relu(self.f(x)))))) + x", MAPS, around(2)),
    "maps_that_lie_so": of("self.g(torch.relu(self.b(self.d(torch.relu(self.f(x))))))", LAST, around(2)),
    "read_twice": of(
        "(lambda y: self.g(y).sum((2, 3)) + self.g(torch.relu(y)).amax((2, 3)))(self.d(self.f(x)))", MAPS, around(2)
    ),
}  # fmt: skip
OTHERS = {
    "in_fp32": MIXED["maps"].replace(f", {HALF}", "").replace("self.bfloat16()", "pass"),
    "pooled": of("F.max_pool2d(self.d(self.f(x)), 2)", MAPS, around(2)),
    "that_is_returned": of("(lambda y: (y, self.g(y)))(self.d(self.f(x)))", MAPS, around(2)),
    "normed_by_its_images": of("self.g(self.b.train()(self.d(self.f(x))))", MAPS, around(2)),
}


def sentences(source: str) -> tuple[str, ...]:
    return apply_rules(export_graph(task_from_source(source, "mixed")), "channels").sentences


@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_channels_becomes_layers(name: str) -> None:
    found = sentences(MIXED[name])
    for words in ("takes its channels last", "of one tap"):
        assert any(words in each for each in found), words


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert not sentences(OTHERS[name])


def test_a_conformers_convolutions_are_three_kernels_and_a_norm() -> None:
    task = task_from_source(MIXED["conformer"], "mixed")
    root = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    [move] = [
        move for move in legal_moves(root) if "channels last" in move.action.sentence and "fuse" in move.action.sentence
    ]
    assert move.child is not None
    kernels = [stage for stage in move.child.stages if not stage.is_torch]
    assert [stage.template for stage in kernels] == ["matmul", "pointwise", "matmul"]
    gate, taps, last = (set(stage.ops) for stage in kernels)
    assert {"batch_norm", "silu"} <= taps and "add" in last and len([op for op in gate if "half" in op]) == 2


def test_all_are_right() -> None:
    ways = [["rewrite by algebra: conv", "lower"], ["algebra", "fuse all", "lower"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in share(list(MIXED.items()), 2)]
    assert interpret(cases) == {case["name"]: None for case in cases}
