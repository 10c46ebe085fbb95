"""The blocks: each is a task with its source said, no two of one name, and some of them through the lab."""

from __future__ import annotations

import ast
import re

import pytest

from mtmc.agents.coders import CODERS
from mtmc.bench.loading import load_problem
from mtmc.bench.selection import select
from mtmc.bench.settings import BenchSettings
from mtmc.bench.suites import open_suite
from mtmc.bench.suites.blocks import FOLDER, LEVELS
from mtmc.errors import ConfigError
from mtmc.evaluate import LabSettings
from mtmc.protocols import EvaluationRequest
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.guard_derivation import derive_guards
from mtmc.task import Task
from mtmc.task.reference import weigh
from mtmc.task.trials import PREFERRED

SUITE = open_suite("blocks", "")
PROBLEMS = {each.id: each for each in SUITE.problems()}
WHERE = re.compile(r"arXiv \d{4}\.\d{4,5}|https://\S+|configuration of the release")
PRECISION = re.compile(r"\b(bf16|fp16|fp8|int8)\b")
H100_BYTES = 80 * 2**30


def block(name: str) -> Task:
    """A block by level and name."""
    return load_problem(SUITE, PROBLEMS[name], "fp32")


def test_there_are_many_and_every_level_has_some() -> None:
    assert len(PROBLEMS) >= 48 and len({each.name for each in PROBLEMS.values()}) == len(PROBLEMS)
    assert [each for each in LEVELS if not any(name.startswith(f"{each}/") for name in PROBLEMS)] == []
    assert {each.name for each in FOLDER.iterdir() if each.is_dir() and each.name != "__pycache__"} == set(LEVELS)


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_each_loads_by_its_syntax_and_says_where_it_is_from(name: str) -> None:
    task = block(name)
    assert [each.label for each in task.variants] == ["full", "small", "odd1", "odd2"]
    assert len({each.constants for each in task.variants}) == 4
    text = ast.get_docstring(ast.parse(task.source)) or ""
    title, _, source = text.partition("\n\nSource: ")
    assert title.endswith(".") and title.count(". ") == 0, "one sentence says what it is"
    assert WHERE.search(source) and re.search(r"\d", source) and PRECISION.search(text)


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_library_by_which_a_block_is_compared_is_no_part_of_its_versions(dtype: str) -> None:
    """It derives from `Model`, which a version's file does not have."""
    texts = {name: (FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in PROBLEMS}
    compared = [name for name, text in texts.items() if "class Library(Model)" in text]
    assert len(compared) >= 10
    for name in compared:
        task = load_problem(SUITE, PROBLEMS[name], dtype)
        assert "class Library(Model)" in task.library and "Library" not in task.source, name


def test_no_two_have_the_same_structure() -> None:
    forwards: dict[str, str] = {}
    for name in PROBLEMS:
        tree = ast.parse(block(name).source)
        [model] = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "Model"]
        methods = [each for each in model.body if isinstance(each, ast.FunctionDef) and each.name != "__init__"]
        calls = [ast.unparse(node.func) for each in methods for node in ast.walk(each) if isinstance(node, ast.Call)]
        operators = [
            type(node.op).__name__ for each in methods for node in ast.walk(each) if isinstance(node, ast.BinOp)
        ]
        shape = repr((sorted(calls), sorted(operators)))
        assert shape not in forwards, f"{name} is {forwards[shape]} again"
        forwards[shape] = name


@pytest.mark.parametrize("name", sorted(PROBLEMS)[::6])
def test_small_shapes_are_cheap_and_the_full_ones_fit_a_gpu(name: str) -> None:
    task = block(name)
    for variant in task.variants[1:]:
        found = weigh(task.source, variant, name)
        assert found.elements <= PREFERRED[0] + 2**13 and found.macs <= PREFERRED[1]
        assert found.finite and not found.constant
    assert weigh(task.source, task.full, name, device="meta").elements * 4 <= H100_BYTES // 20


@pytest.mark.parametrize("name", ["decoder/residual_rmsnorm", "quantized/int4_packed_linear", "optimizer/lion"])
def test_a_root_is_accepted_by_the_lab(name: str) -> None:
    task = block(name)
    source = CODERS["rewriter"]().root(task).source
    evaluator = LabSettings(workers=1).open()
    try:
        [outcome] = evaluator.evaluate([EvaluationRequest(task, source, 0)])
    finally:
        evaluator.close()
    assert outcome.ok, outcome.diagnosis


def test_guards_of_sizes_that_divide_to_nothing_or_have_a_fixed_sum() -> None:
    """At small shapes a patch of 16 is larger than the image; the widths of two inputs together are a weight's."""
    patches = derive_guards(block("vision/patch_embedding"))
    assert "images.shape[2] >= project_weight.shape[2]" in patches.conditions
    inputs = derive_guards(block("diffusion/groupnorm_silu")).tensors
    assert [each.dimensions[1].text for each in inputs[:2]] == ["norm_weight.shape[0] // 2", "x.shape[1]"]


def test_shifts_have_names_that_a_version_may_use() -> None:
    targets = {op.target for op in export_graph(block("quantized/int4_packed_linear")).ops}
    assert "aten.bitwise_right_shift.Tensor_Scalar" in targets and not any("__" in each for each in targets)


def test_a_level_is_chosen_by_its_name() -> None:
    chosen = select(SUITE.problems(), BenchSettings(suite="blocks", levels=("Decoder",), problems=("rmsnorm",)))
    assert [each.id for each in chosen] == ["decoder/rmsnorm"]
    with pytest.raises(ConfigError, match="suite=blocks takes no path"):
        open_suite("blocks", "somewhere")
