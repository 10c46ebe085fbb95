"""No sequence of legal actions gives a version that does not build or is wrong (14 walks; the benchmark does 1,000)."""

from __future__ import annotations

from benchmarks.random_walks import Walk, summary, walk
from benchmarks.walk_tasks import TEXTS, walk_task
from mtmc.evaluate import LabSettings
from mtmc.outcome import Outcome
from mtmc.task import load_task

NAMES = ("cross_entropy", "groupnorm", "logsumexp", "mlp", "residual_norm", "transformer_block")
"""Every version of a search over some others is held to the same in `test_best.py`."""
DEPTH = 4
DEPTH_OF_OTHERS = 3
SEED, SEED_OF_OTHERS = 5, 2
"""Of the walks over built-in tasks, and over the other families' references: they are short and take all kinds."""


def test_random_walks_over_legal_actions_end_in_right_versions() -> None:
    results: list[Walk] = []
    known: dict[str, Outcome] = {}
    with LabSettings(workers=1, check_variants=1).open() as evaluator:
        results += [walk(load_task(name), SEED, DEPTH, evaluator, known) for name in NAMES]
        results += [walk(walk_task(name), SEED_OF_OTHERS, DEPTH_OF_OTHERS, evaluator, known) for name in TEXTS]
    found = summary(results)
    assert found["problems"] == []
    assert found["versions"] > len(NAMES)  # the walks went somewhere
    assert set(found["kinds"]) >= {
        "lower",
        "fuse",
        "tile",
        "reorder",
        "pipeline",
        "vectorize",
        "split",
        "precision",
        "algebra",
    }
