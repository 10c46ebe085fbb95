"""Tasks from names, paths and strings; the refusals of what is none; declared shapes; replaced constants."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mtmc.bench.suites.blocks import FOLDER as BLOCKS
from mtmc.errors import TaskError
from mtmc.task import Task, Variant, apply_constants, builtin_names, integer_constants, load_task, task_from_source
from mtmc.task.constants import distinct_constants

SCALE = '''"""Scale the rows of a matrix."""
import torch
from torch import nn

rows = 512
cols = 1024


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(cols))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]
'''

CONSTANTS = """rows = 512  # a comment
height = width = 128
depth, length = 16, 32
shape = (64, 3)
sizes = [1024] * 16
total: int = 2048 * 2
groups = rows // 4
flag = True
rate = 0.5
deep = (2 **
        10)
name = 'ä'; late = 7
if rows:
    inner = 9
"""


def test_apply_constants_replaces_only_the_named_integers_and_keeps_every_line() -> None:
    assert integer_constants(CONSTANTS) == {
        "rows": 512,
        "height": 128,
        "width": 128,
        "depth": 16,
        "length": 32,
        "shape[0]": 64,
        "shape[1]": 3,
        "sizes[0]": 1024,
        "total": 4096,
        "deep": 1024,
        "late": 7,
    }
    wanted = (("rows", 7), ("width", 5), ("length", 33), ("shape[0]", 17), ("sizes[0]", 9), ("total", 11), ("late", 3))
    changed = apply_constants(CONSTANTS, wanted)
    lines = changed.splitlines()
    assert lines[:6] == [
        "rows = 7  # a comment",
        "height = width = 5",
        "depth, length = 16, 33",
        "shape = (17, 3)",
        "sizes = [9] * 16",
        "total: int = 11",
    ]
    assert lines[6:10] == CONSTANTS.splitlines()[6:10]
    assert lines[11] == "name = 'ä'; late = 3"
    assert len(lines) == len(CONSTANTS.splitlines())


def test_a_value_over_two_lines_leaves_the_lines_below_where_they_were() -> None:
    changed = apply_constants(CONSTANTS, (("deep", 33),))
    names: dict[str, object] = {}
    exec(changed, names)
    assert names["deep"] == 33
    assert changed.splitlines()[11] == CONSTANTS.splitlines()[11]


def test_integers_written_into_the_calls_of_the_input_functions_can_be_replaced() -> None:
    text = "def get_inputs():\n    x = torch.rand(rows, 3, (2 * 112, 224), dtype=f(7))\n    return [x[:, 9]]\n"
    assert integer_constants(text) == {"get_inputs[0]": 3, "get_inputs[1]": 224, "get_inputs[2]": 224}
    changed = apply_constants(text, (("get_inputs[1]", 33), ("get_inputs[2]", 5)))
    assert "torch.rand(rows, 3, (33, 5), dtype=f(7))" in changed and "x[:, 9]" in changed


def test_apply_constants_without_constants_gives_the_text_itself() -> None:
    assert apply_constants(CONSTANTS, ()) == CONSTANTS


def test_apply_constants_refuses_unknown_names_and_contradictions() -> None:
    with pytest.raises(TaskError, match=r"'columns' is no module-level integer of the file, which has .*rows"):
        apply_constants(CONSTANTS, (("columns", 3),))
    with pytest.raises(TaskError, match="'groups' is no module-level integer"):
        apply_constants(CONSTANTS, (("groups", 3),))
    shared = "a = sizes = (64, 3)\n"
    with pytest.raises(TaskError, match=r"a\[0\] and sizes\[0\] are one value"):
        apply_constants(shared, (("a[0]", 3), ("sizes[0]", 5)))


def test_names_of_one_value_are_told_apart_where_they_get_different_ones() -> None:
    text = "depth = 4; height = width = 128  # both\nrows = 2\n"
    changed = apply_constants(text, (("height", 3), ("width", 5), ("rows", 7)))
    assert changed == "depth = 4; height, width = 3, 5  # both\nrows = 7\n"
    assert apply_constants(text, (("width", 5),)) == "depth = 4; height = width = 5  # both\nrows = 2\n"
    assert distinct_constants(text) == {"depth": 4, "height": 128, "width": 128, "rows": 2}


def test_load_task_by_name_path_string_and_itself(tmp_path: Path) -> None:
    task = load_task("softmax")
    assert (task.name, task.full, task.state) == ("softmax", Variant("full"), None)
    assert load_task(task) is task
    path = tmp_path / "23 my-Scale.py"
    path.write_text(SCALE)
    for what in (path, str(path)):
        assert load_task(what).name == "23_my-Scale"
    from_text = load_task(SCALE)
    assert from_text.source == SCALE
    assert from_text.name == load_task(SCALE).name
    assert from_text.name.startswith("source-")
    assert load_task(SCALE.replace("512", "256")).name != from_text.name


def test_line_endings_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "dos.py"
    path.write_bytes(SCALE.replace("\n", "\r\n").encode())
    assert load_task(path).source == SCALE
    assert task_from_source(SCALE.replace("\n", "\r\n"), "dos").source == SCALE


def test_a_task_can_be_pickled() -> None:
    task = load_task("transformer_block")
    assert pickle.loads(pickle.dumps(task)) == task


def test_small_and_held_out_shapes_of_a_file_that_declares_none() -> None:
    task = load_task(SCALE)
    assert task.small.label == "small"
    assert dict(task.small.constants) == {"rows": 64, "cols": 128}  # Distinct, and 2**13 of at most 2**14 elements.
    assert [variant.label for variant in task.held_out] == ["odd1", "odd2", "odd3"]
    for variant in task.held_out:
        sizes = dict(variant.constants)
        assert sizes["rows"] % 2 == 1 and sizes["cols"] % 2 == 1
        assert sizes["rows"] != sizes["cols"]
    assert task.variants == (task.full, task.small, *task.held_out)


def test_declared_shapes_are_taken_and_what_is_left_out_is_derived() -> None:
    declared = SCALE + '\nVARIANTS = {"small": {"rows": 6, "cols": 10}, "odd2": {"rows": 5}, "odd1": {"cols": 3}}\n'
    task = load_task(declared.replace("512", "32"))
    assert task.small.constants == (("rows", 6), ("cols", 10))
    assert [(v.label, v.constants) for v in task.held_out] == [("odd1", (("cols", 3),)), ("odd2", (("rows", 5),))]
    only_small = load_task(SCALE + '\nVARIANTS = {"small": {"rows": 6, "cols": 10}}\n')
    assert len(only_small.held_out) == 3


def test_get_small_inputs_is_taken_with_its_constructor_arguments() -> None:
    small = "\n\ndef get_small_inputs():\n    return [torch.randn(4, 6)]\n"
    init = "\n\ndef get_small_init_inputs():\n    return [6]\n"
    task = load_task(SCALE + small + init)
    assert task.small == Variant("small", (), "get_small_inputs", "get_small_init_inputs")
    # Its numbers are its own, so the held-out shapes are made from get_inputs().
    assert len(task.held_out) == 3
    assert {variant.inputs for variant in task.held_out} == {"get_inputs"}
    following = load_task(SCALE + "\n\ndef get_small_inputs():\n    return [torch.randn(4, cols)]\n")
    assert following.small == Variant("small", (), "get_small_inputs", "get_init_inputs")
    assert {variant.inputs for variant in following.held_out} == {"get_small_inputs"}


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("sofmax", "no task 'sofmax': did you mean 'softmax'.*path of a .py file or one of .*linear_gelu"),
        ("nothing/here.py", "no file 'nothing/here.py': give the path"),
        ("a\0b.py", "cannot be read|no file"),
        ("x = 1\ny = 2\n", "no class `Model`: a task defines `class Model"),
        (SCALE.replace("class Model", "class ModelNew"), "no class `Model`"),
        (SCALE.replace("get_inputs", "get_imputs"), r"no function `get_inputs\(\)`: add it and return the list"),
        (SCALE.replace("get_init_inputs", "init"), r"no function `get_init_inputs\(\)`: add it and return \[\]"),
        (SCALE.replace("class Model(nn.Module):", "class Model(nn.Module)"), "line 9: .*fix the syntax there"),
        (SCALE + "\0", "source code|null bytes"),
    ],
)
def test_what_is_no_task_is_refused_with_the_fix(what: str, message: str) -> None:
    with pytest.raises(TaskError, match=message) as caught:
        load_task(what)
    assert "\n" not in str(caught.value)


def test_paths_that_are_no_text_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="is not a file"):
        load_task(tmp_path)
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(TaskError, match="cannot be read"):
        load_task(binary)


def test_a_name_that_cannot_be_a_folder_is_refused() -> None:
    for name in ("", "../up", "a/b", ".hidden", "a b"):
        with pytest.raises(TaskError, match="cannot name a folder"):
            task_from_source(SCALE, name)


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("VARIANTS = {'tiny': {'rows': 4}}", "label 'tiny': use 'small', 'odd1'"),
        ("VARIANTS = {'small': {'lines': 4}}", "'lines', which is no module-level integer: use rows, cols"),
        ("VARIANTS = {'small': {'rows': 0}}", "rows to 0: use a positive integer"),
        ("VARIANTS = {'small': {'rows': True}}", "rows to True: use a positive integer"),
        ("VARIANTS = {'small': 4}", "must be a dict of integers, not 4"),
        ("VARIANTS = [4]", "line 25: VARIANTS must be a dict"),
        ("VARIANTS = dict(small=rows)", "line 25: VARIANTS must be a literal"),
        (
            "VARIANTS = {'small': {'rows': 4}}\ndef get_small_inputs():\n    return [torch.randn(4, cols)]",
            r"both get_small_inputs\(\) and VARIANTS\['small'\]: remove one",
        ),
        ("VARIANTS = {'small': {'rows': 4}}\n1 / 0", "the file fails at line 26: ZeroDivisionError"),
    ],
)
def test_bad_declarations_are_refused(declaration: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load_task(SCALE + "\n" + declaration + "\n")


def test_loading_a_builtin_task_imports_no_torch_and_reads_none_of_its_file_as_code() -> None:
    program = (
        "import sys; from mtmc.task import builtin_names, load_task; tasks = [load_task(n) for n in builtin_names()]; "
        "assert len(tasks) >= 16; assert 'torch' not in sys.modules and 'triton' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[1])


def test_importing_the_task_module_needs_only_the_standard_library() -> None:
    for name in ("base", "load", "constants", "shapes", "child"):
        tree = ast.parse((Path(__file__).parents[1] / "mtmc" / "task" / f"{name}.py").read_text())
        modules = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
        modules |= {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        assert not {module.split(".")[0] for module in modules} - {"mtmc", *sys.stdlib_module_names}


def test_builtin_names_are_sorted_and_load() -> None:
    assert builtin_names() == sorted(builtin_names())
    assert all(isinstance(load_task(name), Task) for name in builtin_names())


WITH_LIBRARY = """
import torch
from torch import nn

