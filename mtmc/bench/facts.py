"""facts: from a run to its row: what is handed back, how fast it is, what it is compared with, and what it took."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtmc.bench.problem import Problem
from mtmc.bench.row import EAGER, Row, Stopped, Why, digest
from mtmc.bench.why import WhyFacts, why
from mtmc.errors import ConfigError, MtmcError
from mtmc.export.text import one_line
from mtmc.hardware import hardware
from mtmc.outcome import Outcome
from mtmc.protocols import Depth
from mtmc.search.result import SearchResult, spent_cost
from mtmc.store import Store
from mtmc.syntax import parse
from mtmc.task import Task
from mtmc.tree import KernelNode

if TYPE_CHECKING:
    from mtmc.rewrite.graph import Graph

GPU_STAGES = ("again_s", "ready_s", "check_s", "time_s", "verify_s", "loop_s")
"""Metrics of a measured outcome: seconds that it held the GPU."""
MESSAGE = 300
"""Characters of a diagnosis in a row, at most."""
ON_DEVICE = ("check", "time", "verify")
"""Gates that need the GPU."""


@dataclass(frozen=True)
class Handed:
    """The version that is handed back.

    outcome: of its verification where it has one that it passed, else of its screening. eager_ms: of the reference, timed
    in turn with it where that was done.
    """

    outcome: Outcome
    is_reference: bool
    verified: bool | None
    eager_ms: float | None


def row_of(problem: Problem, task: Task, result: SearchResult, verifies: bool, seconds: float, exported: bool) -> Row:
    """The row of a run that has its root.

    verifies: whether the evaluator has a gate for the version that is handed back. seconds: wall time of the problem.
    exported: whether the coder's graph of the task can be asked for; without it rules that need it do not hold.
    """
    tree, best = result.versions, result.versions.best
    store = Store.read(result.run_dir)
    try:
        made, cost = store.evaluations_made(), spent_cost(store)
        gpu = store.hardware() or ""
    finally:
        store.close()
    handed = _handed(best, result, made, verifies)
    eager = handed.eager_ms or _ms(result.baselines.get(EAGER)) or tree.root.outcome.runtime_ms
    baselines = {name: ms for name, outcome in result.baselines.items() if (ms := _ms(outcome)) is not None}
    baselines |= {} if eager is None else {EAGER: eager}
    best_ms = baselines.get(EAGER) if handed.is_reference else handed.outcome.runtime_ms
    row = Row(
        level=problem.level,
        number=problem.number,
        name=problem.name,
        digest=digest(task.source),
        correct=handed.outcome.ok and handed.verified is not False,
        verified=handed.verified,
        triton=any(node.outcome.ok and has_kernel(node.source) for node in tree if node is not tree.root),
        is_reference=handed.is_reference,
        best_ms=best_ms,
        baselines_ms=baselines,
        runtime_kind=handed.outcome.runtime_kind,
        hardware=gpu,
        roofline=_roofline(handed.outcome, best_ms),
        metrics=dict(handed.outcome.metrics),
        evaluations=result.evaluations,
        statuses=dict(Counter(node.outcome.status for node in tree)),
        stopped=stopped(list(tree)),
        gpu_seconds=gpu_seconds((gate, spent, outcome) for _, gate, spent, outcome in made),
        seconds=seconds,
        tokens=cost.tokens_in + cost.tokens_out,
        usd=cost.usd,
        steps=tuple(node.action.sentence for node in tree.path(best.id) if node.action is not None),
        finished=result.finished or "",
        undecided=result.undecided,
        cut_short=result.cut_short,
        untimed=untimed(result.baselines),
        tolerance=task.tolerance.contract(handed.outcome.metrics),
    )
    versions = [(node.source, node.outcome) for node in tree if node is not tree.root]
    return replace(row, why=explained(row, versions, library_steps(task, best) if exported else None))


def untimed(baselines: Mapping[str, Outcome]) -> dict[str, str]:
    """The baselines that have no time, by name, and why."""
    return {name: outcome.verdict for name, outcome in baselines.items() if not outcome.ok}


def stopped(versions: Sequence[KernelNode]) -> tuple[Stopped, ...]:
    """What stopped the versions that are not right, the most frequent first."""
    alike: dict[tuple[str, str], list[KernelNode]] = {}
    for node in versions:
        if node.outcome.diagnosis is not None:
            alike.setdefault((node.outcome.diagnosis.stage, node.outcome.diagnosis.kind), []).append(node)
    found = []
    for (stage, kind), some in alike.items():
        action, diagnosis = some[0].action, some[0].outcome.diagnosis
        assert diagnosis is not None
        step = "" if action is None else action.sentence
        found.append(Stopped(stage, kind, len(some), step, one_line(diagnosis.message, MESSAGE)))
    return tuple(sorted(found, key=lambda each: -each.versions))


def has_kernel(source: str) -> bool:
    """Whether a file defines a Triton kernel: a function under `triton.jit`."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return False
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    marks = [ast.unparse(mark).partition("(")[0] for each in functions for mark in each.decorator_list]
    return any(mark in ("jit", "triton.jit") for mark in marks)


