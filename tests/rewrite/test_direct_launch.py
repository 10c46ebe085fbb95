"""Launches that go straight to compiled kernels: the text, and when a launch takes the short way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from mtmc.evaluate.audit.audit import audit
from mtmc.evaluate.lab import LabEvaluator, LabSettings
from mtmc.hardware import hardware
from mtmc.optimizations import KINDS, Version, legal_moves
from mtmc.optimizations.version import CallTimes
from mtmc.protocols import EvaluationRequest
from mtmc.rewrite.direct_launch import CLASS, HELPER, is_noted, launched_directly
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of, plan_from_json, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, load_task, task_from_source
from tests.breadth import share


class Compiled:
    """As Triton's compiled kernel: launched over a grid of three numbers with all arguments in order."""

    def __init__(self, loaded: bool = True) -> None:
        self.module = object() if loaded else None
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        assert len(grid) == 3
        return lambda *given: self.launches.append((grid, *given))


class Kernel:
    """As Triton's jitted function; each launch gives another compiled kernel, so that who is asked shows."""

    def __init__(self, loaded: bool = True) -> None:
        self.loaded, self.made = loaded, list[Compiled]()

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*given: Any, **options: Any) -> Compiled:
            self.made.append(Compiled(self.loaded))
            return self.made[-1]

        return launch


def wrapped(kernel: Any) -> Any:
    names: dict[str, Any] = {"torch": torch}
    exec(HELPER, names)
    return names[CLASS](lambda grid, *given, **options: kernel[grid](*given, **options), ("WIDE", "BLOCK"))


