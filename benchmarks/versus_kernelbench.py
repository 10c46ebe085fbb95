"""The same (task, candidate) pairs through KernelBench's `eval_kernel_against_ref` and through our evaluator, in one run.

    python benchmarks/versus_kernelbench.py --kernelbench PATH --prepare FOLDER          # anywhere: make the candidates
    PYTHONPATH=. python benchmarks/versus_kernelbench.py --kernelbench PATH --candidates FOLDER --out results/versus

PATH is a checkout of KernelBench; it need not be installed. The candidates are what the rewriter makes of each problem by
fusing all that can be fused, lowering the rest, and setting tiles and pipeline of products; they are made and checked
beforehand, and nothing is exported while time counts.

Ours: with an evaluator that is at work already but knows neither task nor candidate, one pair at a time, as a search asks:
the root (the reference itself), with which the task is admitted, once for all of its candidates; then the candidate's
screening; then its verification (its kernels are compiled by then). All three are stated, and the ratio also with the
admission counted in full. Then, with a new evaluator, all pairs asked for at once. KernelBench: 5 correctness and 100
timing trials in a process that has imported everything and used the GPU. Both start with an empty folder of compiled
kernels and include their own compilation, model and inputs. Our part comes first, so that neither holds memory while the
other works. With --gpus, KernelBench takes as many pairs at a time as are named there, each with cores of its own; a GPU
named twice is shared by two.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import (
    Deadline,
    Report,
    evaluated,
    failure,
    parser,
    settings_of,
    stage_table,
    stream,
)
from benchmarks.figures import geometric_mean, header, row
from benchmarks.kernelbench_pairs import Candidate, prepare, problem_file, read_candidates
from benchmarks.kernelbench_side import KernelBench, Verdict
from benchmarks.workloads import small_versions
from mtmc.errors import ConfigError
from mtmc.evaluate.reference.memory import estimate
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.rewrite.source import root_source
from mtmc.task import Task

PROBLEMS = (
    *(f"level1/{number}" for number in (19, 23, 25, 26, 36, 40, 47, 51, 88)),
    *(f"level2/{number}" for number in (12, 29, 62, 99, 1)),
)
"""By default: pointwise work, rows, reductions, and products with what follows them; ReLU (19) first."""
TARGETS = {"screening": 50.0, "screening and verification": 10.0}
LARGE_GIB = 4.0
"""What KernelBench takes for a pair follows from the size of the inputs, which it draws on the CPU, trial by trial."""


@dataclass(frozen=True)
class Ours:
    """What our evaluator found of a pair. admit_s, screen_s, verify_s: wall seconds of the root's screening, with which
    the task is admitted, of the candidate's screening and of its verification."""

    admit_s: float
    screen: Outcome
    screen_s: float
    verify: Outcome | None
    verify_s: float

    @property
    def ok(self) -> bool:
        """Whether the pair passed both."""
        return self.screen.ok and self.verify is not None and self.verify.ok


def warm(evaluator: Evaluator, count: int) -> None:
    """Make an evaluator start all its processes: evaluate some small versions of other tasks, one of them to the end."""
    cases = list(small_versions(count, seed=1))
    for _ in stream(evaluator, (EvaluationRequest(case.task, case.source) for case in cases), count):
        pass
    evaluated(evaluator, EvaluationRequest(cases[0].task, cases[0].source, depth="verify"))


def ours_one_by_one(
    evaluator: Evaluator, candidates: Sequence[Candidate], deadline: Deadline, report: Report
) -> list[Ours]:
    """Screen and verify each pair, one at a time."""
    names = ("pair", "admission s", "screening s", "verification s", "stages of the screening, s", "result")
    report.say(header(*names))
    found: list[Ours] = []
    for each in candidates:
        if deadline.passed:
            break
        started = time.perf_counter()
        evaluated(evaluator, EvaluationRequest(each.task, root_source(each.task), seed=1))
        admit_s = time.perf_counter() - started
        started = time.perf_counter()
        screen = evaluated(evaluator, EvaluationRequest(each.task, each.source, seed=1))
        screen_s = time.perf_counter() - started
        verify = None
        if screen.ok:
            verify = evaluated(evaluator, EvaluationRequest(each.task, each.source, seed=2, depth="verify"))
        verify_s = time.perf_counter() - started - screen_s
        found.append(Ours(admit_s, screen, screen_s, verify, verify_s))
        worst = screen if verify is None or not screen.ok else verify
        result = f"{screen.runtime_ms:.4f} ms" if worst.ok else failure(worst)
        seconds = [f"{value:.3f}" for value in (admit_s, screen_s, verify_s)]
        report.say(row(each.problem, *seconds, stages(screen.metrics), result))
        report.data["ours"] = [
            [c.problem, own.admit_s, own.screen_s, own.verify_s] for c, own in zip(candidates, found, strict=False)
        ]
    report.say("\n" + stage_table(each.screen for each in found) + "\n")
    return found


