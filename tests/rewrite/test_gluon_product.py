"""Products in Gluon: right on a CPU by `gluon_on_cpu`, compiled for Hopper, legal where a GPU evaluates and nowhere else.

What `gluon_on_cpu` cannot see is for the compiler (layouts, registers) and for tests/evaluate/test_gluon_on_gpu.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import torch

from mtmc.errors import CoderError
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import CallTimes
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import merged_ops, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates import gluon_product_kernel
from mtmc.task import Task, task_from_source
from tests.breadth import share
from tests.rewrite.gluon_cases import inputs_of, kernel_of, printed
from tests.rewrite.gluon_on_cpu import module_on_cpu

REFERENCE = """
import torch
from torch import nn
from torch.nn import functional as F

rows, inner, cols = {sizes}
VARIANTS = {{"small": {{"rows": 16, "inner": 32, "cols": 24}}, "odd1": {{"rows": 33, "inner": 41, "cols": 47}}}}
DTYPE = torch.{dtype}


class Model(nn.Module):
    def forward(self, {names}):
        return {work}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
TENSORS = {
    "x": "torch.randn(rows, inner, dtype=DTYPE)",
    "deep": "torch.randn(2, rows, inner, dtype=DTYPE)",
    "weight": "torch.randn(cols, inner, dtype=DTYPE) / inner**0.5",
    "other": "torch.randn(cols, inner, dtype=DTYPE) / inner**0.5",
    "across": "torch.randn(inner, cols, dtype=DTYPE) / inner**0.5",
    "beside": "torch.randn(inner, cols, dtype=DTYPE) / inner**0.5",
    "bias": "torch.randn(cols, dtype=DTYPE)",
    "residual": "torch.randn(rows, cols, dtype=DTYPE)",
}
PLAIN, WITH_BIAS = "F.linear(x, weight)", "F.linear(x, weight, bias)"
GATED = "F.silu(F.linear(x, weight)) * F.linear(x, other)"
GLUON: dict[str, int | str] = {
    "language": "gluon", "block_m": 128, "block_n": 256, "block_k": 64, "num_warps": 4, "num_stages": 3, "persistent": 2,
}  # fmt: skip
ALONE: dict[str, int | str] = {"persistent": 0}
NARROW: dict[str, int | str] = {"block_n": 128}
CASES: dict[str, tuple[str, str, tuple[int, int, int], dict[str, int | str]]] = {
    "whole tiles": (PLAIN, "x, weight", (256, 128, 512), {}),
    "ragged": (PLAIN, "x, weight", (200, 136, 328), {"block_k": 32, "num_stages": 4}),
    "fewer than a tile": (PLAIN, "x, weight", (3, 8, 8), {**ALONE, "num_stages": 2}),
    "the right operand as it is": ("x @ across", "x, across", (150, 200, 264), {}),
    "equal sizes": ("x @ across", "x, across", (264, 264, 264), ALONE),
    "two parts": (f"F.gelu({WITH_BIAS})", "x, weight, bias", (140, 72, 520), {"epilogue": 2}),
    "bias and residual": (f"residual + F.relu({WITH_BIAS})", "x, weight, bias, residual", (130, 64, 264), NARROW),
    "deep": ("F.silu(F.linear(deep, weight))", "deep, weight", (70, 64, 72), {**NARROW, "order": "nm"}),
    "gated": (GATED, "x, weight, other", (200, 136, 264), NARROW),
    "gated in two parts": (GATED, "x, weight, other", (130, 72, 72), {**NARROW, "epilogue": 2, **ALONE}),
    "gated, as they are": (
        "torch.tanh(x @ across) * (x @ beside)",
        "x, across, beside",
        (130, 72, 200),
        {"block_n": 64},
    ),
}


