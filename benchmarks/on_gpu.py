"""The rewriter's kernels on a real GPU: right at every shape of the task, and how fast at the full ones.

    python benchmarks/on_gpu.py --out results/on_gpu

Takes each built-in task through a fixed line of actions (fuse all that can be fused, lower the rest, retile products to
128x64, pipeline them in 3 and in 4 stages), compares every version with the reference in float64 at the small and held-out
shapes, and times it against eager PyTorch at the full shapes with `triton.testing.do_bench`. No search and no exploit
checks: these are our own kernels. Needs torch, triton and a CUDA device, nothing else.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch
import triton
from triton.testing import do_bench

from mtmc.evaluate.loading.modules import candidate_text, load_module
from mtmc.hardware import hardware
from mtmc.optimizations import Move, Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, Variant, builtin_names, load_task
from mtmc.task.constants import apply_constants

SETTINGS = ("128x64 with 32", "pipeline of 3", "pipeline of 4")
"""Parts of the sentences of the schedule changes, applied to every kernel that has them, one after the other."""


def flat(value: Any) -> list[torch.Tensor]:
    """All tensors of a result, in order."""
    return [value] if isinstance(value, torch.Tensor) else [tensor for part in value for tensor in flat(part)]


def moves(task: Task, plan: Plan) -> list[Move]:
    """The legal moves of the version that a plan is."""
    return legal_moves(Version.of(task, plan, hardware("H100")))


def exhausted(task: Task, plan: Plan, kind: str) -> Plan:
    """The plan after every action of a kind, first to last."""
    while True:
        child = next((move.child for move in moves(task, plan) if move.action.kind == kind), None)
        if child is None:
            return plan
        plan = child


def everywhere(task: Task, plan: Plan, words: str) -> Plan:
    """The plan with one schedule change made to every kernel that has it."""
    for region in [move.action.region.name for move in moves(task, plan) if words in move.action.sentence]:
        now = [m for m in moves(task, plan) if words in m.action.sentence and m.action.region.name == region]
        plan = (now[0].child or plan) if now else plan
    return plan


def line(task: Task) -> Iterator[tuple[str, str]]:
    """(label, source) of each version of the line."""
    graph = export_graph(task)
    plan, seen = root_plan(graph), {root_plan(graph)}
    for label in ("fuse", "lower", *SETTINGS):
        plan = everywhere(task, plan, label) if label in SETTINGS else exhausted(task, plan, label)
        if plan not in seen:
            seen.add(plan)
            yield label, print_plan(task, graph, plan).source


def modules(task: Task, source: str, variant: Variant, folder: Path) -> tuple[Any, Any, list[Any]]:
    """Reference, version and inputs on the GPU, with the same weights."""
    reference = load_module(apply_constants(task.source, variant.constants), folder / "reference.py")
    path = folder / f"version_{len(list(folder.iterdir()))}.py"
    candidate = load_module(candidate_text(source, variant.constants), path)
    arguments = getattr(reference, variant.init_inputs)()
    torch.manual_seed(0)
    model = reference.Model(*arguments).cuda()
    torch.manual_seed(0)
    new = candidate.ModelNew(*arguments).cuda()
    torch.manual_seed(1)
    inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in getattr(reference, variant.inputs)()]
    return model, new, inputs


def error(task: Task, source: str, variant: Variant, folder: Path) -> float:
    """Largest norm-wise error of a version's outputs against the reference in float64."""
    model, new, inputs = modules(task, source, variant, folder)
    found = flat(new(*inputs))
    exact = flat(model.double()(*[x.double() if x.is_floating_point() else x for x in inputs]))
    pairs = zip(found, exact, strict=True)
    return max(float((a.double() - b.double()).norm() / (b.double().norm() + 1e-30)) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", default=builtin_names())
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = ["| task | version after | eager ms | version ms | speedup | error |", "|---|---|---|---|---|---|"]
    with torch.no_grad(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for task in map(load_task, arguments.tasks):
            for label, source in line(task):
                worst = max(error(task, source, variant, folder) for variant in (task.small, *task.held_out))
                model, new, inputs = modules(task, source, task.full, folder)
                eager = do_bench(lambda m=model, x=inputs: m(*x), return_mode="median")
                ours = do_bench(lambda m=new, x=inputs: m(*x), return_mode="median")
                cells = f"| {eager:.4f} | {ours:.4f} | {eager / ours:.2f}x | {worst:.1e} |"
                rows.append(f"| {task.name} | {label} {cells}")
                print(rows[-1], flush=True)
    about = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}, "
    about += f"Python {platform.python_version()}, {date.today()}. Command: `python benchmarks/on_gpu.py`."
    print(about)
    if arguments.out:
        arguments.out.with_suffix(".md").write_text("\n".join([*rows, "", about]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
