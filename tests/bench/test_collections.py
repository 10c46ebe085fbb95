"""Suites of others by path: their licence first, then each file loaded or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtmc.bench.licence import check_licence, find_licence
from mtmc.bench.loading import load_problem
from mtmc.bench.suites import open_suite
from mtmc.bench.suites.keywords import with_numbers
from mtmc.bench.suites.reference_task import reference_task
from mtmc.errors import ConfigError, TaskError
from mtmc.task import task_from_source
from mtmc.task.reference import instantiate
from tests.bench.faults import TEXT

MIT = "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining\na copy of this software\n"
OWN = "House Licence\n\nYou may use this for non-commercial ends. Apache License, version 2.0, does not apply.\n"

ARGUMENTS = """\
import torch
from torch import nn


def forward_fn(x, weight):
    return x @ weight


class Model(nn.Module):
    def __init__(self, width: int, kind: str = "ones"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, width) if kind == "ones" else torch.randn(width, width))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight)


def get_inputs(rows: int = 96, width: int = 32):
    return [torch.randn(rows, width)]
"""
CONFIG = '{"single_shared_configs": [{"width": 48}], "single_init_configs": [{"kind": "randn"}]}'
REFERENCE = """\
import torch
from utils import make_match_reference, Deterministic
from task import input_t, output_t


def ref_kernel(data: input_t) -> output_t:
    with Deterministic():
        x, out = data
        out[...] = x * 2.0
        return out


def generate_input(rows: int, cols: int, kind: str, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x: torch.Tensor = torch.randn(rows, cols, device="cuda", generator=gen).to("cuda")
    assert kind == "normal"
    return x.contiguous(), torch.empty(rows, cols, device="cuda", dtype=x.dtype).cuda()


check_implementation = make_match_reference(ref_kernel, rtol=1e-3, atol=0.01)
"""
SHAPES = """\
tests:
  - {"rows": 8, "cols": 8, "kind": "normal", "seed": 1}
benchmarks:
  - {"rows": 128, "cols": 64, "kind": "normal", "seed": 1}
"""


def written(folder: Path, files: dict[str, str]) -> str:
    """A folder with these files; its path."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (MIT, "MIT"),
        ("Apache License\nVersion 2.0, January 2004\n", "Apache"),
        ("Redistribution and use in source and binary forms, with or without\nmodification, are permitted\n", "BSD"),
        ("GNU GENERAL PUBLIC LICENSE\nVersion 3\n\nonly occasionally and noncommercially\n", "GPL"),
        (OWN, ""),
        (MIT + "\nCommons Clause: no selling.\n", ""),
        ("All mine.\n", ""),
    ],
)
def test_licences_that_allow_use_are_known(tmp_path: Path, text: str, name: str) -> None:
    written(tmp_path, {"LICENSE.md": text, "inside/deeper/x.py": ""})
    assert find_licence(tmp_path / "inside" / "deeper").name == name


def test_a_collection_without_a_licence_is_refused_in_one_sentence(tmp_path: Path) -> None:
    written(tmp_path, {".git/HEAD": "", "a.py": TEXT})
    with pytest.raises(ConfigError, match=r"has no licence file.*licence=ack if it may be used here$"):
        open_suite("files", str(tmp_path))
    assert [each.id for each in open_suite("files", str(tmp_path), acknowledged=True).problems()] == ["files/a"]


def test_a_licence_with_terms_of_its_own_is_refused_until_a_person_has_read_it(tmp_path: Path) -> None:
    written(tmp_path, {"LICENCE": OWN, "x/task.yml": SHAPES, "x/reference.py": REFERENCE})
    with pytest.raises(ConfigError, match=r"terms of its own \(LICENCE: 'House Licence'\)"):
        open_suite("gpumode", str(tmp_path))
    assert len(open_suite("gpumode", str(tmp_path), acknowledged=True).problems()) == 1


def test_above_the_root_of_a_repository_nothing_is_read(tmp_path: Path) -> None:
    written(tmp_path, {"LICENSE": MIT, "repo/.git/HEAD": "", "repo/a.py": TEXT})
    assert find_licence(tmp_path / "repo").file is None
    with pytest.raises(ConfigError, match="there is no folder"):
        check_licence(tmp_path / "nowhere", acknowledged=True)


