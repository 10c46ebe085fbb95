"""Views that a kernel takes in, and work that is not done again for each of its many readers."""

from __future__ import annotations

import re

import pytest

from mtmc.bench.suites.blocks import FOLDER
from mtmc.hardware import hardware
from mtmc.optimizations import Version
from mtmc.optimizations.groups import groups_of
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, root_plan
from mtmc.task import load_task, task_from_source
from tests.rewrite.interpreted import apply
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import text_after
from tests.rewrite.references import reference

FUSE, EVEN = "fuse all", "torch.randn(n, 2 * m)"
TAKEN_IN = {
    "halves": reference("(lambda a, b: torch.sin(a) * b + 1)(*x.chunk(2, -1))", EVEN),
    "a_turn_of_halves": reference(
        "x * y + torch.cat((-x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]), -1) * y", f"{EVEN}, torch.randn(2 * m)"
    ),
    "every_other": reference("x[:, ::2].sin() + x[:, 1::2] * 2", EVEN),
    "views_of_views": reference("x[:, 1:][:, ::2].t().cos() + 1", EVEN),
}
LEFT_OUT = {
    "that_others_read": reference("y = 0", "torch.randn(n, m)").replace(
        "return y = 0", "y = x[:, 1:]\n        return y.sin() + 1, torch.linalg.vector_norm(y, 3.0, -1)"
    ),
    "that_is_a_result": reference("y = 0").replace("return y = 0", "y = x[:, 1:]\n        return y.sin() + 1, y"),
    "of_what_lies_otherwise": reference("x.t()[1:].sin() + 1", "torch.randn(n, m).t().contiguous().t()"),
}
VIEWS = r"torch\.ops\.aten\.(?:slice|chunk|select)|torch\.(?:transpose|permute|t|unsqueeze)\("


def test_views_are_in_the_kernel_that_reads_them() -> None:
    for name, source in TAKEN_IN.items():
        forward = text_after(source, ["fuse"]).rpartition("def forward")[2]
        assert not re.search(VIEWS, forward), (name, forward)
    cases = [
        {"name": name, "source": source, "ways": [["fuse"], ["fuse", "lower"]]} for name, source in TAKEN_IN.items()
    ]
    assert interpret(cases) == dict.fromkeys(TAKEN_IN)


@pytest.mark.parametrize("name", ["that_others_read", "that_is_a_result"])
def test_views_that_others_read_stay(name: str) -> None:
    forward = text_after(LEFT_OUT[name], ["fuse"]).rpartition("def forward")[2]
    assert re.search(VIEWS, forward), forward


def test_all_are_right() -> None:
    cases = [{"name": name, "source": source, "ways": [["fuse"]]} for name, source in LEFT_OUT.items()]
    assert interpret(cases) == dict.fromkeys(LEFT_OUT)


def block(name: str) -> Plan:
    return apply(load_task(FOLDER / name), [FUSE])


def kernels(plan: Plan) -> list[tuple[str, ...]]:
    return [stage.ops for stage in plan.stages if not stage.is_torch]


def test_a_table_of_cosines_for_forty_heads_is_written_down() -> None:
    angles, turns = kernels(block("decoder/rope_qk.py"))
    assert {"cos", "sin"} <= set(angles) and not {"cos", "sin"} & set(turns)
    assert "chunk_" in turns  # the kernels have a chunk of their own


def test_an_activation_is_not_worked_out_for_every_row_of_the_next_layer() -> None:
    found = kernels(block("moe/gathered_experts_decode.py"))
    assert len(found) == 3
    assert not any({"sigmoid", "einsum_1"} <= set(ops) for ops in found)


BROADCAST, OPERANDS = "x * {}[:, None] + 1", "torch.randn(k, n, m), torch.randn(k, m)"


@pytest.mark.parametrize(
    ("function", "sizes", "apart"),
    [
        ("(y.cos() * y.sin())", (64, 4096, 16), True),
        ("(y.cos() * y.sin())", (4, 4096, 16), False),  # each is read four times
        ("(y.cos() * y.sin())", (64, 256, 2), False),  # all of it takes less than a launch
        ("torch.sigmoid(y)", (64, 4096, 16), False),  # memory takes longer
    ],
)
def test_what_stays_apart(function: str, sizes: tuple[int, int, int], apart: bool) -> None:
    n, m, k = sizes
    source = reference(BROADCAST.format(function), OPERANDS)
    task = task_from_source(source.replace("n = 64\nm = 96\nk = 48", f"n = {n}\nm = {m}\nk = {k}"), "apart")
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    *_, group = groups_of(version)
    names = {stage.name for stage in group.stages}
    assert "add" in names and bool(names & {"cos", "sigmoid"}) != apart
