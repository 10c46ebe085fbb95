"""Pools and depthwise convolutions whose threads make several rows, one above the other."""

from __future__ import annotations

import pytest

from mtmc.errors import MtmcError
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret, interpret_ways
from tests.rewrite.references import reference
from tests.rewrite.spatial_references import WINDOWS
from tests.rewrite.special_references import special
from tests.rewrite.stepping import actions_on, after, version
from tests.rewrite.test_pools_last import TILED

TALL = "torch.randn(2, 3, n + 11, k % 5 + 5)"
OVERLAPPING = {
    **{
        name: text
        for name, text in WINDOWS.items()
        if name.startswith(("max_pool2d", "avg_pool", "pool_", "depthwise"))
    },
    "stride_and_dilation": reference("F.max_pool2d(x, (4, 3), (2, 1), (2, 1), (3, 2))", TALL),
    "high_and_narrow": reference("F.avg_pool2d(x, (11, 1), 1, (5, 0))", TALL),
    "many_taps": reference("F.max_pool2d(x, 7, 1, 3)", TALL),
    "without_edges": reference("F.max_pool2d(x, 3, 1) * 2", TALL),
    "volumes": reference(
        "F.avg_pool3d(x, 3, 1, 1, count_include_pad=False)", "torch.randn(1, 4, n % 4 + 3, 6, k % 5 + 3)"
    ),
    "weights_of_volumes": reference(
        "self.c(x) + y",
        "torch.randn(1, 4, n % 4 + 3, 6, k % 5 + 3), torch.randn(4, 1, 1, 1)",
        "self.c = nn.Conv3d(4, 4, 3, 1, 1, groups=4)",
    ),
    "a_residual": reference("F.max_pool2d(F.gelu(x), 3, 1, 1) + x", TALL),
    "halves": reference("F.max_pool2d(x, 3, 1, 1)", f"{TALL}.half()"),
    "signs": reference("F.max_pool2d(-x.abs(), 3, 1, 1)", TALL),
}
LARGE = {
    "maximum": ("F.max_pool2d(x, 4, 1, 1)", "", (128, 4, "flat")),
    "weights": ("self.c(x)", "self.c = nn.Conv2d(64, 64, 3, groups=64)", (256, 8, "planes")),
    "apart": ("F.avg_pool2d(x, 2)", "", (128, 1, "flat")),
    "half_apart": ("F.max_pool2d(x, 3, 2, 1)", "", (128, 1, "flat")),
    "along_lines": ("F.max_pool2d(x, (1, 3), 1, (0, 1))", "", (128, 1, "flat")),
}


def test_rows_are_right() -> None:
    """Of planes, of elements one after the other, and of more rows than there are."""
    cases = dict(share(list(OVERLAPPING.items()), 2))
    ways = [["fuse", "lower", "make 4 rows"], ["lower", "make 2 rows"], ["lower", "let the programs", "make 16 rows"]]
    assert interpret_ways(cases, ways) == dict.fromkeys(cases)


