"""The suites: layouts of KernelBench, and TritonBench's gold functions and speed tests as tasks."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from mtmc.bench.loading import load_problem
from mtmc.bench.problem import Problem, Suite
from mtmc.bench.suites import SUITES, open_suite
from mtmc.bench.suites.speed_task import task_text, with_model_new
from mtmc.errors import ConfigError, TaskError
from mtmc.task import builtin_names, task_from_source
from mtmc.task.reference import instantiate
from tests.bench.faults import TEXT

GOLD = '''\
import torch


def scale_rows(input, other, factor, out=None):
    """Rows times a factor, plus others."""
    return torch.add(input * factor, other, out=out)
'''
SPEED = """\
import sys
import os
import math

sys.path.append(os.path.abspath("."))

from TorchBench_v1.scale_rows import scale_rows
from performance_utils import Performance_Metrics, do_bench_config

import torch
import triton


class performance_metrics(Performance_Metrics):
    def __init__(self, dtype=None, is_backward=False, factor=0.5, **kwargs):
        super().__init__("scale_rows", dtype=dtype, is_backward=is_backward, **kwargs)
        self.factor = factor

    def get_input_tensors(self):
        self.input_tensors = []
        cols = 64
        for i in range(4, 13):
            print(i)
            rows = 2 ** i
            dtype = self.dtype or torch.float32
            width, dim = cols * 2, 0
            input_tensor = torch.rand(rows, width, dtype=dtype)
            other = torch.rand_like(input_tensor) + math.pi
            unused = torch.rand(rows)
            size = other.numel()
            self.input_tensors.append((input_tensor, other, width, dim, size))

    def to_cuda(self, input_tensor):
        return tuple(each.cuda() for each in input_tensor)

    def call_op(self, input_tensor):
        input_tensor, other, width, dim, _ = input_tensor
        return scale_rows(input_tensor, other.reshape(-1, width), self.factor).sum(dim)
"""
TASK = '''\
import math


import torch


def scale_rows(input, other, factor, out=None):
    """Rows times a factor, plus others."""
    return torch.add(input * factor, other, out=out)


rows = 1024
width = 128


class Model(torch.nn.Module):
    """scale_rows of TritonBench, as its speed test calls it."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def forward(self, input_tensor, other):
        return scale_rows(input_tensor, other.reshape(-1, self.width), 0.5).sum(0)


def get_inputs():
    dtype = torch.float32
    input_tensor = torch.rand(rows, width, dtype=dtype)
    other = torch.rand_like(input_tensor) + math.pi
    return [input_tensor, other]


def get_init_inputs():
    return [width]
