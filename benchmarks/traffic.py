"""Kernels, counted traffic and estimated time of each built-in task: its root, its best version, its leanest version.

    python benchmarks/traffic.py --evaluations 24 --out results/traffic

writes a Markdown table and the same figures as JSON. Traffic is counted in the interpreter (bytes the launches move,
library calls by their tensors), times are estimates for the lab's GPU. "leanest" is the version of the tree that moves
the fewest bytes among those with the fewest kernels.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib import metadata
from pathlib import Path

from mtmc.evaluate import LabEvaluator, LabSettings
from mtmc.search import search
from mtmc.task import builtin_names
from mtmc.tree import KernelNode


@dataclass(frozen=True)
class Figures:
    """Of one version: kernels launched, megabytes moved, estimated milliseconds."""

    kernels: int
    megabytes: float
    estimated_ms: float

    @staticmethod
    def of(node: KernelNode) -> Figures:
        """The figures of an evaluated version."""
        metrics = node.outcome.metrics
        assert node.outcome.runtime_ms is not None
        return Figures(
            int(metrics["kernels"]), round(metrics["bytes_moved"] / 1e6, 1), round(node.outcome.runtime_ms, 4)
        )


@dataclass(frozen=True)
class Row:
    """One task."""

    task: str
    root: Figures
    best: Figures
    leanest: Figures
    versions: int


def measure(task: str, evaluations: int, evaluator: LabEvaluator, seed: int = 0) -> Row:
    """Search one task and read the figures off its tree."""
    tree = search(task, policy="heuristic", budget=evaluations, evaluator=evaluator, seed=seed, batch=2).tree
    right = [node for node in tree if node.outcome.ok]
    leanest = min(
        right, key=lambda node: (node.outcome.metrics["kernels"], node.outcome.metrics["bytes_moved"], node.id)
    )
    return Row(task, Figures.of(tree.root), Figures.of(tree.best), Figures.of(leanest), len(tree))


def markdown(rows: Sequence[Row]) -> str:
    """The table."""
    lines = [
        "| task | kernels root / best / leanest | MB moved root / best / leanest | estimated ms root / best | speedup |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        root, best, lean = row.root, row.best, row.leanest
        lines.append(
            f"| {row.task} | {root.kernels} / {best.kernels} / {lean.kernels} "
            f"| {root.megabytes} / {best.megabytes} / {lean.megabytes} "
            f"| {root.estimated_ms} / {best.estimated_ms} | {root.estimated_ms / best.estimated_ms:.2f}x |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluations", type=int, default=24)
    parser.add_argument("--tasks", nargs="*", default=builtin_names())
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    with LabSettings().open() as evaluator:
        for task in arguments.tasks:
            rows.append(measure(task, arguments.evaluations, evaluator))
            print(markdown(rows[-1:]).splitlines()[-1], flush=True)
        hardware = evaluator.hardware
    versions = {name: metadata.version(name) for name in ("torch", "triton")}
    about = f"{arguments.evaluations} evaluations a task, mcts, heuristic policy, seed 0, estimated for {hardware}; "
    about += (
        f"Python {platform.python_version()}, torch {versions['torch']}, triton {versions['triton']}, {date.today()}"
    )
    if arguments.out:
        table = f"{markdown(rows)}\n{about}. Command: `python benchmarks/traffic.py`.\n"
        arguments.out.with_suffix(".md").write_text(table, encoding="utf-8")
        data = {"about": about, "rows": [asdict(row) for row in rows]}
        arguments.out.with_suffix(".json").write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
