"""score: candidates made elsewhere, under the same evaluator as our own versions. Nothing is searched."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mtmc.bench.facts import explained, gpu_seconds, has_kernel, untimed
from mtmc.bench.failures import failure_of
from mtmc.bench.loading import load_problem
from mtmc.bench.problem import Problem
from mtmc.bench.row import EAGER, Failure, Row
from mtmc.bench.solve import Setup, failed_row, identity
from mtmc.bench.suites.files import read_text
from mtmc.errors import TaskError
from mtmc.evaluate.shared import Shared
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import Depth, EvaluationRequest
from mtmc.search.slow_baselines import missing
from mtmc.search.strategies.common import derive_seed
from mtmc.source.inline_words import NotPlain
from mtmc.source.load_inline import translated
from mtmc.task import Task
from mtmc.task.dtypes import in_dtype
from mtmc.tree import source_hash

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Judged:
    """One candidate. outcome: of its verification where it came so far, else of its screening."""

    path: Path
    source: str
    outcome: Outcome
    verified: bool | None


def score(problem: Problem, setup: Setup, evaluator: Shared) -> Row:
    """Evaluate a problem's candidates; the row is that of the fastest one that passes every gate.

    Raises: ConfigError for a setting that is wrong for every problem.
    """
    started, found = time.monotonic(), ""
    paths = (setup.score or {}).get(problem.id, ())
    try:
        task = load_problem(setup.suite, problem, setup.dtype, setup.kept.task(problem))
        found = identity(problem, task.source, setup)
        if not paths:
            return failed_row(problem, Failure("no_candidate", "there is no candidate for it"), 0.0, found)
        return _scored(problem, task, paths, setup, evaluator, started)
    except Exception as error:
        _log.warning("%s: no result", problem.id, exc_info=True)
        failure = failure_of(error, bool(found), evaluator.asked)
        return failed_row(problem, failure, time.monotonic() - started, found)


def _scored(
    problem: Problem, task: Task, paths: Sequence[Path], setup: Setup, evaluator: Shared, started: float
) -> Row:
    from mtmc.rewrite.source import root_source

    spent: list[tuple[Depth, float, Outcome]] = []
    root = _evaluate(task, root_source(task), "screen", setup.options.seed, evaluator, spent)
    if not root.ok:
        raise TaskError(f"the reference of task {task.name} fails its own evaluation: {root.verdict}")
    baselines = evaluator.baselines(task)
    judged = [_judge(path, problem, task, setup, evaluator, spent) for path in paths]
    right = [each for each in judged if each.outcome.ok and each.outcome.runtime_ms]
    best = min(right, key=lambda each: each.outcome.runtime_ms or 0.0) if right else judged[0]
    if missing(baselines):
        baselines |= evaluator.slow_baselines(task)
    known = {name: outcome.runtime_ms for name, outcome in baselines.items() if outcome.runtime_ms is not None}
    eager = best.outcome.metrics.get("eager_ms") or known.get(EAGER) or root.runtime_ms
    known |= {} if eager is None else {EAGER: eager}
    row = Row(
        level=problem.level,
        number=problem.number,
        name=problem.name,
        digest=identity(problem, task.source, setup),
        correct=best.outcome.ok,
        verified=best.verified,
        triton=any(each.outcome.ok and has_kernel(each.source) for each in judged),
        best_ms=best.outcome.runtime_ms,
        baselines_ms=known,
        runtime_kind=best.outcome.runtime_kind or root.runtime_kind,
        hardware=evaluator.hardware,
        roofline=best.outcome.metrics.get("roofline"),
        metrics=dict(best.outcome.metrics),
        evaluations=sum(gate == "screen" for gate, _, _ in spent),
        statuses=dict(Counter(each.outcome.status for each in judged)),
        gpu_seconds=gpu_seconds(spent),
        seconds=time.monotonic() - started,
        finished="" if best.outcome.ok else best.outcome.verdict,
        candidate=best.path.name,
        undecided=root.undecided,
        untimed=untimed(baselines),
        tolerance=task.tolerance.contract(best.outcome.metrics),
    )
    return replace(row, why=explained(row, [(each.source, each.outcome) for each in judged]))


def _judge(
    path: Path,
    problem: Problem,
    task: Task,
    setup: Setup,
    evaluator: Shared,
    spent: list[tuple[Depth, float, Outcome]],
) -> _Judged:
    """One candidate through every gate. A file that is no candidate fails its build."""
    try:
        source = translated(in_dtype(setup.suite.candidate(problem, read_text(path)), setup.dtype, "ModelNew"))
    except (TaskError, NotPlain) as error:
        return _Judged(path, "", Outcome("build_error", diagnosis=Diagnosis("audit", "NoCandidate", str(error))), None)
    outcome = _evaluate(task, source, "screen", setup.options.seed, evaluator, spent)
    if not outcome.ok or not evaluator.verifies:
        return _Judged(path, source, outcome, False if evaluator.verifies else None)
    verified = _evaluate(task, source, "verify", setup.options.seed, evaluator, spent)
    return _Judged(path, source, verified if verified.ok else replace(verified, status="rejected"), verified.ok)


def _evaluate(
    task: Task, source: str, gate: Depth, seed: int, evaluator: Shared, spent: list[tuple[Depth, float, Outcome]]
) -> Outcome:
    started = time.monotonic()
    request = EvaluationRequest(task, source, derive_seed(seed, gate, source_hash(source)), gate)
    [outcome] = evaluator.evaluate([request])
    spent.append((gate, time.monotonic() - started, outcome))
    return outcome