def gpu_seconds(made: Iterable[tuple[Depth, float, Outcome]]) -> float:
    """Seconds that evaluations held a GPU. made: gate, wall seconds and outcome of each.

    What a measured outcome states of its stages; for a version that failed on the GPU, how long it was held, or where that
    is not stated (in records of earlier releases), its wall seconds, for which it has waited for the GPU, too. Nothing for
    what failed before, nor where nothing is measured. Baselines, which are kept between runs, are not counted.
    """
    evaluations = list(made)
    if not any(outcome.runtime_kind == "measured" for _, _, outcome in evaluations):
        return 0.0
    total = 0.0
    for _, spent, outcome in evaluations:
        if outcome.runtime_kind == "measured":
            total += sum(outcome.metrics.get(stage, 0.0) for stage in GPU_STAGES)
        elif not outcome.ok and outcome.diagnosis is not None and outcome.diagnosis.stage in ON_DEVICE:
            total += outcome.metrics.get("held_s", spent)
    return total


def _handed(
    best: KernelNode, result: SearchResult, made: list[tuple[str, Depth, float, Outcome]], verifies: bool
) -> Handed:
    """The version that a run hands back: the reference itself needs no verification."""
    if best is result.versions.root:
        return Handed(best.outcome, True, None, best.outcome.metrics.get("eager_ms"))
    found = [outcome for hash_, gate, _, outcome in made if hash_ == best.hash and gate == "verify"]
    outcome = found[0] if found and found[0].ok else best.outcome
    verified = bool(found and found[0].ok) if verifies else None
    return Handed(outcome, False, verified, outcome.metrics.get("eager_ms"))


def explained(
    row: Row, versions: Sequence[tuple[str, Outcome]], steps: tuple[dict[str, int], int] | None = None
) -> Why | None:
    """Why a problem is not faster than its better baseline, see `mtmc.bench.why`; None where it is, or nothing is known.

    versions: source and outcome of those that were made. steps: library ops that stay, and all steps of the best version.
    """
    baseline = row.better_baseline
    if baseline is None or not row.best_ms or not row.correct or row.undecided:
        return None
    kernels = [outcome for source, outcome in versions if has_kernel(source)]
    right = [outcome.runtime_ms for outcome in kernels if outcome.ok and outcome.runtime_ms is not None]
    return why(
        WhyFacts(
            baseline=baseline,
            baseline_ms=row.baselines_ms[baseline],
            best_ms=row.best_ms,
            roofline=row.roofline,
            kernels=launches(row.metrics),
            launch_us=_launch_us(row.hardware),
            device_ms=row.metrics.get("device_ms"),
            call_ms=None if row.best_ms == row.metrics.get("device_ms") else row.metrics.get("call_ms"),
            uncovered=None if steps is None else steps[0],
            ops=0 if steps is None else steps[1],
            kernel_ms=min(right, default=None),
            made=len(kernels),
            statuses=Counter(outcome.status for outcome in kernels),
            finished=row.finished,
        )
    )


def launches(metrics: Mapping[str, float]) -> float | None:
    """Kernels of one forward: counted by the lab, or seen by the profiler, where the handing over of the outputs is one
    more; None where neither looked."""
    if "kernels" in metrics:
        return metrics["kernels"]
    return max(metrics["activities"] - 1, 0.0) if "activities" in metrics else None


def library_steps(task: Task, best: KernelNode) -> tuple[dict[str, int], int] | None:
    """The library ops that a version still calls and that no kernel template covers, by name with their number; and how many
    steps it has. None for a version without a plan.

    What launches nothing counts as neither: views, numbers that kernels hold themselves. Nor do the counters of norms, which
    no kernel is to cover: one launch raises them all.
    """
    from mtmc.rewrite.exported import export_graph
    from mtmc.rewrite.operators.table import FREE
    from mtmc.rewrite.plan import graph_of, plan_from_json
    from mtmc.rewrite.source import print_plan
    from mtmc.rewrite.write_back import write_back

    try:
        plan = plan_from_json(best.plan or "")
        graph: Graph = graph_of(export_graph(task), plan)
        printed = print_plan(task, graph, plan).regions
        nothing = {op for op, _, _ in write_back(graph, plan).raised}
        nothing |= {op for op, known in graph.by_name.items() if known.target in FREE}
        steps = [each for each in plan.stages if each in printed and not (each.is_torch and each.ops[0] in nothing)]
        calls = [each.ops[0] for each in steps if each.is_torch and not _covered(graph, each.ops[0])]
        return dict(Counter(graph.by_name[call].target.split(".")[1] for call in calls)), len(steps)
    except (MtmcError, ValueError, KeyError, IndexError):  # of another coder: it has no plan, or none of this kind
        return None


def _covered(graph: Graph, op: str) -> bool:
    """Whether one of the kernel templates takes an op by itself."""
    from mtmc.rewrite.body import NotCovered
    from mtmc.rewrite.expansion import build
    from mtmc.rewrite.operators.table import table
    from mtmc.rewrite.templates import template_of

    try:
        template_of(build(graph, (op,), table))
    except NotCovered:
        return False
    return True


def _roofline(outcome: Outcome, best_ms: float | None) -> float | None:
    """Fraction of the roofline that `best_ms` is, from what an outcome states of its own runtime."""
    stated = outcome.metrics.get("roofline")
    if stated is None or not best_ms or outcome.runtime_ms is None:
        return None
    return stated * outcome.runtime_ms / best_ms


def _launch_us(gpu: str) -> float | None:
    try:
        return hardware(gpu).launch_us
    except ConfigError:
        return None


def _ms(outcome: Outcome | None) -> float | None:
    return None if outcome is None else outcome.runtime_ms
