"""What takes launches in each block of `suite=blocks` once all between products is fused, beside what Inductor launches,
and how early a graph is tried.

    PYTHONPATH=. python benchmarks/blocks_launches.py --out results/blocks_launches

Nothing is run. Launches: of the reference, and after the fusions and rewrites that save most, one after the other, none of
which takes a product into a kernel (a library's product in 16 bits is hard to beat). Copies: those that
torch's calls make unasked (`benchmarks/moved.py`). Inductor: the kernels of its schedule (`benchmarks/inductor_kernels.py`),
library calls included. MB: what all kernels read and write, each tensor once a kernel. Packed: launches of the
reference that `pack` keeps from one call to the next. Graph: where `cuda_graph` stands among the legal actions by the
heuristic policy's prior, for a reference whose calls wait for the host: 12.5 us of the device and 45 us of the host a
launch, as ten launches of decoder/mla_decode_absorbed took on an H100.

Last, where `pack` is legal, the lab's estimate of the first version with it, and of the same version without it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Report
from benchmarks.figures import header, row
from benchmarks.moved import kept, moved
from mtmc.bench import open_suite
from mtmc.bench.loading import load_problem
from mtmc.optimizations import KINDS, Version
from mtmc.optimizations.groups import parts_of
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator, Observation
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Plan, Stage, graph_of, plan_from_json
from mtmc.task import Task

GPU = "H100"
DEVICE_MS, HOST_MS = 0.0125, 0.045
MOST = 16
"""Fusions and rewrites of a block."""
_LIBRARY = ("scaled_dot_product_attention", "conv", "_int_mm", "fft_")
EARLY = 4


@dataclass(frozen=True)
class Found:
    """Of one block. bytes: of all that is left. graph: the rank of `cuda_graph`, from 1, None where it is not legal;
    actions: how many are."""

    launches: int
    products: int
    others: int
    copies: int
    bytes: int
    packed: int
    graph: int | None
    actions: int


def measured(task: Task) -> Found:
    """See `Found`. Raises: TaskError where the task does not export."""
    from mtmc.agents.coders.rewriter import Rewriter
    from mtmc.hardware import hardware

    plan = Rewriter().root(task).plan or ""
    root = Version.of(task, plan_from_json(plan), hardware(GPU))
    working = root.working()
    rank, actions = _graph(task, plan, len(working))
    packs = list(KINDS["pack"].legal(root))
    packed = int(dict(packs[0].action.params)["launches"]) if packs else 0
    fused = _fused(root)
    left = _working(fused)
    products = sum(_multiplies(fused.graph, stage) for stage in left)
    total, copies = moved(fused)
    return Found(len(working), products, len(left) - products, copies, total, packed, rank, actions)


def inductor() -> dict[str, dict[str, Any]]:
    """What `inductor_kernels.py` finds of each block, in a process without a GPU of its own. Raises: CalledProcessError."""
    here = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    program = Path(__file__).with_name("inductor_kernels.py")
    done = subprocess.run([sys.executable, str(program)], env=here, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def _graph(task: Task, plan: str, launches: int) -> tuple[int | None, int]:
    """The rank of `cuda_graph` on the reference, and the number of its actions."""
    from mtmc.agents.coders.rewriter import Rewriter
    from mtmc.agents.policies.heuristic import Heuristic

    host_ms = launches * HOST_MS
    metrics = {"device_ms": launches * DEVICE_MS, "host_ms": host_ms, "call_ms": host_ms}
    seen = Observation(task, "", plan, Outcome("ok", host_ms, metrics=metrics), (), GPU)
    actions = Rewriter().actions(seen, ())
    priors = Heuristic().prior(seen, actions)
    order = sorted(range(len(actions)), key=lambda at: -priors[at])
    ranks = [rank for rank, at in enumerate(order, 1) if actions[at].kind == "cuda_graph"]
    return (ranks[0] if ranks else None), len(actions)


def _fused(version: Version) -> Version:
    """The version after the fusions that save most, rewrites first where they add no launch."""
    for _ in range(MOST):
        children = [child for kind in ("algebra", "fuse") for child in _children(version, kind)]
        if not children:
            break
        best = min(children, key=lambda child: (_launches(child), _parts(child)))
        if _launches(best) >= _launches(version):
            break
        version = best
    return version


def _children(version: Version, kind: str) -> list[Version]:
    from mtmc.rewrite.exported import export_graph

    found = []
    for move in KINDS[kind].legal(version):
        plan: Plan | None = move.child
        if plan is None:
            continue
        graph = graph_of(export_graph(version.task), plan)
        new = [stage for stage in plan.stages if stage not in version.plan.stages and not stage.is_torch]
        if not any(_multiplies(graph, stage) for stage in new):
            found.append(Version.of(version.task, plan, version.hardware))
    return found


def estimates(task: Task, evaluator: Evaluator) -> tuple[float | None, float | None]:
    """Estimated milliseconds of the reference after its first fusion, and of that with `pack`; None where it is not right,
    or nothing is left to pack."""
    from mtmc.agents.coders.rewriter import Rewriter
    from mtmc.hardware import hardware
    from mtmc.rewrite.source import print_plan

    plan = plan_from_json(Rewriter().root(task).plan or "")
    version = Version.of(task, plan, hardware(GPU))
    fused = next((move.child for move in KINDS["fuse"].legal(version) if move.child is not None), plan)
    packed = next((move.child for move in KINDS["pack"].legal(Version.of(task, fused, hardware(GPU)))), None)
    found: list[float | None] = []
    for each in (fused, packed):
        if each is None:
            found.append(None)
            continue
        text = print_plan(task, version.graph, each).source
        [outcome] = evaluator.evaluate([EvaluationRequest(task, text)])
        found.append(outcome.runtime_ms if outcome.ok else None)
    return found[0], found[1]


def _tell_packed(report: Report, tasks: Mapping[str, Task]) -> None:
    from mtmc.evaluate import LabSettings

    evaluator = LabSettings(hardware=GPU, timeout_s=240).open()
    report.say(f"\n## Estimated for {GPU}, milliseconds\n")
    report.say(header("block", "first fusion", "and pack", "times"))
    try:
        for name, task in tasks.items():
            before, after = estimates(task, evaluator)
            if before is not None and after is not None:
                report.say(row(name, f"{before:.4f}", f"{after:.4f}", f"{before / after:.2f}"))
                report.data.setdefault("estimates", {})[name] = [before, after]
    finally:
        evaluator.close()


def _parts(version: Version) -> int:
    """Parts of elementwise kernels, which nothing else joins."""
    return sum(parts_of(version, stage) for stage in version.plan.stages)


def _launches(version: Version) -> int:
    return len(_working(version))


def _working(version: Version) -> list[Stage]:
    """The stages that launch something at every call."""
    packed = kept(version)
    return [stage for stage in version.working() if stage not in packed]


def _multiplies(graph: Graph, stage: Stage) -> bool:
    from mtmc.rewrite.operators.products import PRODUCTS

    targets = [graph.by_name[name].target for name in stage.ops]
    return any(each in PRODUCTS or each.split(".")[1].startswith(_LIBRARY) for each in targets)


def _tell(report: Report, name: str, each: Found, theirs: Mapping[str, Any]) -> None:
    rank = each.graph or "not legal"
    other = (theirs["launches"], f"{theirs['bytes'] / 1e6:.1f}") if "launches" in theirs else ("not found", "")
    ours = (each.launches, each.products, each.others, each.copies, other[0], f"{each.bytes / 1e6:.1f}", other[1])
    report.say(row(name, *ours, each.packed, rank, each.actions))


def _tell_all(report: Report, found: Mapping[str, Found], theirs: Mapping[str, Any]) -> None:
    early = sum(each.graph is not None and each.graph <= EARLY for each in found.values())
    sums = [
        sum(getattr(each, name) for each in found.values()) for name in ("launches", "products", "others", "copies")
    ]
    once = sum(each.others <= each.products + 1 for each in found.values())
    report.say(
        f"\n{len(found)} blocks: {sums[0]} launches, of which {sums[1]} products, {sums[2]} others and {sums[3]} copies "
        f"are left. In {once} blocks there is at most one other launch before, between or behind products. `pack` is "
        f"legal on {sum(each.packed > 0 for each in found.values())}. A graph is among the first {EARLY} actions of {early}."
    )
    known = {name: each for name, each in theirs.items() if "launches" in each}
    left = {name: found[name].products + found[name].others + found[name].copies for name in known}
    more = {
        name: f"{name} ({left[name]}, {each['launches']})"
        for name, each in known.items()
        if left[name] > each["launches"]
    }
    fewer = f"{sum(left[name] < each['launches'] for name, each in known.items())} blocks"
    bytes_ = [sum(found[name].bytes for name in known), sum(each["bytes"] for each in known.values())]
    report.say(
        f"\nOf {len(known)} blocks that Inductor has a schedule of: {sum(left.values())} launches and "
        f"{bytes_[0] / 1e9:.1f} GB of ours, {sum(each['launches'] for each in known.values())} and {bytes_[1] / 1e9:.1f} of "
        f"Inductor's. Fewer than Inductor's has {fewer}. More than Inductor's has: {', '.join(more.values()) or 'none'}."
    )
    greedy = [name for name in known if found[name].bytes > 1.05 * known[name]["bytes"]]
    report.say(f"\nOver 1.05 of Inductor's bytes: {', '.join(greedy) or 'none'}.")


def main() -> None:
    """Write the report."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    arguments = made.parse_args()
    suite = open_suite("blocks", "")
    with Report("Launches of blocks, without running them", arguments.out) as report:
        columns = (
            "launches",
            "products",
            "others",
            "Inductor",
            "MB",
            "Inductor's MB",
            "packed",
            "rank of cuda_graph",
            "of",
        )
        report.say(header("block", *columns))
        found, packed, theirs = dict[str, Found](), dict[str, Task](), inductor()
        for problem in suite.problems():
            task = load_problem(suite, problem, "fp32")
            each = found[problem.id] = measured(task)
            packed |= {problem.id: task} if each.packed else {}
            _tell(report, problem.id, each, theirs[problem.id])
        report.data["blocks"] = {name: asdict(each) for name, each in found.items()}
        report.data["inductor"] = theirs
        _tell_all(report, found, theirs)
        _tell_packed(report, packed)


if __name__ == "__main__":
    main()
