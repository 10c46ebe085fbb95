"""A task's file that imports modules beside it: one text that means what the files mean, or a refusal with its line."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtmc.cli import main
from mtmc.errors import TaskError
from mtmc.evaluate import EVALUATORS
from mtmc.fakes import FakeEvaluator
from mtmc.search import load
from mtmc.task import load_task
from mtmc.task.bundling import bundle, place

FILES = {
    "class, function, constant": {
        "task": "from helpers import Block, double, SIZE\nVALUE = Block().of(double(SIZE))\n",
        "helpers": "SIZE = 3\ndef double(x):\n    return x * TWO\nTWO = 2\nclass Block:\n    def of(self, x): return [x]\n",
    },
    "names that clash": {
        "task": "from helpers import Block as Base, size as base\nsize = 5\nclass Block(Base):\n    n = size\n"
        "VALUE = Block().n, Block().m(), base\n",
        "helpers": "size = 3\nclass Block:\n    def m(self, size=size): return size, [size for size in (1, 2)], helper()\n"
        "def helper():\n    global count\n    count = size\n    return count\ncount = 0\n",
    },
    "builtins": {
        "task": "from helpers import max, total\nfrom other import least\nVALUE = max(1, 2), total([3]), least(4, 5)\n",
        "helpers": "def max(a, b): return 'max', a, b\ndef total(x): return sum(x)\n",
        "other": "def sum(x): return 'other'\ndef least(*x): return min(x), max(x), sum(x)\n",
    },
    "modules that import modules": {
        "task": "from a import f\nimport b\nVALUE = f(1), b.g(2)\n",
        "a": "from b import g\ndef f(x): return 'a', g(x)\n",
        "b": "import c as deep\nfrom c import N as M\ndef g(x): return 'b', deep.h(x), deep.N, M\n",
        "c": "N = 7\ndef h(x): return 'c', N + x\n",
    },
    "a package": {
        "task": "from pkg import Block, blocks\nimport pkg.consts as k\nimport pkg\n"
        "VALUE = Block.name, k.N, pkg.consts.N, pkg.blocks.f(), blocks.Block.name, pkg.LATE\n",
        "pkg/__init__": "from .blocks import *\nfrom . import consts\nLATE = consts.N + 1\n",
        "pkg/blocks": "from . import consts\nfrom .deep.er import Z\nclass Block:\n    name = consts.N, Z\n"
        "def f(): return consts.N\n",
        "pkg/consts": "N = 11\n",
        "pkg/deep/er": "from ..consts import N\nZ = N * 2\n",
    },
    "all names": {
        "task": "from helpers import *\nfrom other import *\nVALUE = f(), N, [g for g in 'ab'], public()\n",
        "helpers": "import math\nN = 1\n_hidden = 2\ndef f(): return math.pi, _hidden\n",
        "other": "__all__ = ['N', 'public']\nN = 2\nextra = 3\ndef public(): return extra\n",
    },
    "imports inside of functions and of try": {
        "task": "def f():\n    from helpers import N\n    import other as o\n    return N, o.M\n"
        "try:\n    from helpers import g\nexcept ImportError:\n    from helpers import g\n"
        "class A:\n    from helpers import N\nVALUE = f(), g()\n",
        "helpers": "N = 4\ndef g():\n    from other import M; return M\n",
        "other": "M = 6\n",
    },
    "what does more than define": {
        "task": "from helpers import TABLE\nfrom helpers import made\nVALUE = sorted(TABLE), made, TABLE['b']().x\n",
        "helpers": "'''Text.'''\nTABLE = {}\ndef register(c):\n    TABLE[c.__name__] = c\n    return c\n@register\n"
        "class a: pass\nclass b:\n    x = 3\nTABLE['b'] = b\nmade = []\nfor i in range(3):\n    made.append(i); last = i\n"
        "made += [last]\nif __name__ == '__main__':\n    made.clear()\ndef unused(): return nothing.at.all\n",
    },
    "scopes": {
        "task": "from helpers import run, n\nVALUE = run(5), n\n",
        "helpers": "n = k = 2\ne = 9\nclass Own:\n    k = 3\n    twice = k * 2\n    def m(self): return k, self.k\n"
        "def run(n, *a, **b):\n    f = lambda k: k + n\n    def inner():\n        nonlocal n\n        n = 6\n"
        "        return k\n    try:\n        1 / 0\n    except ZeroDivisionError as e:\n        text = str(e)\n"
        "    pairs = {n: k for n, k in [(1, 2)]}\n    return f(1), inner(), n, Own().m(), Own.twice, pairs, text, "
        "[(y := x) for x in (1,)], y, e if False else k\n",
    },
    "annotations of the future": {
        "task": '"""Text."""\nfrom helpers import f\nVALUE = f(3)\n',
        "helpers": "from __future__ import annotations\ndef f(x: Later) -> Later | None: return x\nclass Later: pass\n",
    },
    "imports that clash": {
        "task": "import math as m\nfrom collections import deque\nfrom helpers import f\nimport os.path\n"
        "VALUE = m.pi, f(), deque\n",
        "helpers": "import operator as m, os.path\nfrom collections import OrderedDict as deque, Counter\n"
        "def f(): return m.add(1, 2), deque, os.path.join('a', 'b')\n",
    },
    "one line for several": {
        "task": "import helpers; from other import (\n    a,\n    b,\n); c = 3\nVALUE = (helpers\n    .x), a, b, c\n",
        "helpers": "x = 1; y = 2\n",
        "other": "a = b = 'ä'; d = a\n",
    },
    "what is installed too": {
        "task": "import psutil, packaging\nfrom psutil import N\nVALUE = N, psutil.N, packaging.M\n",
        "psutil": "N = 'beside'\n",
        "packaging": "M = 'beside'\n",
    },
    "relative to the file": {
        "task": "from helpers import N, CLASS\nVALUE = N, CLASS.__name__\n",
        "helpers": "from pkg.mod import CLASS\nfrom pkg import N\n",
        "pkg/__init__": "N = 3\nN += 1\n",
        "pkg/mod": "from . import N\nclass CLASS:\n    pass\n",
    },
}


def written(folder: Path, files: dict[str, str]) -> Path:
    """The files in a folder; the path of task.py."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "task.py"


