"""What a search hands back: right on its own at any shape, and leaner than what it came from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mtmc.evaluate import LabEvaluator, LabSettings
from mtmc.search import SearchResult, search
from mtmc.task import load_task
from tests.breadth import share
from tests.rewrite.interpreting import interpret

EVALUATIONS = 3
TURNED = {"matmul_max"}
"""A product whose right operand is turned first: a kernel and two passes more, which the tensor cores pay back."""

SINGLE = {"softmax", "linear"}
"""Tasks of one op: there is nothing to fuse. One whose work is memory's and one whose work is arithmetic."""
NAMES = share(
    ["softmax_gelu", "elementwise_chain", "softmax", "linear_gelu", "linear", "matmul_max", "row_mean_max_argmax"], 4
)
"""What is searched here; other built-in tasks are walked over (`test_random_walks`), all are in the benchmarks."""


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LabEvaluator]:
    with LabSettings(check_variants=1).open() as opened:
        yield opened


@pytest.fixture(scope="module")
def results(evaluator: LabEvaluator) -> dict[str, SearchResult]:
    return {name: search(text(name), budget=EVALUATIONS, evaluator=evaluator, batch=2) for name in NAMES}


def text(name: str) -> str:
    """A task's file. A product with a quarter of the steps has as many tiles: it takes less to interpret one."""
    return load_task(name).source.replace("in_features = 4096", "in_features = 1024")


def test_best_versions_run_on_their_own_at_small_and_odd_shapes(results: dict[str, SearchResult]) -> None:
    cases = [{"name": name, "source": text(name), "candidate": r.best_file} for name, r in results.items()]
    assert interpret(cases) == dict.fromkeys(results)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SINGLE | TURNED])
def test_trees_of_several_ops_hold_a_version_with_fewer_kernels_and_less_traffic(
    results: dict[str, SearchResult], name: str
) -> None:
    tree = results[name].tree
    root = tree.root.outcome.metrics
    assert any(
        node.outcome.ok
        and node.outcome.metrics["kernels"] < root["kernels"]
        and node.outcome.metrics["bytes_moved"] < root["bytes_moved"]
        for node in tree
    )


def test_no_version_fails(results: dict[str, SearchResult]) -> None:
    outcomes = {(name, node.id): node.outcome for name, result in results.items() for node in result.tree}
    assert {at: outcome for at, outcome in outcomes.items() if not outcome.ok} == {}


def test_no_best_is_slower_than_the_root(results: dict[str, SearchResult]) -> None:
    assert all((result.best.speedup or 0) >= 1.0 for result in results.values())