def stages(metrics: Mapping[str, float]) -> str:
    """Seconds of each stage that an outcome's metrics state, in short."""
    named = {name.removesuffix("_s"): value for name, value in metrics.items() if name.endswith("_s")}
    return ", ".join(f"{name} {value:.2f}" for name, value in named.items())


def theirs(
    arguments: argparse.Namespace,
    candidates: Sequence[Candidate],
    ours: Sequence[Ours],
    deadline: Deadline,
    report: Report,
) -> list[Verdict]:
    """Each pair through KernelBench, and its row of the comparison."""
    names = ("pair", "kernels", "KernelBench s", "ours s", "times faster", "with verification")
    report.say(header(*names, "KernelBench ms", "ours ms", "KernelBench says"))
    found: list[Verdict] = []
    with contextlib.ExitStack() as stack:
        sides: queue.SimpleQueue[KernelBench] = queue.SimpleQueue()
        for gpu, cores in shares(arguments.gpus):
            side = stack.enter_context(KernelBench(arguments.kernelbench, gpu=gpu, cores=cores))
            sides.put(side)

        def verdict_of(each: Candidate) -> Verdict | None:
            if deadline.passed:
                return None
            reference = problem_file(arguments.kernelbench, each.problem).read_text(encoding="utf-8")
            side = sides.get()
            try:
                return side.evaluate(reference, each.source, arguments.pair_s)
            finally:
                sides.put(side)

        with ThreadPoolExecutor(max(1, len(arguments.gpus))) as threads:
            for each, own, verdict in zip(candidates, ours, threads.map(verdict_of, candidates), strict=False):
                if verdict is None:
                    break
                found.append(verdict)
                report.say(comparison(each, own, verdict))
                report.data["pairs"] = as_data(candidates, ours, found)
        report.data["replaced_packages"] = side.replaced
        report.say(f"\nPackages of KernelBench that were replaced by empty ones: {', '.join(side.replaced)}.")
    return found


