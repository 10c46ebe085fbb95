"""Live searches with a model of gains against the same without it, in the lab (estimated runtimes).

    PYTHONPATH=. python benchmarks/gain_live.py --tasks softmax_gelu layernorm --budgets 4 8 --out results/gain_live

Each task is searched with each policy and several seeds by best_first, with `agents.gain=trained` and without. A source that
was evaluated before in this process is not evaluated again, for the lab's estimates do not vary; it still counts as one
evaluation of its search. Told are, of the tasks' geometric mean, the best speedup over the root after each of `--budgets`
evaluations, and the ratio with the model over without, by task.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import Report
from benchmarks.figures import header, row
from benchmarks.remembering import Remembering
from mtmc.evaluate import LabSettings
from mtmc.export import best_so_far
from mtmc.protocols import Evaluator
from mtmc.search import AgentSettings, search

TASKS = ("softmax_gelu", "layernorm", "residual_norm", "bias_gelu", "row_sum")
POLICIES = ("compact", "uniform")


def curve(task: str, policy: str, gain: str, seed: int, evaluator: Evaluator, evaluations: int) -> list[float]:
    """log2 of the best speedup after 1, 2, ... evaluations."""
    result = search(
        task,
        strategy="best_first",
        policy=policy,
        evaluator=evaluator,
        budget=evaluations,
        seed=seed,
        agents=AgentSettings(gain=gain),
        dumps=False,
        progress=False,
    )
    found = [np.log2(value) for value in best_so_far(result.record) if value is not None]
    return found + [found[-1]] * (evaluations - len(found))


def main() -> None:
    """See the text of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--budgets", nargs="*", type=int, default=[4, 8, 12])
    parser.add_argument("--hardware", default="H200", help="whose estimates")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    arguments = parser.parse_args()
    most = max(arguments.budgets)
    evaluator = Remembering(LabSettings(workers=1, hardware=arguments.hardware).open())
    try:
        with Report("Live searches with predicted gains, estimated runtimes", arguments.out) as report:
            report.say(f"best_first, {len(arguments.tasks)} tasks, {arguments.seeds} seeds, {evaluator.hardware}.\n")
            report.say(header("policy", "task", *(f"after {each}: without, with" for each in arguments.budgets)))
            for policy in arguments.policies:
                pairs = []
                for task in arguments.tasks:
                    found = np.asarray(
                        [
                            [curve(task, policy, gain, seed, evaluator, most) for seed in range(arguments.seeds)]
                            for gain in ("", "trained")
                        ]
                    )
                    report.data[f"{policy}/{task}"] = found.tolist()
                    pairs.append(found.mean(axis=1))
                    report.say(row(policy, task, *_cells(pairs[-1], arguments.budgets)))
                report.say(row(policy, "geometric mean", *_cells(np.mean(pairs, axis=0), arguments.budgets)))
    finally:
        evaluator.close()


def _cells(pair: np.ndarray, budgets: Sequence[int]) -> list[str]:
    """pair: [without and with, evaluations], log2."""
    return [f"{2 ** pair[0, at - 1]:.2f}x, {2 ** pair[1, at - 1]:.2f}x" for at in budgets]


if __name__ == "__main__":
    main()
