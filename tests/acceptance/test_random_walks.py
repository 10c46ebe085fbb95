"""No sequence of legal actions gives a version that does not build or is wrong (a few walks; the benchmark does 1,000)."""

from __future__ import annotations

from benchmarks.random_walks import Walk, summary, walk
from benchmarks.walk_tasks import TEXTS, walk_task
from mtmc.evaluate import LabSettings
from mtmc.outcome import Outcome
from mtmc.task import load_task
from tests.breadth import WIDE, share

SEEDS = {"cross_entropy": 6, "residual_norm": 1, "groupnorm": 0, "mlp": 4, "logsumexp": 0, "transformer_block": 11}
"""Of the walks over built-in tasks: they are short and take all kinds. Every version of a search over some other tasks is
held to the same in `test_best.py`."""
DEPTH = 4 if WIDE else 2
DEPTH_OF_OTHERS = 3 if WIDE else 2
SEED_OF_OTHERS = 2


def test_random_walks_over_legal_actions_end_in_right_versions() -> None:
    results: list[Walk] = []
    known: dict[str, Outcome] = {}
    with LabSettings(workers=1, check_variants=1).open() as evaluator:
        results += [walk(load_task(name), seed, DEPTH, evaluator, known) for name, seed in share([*SEEDS.items()], 7)]
        results += [
            walk(walk_task(name), SEED_OF_OTHERS, DEPTH_OF_OTHERS, evaluator, known) for name in share([*TEXTS], 7)
        ]
    found = summary(results)
    assert found["problems"] == []
    assert found["versions"] > (len(SEEDS) if WIDE else len(results))  # the walks went somewhere
    assert not WIDE or set(found["kinds"]) >= {
        "lower",
        "fuse",
        "tile",
        "reorder",
        "vectorize",
        "split",
        "precision",
        "algebra",
    }