def test_what_is_alike_goes_straight_to_what_was_compiled() -> None:
    kernel, x, y = Kernel(), torch.zeros(64), torch.ones(32)
    launches = wrapped(kernel)
    for given in (x, y, x):
        launches[(given.numel() // 8,), None](given, 64, WIDE=False, BLOCK=8, num_warps=4)
    [compiled] = kernel.made
    assert [(grid, bool(given is y), n, *rest) for grid, given, n, *rest in compiled.launches] == [
        ((4, 1, 1), True, 64, False, 8),
        ((8, 1, 1), False, 64, False, 8),
    ]


def test_descriptors_are_told_apart_by_what_they_are_compiled_for() -> None:
    def descriptor(tensor: torch.Tensor, *block: int) -> Any:
        return type("Descriptor", (), {"base": tensor, "block_shape": list(block), "__hash__": None})()

    kernel = Kernel()
    launches, one, half = wrapped(kernel), torch.zeros(64), torch.zeros(64).half()
    for given in (descriptor(one, 8, 8), descriptor(one + 1, 8, 8), descriptor(one, 8, 16), descriptor(half, 8, 8)):
        launches[(8,), None](given, 64, WIDE=False, BLOCK=8)
    assert [len(compiled.launches) for compiled in kernel.made] == [1, 0, 0]


@pytest.mark.parametrize(
    ("given", "n", "options"),
    [
        (torch.zeros(64, dtype=torch.float16), 64, {}),
        (torch.zeros(65)[1:], 64, {}),  # another alignment
        (torch.zeros(64), 65, {}),
        (torch.zeros(64), 64, {"BLOCK": 16}),
        (torch.zeros(64), 64, {"WIDE": True}),
        (torch.zeros(64), 64, {"num_warps": 8}),
    ],
)
def test_what_another_kernel_is_compiled_for_takes_the_long_way(given: Any, n: int, options: dict[str, Any]) -> None:
    kernel = Kernel()
    launches, usual = wrapped(kernel), {"WIDE": False, "BLOCK": 8, "num_warps": 4}
    launches[(8,), None](torch.zeros(64), 64, **usual)
    launches[(8,), None](given, n, **{**usual, **options})
    assert len(kernel.made) == 2 and not kernel.made[0].launches


@pytest.mark.parametrize(
    "kernel",
    [Kernel(loaded=False), type("Interpreted", (Kernel,), {"__getitem__": lambda *_: lambda *_, **__: None})()],
)
def test_where_nothing_was_loaded_each_launch_takes_the_long_way(kernel: Any) -> None:
    """In the interpreter, and where a version is compiled without a GPU."""
    launches = wrapped(kernel)
    for _ in range(3):
        launches[(8,), None](torch.zeros(64), 64, WIDE=False, BLOCK=8)
    assert not launches.known


def test_no_more_kinds_are_remembered_than_fit() -> None:
    launches = wrapped(Kernel())
    for n in range(launches.MOST + 10):
        launches[(8,), None](torch.zeros(64), n, WIDE=False, BLOCK=8)
    assert len(launches.known) == 10


def version_of(task: Task) -> Version:
    """All ops in kernels, as far as there are templates."""
    plan, gpu = root_plan(export_graph(task)), hardware("H100")
    while True:
        version = Version.of(task, plan, gpu)
        children = [move.child for move in legal_moves(version) if move.action.kind in ("lower", "fuse")]
        if not children or children[0] is None:
            return version
        plan = children[0]


@pytest.fixture(scope="module")
def lab() -> Iterator[LabEvaluator]:
    with LabSettings(workers=1).open() as opened:
        yield opened


@pytest.mark.parametrize("name", share(["softmax_gelu", "layernorm", "linear_gelu"], 3))
def test_versions_of_tasks_are_right_and_cost_the_device_the_same(lab: LabEvaluator, name: str) -> None:
    version = version_of(load_task(name))
    plan = version.plan
    [move] = KINDS["direct_launch"].legal(version)
    child = move.child
    assert child is not None and child == replace(plan, direct_launch=True) == plan_from_json(child.to_json())
    assert not list(KINDS["direct_launch"].legal(replace(version, plan=child)))
    before, after = (print_plan(version.task, version.graph, each).source for each in (plan, child))
    assert CLASS not in before and after.count(f"= {CLASS}(") >= 1
    outcomes = lab.evaluate([EvaluationRequest(version.task, text, 0, "screen") for text in (before, after)])
    assert [outcome.status for outcome in outcomes] == ["ok", "ok"], outcomes
    assert outcomes[0].runtime_ms == outcomes[1].runtime_ms
    assert outcomes[0].metrics["kernels"] == outcomes[1].metrics["kernels"]


def test_a_text_without_launches_stays_as_it_is() -> None:
    assert launched_directly("def launch_x(x):\n    return x\n") == "def launch_x(x):\n    return x\n"


LAUNCHES = {
    "one line": "x_kernel[(n,)](x, n, BLOCK=8)",
    "a grid of several lines": "x_kernel[\n        (\n            n,\n            n * 2,\n        )\n    ](x, n, BLOCK=8)",
    "a grid that was named": "x_kernel[grid](x, n, BLOCK=8)",
    "behind a result": "made = x_kernel[(n,)](\n        x,\n        n,\n    )",
    "a letter of two bytes before it": "é, made = 1, x_kernel[(n,)](x, n)",
}


@pytest.mark.parametrize("launch", LAUNCHES.values(), ids=LAUNCHES)
def test_however_a_launch_is_written_it_goes_straight_and_is_noted(launch: str) -> None:
    text = f"@triton.jit\ndef x_kernel(x_ptr, n):\n    pass\n\n\ndef launch_x(x, n, grid):\n    {launch}\n    return x"
    direct = launched_directly(text)
    called = [node.func for node in ast.walk(ast.parse(direct)) if isinstance(node, ast.Call)]
    [where] = [func for func in called if isinstance(func, ast.Subscript) and ast.unparse(func) != "x_kernel[grid]"]
    assert ast.unparse(where.value) == "x_kernel_directly" and ast.unparse(where.slice).endswith("notes)")
    assert direct.count(f"= {CLASS}(\n    lambda grid, *given, **options: x_kernel[grid](") == 1
    assert is_noted(direct) == ("é" not in direct)


def test_every_launch_of_products_that_share_a_sum_goes_straight() -> None:
    """Their grids are written over several lines."""
    source = (
        "import torch\nfrom torch import nn\n\nbatch, heads, rows, width = 2, 8, 512, 64\n\n\nclass Model(nn.Module):\n"
        "    def forward(self, k, v):\n        return torch.einsum('bnhd,bnhm->bhdm', k, v)\n\n\n"
        "def get_inputs():\n    return [torch.randn(batch, rows, heads, width) for _ in range(2)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    task = task_from_source(source, "keys_by_values")
    plan, kinds = root_plan(export_graph(task)), ("algebra", "lower", "fuse")
    for kind in kinds:
        moves = legal_moves(Version.of(task, plan, hardware("H100")))
        plan = next((move.child for move in moves if move.action.kind == kind and move.child), plan)
    graph = graph_of(export_graph(task), plan)
    text, direct = (print_plan(task, graph, each).source for each in (plan, replace(plan, direct_launch=True)))
    launches = len(re.findall(r"\w+_kernel\[", text))
    assert launches >= 1 and len(re.findall(r"\w+_kernel_directly\[", direct)) == launches
    assert set(re.findall(r"\w+_kernel\[\w*", direct)) == {
        f"{name}[grid" for name in re.findall(r"\w+_kernel(?=\[)", text)
    }


def test_what_is_compiled_in_is_named_as_the_kernel_has_it() -> None:
    text = (
        "@triton.jit\ndef x_kernel(x, n, A: tl.constexpr, B: tl.constexpr):\n    pass\n\n\ndef launch_x(x, n):\n    {}"
    )
    for launch, names in (
        ("x_kernel[(n,)](x, n, B=1, A=2, num_warps=4)", '("A", "B")'),
        ("x_kernel[(n,)](x, n, 2, B=1)", '("B",)'),
        ("x_kernel[(n,)](x, n, 2, 1)", "()"),
    ):
        assert f"\n    {names},\n)" in launched_directly(text.format(launch))


def test_a_file_with_gluon_may_launch_directly() -> None:
    """The audit lets no function of Triton be handed on in such a file."""
    source = (
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\nbatch, heads, rows = 2, 8, 4096\n"
        "VARIANTS = {'small': {'batch': 1, 'rows': 48}, 'odd1': {'batch': 3, 'rows': 33}}\n"
        "\n\nclass Model(nn.Module):\n    def forward(self, q, k, v):\n"
        "        return F.scaled_dot_product_attention(F.rms_norm(q, (q.shape[-1],)), k, v)\n\n\ndef get_inputs():\n"
        "    return [torch.randn(batch, heads, rows, 64).half() for _ in range(3)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    task = task_from_source(source, "norm_and_attention")
    plan, times = root_plan(export_graph(task)), CallTimes(1.0, 4.0)
    for words in ("lower rms_norm", "lower scaled_dot_product_attention", "launch the compiled kernels directly"):
        moves = legal_moves(Version.of(task, plan, hardware("H200"), times=times))
        [plan] = [move.child for move in moves if move.action.sentence.startswith(words) and move.child]
    text = print_plan(task, graph_of(export_graph(task), plan), plan).source
    assert "gluon" in text and f"= {CLASS}(" in text
    assert audit(text) is None
    handed_on = text.replace(
        "lambda grid, *given, **options: rms_norm_kernel[grid](*given, **options)", "rms_norm_kernel"
    )
    refused = audit(handed_on)
    assert refused is not None and "other than to launch it" in str(refused)