@pytest.fixture
def fresh_modules() -> Iterator[None]:
    """Modules that a test imports are gone after it, and those of the same names back."""
    before = dict(sys.modules)
    for name in ("psutil", "packaging"):
        sys.modules.pop(name, None)
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.parametrize("case", FILES)
@pytest.mark.usefixtures("fresh_modules")
def test_one_text_means_what_the_files_mean(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, FILES[case])
    text = bundle(path.read_text(), path, "task")
    for line in text.splitlines():
        assert "helpers import" not in line and "from ." not in line
    alone: dict[str, Any] = {"__name__": "alone"}
    exec(compile(text, "alone", "exec"), alone)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(alone["VALUE"]) == str(runpy.run_path(str(path))["VALUE"])


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            ("import a\nx = a.n", "import b\nn = b.n", "import a\nn = 1"),
            "a.py: is imported in a circle: move what both",
        ),
        (("import a\nx = a.n", "import task\nn = 1"), "it imports its own file: move what both need"),
        (
            ("import a\nprint(\n  a)", "n = 1"),
            "task.py: line 3: uses the module a.py itself: import the names that are",
        ),
        (("import a\na.n = 2", "n = 1"), "task.py: line 2: changes 'n' of the module a.py"),
        (("\nfrom a import m", "n = 1"), "task.py: line 2: imports 'm' from a.py, which does not define it"),
        (("import a\na.m()", "n = 1"), "task.py: line 2: imports 'm' from a.py, which does not define it"),
        (("import a.b", "n = 1"), "task.py: line 1: imports 'a.b', but there is no a/b.py"),
        (("import torch, a", "n = 1"), "task.py: line 1: import what lies beside the file in a statement of its own"),
        (
            ("from a import n\nn = 2", "n = 1"),
            "task.py: 'n' is imported and bound otherwise too: give one another name",
        ),
        (
            ("from a import n\nfrom b import n", "n = 1", "n = 2"),
            "line 2: 'n' is imported from two places: give one anoth",
        ),
        (("from a import n", "n = 1\nif n:"), "a.py: line 2: expected an indented block"),
        (
            ("from a import *\nn", "__all__ = ['n'] + []\nn = 1"),
            "a.py: line 1: __all__ must be a literal list of names",
        ),
        (
            ("from a import f\nn = 1\nf()", "n = 2\ndef f():\n    global n\n    return n"),
            "a.py: 'n' means something else",
        ),
    ],
)
def test_what_cannot_be_one_text_is_refused(files: tuple[str, ...], said: str, tmp_path: Path) -> None:
    path = written(tmp_path, dict(zip(("task", "a", "b"), files, strict=False)))
    with pytest.raises(TaskError) as caught:
        bundle(path.read_text(), path, "name")
    assert str(caught.value).startswith("task name: ") and said in str(caught.value)


