"""How the cache is asked to treat what a kernel reads once: where kernels start so, and what an action changes."""

from __future__ import annotations

import ast
from typing import TypeGuard

import pytest

from mtmc.optimizations import Version
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.eviction import FORGOTTEN, KEPT, POLICY
from mtmc.task import Task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import after, version

REFERENCE = """
import torch
from torch import nn
import torch.nn.functional as F

rows, columns = {rows}, 4096
VARIANTS = {{
    "small": {{"rows": 5, "columns": 320}},
    "odd1": {{"rows": 7, "columns": 33}},
    "odd2": {{"rows": 3, "columns": 129}},
}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns))

    def forward(self, x, y):
        return {result}


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""
ELEMENTWISE, NORM = "torch.relu(x * self.weight) + y", "F.layer_norm(x, (columns,)) * self.weight"
BATCH = "F.batch_norm(x.unsqueeze(1), None, None, training=True)"


def task_of(result: str, rows: int = 16384) -> Task:
    return task_from_source(REFERENCE.format(result=result, rows=rows), "eviction")


def kernels_of(task: Task, gpu: str = "H200") -> Version:
    """All of a task's work as kernels."""
    start = version(task, gpu=gpu)
    try:
        _, at = after(start, "fuse")
    except StopIteration:
        _, at = after(start, "lower")
    return Version.of(task, at.plan, start.hardware)


def loads(at: Version) -> dict[str, str]:
    """The policy of each load of a version by what it reads, "" where it has none."""
    calls = [node for node in ast.walk(ast.parse(print_plan(at.task, at.graph, at.plan).source)) if is_load(node)]
    assert calls
    found = {}
    for call in calls:
        pointer = next(name.id for name in ast.walk(call) if isinstance(name, ast.Name) and name.id.endswith("_ptr"))
        told = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg == "eviction_policy"}
        found[pointer.removesuffix("_ptr")] = told.get("eviction_policy", "")
    return found


def is_load(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.load" and "_ptr" in ast.unparse(node.args[0])


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ELEMENTWISE, {"x": KEPT, "weight": "", "y": KEPT}),
        (NORM, {"x": KEPT, "weight": ""}),
        ("torch.softmax(x, -1) + y", {"x": KEPT, "y": KEPT}),
        ("torch.cumsum(x, -1)", {"x": KEPT}),
        (BATCH, {"unsqueeze": KEPT}),  # by both of its kernels
        ("torch.logsumexp(x, -1)", {"x": ""}),  # it writes little
        ("(x - y).square().mean()", {"x": "", "y": ""}),
        ("torch.roll(x, 1, -1) + y", {"x": "", "y": ""}),  # elements from elsewhere
    ],
    ids=["elementwise", "norm", "softmax", "scan", "split", "rows reduced", "a loss", "elsewhere"],
)
def test_large_kernels_that_write_as_much_keep_what_they_read(result: str, expected: dict[str, str]) -> None:
    assert loads(kernels_of(task_of(result))) == expected


def test_rows_that_several_programs_hold_do_not_start_so() -> None:
    source = REFERENCE.format(result="torch.softmax(x, -1)", rows=4096).replace("4096, 4096", "4096, 393216")
    start = kernels_of(task_from_source(source, "eviction"))
    [kernel] = start.kernels()
    assert kernel.setting("passes") == "shared" and set(loads(start).values()) == {""}


@pytest.mark.parametrize(("rows", "expected"), [(4096, ""), (16384, KEPT)])
def test_what_another_kernel_reads_has_to_be_more_than_the_cache_holds(rows: int, expected: str) -> None:
    """A norm of 67 MB: where it is the result it starts so, before a product that could find it in the cache it does not."""
    _, at = after(version(task_of(f"({NORM}) @ self.weight", rows), gpu="H200"), "fuse layer_norm and mul")
    [norm] = [stage for stage in at.kernels() if stage.template == "rowwise"]
    assert dict(norm.schedule).get(POLICY, "") == expected
    assert loads(kernels_of(task_of(NORM, rows)))["x"] == KEPT


@pytest.mark.parametrize("result", [ELEMENTWISE, NORM, "torch.cumsum(x, -1)"])
def test_neither_small_tensors_nor_other_gpus_start_so(result: str) -> None:
    assert set(loads(kernels_of(task_of(result, rows=1024))).values()) == {""}
    assert set(loads(kernels_of(task_of(result), gpu="A100")).values()) == {""}


@pytest.mark.parametrize(
    "result", [ELEMENTWISE, NORM, "torch.cumsum(x, -1)", BATCH, "torch.logsumexp(x, -1)", "torch.roll(x, 1, -1) + y"]
)
def test_an_action_turns_it_round_and_back(result: str) -> None:
    start = kernels_of(task_of(result))
    [kernel] = start.kernels()
    keeps = dict(kernel.schedule).get(POLICY) == KEPT
    words = ("treat what the", "have the cache keep what the")
    action, turned = after(start, words[not keeps])
    assert (
        action.kind == "reorder" and loads(Version.of(start.task, turned.plan, start.hardware)) != loads(start)
    ) or ("roll" in result)
    _, back = after(turned, words[keeps])
    assert loads(Version.of(start.task, back.plan, start.hardware)) == loads(start)


def test_what_an_earlier_version_made_forgotten_is_still_written_so() -> None:
    start = kernels_of(task_of(NORM))
    [kernel] = start.kernels()
    plan = start.plan.with_stage(kernel, kernel.scheduled({POLICY: FORGOTTEN}))
    assert loads(start.made(plan)) == {"x": FORGOTTEN, "weight": ""}


def test_kernels_that_keep_what_they_read_are_right() -> None:
    ways = {
        "elementwise": (ELEMENTWISE, "fuse"),
        "norm": (NORM, "fuse"),
        "split": (BATCH, "lower"),
        "scan": ("torch.cumsum(x, -1)", "lower"),
    }
    cases = [
        {"name": name, "source": REFERENCE.format(result=result, rows=16384), "ways": [[way]]}
        for name, (result, way) in ways.items()
    ]
    assert interpret(cases) == dict.fromkeys(ways)