def task_of(work: str, names: str, sizes: tuple[int, int, int], dtype: str = "bfloat16") -> Task:
    inputs = ", ".join(TENSORS[name] for name in names.split(", "))
    text = REFERENCE.format(work=work, names=names, inputs=inputs, sizes=sizes, dtype=dtype)
    return task_from_source(text, "product_in_gluon")


def error_of(task: Task, source: str) -> tuple[float, float]:
    """Norm-wise error of a version and of torch's own in 16 bits, against float64."""
    inputs, reference = inputs_of(task), ModuleType("reference")
    exec(task.source, vars(reference))
    exact = reference.Model()(*(each.double() for each in inputs))
    found = [model(*inputs).double() for model in (module_on_cpu(source).ModelNew(), reference.Model())]
    return tuple(float((each - exact).norm() / exact.norm()) for each in found)  # type: ignore[return-value]


def source_of(name: str, dtype: str = "bfloat16", **more: int | str) -> tuple[Task, str]:
    work, names, sizes, settings = CASES[name]
    task = task_of(work, names, sizes, dtype)
    return task, printed(task, {**GLUON, **settings, **more})


@pytest.mark.parametrize("name", share(list(CASES), 5))
def test_as_exact_as_torch_in_16_bits(name: str) -> None:
    ours, theirs = error_of(*source_of(name, "half" if len(name) % 2 else "bfloat16"))
    assert ours < 1.1 * theirs + 1e-4, (ours, theirs)