def shares(gpus: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Each GPU with its equal share of the cores; the first GPU with all cores where none is named."""
    if not gpus:
        return [("", [])]
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // len(gpus))
    return [(gpu, cores[at * each : (at + 1) * each]) for at, gpu in enumerate(gpus)]


def comparison(each: Candidate, own: Ours, verdict: Verdict) -> str:
    """One row: the ratios only where both found the candidate right."""
    counts = own.ok and verdict.correct
    both = own.screen_s + own.verify_s
    ratios = [f"{verdict.seconds / s:.1f}" if counts else "not counted" for s in (own.screen_s, both)]
    runtimes = ["none" if ms is None else f"{ms:.4f}" for ms in (verdict.runtime_ms, own.screen.runtime_ms)]
    says = "right" if verdict.correct else "wrong" if verdict.compiled else "not compiled"
    seconds = [f"{verdict.seconds:.2f}", f"{own.screen_s:.3f} + {own.verify_s:.3f}"]
    kernels = each.source.count("@triton.jit")
    return row(each.problem, kernels, *seconds, *ratios, *runtimes, f"{says} {verdict.note}".strip())


def as_data(candidates: Sequence[Candidate], ours: Sequence[Ours], found: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Plain figures of the pairs."""
    return [
        {
            "problem": each.problem,
            "counts": own.ok and verdict.correct,
            "input_gib": input_gib(each.task),
            "admit_s": own.admit_s,
            "screen_s": own.screen_s,
            "verify_s": own.verify_s,
            "status": own.screen.status,
            "verify_status": own.verify.status if own.verify else None,
            "runtime_ms": own.screen.runtime_ms,
            "metrics": dict(own.screen.metrics),
            "verify_metrics": dict(own.verify.metrics) if own.verify else {},
            "kernelbench": asdict(verdict),
        }
        for each, own, verdict in zip(candidates, ours, found, strict=False)
    ]


def input_gib(task: Task) -> float:
    """GiB of the inputs of one forward at the full shapes, found without making them."""
    with tempfile.TemporaryDirectory() as folder:
        footprint = estimate(task, task.full, Path(folder))
    if footprint is None:
        raise ConfigError(f"{task.name} cannot be weighed without data: leave it out with --problems")
    return footprint.inputs / 2**30


def ratios(pairs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """KernelBench's seconds over ours: of what is asked of each candidate, and with the task's admission."""
    spent = {
        "screening": ("screen_s",),
        "screening and verification": ("screen_s", "verify_s"),
        "admission and screening": ("admit_s", "screen_s"),
    }
    return {
        name: [pair["kernelbench"]["seconds"] / sum(pair[part] for part in parts) for pair in pairs]
        for name, parts in spent.items()
    }


def conclude(pairs: Sequence[Mapping[str, Any]], report: Report) -> None:
    """Geometric means of all pairs that count, and of those with large and with small inputs; totals."""
    counted = [pair for pair in pairs if pair["counts"]]
    groups = {
        f"inputs of {LARGE_GIB:g} GiB or more": [pair for pair in counted if pair["input_gib"] >= LARGE_GIB],
        f"inputs below {LARGE_GIB:g} GiB": [pair for pair in counted if pair["input_gib"] < LARGE_GIB],
        "all pairs that count": counted,
    }
    report.say("\n" + header("pairs", "how many", *(f"{name}: times faster" for name in ratios([]))))
    for name, group in groups.items():
        if group:
            cells = [
                f"{geometric_mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"
                for values in ratios(group).values()
            ]
            report.say(row(name, len(group), *cells))
            report.data[name] = {depth: geometric_mean(values) for depth, values in ratios(group).items()}
    report.say(f"\nThe aim: {', '.join(f'{TARGETS[depth]:g} with {depth}' for depth in TARGETS)}.")
    total = sum(pair["kernelbench"]["seconds"] for pair in pairs)
    alone = sum(pair["screen_s"] for pair in pairs)
    report.say(f"\nAll {len(pairs)} pairs: KernelBench {total:.1f} s, our screening one by one {alone:.1f} s.")


def all_at_once(evaluator: Evaluator, candidates: Sequence[Candidate]) -> float:
    """Wall seconds of screening all pairs, all asked for at once."""
    requests = [EvaluationRequest(each.task, each.source, seed=3) for each in candidates]
    return max(timed.ended for timed in stream(evaluator, requests, len(requests)))


def compare(arguments: argparse.Namespace, candidates: Sequence[Candidate], report: Report) -> None:
    """Our part, then KernelBench's, then the conclusion."""
    deadline = Deadline(arguments.minutes)
    with settings_of(arguments).open() as evaluator:
        warm(evaluator, arguments.warm_up)
        ours = ours_one_by_one(evaluator, candidates, deadline, report)
    together_s = None
    if arguments.together and len(ours) == len(candidates):
        with settings_of(arguments).open() as evaluator:
            warm(evaluator, arguments.warm_up)
            together_s = all_at_once(evaluator, candidates)
        report.data["together_s"] = together_s
        report.say(f"Screening all {len(candidates)} pairs, all asked for at once: {together_s:.1f} s.\n")
    if arguments.ours_only:
        return
    pairs = as_data(candidates, ours, theirs(arguments, candidates, ours, deadline, report))
    conclude(pairs, report)
    if together_s is not None and len(pairs) == len(candidates):
        total = sum(pair["kernelbench"]["seconds"] for pair in pairs)
        report.say(f"\nAsked for at once, all pairs together are screened {total / together_s:.1f} times faster.")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--kernelbench", type=Path, required=True, metavar="PATH", help="a checkout of KernelBench")
    options.add_argument(
        "--gpus", nargs="*", default=[], help="KernelBench on these at once, each with its share of cores"
    )
    options.add_argument("--prepare", type=Path, metavar="FOLDER", help="make the candidates; needs no GPU")
    options.add_argument("--candidates", type=Path, metavar="FOLDER", help="what --prepare made")
    options.add_argument("--problems", nargs="*", default=list(PROBLEMS), help="e.g. level1/19")
    options.add_argument("--pairs", type=int, default=100, help="at most so many")
    options.add_argument("--pair-s", type=float, default=180.0, help="seconds that KernelBench may take for one pair")
    options.add_argument("--warm-up", type=int, default=16, help="small versions evaluated before time counts")
    options.add_argument("--no-together", dest="together", action="store_false", help="leave out all pairs at once")
    options.add_argument("--ours-only", action="store_true", help="leave out KernelBench")
    arguments = options.parse_args()
    if arguments.prepare:
        arguments.evaluator = "lab"
        with settings_of(arguments, workers=1).open() as lab:
            prepare(arguments.kernelbench, arguments.problems, arguments.prepare, lab)
        return
    if not arguments.candidates:
        options.error("give --prepare FOLDER or --candidates FOLDER")
    found = read_candidates(arguments.kernelbench, arguments.candidates, arguments.problems)
    with Report("KernelBench's evaluation and ours, the same pairs", arguments.out) as report:
        compare(arguments, found[: arguments.pairs], report)


if __name__ == "__main__":
    main()