'''
BUILTIN = Problem("builtin", 1, "row_sum", Path())


def speed(inputs: str, call: str, setup: str = "") -> str:
    """A speed test with this body of its loop over `size`, and this body of `call_op(self, given)`."""
    return (
        "import torch\n\n\nclass performance_metrics(object):\n    def get_input_tensors(self):\n"
        f"        {setup or 'pass'}\n        for i in range(12, 28):\n            size = 2 ** i\n            {inputs}\n\n"
        f"    def call_op(self, given):\n        {call}\n"
    )


def test_a_task_is_the_gold_function_and_what_its_speed_test_does_three_quarters_up() -> None:
    # Sizes 2 ** 4 ... 2 ** 12, nine of them: int(0.75 * 8) = 6, which is 2 ** 10.
    assert task_text(GOLD, SPEED, "scale_rows") == TASK


def test_the_task_loads_and_its_shapes_follow_the_sizes() -> None:
    task = task_from_source(TASK, "scale_rows")
    assert set(dict(task.small.constants)) == {"rows", "width"}
    model, inputs = instantiate(task.source, task.held_out[0], "scale_rows")
    assert model(*inputs).shape == (dict(task.held_out[0].constants)["width"],)


def test_own_sizes_are_declared_where_only_integers_differ() -> None:
    text = task_text(GOLD, SPEED, "scale_rows", own_sizes=True)
    assert (
        '"small": {"rows": 16},\n    "odd1": {"rows": 32},\n    "odd2": {"rows": 64},\n    "odd3": {"rows": 128},'
        in text
    )


@pytest.mark.parametrize(
    ("inputs", "call", "expected"),
    [
        # one value alone; a second name for it
        ("self.input_tensors.append(torch.rand(size))", "x = given\n        return f(x)", "return f(x0)"),
        # by place, and all at once
        ("self.input_tensors.append((torch.rand(size), None))", "return f(given[0], given[1])", "return f(x0, None)"),
        ("self.input_tensors.append((torch.rand(size), 0.5))", "return f(*given)", "return f(x0, 0.5)"),
        # a tuple under a name
        (
            "a = (torch.rand(size), 2)\n            self.input_tensors.append(a)",
            "b, c = given\n        return f(b, c)",
            "return f(x0, 2)",
        ),
        # a condition on numbers is decided, and one on tensors stays
        (
            "x = torch.rand(size) if size > 3 else None\n            self.input_tensors.append(x)",
            "return f(given)",
            "return f(x)",
        ),
        # a function that changes its arguments
        ("a = torch.rand(size)\n            self.input_tensors.append((a,))", "f(*given)", "f(a)\n        return a"),
    ],
)
def test_ways_to_hand_the_inputs_over(inputs: str, call: str, expected: str) -> None:
    text = task_text("def f(*all):\n    return all[0]\n", speed(inputs, call), "f")
    assert expected in text
    assert "size = 8388608" in text  # 2 ** 23: int(0.75 * 15) = 11
    task_from_source(text, "f")


@pytest.mark.parametrize(
    ("inputs", "call", "said"),
    [
        ("self.input_tensors.append((size,))", "return f(*given)", "hands no tensor to the function"),
        (
            "self.input_tensors.append((torch.rand(size), 1))",
            "a, b, c = given\n        return f(a)",
            "unpacks its inputs",
        ),
        ("self.input_tensors.append((torch.rand(size), 1))", "return f(list(given))", "cannot be taken over"),
        ("self.input_tensors.append(torch.rand(size))", "return f(given, self.lr)", "cannot be taken over"),
        ("pass", "return f(given)", "no loops over sizes"),
        ("f = 12\n            self.input_tensors.append(torch.rand(f))", "return f(given)", "both define 'f'"),
    ],
)
def test_speed_tests_that_make_no_task(inputs: str, call: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        task_text("def f(*all):\n    return all[0]\n", speed(inputs, call), "f")


def test_a_candidate_of_a_function_gets_the_wrapper() -> None:
    candidate = GOLD.replace("input * factor", "factor * input")
    text = with_model_new(candidate, TASK, "scale_rows")
    assert text.startswith(candidate.rstrip()) and "class ModelNew(torch.nn.Module):" in text
    assert with_model_new("class ModelNew: ...\n", TASK, "scale_rows") == "class ModelNew: ...\n"
    with pytest.raises(TaskError, match="defines neither ModelNew nor 'scale_rows'"):
        with_model_new("def other(): ...\n", TASK, "scale_rows")


def tritonbench(folder: Path) -> Path:
    """A checkout with one problem in T, and in G one without a speed test."""
    files = {
        "data/TritonBench_T_v1/scale_rows.py": GOLD + "\n" + "#" * 146 + "\n\ntest_results = no_such_function()\n",
        "performance_metrics/perf_T/golden_metrics/scale_rows_perf.py": SPEED,
        "data/TritonBench_G_v1/other.py": GOLD,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    return folder


def test_tritonbench_reads_a_checkout(tmp_path: Path) -> None:
    suite = open_suite("tritonbench", str(tritonbench(tmp_path)))
    rows, other = suite.problems()
    assert [(each.id, each.number) for each in (rows, other)] == [("T/scale_rows", 1), ("G/other", 1)]
    assert suite.source(rows) == TASK  # without its test
    assert "class ModelNew" in suite.candidate(rows, GOLD + "\n" + "#" * 146 + "\nbad(")
    assert not suite.trusted(rows) and suite.trusted(other)
    with pytest.raises(TaskError, match="no speed test, and so no sizes"):
        suite.source(other)


@pytest.mark.parametrize("inside", ["", "KernelBench", "KernelBench/KernelBench"])
def test_kernelbench_in_its_layouts(tmp_path: Path, inside: str) -> None:
    for name in ("level1/10_Max_.py", "level1/2_ReLU.py", "level2/1_A&B.py", "level1/notes.py", "changelog/x.py"):
        (tmp_path / inside / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / inside / name).write_text(TEXT)
    suite = open_suite("kernelbench", str(tmp_path))
    assert [each.id for each in suite.problems()] == ["level1/2_ReLU", "level1/10_Max", "level2/1_A_B"]
    assert suite.source(suite.problems()[0]) == TEXT


def test_our_own_tasks() -> None:
    suite = open_suite("builtin", "")
    assert [each.name for each in suite.problems()] == builtin_names()
    assert suite.trusted(BUILTIN)


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [
        ("kernelbenc", "", "there is no suite 'kernelbenc': did you mean kernelbench"),
        ("builtin", "somewhere", "suite=builtin takes no path"),
    ],
)
def test_suites_that_are_not_there(name: str, path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_suite(name, path)


@pytest.mark.parametrize("name", ["kernelbench", "tritonbench"])
def test_a_path_that_is_none(name: str, tmp_path: Path) -> None:
    assert name in SUITES
    for path, said in (("", "needs a path"), (str(tmp_path), "holds no"), (str(tmp_path / "x"), "holds no")):
        with pytest.raises(ConfigError, match=said):
            open_suite(name, path).problems()


def test_shapes_are_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = open_suite("tritonbench", str(tritonbench(tmp_path)))
    problem, kept = suite.problems()[0], tmp_path / "kept.json"
    first = load_problem(suite, problem, "fp32", kept)
    monkeypatch.setattr("mtmc.bench.loading.task_from_source", None)  # nothing is derived again
    assert load_problem(suite, problem, "fp32", kept) == first
    half = load_problem(suite, problem, "fp16", kept)
    assert half.variants == first.variants and "float16" in half.source
    kept.write_text("half a fi")
    with pytest.raises(TypeError):  # half a file is none: they are derived again
        load_problem(suite, problem, "fp32", kept)


LIBRARY = """

class Library(Model):
    def forward(self, *inputs):
        return super().forward(*inputs)
"""


def test_a_library_is_taken_off_also_where_shapes_are_kept(tmp_path: Path) -> None:
    suite = open_suite("tritonbench", str(tritonbench(tmp_path)))
    problem, kept = suite.problems()[0], tmp_path / "kept.json"
    own = suite.source(problem).rstrip() + LIBRARY

    class Compared:
        def source(self, _: Problem) -> str:
            return own

        def trusted(self, _: Problem) -> bool:
            return False

    for _ in range(2):
        task = load_problem(cast(Suite, Compared()), problem, "fp16", kept)
        assert "class Library(Model)" in task.library and "Library" not in task.source and "float16" in task.source


def test_declared_shapes_are_taken_as_they_are() -> None:
    task = load_problem(open_suite("builtin", ""), open_suite("builtin", "").problems()[0], "fp32")
    assert [each.label for each in task.variants] == ["full", "small", "odd1", "odd2", "odd3"]
