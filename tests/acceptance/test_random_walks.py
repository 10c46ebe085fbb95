"""No sequence of legal actions gives a version that does not build or is wrong (25 walks; the benchmark does 1,000)."""

from __future__ import annotations

from benchmarks.random_walks import summary, walk
from benchmarks.walk_tasks import TEXTS, walk_task
from mtmc.evaluate import LabSettings
from mtmc.outcome import Outcome
from mtmc.task import builtin_names, load_task

WALKS = 18
DEPTH = 5
DEPTH_OF_OTHERS = 3
SEED = 2
"""Of the walks over the references of the other families: with it they are short, and take several kinds."""


def test_random_walks_over_legal_actions_end_in_right_versions() -> None:
    names = builtin_names()
    results, known = [], dict[str, Outcome]()
    with LabSettings(workers=1, check_variants=1).open() as evaluator:
        for index in range(WALKS):
            task = load_task(names[index % len(names)])
            results.append(walk(task, index, DEPTH, evaluator, known))
        results += [walk(walk_task(name), SEED, DEPTH_OF_OTHERS, evaluator, known) for name in TEXTS]
    found = summary(results)
    assert found["problems"] == []
    assert found["versions"] > WALKS  # the walks went somewhere
    assert set(found["kinds"]) >= {
        "lower",
        "fuse",
        "tile",
        "reorder",
        "pipeline",
        "vectorize",
        "split",
        "precision",
        "simplify",
    }
