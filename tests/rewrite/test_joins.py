"""Results that kernels write where they are joined: the text, the numbers, at other sizes, and what stays a call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from mtmc.agents.coders.rewriter import Rewriter
from mtmc.agents.facts.gains import Change, change_of
from mtmc.evaluate.lab import LabEvaluator, LabSettings
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Observation
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.joins import joins_of
from mtmc.rewrite.plan import Plan, graph_of, plan_from_json
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source
from tests.breadth import share
from tests.rewrite import stepping
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import PAIR, reference

EXCLUSIVE = reference(
    "torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), torch.cumsum(x.narrow(1, 0, x.size(1) - 1), 1)), 1)"
)
CUBES = "torch.randn(3, n, m), torch.randn(3, k, m)"
CASES = {
    "exclusive": EXCLUSIVE,
    "exclusive_in_the_middle": reference(
        "torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x[:, :-1], 1)), 1)", "torch.randn(3, n, m)"
    ),
    "along_the_first": reference("torch.cat((x.cumsum(0), y.cumsum(0)), 0)", "torch.randn(n, m), torch.randn(k, m)"),
    "rows_and_scans": reference("torch.cat((x.softmax(-1), y.cumsum(-1)), 1)", CUBES),
    "rows_of_which_few_numbers_are_left": reference("torch.cat((x.sum(-1), y.amax(-1)), -1)", CUBES),
    "of_rows_that_lie_apart": reference("torch.cat((x.softmax(1), y.cumsum(1)), 1)", CUBES),
    "across_the_scan": reference("torch.cat((x.cumsum(1), x.flip(1).cumsum(1).flip(1)), 2)", "torch.randn(3, n, m)"),
    "with_what_is_given": reference("torch.cat((x, y.cumsum(-1), x.half().float()), -1)", PAIR),
    "stacked": reference("torch.stack((x.cumsum(1), x.softmax(1), torch.ones_like(x)), 1)"),
    "stacked_last": reference("torch.stack((x.cumsum(1), y.cumsum(0)), -1)", PAIR),
    "elementwise": reference("torch.cat((torch.relu(x).cumsum(-1), torch.relu(x) * 2), -1) + 1"),
    "of_other_kinds": reference(
        "torch.cat((x.bfloat16().cumsum(-1), x.softmax(-1)), 1), torch.cat((y.cumsum(0), y.cumsum(0)), 0)",
        "torch.randn(n, m), torch.randint(0, 9, (n, m))",
    ),
    "twice": reference("torch.cat((torch.cat((x.cumsum(1), y.cumsum(1)), 1), x.cumsum(0)), 1)", PAIR),
    "in_tiles": reference(
        "torch.cat((x.transpose(1, 2) * 2, y.cumsum(1)), 1), torch.cat((y + z.transpose(1, 2), y.sum(2, True) * y), 1)",
        "torch.randn(3, n, m), torch.randn(3, k, n), torch.randn(3, n, k)",
    ),
    "products": reference(
        "torch.cat((self.f(x).relu(), self.g(y), z), -1)",
        "torch.randn(n, k), torch.randn(n, m), torch.randn(n, 3)",
        "self.f, self.g = nn.Linear(k, 24), nn.Linear(m, m)",
    ),
    "products_of_a_batch": reference(
        "torch.cat((torch.bmm(x, y), z.softmax(-1)), 1), torch.cat((z.sum(-1), torch.bmm(x, y.exp()).amax(-1)), 1)",
        "torch.randn(3, n, k), torch.randn(3, k, m), torch.randn(3, n, m)",
    ),
    "products_of_a_long_sum": reference(
        "torch.stack((x @ y, x.amin(-1, keepdim=True).expand(-1, 5) * 2), 1)",
        "torch.randn(n, m), torch.randn(m, 5)",
    ).replace("m = 96", "m = 600000"),
    "convolutions": reference(
        "torch.cat((self.a(x).relu(), self.b(x), F.max_pool2d(x, 3, 1, 1)), 1)",
        "torch.randn(3, 5, n // 2, m // 3)",
        "self.a, self.b = nn.Conv2d(5, 4, 3, padding=1), nn.Conv2d(5, 7, 1)",
    ),
    "convolutions_channels_last": reference(
        "self.c(torch.cat((self.a(x).relu(), x, self.b(x)), 1)), torch.cat((self.a(x), self.b(x)[:, :, 1:]), 2)",
        "torch.randn(3, 8, n // 2, m // 3)",
        "self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)\nself.c = nn.Conv2d(24, 8, 3, padding=1)",
    ),
    "convolution_whose_channels_are_reduced": reference(
        "torch.cat((self.a(x).amax(1, keepdim=True), x.softmax(1)), 1)",
        "torch.randn(3, 8, n // 2, m // 3)",
        "self.a = nn.Conv2d(8, 16, 3, padding=1)",
    ),
    "volumes": reference(
        "torch.cat((self.a(x), F.avg_pool3d(x, 3, 1, 1)), 1)",
        "torch.randn(2, 8, 5, 4, n // 2)",
        "self.a = nn.Conv3d(8, 8, 3, padding=1)",
    ),
    "long_rows_that_programs_share": reference(
        "torch.cat((x - x.mean(-1, keepdim=True), x.cumsum(-1)), 0), torch.cat((x.sum(-1), x.amax(-1)))",
    ).replace("m = 96", "m = 100000"),
}
"""Each is at odd shapes, too."""


def version(source: str, way: list[str]) -> tuple[Task, Plan, str]:
    task = task_from_source(source, "joins")
    plan = apply(task, way)
    return task, plan, print_plan(task, graph_of(export_graph(task), plan), plan).source


def forward(text: str) -> str:
    return text[text.index("    def forward(") :]


def test_they_are_right_at_all_shapes() -> None:
    ways = [["lower", "join", "join"]]
    cases = [{"name": name, "source": text, "ways": ways} for name, text in share(list(CASES.items()), 2)]
    assert interpret(cases) == {case["name"]: None for case in cases}


def test_fused_with_what_comes_before_and_where_there_is_nothing() -> None:
    """A part has no elements, numbers are none, and convolutions and products have their activations in them."""
    fused = ("products", "convolutions", "convolutions_channels_last", "volumes", "exclusive")
    cases: list[dict[str, Any]] = [{"name": f, "source": CASES[f], "ways": [["fuse", "lower", "join"]]} for f in fused]
    _, _, text = version(EXCLUSIVE, ["lower cumsum", "join"])
    cases.append({"name": "one_column", "source": EXCLUSIVE.replace('"m": 7', '"m": 1'), "candidate": text})
    numbers = reference("torch.cat((torch.where(x > 1.0, torch.nan, x).abs(), x[:, :3].neg()), 1)")
    cases.append({"name": "none", "source": numbers, "ways": [["lower", "join"]], "same": True})
    assert interpret(cases) == {case["name"]: None for case in cases}


@pytest.mark.parametrize("name", share(list(CASES), 2))
def test_there_is_one_in_each(name: str) -> None:
    task, plan, text = version(CASES[name], ["lower", "join", "join"])
    assert joins_of(export_graph(task), plan)
    assert re.search(r"launch_\w+\(.*\.(narrow|select)\(", forward(text), re.DOTALL)
    assert plan_from_json(plan.to_json()) == plan


def test_nothing_is_left_of_a_call_whose_operands_are_written() -> None:
    """Whatever came before: the zeros and the call as one kernel, or the call alone as one."""
    for way in (["lower cumsum", "join"], ["fuse", "lower", "join"], ["lower cumsum", "lower cat", "join"]):
        _, _, text = version(EXCLUSIVE, way)
        called = forward(text)
        assert "cat.narrow(1, 0, 1).fill_(0)" in called and "zeros_like" not in called, way
        assert "torch.cat" not in text and called.count("launch_") == 1, way
        assert "cat = torch.empty((x.shape[0], x.shape[1]), " in called, way


def test_settings_and_fusions_keep_it() -> None:
    source = reference("torch.cat((torch.cumsum(x, 1), (y * 2).softmax(-1)), 1)", PAIR)
    _, plan, text = version(source, ["lower", "join", "retile the cumsum", "fuse mul and softmax", "direct_launch"])
    assert plan.direct_launch and len(plan.stages) == 3
    assert "cumsum, cat.narrow(" not in text and forward(text).count("cat.narrow(") == 2
    assert "_again(" not in text  # parts of one tensor lie between each other, so their launches are not remembered


def test_what_is_turned_already_is_copied_as_it_lies() -> None:
    """A result that lies channels last is given the copy of an operand that does so, too."""
    source = reference(
        "torch.cat((x, self.a(x), F.silu(self.b(x))), 1)",
        "torch.randn(2, 16, 6, n)",
        "self.a, self.b = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(16, 8, 1)",
    )
    _, _, text = version(source, ["lower", "lower", "join", "join"])
    assert ".copy_(x_last)" in forward(text) and ".copy_(x)" not in forward(text)
    assert interpret([{"name": "turned", "source": source, "candidate": text}]) == {"turned": None}


def test_what_something_else_reads_is_copied_or_stays_a_call() -> None:
    twice = "((s := torch.cumsum(x, 1)) * 2, torch.cat((s, y.cumsum(1)), 1))"
    _, _, text = version(reference(twice, PAIR), ["lower", "join"])
    assert "cat.narrow(1, 0, cumsum.shape[1]).copy_(cumsum)" in forward(text)
    for result in (
        "((s := torch.cumsum(x, 1)), torch.cat((s, x), 1))",  # handed out
        "torch.cat((torch.cumsum(x, 1),) * 2, 1)",  # at two places
        "torch.cat((torch.cumsum(x, 1), y.double()), 1)",  # of another dtype
        "torch.cat((torch.cumsum(x, 1).t(), y.t()), 0)",  # a view
        "torch.cat((torch.relu(x), torch.sigmoid(y)), 1)",  # done by one kernel
    ):
        task, plan, _ = version(reference(result, PAIR), ["lower", "fuse", "join"])
        assert not joins_of(export_graph(task), plan), result


TWO_MODULES = reference(
    "self.e(torch.cat((self.c(y := torch.cat((self.a(x).relu(), self.b(x).relu()), 1)).relu(), self.d(y).relu()), 1))",
    "torch.randn(n, 8, m, m)",
    "self.a, self.b, self.c = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(24, 8, 1)\n"
    "self.d, self.e = nn.Conv2d(24, 16, 3, padding=1), nn.Conv2d(24, 3, 1)",
    {"n": (4, 2, 3), "m": (12, 6, 5)},
)


def test_a_network_of_modules_takes_three_steps() -> None:
    """As SqueezeNet, of which three steps make half by estimate: 25 convolutions, their activations, seven joins."""
    way = ["lower all 4 convolutions of many channels", "fuse all neighbours", "have 4 results written where 2 calls"]
    task, plan, text = version(TWO_MODULES, way)
    assert len(joins_of(export_graph(task), plan)) == 2
    called = forward(text)
    assert called.count("launch_") - called.count("launch_channels_last") == 4 and "torch.cat" not in called
    assert called.count("conv2d(") == 1  # three channels are few
    assert interpret([{"name": "it", "source": TWO_MODULES, "ways": [way]}]) == {"it": None}


def test_one_step_does_all_of_it() -> None:
    """What three do, and filters are kept; a pool, which takes the library several passes, is a kernel as well."""
    step = "lower all 4 convolutions of many channels to Triton kernels, fuse what is around them"
    source = TWO_MODULES.replace("self.b(x)", "F.max_pool2d(self.b(x), 3, 1, 1)")
    task, plan, text = version(source, [step])
    assert plan.packed and len(joins_of(export_graph(task), plan)) == 2
    called = forward(text)
    assert "torch.cat" not in called and "functional.max_pool2d" not in called
    assert called.count("conv2d(") == 1  # that of three channels, which are few
    assert interpret([{"name": "it", "source": source, "ways": [[step]]}]) == {"it": None}
    assert not [
        each for each in stepping.actions_on(stepping.version(task, plan)) if each.sentence.startswith("lower all")
    ]


def test_what_is_joined_may_be_as_large_as_nothing_at_hand() -> None:
    """As an Inception module's channels, 192 + 208 + 48 + 64, which is the size of no weight."""
    source = reference(
        "torch.cat((self.a(x).relu(), self.b(x).relu()), 1)",
        "torch.randn(n, 8, m, m)",
        "self.a, self.b = nn.Conv2d(8, j, 1), nn.Conv2d(8, k, 3, padding=1)",
        {"n": (4, 2, 3), "m": (12, 6, 5), "j": (16, 8, 12), "k": (11, 9, 13)},
    )
    way = ["lower all 2 convolutions", "fuse all neighbours", "join"]
    _, _, text = version(source, way)
    assert "torch.cat" not in forward(text)
    assert "(x.shape[0], self.a.weight.shape[0] + self.b.weight.shape[0], x.shape[2]" in forward(text)
    assert interpret([{"name": "it", "source": source, "ways": [way]}]) == {"it": None}


