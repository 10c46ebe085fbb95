"""Pictures: what is drawn, not how it looks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mtmc.export import RunRecord, best_so_far, progress_png, tree_png
from mtmc.export.plots import layout, progress_figure, sweep_png, tree_figure
from mtmc.outcome import Outcome
from mtmc.tree import KernelNode, Tree


def test_best_so_far_starts_from_the_root(chain: Callable[..., RunRecord]) -> None:
    assert best_so_far(chain([0.5, None, 2.0, 1.5, 4.0], {})) == pytest.approx([1.0, 1.0, 2.0, 2.0, 4.0])
    tree = Tree("toy")
    tree.add(KernelNode(0, -1, None, "a", None, Outcome("crash")))
    assert best_so_far(RunRecord(tree, evaluations=(0,))) == [None]


def test_leaves_take_a_row_each_and_parents_the_middle(record: RunRecord) -> None:
    # Leaves from top to bottom: 3, 5, 6, 8, 9, 2, 10. Then 7 = (3 + 4) / 2, 4 = (1 + 3.5) / 2, 1 = (0 + 2.25) / 2,
    # and the root = (1.125 + 6) / 2.
    rows = {0: 3.5625, 1: 1.125, 2: 5, 3: 0, 4: 2.25, 5: 1, 6: 2, 7: 3.5, 8: 3, 9: 4, 10: 6}
    columns = {0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 3, 8: 4, 9: 4, 10: 1}
    assert layout(record.tree) == [(columns[node_id], rows[node_id]) for node_id in range(11)]


def test_the_progress_shows_every_evaluation(record: RunRecord) -> None:
    axes = progress_figure(record).axes[0]
    xs, ys = np.asarray(axes.get_lines()[0].get_data())
    assert list(xs) == list(range(11))
    best = [1.92 / 1.84] * 3 + [1.92 / 0.91] * 3 + [3.2] * 4
    assert list(ys) == pytest.approx([1.0, *best])
    marks = {collection.get_label(): len(np.asarray(collection.get_offsets())) for collection in axes.collections}
    assert marks == {"right version": 6, "build error": 2, "timeout": 1, "wrong result": 1}
    assert axes.get_ylabel() == "speedup over the root (estimated)"


def test_the_tree_names_every_version(record: RunRecord) -> None:
    axes = tree_figure(record).axes[0]
    labels = [text.get_text() for text in axes.texts]
    assert len(labels) == 11 and "vectorize  3.20x" in labels and "fuse  build error" in labels
    assert [len(collection.get_paths()) for collection in axes.collections] == [7, 3]  # other edges, best path
    assert axes.get_title(loc="left") == "softmax_gelu: 11 versions, best 3.20x estimated"


def test_large_and_deep_trees_are_drawn_as_dots(
    big_record: Callable[[int], RunRecord], chain: Callable[..., RunRecord], tmp_path: Path
) -> None:
    for index, run in enumerate((big_record(400), chain([1.5] * 40, {}))):
        figure = tree_figure(run)
        assert not figure.axes[0].texts and max(figure.get_size_inches()) <= 24
        assert len(np.asarray(figure.axes[0].collections[2].get_offsets())) == len(run.tree)
        assert tree_png(run, tmp_path / f"{index}.png").stat().st_size > 1000


def test_a_deep_chain_needs_no_recursion(chain: Callable[..., RunRecord]) -> None:
    places = layout(chain([1.5] * 3000, {}).tree)
    assert places[-1] == (3000, 0.0)


def test_pictures_of_runs_without_runtimes_or_evaluations(tmp_path: Path) -> None:
    tree = Tree("toy")
    tree.add(KernelNode(0, -1, None, "a", None, Outcome("crash")))
    for run in (RunRecord(tree), RunRecord(tree, evaluations=(0,))):
        assert progress_png(run, tmp_path / "progress.png").read_bytes().startswith(b"\x89PNG")
        assert tree_png(run, tmp_path / "tree.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_of_many_lines(tmp_path: Path) -> None:
    curves = {f"combination {index}": [[1.0, 1.0 + index], [1.0]] for index in range(12)}
    assert sweep_png(curves, "estimated", tmp_path / "sweep.png").stat().st_size > 1000


def test_a_callers_matplotlib_is_left_alone(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
import matplotlib
# The backend is left out: to ask for it is to load pyplot, which chooses one.
settings = lambda: {{name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}}
before = settings()
from mtmc.export import RunRecord, tree_png, progress_png
from mtmc.outcome import Outcome
from mtmc.tree import KernelNode, Tree
tree = Tree("toy")
tree.add(KernelNode(0, -1, None, "a", None, Outcome("ok", 1.0, runtime_kind="estimated")))
run = RunRecord(tree, evaluations=(0,))
tree_png(run, Path({str(tmp_path / "a.png")!r}))
progress_png(run, Path({str(tmp_path / "b.png")!r}))
print("matplotlib.pyplot" in sys.modules, settings() == before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"
