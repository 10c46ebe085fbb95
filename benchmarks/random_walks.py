"""Random walks over legal actions: does any sequence of them give a version that does not build or is not right?

    python benchmarks/random_walks.py --walks 1000 --depth 6 --seed 0 --json results/random_walks.json

Each walk starts at the root of a built-in task or of one in `walk_tasks.py` and takes legal actions, the kind drawn first
and then one of that kind; its length is drawn from 1 to the depth. Every version on the way goes through all gates of the
lab (audit, build for the target, check against float64 at small and held-out shapes, estimate); one that an earlier walk has
met is not evaluated again. Versions that ask for more resources than the target has are allowed, but not to come back: what
fails so must not be legal afterwards.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rich import progress

from benchmarks.walk_tasks import TEXTS, walk_task
from mtmc.agents.coders.rewriter import Rewriter
from mtmc.evaluate import LabEvaluator, LabSettings
from mtmc.outcome import RESOURCE_ERROR, Outcome
from mtmc.protocols import EditRequest, EvaluationRequest, Observation
from mtmc.task import Task, builtin_names
from mtmc.tree import source_hash


@dataclass(frozen=True)
class Walk:
    """What came of one walk: sentences of its steps, their statuses, and the source of a version that failed."""

    task: str
    seed: int
    steps: tuple[str, ...]
    statuses: tuple[str, ...]
    problem: str | None = None
    source: str | None = None
    resource_failures: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def walk(task: Task, seed: int, depth: int, evaluator: LabEvaluator, known: dict[str, Outcome]) -> Walk:
    """One walk of at most `depth` steps; kinds are drawn first, so that rare ones are not drowned by many tiles.

    known: outcomes of the versions that were met so far, by task and source; it is added to.
    """
    coder, rng = Rewriter(), random.Random(f"{task.name}/{seed}")
    depth = rng.randint(1, depth)
    edit = coder.root(task)
    source, plan, outcome = edit.source, edit.plan, Outcome("ok")
    failures: list[tuple[str | None, Outcome]] = []
    failed_plans: set[str | None] = set()
    steps: list[str] = []
    statuses: list[str] = []
    kinds: Counter[str] = Counter()

    def ended(problem: str | None = None, bad: str | None = None) -> Walk:
        return Walk(task.name, seed, tuple(steps), tuple(statuses), problem, bad, len(failures), kinds)

    for _ in range(depth):
        legal = coder.actions(Observation(task, source, plan, outcome, (), evaluator.hardware), failures)[:-1]
        if not legal:
            break
        kind = rng.choice(sorted({action.kind for action in legal}))
        action = rng.choice([action for action in legal if action.kind == kind])
        child = coder.edit(EditRequest(task, source, plan, outcome, action, evaluator.hardware))
        steps.append(action.sentence)
        kinds[action.kind] += 1
        if child.plan in failed_plans:
            return ended("a version that failed for lack of resources was legal again", child.source)
        key = f"{task.name}/{source_hash(child.source)}"
        if key not in known:
            known[key] = evaluator.evaluate([EvaluationRequest(task, child.source, seed=seed)])[0]
        result = known[key]
        statuses.append(result.status)
        if result.ok:
            source, plan, outcome = child.source, child.plan, result
        elif result.diagnosis is not None and result.diagnosis.kind == RESOURCE_ERROR:
            failures.append((child.plan, result))
            failed_plans.add(child.plan)
        else:
            found = result.diagnosis
            return ended(f"{result.status}: {found.kind}: {found.message}" if found else result.status, child.source)
    return ended()


def walks(names: Sequence[str], count: int, depth: int, seed: int, workers: int = 2) -> tuple[list[Walk], int]:
    """`count` walks spread evenly over the tasks, `workers` at a time; and how many distinct versions they met."""
    tasks = [walk_task(name) for name in names]
    known: dict[str, Outcome] = {}
    with LabSettings(workers=workers).open() as evaluator, ThreadPoolExecutor(workers) as pool:
        jobs = [(tasks[index % len(tasks)], seed + index // len(tasks)) for index in range(count)]
        found = pool.map(lambda job: walk(job[0], job[1], depth, evaluator, known), jobs)
        return list(progress.track(found, "walks", total=count)), len(known)


def summary(results: Sequence[Walk]) -> dict[str, object]:
    """Counts by status and kind, and every problem."""
    statuses = Counter(status for each in results for status in each.statuses)
    kinds: Counter[str] = Counter()
    for each in results:
        kinds.update(each.kinds)
    problems = [{"task": w.task, "seed": w.seed, "problem": w.problem, "steps": w.steps} for w in results if w.problem]
    return {
        "walks": len(results),
        "versions": sum(statuses.values()),
        "statuses": dict(statuses),
        "kinds": dict(sorted(kinds.items())),
        "resource_failures": sum(each.resource_failures for each in results),
        "problems": problems,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", nargs="*", default=[*builtin_names(), *TEXTS])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for the sources of versions that failed")
    arguments = parser.parse_args()
    start = time.monotonic()
    results, distinct = walks(arguments.tasks, arguments.walks, arguments.depth, arguments.seed)
    found = {**summary(results), "distinct_versions": distinct, "seconds": round(time.monotonic() - start, 1)}
    print(json.dumps(found, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for each in results:
        if arguments.keep and each.source:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / f"{each.task}_{each.seed}.py").write_text(each.source, encoding="utf-8")


if __name__ == "__main__":
    main()
