"""What products and convolutions of fp32 numbers start with where it was timed: long and short sums, wide images."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtmc.agents.policies.heuristic import Heuristic
from mtmc.hardware import hardware
from mtmc.observation import Observation
from mtmc.optimizations import KINDS, Version
from mtmc.optimizations.schedule_change import kernel_of
from mtmc.outcome import Outcome
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Stage, root_plan
from mtmc.task import Task, task_from_source
from tests.rewrite.one_product import Settings, interpret_products
from tests.rewrite.references import reference
from tests.rewrite.stepping import actions_on

SIZES = {"a": (2, 3), "b": (6, 5), "c": (5, 7)}


def product(a: int, b: int, c: int, result: str = "x @ y", right: str = "torch.randn(b, c)") -> Task:
    """A product of a x b by b x c at the full shapes."""
    sizes = {name: (size, *SIZES[name]) for name, size in zip(SIZES, (a, b, c), strict=True)}
    return task_from_source(reference(result, f"torch.randn(a, b), {right}", sizes=sizes), "product")


def image(channels: int, filters: int, side: int, made: str = "3, padding=1") -> Task:
    """A convolution of four images."""
    module = f"self.c = nn.Conv2d({channels}, {filters}, {made})"
    return task_from_source(
        reference("self.c(x)", f"torch.randn(4, {channels}, n, n)", module, {"n": (side, 6, 5)}), "c"
    )


def start(task: Task, gpu: str = "H200", tf32_reference: bool = False) -> Stage:
    """The kernel of a task's only operator, as `lower` makes it."""
    version = Version.of(task, root_plan(export_graph(task)), hardware(gpu), tf32_reference)
    [move] = KINDS["lower"].legal(version)
    assert move.child is not None
    [stage] = [stage for stage in move.child.stages if not stage.is_torch]
    return stage


def chosen(stage: Stage, *names: str) -> tuple[int | str | None, ...]:
    """Some of its settings."""
    return tuple(dict(stage.schedule).get(name) for name in names)


@pytest.mark.parametrize(
    ("sizes", "tile", "split"),
    [
        ((256, 524288, 256), (128, 128, 32), 33),  # four tiles for 132 multiprocessors
        ((256, 65536, 512), (128, 128, 32), 16),
        ((128, 65536, 256), (128, 128, 32), 32),  # shares of 2048
        ((64, 65536, 64), (64, 64, 32), 16),  # no side as long as the tile
    ],
)
def test_long_sums_are_shared_by_all_multiprocessors(
    sizes: tuple[int, int, int], tile: tuple[int, int, int], split: int
) -> None:
    found = start(product(*sizes))
    assert chosen(found, "block_m", "block_n", "block_k", "split_k") == (*tile, split)
    assert bool(dict(found.schedule).get("swapped")) == (tile[0] == 128)
    assert (dict(found.schedule).get("operands") == "descriptors") == (tile[0] == 128)


def test_sums_are_not_shared_by_fewer_than_now() -> None:
    """Among 16, 8, ... programs where 33 share them, though there are few programs."""
    task = product(256, 524288, 256)
    version = Version.of(task, root_plan(export_graph(task)), hardware("H200"))
    [move] = KINDS["lower"].legal(version)
    assert move.child is not None
    seen = Observation(task, "", move.child.to_json(), Outcome("ok", 1.0, metrics={"programs": 132.0}), (), "H200")
    actions = actions_on(Version.of(task, move.child, hardware("H200")), "split")
    logits = {int(dict(each.params)["split_k"]): KINDS["split"].logit(seen, each, actions) for each in actions}
    assert {count for count, logit in logits.items() if logit > 0} == {64} and min(logits) == 1


def test_operands_stay_in_their_places_where_the_right_one_lies_as_weights_do() -> None:
    found = start(product(256, 65536, 256, "F.linear(x, y)", "torch.randn(c, b)"))
    assert chosen(found, "block_m", "split_k", "swapped") == (128, 32, 0)
    assert dict(start(product(256, 65536, 256), "A100").schedule).get("swapped") is None