rows = 4
VARIANTS = {"small": {"rows": 3}, "odd1": {"rows": 5}}


class Model(nn.Module):
    def forward(self, x):
        return x.relu()


class Library(Model):
    def forward(self, x):
        import nobody_has_this

        return nobody_has_this.relu(x)


def get_inputs():
    return [torch.randn(rows, 8)]


def get_init_inputs():
    return []
"""


def test_a_known_librarys_kernels_are_no_part_of_the_source() -> None:
    task = task_from_source(WITH_LIBRARY, "relu")
    assert "nobody_has" not in task.source and "def get_inputs" in task.source
    assert task.library.startswith("class Library(Model):") and task.library.rstrip().endswith(
        "nobody_has_this.relu(x)"
    )
    names: dict[str, Any] = {}
    exec(compile(task.with_library, "relu", "exec"), names)
    assert issubclass(names["Library"], names["Model"]) and names["get_init_inputs"]() == []
    assert task_from_source(task.source, "relu").library == ""
    own = WITH_LIBRARY.replace("class Library(Model)", "class Library(nn.Module)")
    assert task_from_source(own, "relu").library == "" and "nobody_has" in task_from_source(own, "relu").source
    decorated = WITH_LIBRARY.replace("class Library", "@torch.no_grad()\nclass Library")
    assert task_from_source(decorated, "relu").library[0] == "@"


@pytest.mark.parametrize("file", sorted(each for each in BLOCKS.rglob("*.py") if "class Library" in each.read_text()))
def test_blocks_name_the_package_of_their_library(file: Path) -> None:
    task = load_task(file)
    said = re.search(r"`pip install ([\w-]+)`", task.library)
    imported = re.search(r"from (\w+)", task.library)
    assert said and imported and "super().__init__" not in task.library, "it is made as the model is"
    assert imported[1].split("_")[0] == re.split("[-_]", said[1])[0]


def test_the_digest_of_weights_is_reckoned_once_and_travels_with_the_task(monkeypatch):
    task = dataclasses.replace(load_task("softmax"), state=b"weights")
    assert task.state_digest == hashlib.sha256(b"weights").hexdigest()
    other = pickle.loads(pickle.dumps(task))
    monkeypatch.setattr(hashlib, "sha256", None)
    assert other.state_digest == task.state_digest and other == task
    assert load_task("softmax").state_digest == ""
    with pytest.raises(TypeError):
        _ = dataclasses.replace(task, state=b"others").state_digest