def test_compiled_modules_are_refused_and_what_is_not_beside_is_left_alone(tmp_path: Path) -> None:
    path = written(tmp_path, {"task": "import math, lost.part, pytest\nfrom . import lost\n", "math": "pi = 3\n"})
    assert bundle(path.read_text(), path, "name") == path.read_text()
    (tmp_path / "fast.cpython-311.so").touch()
    with pytest.raises(TaskError, match=r"imports fast\.cpython-311\.so, compiled code"):
        bundle("import fast\n", path, "name")


HELPERS = '''"""Layers."""
import torch
from torch import nn

dim = 64


class Block(nn.Module):
    """A layer."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        check(x)
        return torch.relu(x * self.weight)


def check(x):
    pass
'''
TASK = """import torch
from helpers import Block, dim

rows = 64


class Model(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.block = Block(dim)

    def forward(self, x):
        return self.block(x) + 1.0


def get_inputs():
    return [torch.rand(rows, dim)]


def get_init_inputs():
    return [dim]
"""


def test_a_task_with_a_module_beside_it_is_searched_and_resumed_without_that_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "task", {"task": TASK, "helpers": HELPERS})
    task = load_task(path)
    assert len(task.held_out) == 3 and all("dim" in dict(variant.constants) for variant in task.held_out)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(EVALUATORS, "fake", FakeEvaluator)
    argv = ["evaluator=fake", "evaluator.failing=0", "policy=heuristic", "dumps=false", "budget.evaluations=2"]
    assert main(["search", f"task={path}", "out=run", *argv]) == 0
    (tmp_path / "task" / "helpers.py").write_text("raise SystemExit")
    assert main(["resume", "run", "budget.evaluations=4"]) == 0
    found = load("run")
    assert len(found.tree) > 2 and all("class Block" in version.source for version in found.tree)
    best = runpy.run_path("run/best.py")
    assert best["ModelNew"](8).block.weight.shape == (8,)


def test_errors_say_which_file_and_line_they_are_of(tmp_path: Path) -> None:
    files = {"task": TASK, "helpers": HELPERS.replace("    pass\n", "    raise ValueError('boom')\n")}
    with pytest.raises(TaskError, match=r"forward fails at helpers.py, line 21: ValueError: boom"):
        load_task(written(tmp_path, files))
    files = {"task": TASK.replace("x) + 1.0", "x) @ x[:3]"), "helpers": HELPERS}
    with pytest.raises(TaskError, match=r"forward fails at task.py, line 13: RuntimeError"):
        load_task(written(tmp_path, files))
    assert place("import torch\n", 1) == "line 1"


def test_modules_that_are_neither_beside_nor_installed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "task", {"task": TASK.replace("from helpers", "from far_helpers")})
    written(tmp_path / "far", {"far_helpers": HELPERS})
    monkeypatch.syspath_prepend(str(tmp_path / "far"))
    with pytest.raises(
        TaskError, match=r"imports 'far_helpers' from .*far_helpers.py, which is neither installed nor besi"
    ):
        load_task(path)