def test_as_many_programs_as_fill_the_chip_are_an_action() -> None:
    """With tiles of 128 x 128, two of them: 66 and the powers of two."""
    task = product(128, 524288, 256)
    version = Version.of(task, root_plan(export_graph(task)), hardware("H200"))
    [move] = KINDS["lower"].legal(version)
    assert move.child is not None
    [stage] = move.child.stages
    fewer = Version.of(task, move.child.with_stage(stage, stage.scheduled({"split_k": 8})), hardware("H200"))
    counts = [dict(action.params)["split_k"] for action in actions_on(fewer, "split")]
    assert counts == [1, 2, 4, 16, 32, 64, 66]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((32768, 32, 32768), (32, 64, 32, 2, "descriptors", 528)),
        ((32768, 64, 32768), (64, 64, 32, 4, "descriptors", None)),
        ((2048, 32, 2048), (64, 64, 32, 4, None, None)),  # the result fits the cache
        ((32768, 30, 32768), (64, 64, 32, 4, None, None)),  # no rows of 16 bytes
    ],
)
def test_large_results_of_short_sums_start_with_small_tiles(
    sizes: tuple[int, int, int], expected: tuple[int | str | None, ...]
) -> None:
    names = ("block_m", "block_n", "block_k", "num_warps", "operands", "persistent")
    assert chosen(start(product(*sizes)), *names) == expected


def test_shared_sums_with_operands_in_each_others_places_are_right() -> None:
    """Also where shares end within a slice, and with work behind them."""
    swapped: dict[str, Settings] = {
        "three": {"swapped": 1, "split_k": 3},
        "five": {"swapped": 1, "split_k": 5, "block_m": 32},
    }
    results = {"plain": "x @ y", "work": "torch.tanh(x @ y + 1)", "weights": "F.linear(x, y.t())"}
    inputs = "torch.randn(n, 7 * k + 1), torch.randn(7 * k + 1, m)"
    cases = {f"{a}_{b}": (text, inputs, way) for a, way in swapped.items() for b, text in results.items()}
    assert interpret_products(cases) == dict.fromkeys(cases)


@pytest.mark.parametrize(
    ("task", "tile", "loop"),
    [
        (image(64, 128, 512), (128, 256, 32), "channels"),
        (image(16, 128, 512), (64, 256, 16), "channels"),  # sums of 144
        (image(32, 64, 512), (64, 256, 16), "channels"),
        (image(32, 96, 512), (128, 128, 32), "channels"),  # fills neither tile
        (image(64, 128, 32), (128, 128, 32), "channels"),  # few positions
        (image(64, 128, 512, "1"), (128, 128, 32), "taps"),  # no taps to go through
    ],
)
def test_wide_images_start_with_wide_tiles(task: Task, tile: tuple[int, int, int], loop: str) -> None:
    found = start(task, tf32_reference=True)
    assert chosen(found, "layout", "precision") == ("channels_last", "tf32_rounded")
    assert chosen(found, "block_m", "block_n", "block_k", "loop") == (*tile, loop)
    exact = start(task)
    assert chosen(exact, "precision", "block_n") == ("tf32x3", 128)


def test_actions_that_were_slower_from_there_come_last() -> None:
    """More stages, more exact products and tiles of half the width, behind wide tiles and those of other sums."""
    task = image(64, 128, 512)
    version = Version.of(task, root_plan(export_graph(task)), hardware("H200"), True)
    [move] = KINDS["lower"].legal(version)
    assert move.child is not None
    child = Version.of(task, move.child, hardware("H200"), True)
    seen = Observation(task, "", move.child.to_json(), Outcome("ok", 1.0), (), "H200")
    actions = actions_on(child)

    def logit(**params: int | str) -> float:
        [found] = [action for action in actions if params.items() <= dict(action.params).items()]
        kernel = kernel_of(seen, found)
        assert kernel is not None and kernel.template == "convolution"
        return KINDS[found.kind].logit(seen, found, actions)

    assert logit(num_stages=4) < 0 and logit(precision="tf32x3") < logit(precision="tf32") <= 0
    assert logit(block_m=64, block_n=256, block_k=16) > logit(block_m=64, block_n=128, block_k=16)
    assert kernel_of(replace(seen, plan=None), actions[0]) is None


@pytest.mark.parametrize("plan", ["", "{}", "[1]", '["a"]', "no JSON at all", '[{"ops": 3}]', '{"stages": []}', "null"])
def test_plans_of_other_coders_have_no_kernels(plan: str) -> None:
    """What the heuristic says of their actions hangs on their parameters alone."""
    task = image(64, 128, 32)
    actions = actions_on(Version.of(task, root_plan(export_graph(task)), hardware("H200")))
    seen = Observation(task, "", plan, Outcome("ok", 1.0), (), "H200")
    assert all(kernel_of(seen, action) is None for action in actions)
    assert len(Heuristic().prior(seen, actions)) == len(actions)