def test_a_folder_of_files_in_their_layouts(tmp_path: Path) -> None:
    files = {
        "LICENSE": MIT,
        "own.py": TEXT,
        "helpers.py": "def scale(x):\n    return x\n",
        "hard/01_gemm/reference.py": TEXT,
        "hard/01_gemm/check.py": "class Model: ...\n",
        "hard/02 top k/reference.py": TEXT,
        "robust/norm/func_forward.py": ARGUMENTS,
        "robust/norm/config_forward.json": CONFIG,
        "tests/test_x.py": TEXT,
        ".venv/y.py": TEXT,
    }
    suite = open_suite("files", written(tmp_path, files))
    found = {each.id: each for each in suite.problems()}
    assert list(found) == ["hard/01_gemm", "hard/02_top_k", "files/own", "robust/norm"]
    task = load_problem(suite, found["robust/norm"], "fp32")
    assert "width = 48\n" in task.source and "return [width, 'randn']" in task.source
    assert instantiate(task.source, task.full, task.name)[1][0].shape == (96, 48)
    assert suite.source(found["files/own"]) == TEXT and not suite.trusted(found["files/own"])


def test_a_folder_without_tasks_says_what_one_is(tmp_path: Path) -> None:
    suite = open_suite("files", written(tmp_path, {"LICENSE": MIT, "layer.py": "class Norm: ...\n"}))
    with pytest.raises(ConfigError, match="holds no task among 1 Python files: a task defines"):
        suite.problems()


def test_a_file_that_is_no_task_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    suite = open_suite("files", written(tmp_path, {"LICENSE": MIT, "half.py": "class Model: ...\n"}))
    with pytest.raises(TaskError, match=r"no function `get_inputs\(\)`"):
        load_problem(suite, suite.problems()[0], "fp32")


def test_arguments_with_defaults_become_module_level_numbers() -> None:
    text = with_numbers(ARGUMENTS, {}, "x")
    assert "rows = 96\nwidth = 32\n" in text and "def made_inputs(rows: int = 96" in text
    assert text.endswith("def get_init_inputs():\n    return [width, 'ones']\n")
    task_from_source(text, "x")
    assert with_numbers(TEXT, {"rows": 3}, "x") == TEXT  # which takes none
    taken = ARGUMENTS.replace("def get_inputs", "rows = 5\n\n\ndef get_inputs")
    assert "rows_ = 96" in with_numbers(taken, {}, "x")
    with pytest.raises(TaskError, match="has an argument 'size' without a value"):
        with_numbers(ARGUMENTS.replace("kind: str =", "size, kind: str ="), {}, "x")
    with pytest.raises(TaskError, match="takes width as 64, and another function as 32"):
        with_numbers(ARGUMENTS.replace("width: int, kind", "width: int = 64, kind"), {}, "x")


def test_a_reference_and_its_shapes_are_a_task(tmp_path: Path) -> None:
    suite = open_suite(
        "gpumode", written(tmp_path, {"LICENSE": MIT, "a/x/task.yml": SHAPES, "a/x/reference.py": REFERENCE})
    )
    [problem] = suite.problems()
    assert problem.id == "a/x"
    text = suite.source(problem)
    assert 'TOLERANCE = {"rtol": 0.001, "atol": 0.01}'.replace('"', "'") in text
    assert not any(word in text for word in ("cuda", "Deterministic", "utils", "input_t", "manual_seed"))
    assert "generate_input(rows=rows, cols=cols, kind='normal', seed=0)" in text
    task = load_problem(suite, problem, "fp32")
    model, (x, out) = instantiate(task.source, task.full, task.name)
    assert x.shape == (128, 64) and not out.any() and model(x, out).equal(2 * x)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def ref_kernel", "def other", "defines no function ref_kernel"),
        ("kind: str, seed", "kind: str, rank: int, seed", "have no 'rank', which generate_input"),
        ("kind: str, seed", "seed", "have 'kind', which generate_input"),
        ("x * 2.0", "Deterministic(x)", "needs 'Deterministic' of the competition's own modules"),
        ("import torch\n", "import torch\nrows = 3\n", "both define 'rows'"),
        ("import torch\n", "import torch (\n", "is no Python"),
    ],
)
def test_references_that_make_no_task(old: str, new: str, said: str) -> None:
    shape = {"rows": 8, "cols": 8, "kind": "normal", "seed": 1}
    with pytest.raises(TaskError, match=said):
        reference_task(REFERENCE.replace(old, new, 1), shape, "x")


@pytest.mark.parametrize("name", ["files", "gpumode"])
def test_a_path_is_needed_and_has_to_hold_something(name: str, tmp_path: Path) -> None:
    written(tmp_path, {"LICENSE": MIT})
    for path, said in (("", "needs a path"), (str(tmp_path), "holds no")):
        with pytest.raises(ConfigError, match=said):
            open_suite(name, path).problems()