def test_rows_of_tiles_are_right() -> None:
    """Where channels lie last, in tiles of channels and lanes."""
    ways = [["lower", "keep tensors channels last", "make 4 rows"]]
    ways += [["fuse", "lower", "keep tensors channels last", "make 2 rows", "vectorize"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in share(list(TILED.items()), 2)]
    assert interpret(cases) == {case["name"]: None for case in cases}


def test_maxima_of_special_numbers_are_torchs() -> None:
    """Infinities, NaN, zeros of both signs and whole numbers, one row a thread and several: beyond the edges a maximum of
    nothing but minus infinity is read as that."""
    kinds = {
        "floats": "floats(2, 3, n % 5 + 7, m % 7 + 4)",
        "halves": "floats(2, 3, n % 5 + 7, m % 7 + 4, dtype=torch.float16)",
        "brains": "floats(2, 3, n % 5 + 7, m % 7 + 4, dtype=torch.bfloat16)",
        "least": "torch.full((2, 3, n % 5 + 7, m % 7 + 4), float('-inf'))",
    }
    cases = [
        {"name": name, "source": special("F.max_pool2d(x, 3, 1, 1)", inputs), "ways": [["lower", *more]], "same": True}
        for name, inputs in kinds.items()
        for more in ([], ["make 4 rows"])
    ]
    cases = [{**case, "name": f"{case['name']}_{at % 2}"} for at, case in enumerate(cases)]
    assert interpret(cases) == {case["name"]: None for case in cases}


def test_each_row_is_read_once() -> None:
    """Six rows of the operand for four of the result, and not twelve."""
    task = task_from_source(OVERLAPPING["without_edges"], "rows")
    _, lowered = after(version(task), "lower")
    action, rows = after(lowered, "make 4 rows")
    assert "their windows have rows in common" in action.sentence
    text = print_plan(task, rows.graph, rows.plan).source
    assert "for row in tl.static_range((ROWS - 1) + (KERNEL_H - 1) + 1):" in text and "ROWS=4," in text
    assert text.count("tl.load(") == 1
    _, again = after(rows, "make one row")
    assert "ROWS" not in print_plan(task, again.graph, again.plan).source


@pytest.mark.parametrize("name", ["max_pool1d", "adaptive_avg_pool2d", "avg_pool2d_divisor", "max_pool3d"])
def test_windows_that_share_no_rows_have_no_such_action(name: str) -> None:
    _, lowered = after(version(task_from_source(WINDOWS[name], name)), "lower")
    assert not [action for action in actions_on(lowered, "tile") if action.sentence.startswith("make")]
    [stage] = [stage for stage in lowered.plan.stages if not stage.is_torch]
    with pytest.raises(MtmcError, match=r"windows that do not overlap|windows of different sizes"):
        print_plan(lowered.task, lowered.graph, lowered.plan.with_stage(stage, stage.scheduled({"rows": 4})))


@pytest.mark.parametrize("name", LARGE)
def test_large_images_start_with_several_rows_a_thread(name: str) -> None:
    """Where a thread reads two thirds of what it would, or less, and elements are enough for all threads."""
    text, module, expected = LARGE[name]
    source = reference(text, "torch.randn(4 * n, 64, 128, 128)", module)
    _, lowered = after(version(task_from_source(source, name)), "lower")
    [stage] = [stage for stage in lowered.plan.stages if not stage.is_torch]
    schedule = dict(stage.schedule)
    assert (schedule["block"], schedule.get("rows", 1), schedule["loop"]) == expected


def test_places_of_taps_are_known_at_the_full_shapes() -> None:
    """So they differ by numbers that stand in the instructions; elsewhere sizes are arguments."""
    text = print_plan(*_lowered(WINDOWS["max_pool2d"])).source
    assert "in_h, out_h, in_w, out_w = " in text and "FULL=(x.shape[2], out_h, x.shape[3], out_w) == (" in text
    many = print_plan(*_lowered(OVERLAPPING["many_taps"])).source
    assert "in_h" in many and "in_h, out_h, in_w" not in many


@pytest.mark.parametrize(
    ("name", "beyond", "guards"), [("max_pool2d", 'other=float("-inf")', 0), ("pool_between", "other=0.0", 1)]
)
def test_maxima_read_what_changes_none_beyond_the_edges(name: str, beyond: str, guards: int) -> None:
    """Where no work on what is read makes something else of it."""
    start = version(task_from_source(WINDOWS[name], name))
    _, made = after(start, "fuse" if guards else "lower")
    text = print_plan(made.task, made.graph, made.plan).source
    assert beyond in text and text.count("tl.where(inside_w") == guards


def _lowered(text: str) -> tuple[Task, Graph, Plan]:
    _, lowered = after(version(task_from_source(text, "lowered")), "lower")
    return lowered.task, lowered.graph, lowered.plan


def test_small_images_start_with_a_row_a_thread() -> None:
    _, lowered = after(version(task_from_source(OVERLAPPING["without_edges"], "few")), "lower")
    [stage] = [stage for stage in lowered.plan.stages if not stage.is_torch]
    assert "rows" not in dict(stage.schedule)
