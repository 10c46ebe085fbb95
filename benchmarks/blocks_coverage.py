"""What of `suite=blocks` mtmc can do: which blocks load, export, are accepted and get a right version, and what is lacking.

    mtmc bench suite=blocks policy=heuristic budget=2 evaluator=lab evaluator.timeout_s=240 out=bench/blocks
    PYTHONPATH=. python benchmarks/blocks_coverage.py bench/blocks --out results/blocks_coverage

The counts are those of the benchmark's rows: two evaluations each, the reference and the first version that is tried.
What is lacking is asked of the rewriter, block by block, and nothing is run: calls that no kernel template covers, and
actions whose version cannot be written.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common import Report
from benchmarks.figures import header, row
from mtmc.bench import Problem, Row, open_suite
from mtmc.bench.loading import load_problem
from mtmc.bench.report import spelled
from mtmc.bench.row import row_from_json
from mtmc.errors import CoderError, MtmcError
from mtmc.task import Task

GPU = "H100"
_NOT_ACCEPTED = ("not_loaded", "not_exported", "refused", "too_large", "evaluator", "time", "crash", "error")


@dataclass(frozen=True)
class Lacking:
    """What the rewriter cannot do on one block. ops: calls without a template, with their number. unwritten: reasons."""

    ops: Counter[str] = field(default_factory=Counter)
    unwritten: tuple[str, ...] = ()


def lacking(task: Task) -> Lacking:
    """See `Lacking`. Raises: TaskError where the task does not export."""
    from mtmc.agents.coders.rewriter import Rewriter
    from mtmc.hardware import hardware
    from mtmc.optimizations import KINDS, Version
    from mtmc.rewrite.exported import export_graph
    from mtmc.rewrite.plan import plan_from_json

    plan = plan_from_json(Rewriter().root(task).plan or "")
    version = Version.of(task, plan, hardware(GPU), False)
    calls = [stage for stage in plan.stages if stage.is_torch and not version.is_free(stage)]
    targets = {op.name: op.target for op in export_graph(task).ops}
    ops = Counter(targets[stage.ops[0]].split(".")[1] for stage in calls if version.as_kernel(stage.ops, {}) is None)
    reasons = []
    for move in KINDS["lower"].legal(version):
        if move.child is None:
            continue
        try:
            _written(task, move.child.to_json())
        except CoderError as error:
            reasons.append(str(error))
    return Lacking(ops, tuple(dict.fromkeys(reasons)))


def _written(task: Task, plan: str) -> None:
    """Print a plan. Raises: CoderError where it cannot be."""
    from mtmc.rewrite.exported import export_graph
    from mtmc.rewrite.plan import graph_of, plan_from_json
    from mtmc.rewrite.source import print_plan

    made = plan_from_json(plan)
    print_plan(task, graph_of(export_graph(task), made), made)


def counts(rows: list[Row]) -> Iterator[tuple[str, list[int]]]:
    """Per level, and of all: blocks, those that load, export, are accepted, and have a right version with a kernel."""
    levels = list(dict.fromkeys(each.level for each in rows))
    for level in [*levels, "all"]:
        inside = [each for each in rows if level in (each.level, "all")]
        kinds = Counter(each.failure.kind for each in inside if each.failure is not None)
        loaded = len(inside) - kinds["not_loaded"]
        exported = loaded - kinds["not_exported"]
        accepted = exported - sum(kinds[kind] for kind in _NOT_ACCEPTED[2:])
        yield level, [len(inside), loaded, exported, accepted, sum(each.triton for each in inside)]


def note(found: Row) -> str:
    """Why a block has no right version with a kernel."""
    if found.failure is not None:
        return f"{spelled(found.failure.kind)}: {found.failure.message}"
    tried = {status: count for status, count in found.statuses.items() if status != "ok"}
    if tried:
        return f"the version that was tried: {', '.join(tried)}"
    if found.evaluations < 2:
        return "no version could be written"
    return "the version that was tried has no kernel (algebra, a CUDA graph, another layout)"


def main() -> None:
    """Write the report."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("folder", type=Path, help="of a benchmark of suite=blocks that has ended")
    made.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    arguments = made.parse_args()
    data = json.loads((arguments.folder / "bench.json").read_text(encoding="utf-8"))
    rows = [row_from_json(each) for each in data["rows"]]
    with Report("Blocks of published architectures, in the lab", arguments.out) as report:
        budget, versions = data["settings"]["budget"]["evaluations"], data["settings"]["versions"]
        report.say("From `mtmc bench suite=blocks policy=heuristic budget=2 evaluator=lab evaluator.timeout_s=240`.")
        report.say(f"Without a GPU; {budget} evaluations each, {', '.join(f'{k} {v}' for k, v in versions.items())}.\n")
        _tell_counts(report, rows)
        suite = open_suite("blocks", "")
        problems = {each.id: each for each in suite.problems()}
        _tell_lacking(report, [problems[each.id] for each in rows])


def _tell_counts(report: Report, rows: list[Row]) -> None:
    report.say(header("level", "blocks", "load", "export", "root accepted", "a right version with a kernel"))
    for level, numbers in counts(rows):
        report.say(row(level, *numbers))
    report.data["rows"] = {each.id: {"accepted": each.failure is None, "triton": each.triton} for each in rows}
    without = [each for each in rows if not each.triton]
    if without:
        report.say("\n## Without a right version with a kernel\n")
        report.say(header("block", "why"))
        for each in without:
            report.say(row(each.id, note(each).replace("|", "\\|")))


def _tell_lacking(report: Report, problems: list[Problem]) -> None:
    ops, reasons = dict[str, list[str]](), dict[str, list[str]]()
    suite = open_suite("blocks", "")
    for problem in problems:
        try:
            found = lacking(load_problem(suite, problem, "fp32"))
        except MtmcError as error:
            report.say(f"\n{problem.id}: {error}")
            continue
        for op in found.ops:
            ops.setdefault(op, []).append(problem.id)
        for reason in found.unwritten:
            reasons.setdefault(reason.split(" (line")[0] + reason.partition("reference)")[2], []).append(problem.id)
    report.say("\n## Calls that no kernel template covers by themselves\n")
    report.say(header("call", "blocks", "which"))
    for op, which in sorted(ops.items(), key=lambda item: (-len(item[1]), item[0])):
        report.say(row(op, len(which), ", ".join(which)))
    report.say("\n## Versions that cannot be written\n")
    report.say(header("reason", "which"))
    for reason, which in reasons.items():
        report.say(row(reason.replace("|", "\\|"), ", ".join(which)))
    report.data["uncovered"], report.data["unwritten"] = ops, reasons


if __name__ == "__main__":
    main()