BLOCK_OF_LAYERS = reference(
    "self.join(torch.cat((x, self.b(torch.cat((x, (a := self.a(x).softmax(1))), 1)).softmax(1)), 1))",
    "torch.randn(n, 8, m, m)",
    "self.a, self.b = nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(12, 4, 3, padding=1)\nself.join = nn.Conv2d(12, 8, 1)",
    {"n": (4, 2, 3), "m": (12, 6, 5)},
)


@pytest.fixture(scope="module")
def lab() -> Iterator[LabEvaluator]:
    with LabSettings(workers=1).open() as opened:
        yield opened


def test_the_lab_takes_them_and_counts_a_copy_less(lab: LabEvaluator) -> None:
    few, all_of_it = ["lower softmax", "lower cumsum"], ["lower", "fuse"]
    exclusive = EXCLUSIVE.replace("n = 64", "n = 512").replace("m = 96", "m = 2048")
    for source, way in ((exclusive, few), (BLOCK_OF_LAYERS, few), (BLOCK_OF_LAYERS, all_of_it)):
        task, _, before = version(source, way)
        _, _, after = version(source, [*way, "join"])
        outcomes = lab.evaluate([EvaluationRequest(task, text, 0, "verify") for text in (before, after)])
        assert [outcome.status for outcome in outcomes] == ["ok", "ok"], outcomes
        assert ".narrow(" in forward(after)
        assert outcomes[1].metrics["bytes_moved"] < outcomes[0].metrics["bytes_moved"]


def test_what_it_leaves_out_is_what_the_call_reads_and_writes() -> None:
    task, plan, text = version(EXCLUSIVE, ["lower cumsum"])
    seen = Observation(task, text, plan.to_json(), Outcome("ok", 1.0), (), "H100")
    [action] = [action for action in Rewriter().actions(seen, []) if action.kind == "join"]
    assert action.sentence.startswith("have cumsum written where cat joins them, line")
    assert change_of(seen, action) == Change(1, 2 * 64 * 96 * 4)