@pytest.mark.parametrize(
    "lost",
    [
        "hopper.mbarrier.wait(full.index(at)",
        "hopper.mbarrier.wait(free.index(at)",
        "    hopper.mbarrier.arrive(free.index((done + 2)",
        "        hopper.mbarrier.arrive(free.index((done + 2)",
        "hopper.tma.store_wait(0)",
        "sums = hopper.warpgroup_mma_wait(0",
    ],
)
def test_a_line_that_is_lost_is_seen(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.rewrite import gluon_on_cpu

    monkeypatch.setattr(gluon_on_cpu, "STUCK_S", 1.0)
    monkeypatch.setattr(gluon_on_cpu, "LOAD_S", 0.002)
    task, source = source_of("gated")
    assert error_of(task, source)[0] < 0.01
    lines = source.splitlines()
    at = next(number for number, line in enumerate(lines) if lost in line)
    spaces = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    without = "\n".join([*lines[:at], f"{spaces}pass", *lines[at + 1 :]])
    assert without != source
    try:
        ours, theirs = error_of(task, without)
    except (AssertionError, AttributeError, TypeError):
        return
    assert not ours < 1.1 * theirs + 1e-4


def test_a_right_operand_is_read_once_for_both_products() -> None:
    """Slices of both lie side by side, and one instruction multiplies with both."""
    source = source_of("gated")[1]
    assert source.count("hopper.warpgroup_mma(") == 1 and source.count(".slice(") == 2
    assert "[16, 256, 16]" in source and "[3, 256, 64]" in source


@pytest.mark.parametrize(
    ("work", "names", "settings", "said"),
    [
        (PLAIN, "x, weight", {"block_m": 64}, "other than 128 rows"),
        (PLAIN, "x, weight", {"num_warps": 8}, "other than 128 rows"),
        (PLAIN, "x, weight", {"epilogue": 4}, "two parts at most"),
        (GATED, "x, weight, other", {}, "more than 256 in all"),
        (PLAIN, "x, weight", {"block_k": 16}, "such slices"),
        (PLAIN, "x, weight", {"split_k": 2}, "shared, turned"),
        (PLAIN, "x, weight", {"stream_k": 132}, "shared, turned"),
        ("F.linear(torch.relu(x), weight)", "x, weight", {}, "made in the kernel"),
        (f"{PLAIN}.float()", "x, weight", {}, "another type"),
        ("F.linear(x, weight).amax(-1)", "x, weight", {}, "reduced"),
    ],
)
def test_what_it_cannot_do_is_refused(work: str, names: str, settings: Mapping[str, int | str], said: str) -> None:
    with pytest.raises(CoderError, match=re.escape(said)):
        printed(task_of(work, names, (200, 128, 264)), {**GLUON, **settings})


def test_rows_at_odd_addresses_and_floats_of_32_bits_are_refused() -> None:
    text = task_of(PLAIN, "x, weight", (200, 128, 264)).source
    with pytest.raises(CoderError, match="multiples of 16 bytes"):
        printed(task_of(PLAIN, "x, weight", (200, 128, 260)), GLUON)
    with pytest.raises(CoderError, match="16 bits"):
        printed(task_from_source(text.replace("bfloat16", "float32"), "wide"), GLUON)


@pytest.mark.parametrize("name", ["ragged", "the right operand as it is", "bias and residual", "gated"])
@pytest.mark.parametrize(("inner", "columns"), [(61, 72), (64, 70), (33, 45), (1, 3)])
def test_other_sizes_whose_rows_a_descriptor_cannot_say_are_copied(name: str, inner: int, columns: int) -> None:
    """The file holds for any sizes: rows of operands, and of the result, that begin at odd addresses."""
    task, source = source_of(name)
    full = dict(zip(("rows", "inner", "cols"), CASES[name][2], strict=True))
    other = {full["rows"]: 40, full["inner"]: inner, full["cols"]: columns}
    torch.manual_seed(0)
    inputs = [torch.randn([other[size] for size in each.shape], dtype=each.dtype) for each in inputs_of(task)]
    reference = ModuleType("reference")
    exec(task.source, vars(reference))
    exact, theirs = reference.Model()(*(each.double() for each in inputs)), reference.Model()(*inputs)
    ours = module_on_cpu(source).ModelNew()(*inputs)
    errors = [float((each.double() - exact).norm() / exact.norm()) for each in (ours, theirs)]
    assert ours.is_contiguous() and errors[0] < 1.1 * errors[1] + 1e-4, errors


def test_operands_that_lie_in_another_way() -> None:
    """What a descriptor can say is read in place, and what it cannot is copied."""
    task, source = source_of("ragged")
    x, weight = inputs_of(task)
    odd = torch.empty(weight.numel() + 1, dtype=weight.dtype)[1:].view(weight.shape).copy_(weight)
    version = module_on_cpu(source).ModelNew()
    for one, other in ((x.t().contiguous().t(), weight), (x, odd), (x[:, None].expand(-1, 2, -1)[:, 0], weight)):
        assert torch.equal(version(one, other), version(x, weight))


WORDS = (
    "left_tiles", "result_tiles", "right_tiles", "made", "sums", "first", "layout", "steps", "program", "full", "at", "gl",
    "hopper", "done", "width", "weight_ptr", "linear_add_kernel", "weight_stride_0",
)  # fmt: skip


@pytest.mark.parametrize("word", share(WORDS, 5))
def test_no_name_of_a_forward_argument_is_in_its_way(word: str) -> None:
    """Of what is loaded behind the product, and of the left operand."""
    work, names, sizes, settings = CASES["bias and residual"]
    for renamed in ("residual", "x"):
        text = (
            task_of(work, names, sizes)
            .source.replace("(x, weight, bias)", "(X, weight, bias)")
            .replace("self, x,", "self, X,")
        )
        text = re.sub(
            rf"\b{'X' if renamed == 'x' else renamed}\b", word, text.replace("X", "x") if renamed != "x" else text
        )
        task = task_from_source(text, "product_in_gluon")
        ours, theirs = error_of(task, printed(task, {**GLUON, **settings}))
        assert ours < 1.1 * theirs + 1e-4, (renamed, ours, theirs)


COMPILES = """
import sys
from pathlib import Path
from benchmarks.hopper_build import build
from benchmarks.hopper_products import GATED, WITH_BIAS, product
common = {"language": "gluon", "block_m": 128, "block_k": 64, "num_warps": 4, "num_stages": 4, "persistent": 132}
gelu = f"nn.functional.gelu({WITH_BIAS})"
for case in (
    product("gelu", 4096, 4096, 4096, {"x": {**common, "block_n": 256, "epilogue": 2}}, gelu, "x, weight, bias"),
    product("gated", 4096, 4096, 4096, {"x": {**common, "block_n": 128}}, GATED, "x, weight, other"),
):
    print(build(case, "x", Path(sys.argv[1])))
"""


def test_compiles_for_hopper_without_spills(tmp_path: Path) -> None:
    """Each group multiplies with all columns at once: four instructions for a slice, in the loop and its first turn."""
    told = subprocess.run(
        [sys.executable, "-c", COMPILES, str(tmp_path)], capture_output=True, text=True, check=True, timeout=600
    ).stdout.splitlines()
    for line in (line for line in told if line.startswith("Built(")):
        assert "failure=''" in line and "'local': 0" in line and "'wgmma.mma_async': 8" in line, line
        assert "'setmaxnreg'" in line and gluon_product_kernel.GROUPS == 2


def moves_of(
    task: Task, settings: Mapping[str, int | str], target: str = "H200", gpu: bool = True
) -> dict[str, list[Move]]:
    """Moves of the version that is one kernel, by kind."""
    _, plan, _ = kernel_of(task, settings)
    version = Version.of(task, plan, hardware(target), times=CallTimes(1.0, 1.0) if gpu else None)
    found = dict[str, list[Move]]()
    for move in legal_moves(version):
        found.setdefault(move.action.kind, []).append(move)
    return found


def test_legal_only_where_a_hopper_gpu_evaluates() -> None:
    task = task_of(PLAIN, "x, weight", (4096, 4096, 4096))
    (move,) = moves_of(task, {})["specialize"]
    assert dict(move.action.params)["language"] == "gluon" and "in Gluon" in move.action.sentence
    assert "specialize" not in moves_of(task, {}, gpu=False) and "specialize" not in moves_of(task, {}, "A100")
    wide = task_from_source(task.source.replace("bfloat16", "float32"), "wide")
    assert "specialize" not in moves_of(wide, {})


def test_settings_are_reached_by_further_actions_and_lead_back() -> None:
    """Each action of a version in Gluon changes something, can be printed, and stays in Gluon but for the way back."""
    task = task_of(PLAIN, "x, weight", (4096, 4096, 4096))
    moves = moves_of(task, {**GLUON, "num_stages": 3})
    params = [dict(move.action.params) for found in moves.values() for move in found]
    for wanted in (
        {"block_n": 128},
        {"num_stages": 4},
        {"epilogue": 1},
        {"persistent": 132},
        {"group_m": 16},
        {"order": "nm"},
    ):
        assert any(wanted.items() <= each.items() for each in params), wanted
    for unwanted in ("swapped", "split_k", "stream_k", "num_warps", "operands"):
        assert not any(each.get(unwanted) for each in params if each.get("language") != "triton"), unwanted
    (back,) = moves["specialize"]
    assert dict(back.action.params)["language"] == "triton"
    for found in moves.values():
        for move in found:
            if move.child is not None:
                print_plan(task, export_graph(task), move.child)


@pytest.mark.parametrize(("work", "names", "gluon"), [(GATED, "x, weight, other", True), (PLAIN, "x, weight", False)])
def test_two_products_of_one_operand_start_so_on_a_gpu(work: str, names: str, gluon: bool) -> None:
    task = task_of(work, names, (4096, 4096, 4096))
    graph = export_graph(task)
    for times, expected in ((CallTimes(1.0, 1.0), gluon), (None, False)):
        root = Version.of(task, root_plan(graph), hardware("H200"), times=times)
        parts = [stage for stage in root.plan.stages if not root.is_free(stage)]
        stage = root.as_kernel(merged_ops(graph, parts), {})
        assert stage is not None and (dict(stage.schedule).get("language") == "gluon") is expected
