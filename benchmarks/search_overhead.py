"""What the search itself costs, with fake parts that cost next to nothing: no torch, no model, no GPU.

    python benchmarks/search_overhead.py [--nodes 10000] [--batches 1 8] [--durability exit async]

For each batch size and durability a fresh process grows a tree with mcts, its store and its checkpoints on disk, and
prints: milliseconds a node over the whole run, of wall time and of CPU (on a busy machine the two differ); median
milliseconds a node around node 100 and over the last 500, and the ratio of their CPU; bytes of the first and of the
last checkpoint, and their ratio; peak memory. Then the time of `import mtmc.search` in a fresh process, and which heavy
modules it loads. Exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

TARGET_MS = {("exit", 1): 5.0, ("exit", 8): 2.0}
"""Milliseconds a node at most, by durability and batch size: for what a search uses, the others are to compare."""

TARGET_IMPORT_S = 0.3
TARGET_RATIO = 1.5
"""How much a step or a checkpoint may grow between node 100 and the last and still count as flat."""

LOADED_ON_FIRST_USE = ("langgraph.graph", "langgraph.checkpoint.sqlite", "omegaconf", "mtmc.evaluate")
"""What a first search of a process imports; the time of that is a figure of its own, not spread over the nodes."""

HEAVY = ("torch", "triton", "langgraph", "litellm", "matplotlib", "jinja2", "omegaconf", "networkx")
FOLDER = Path(__file__).parent.parent

_IMPORT = (
    "import time, sys; t = time.perf_counter(); import mtmc.search; t = time.perf_counter() - t;"
    f"print(t, *[name for name in {HEAVY} if name in sys.modules])"
)


@dataclass
class Watch:
    """Looks on from the search's progress callback: when each batch ended, and the checkpoint that was there then."""

    database: Path
    ended: list[tuple[int, float, float]] = field(default_factory=list)
    checkpoints: list[tuple[int, int]] = field(default_factory=list)
    look_every: int = 100
    watching: float = 0.0

    def __call__(self, progress: object) -> None:
        """Note one batch. The time this takes is left out of the figures."""
        began = time.perf_counter()
        nodes = int(getattr(progress, "nodes"))  # noqa: B009
        self.ended.append((nodes, began - self.watching, time.process_time()))
        if nodes // self.look_every > (self.checkpoints[-1][0] if self.checkpoints else 0) // self.look_every:
            self._look(nodes)
        self.watching += time.perf_counter() - began

    def _look(self, nodes: int) -> None:
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        try:
            query = "SELECT length(checkpoint) + length(metadata) FROM checkpoints ORDER BY checkpoint_id DESC LIMIT 1"
            row = connection.execute(query).fetchone()
        finally:
            connection.close()
        if row is not None:
            self.checkpoints.append((nodes, row[0]))

    def ms_per_node(self, first: int, last: int, clock: int = 1) -> float:
        """Median milliseconds a node of the batches that ended between two node counts; clock: 1 wall, 2 CPU."""
        times = [
            (later[clock] - earlier[clock]) * 1e3 / (later[0] - earlier[0])
            for earlier, later in zip(self.ended, self.ended[1:], strict=False)
            if first <= later[0] <= last and later[0] > earlier[0]
        ]
        return statistics.median(times)


def measure(nodes: int, batch: int, durability: str) -> dict[str, float]:
    """Grow one tree of `nodes` versions in this process; returns the figures by name."""
    from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
    from mtmc.search import Budget, graph, search

    graph.DURABILITY = durability  # type: ignore[assignment]
    began = time.perf_counter()
    for name in LOADED_ON_FIRST_USE:
        importlib.import_module(name)
    started = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        watch = Watch(run_dir / "run.sqlite")
        evaluations = nodes + nodes // 12
        began, cpu_began = time.perf_counter(), time.process_time()
        result = search(
            FAKE_TASK,
            policy=FakePolicy(),
            coder=FakeCoder(width=10, commuting=False, usd=0.0),
            evaluator=FakeEvaluator(failing=0.1),
            budget=Budget(evaluations, depth=12),
            batch=batch,
            out=run_dir,
            progress=watch,
            dumps=False,
        )
        seconds = time.perf_counter() - began - watch.watching
        cpu = time.process_time() - cpu_began
        size = (run_dir / "run.sqlite").stat().st_size
    made = len(result.tree)
    early, late = ((watch.ms_per_node(*span), watch.ms_per_node(*span, 2)) for span in ((50, 250), (made - 500, made)))
    return {
        "nodes": made,
        "evaluations": result.evaluations,
        "seconds": seconds,
        "start_s": started,
        "ms_per_node": seconds * 1e3 / made,
        "cpu_ms_per_node": cpu * 1e3 / made,
        "ms_at_100": early[0],
        "ms_at_end": late[0],
        "cpu_at_100": early[1],
        "cpu_at_end": late[1],
        "step_ratio": late[1] / early[1],
        "first_checkpoint_node": watch.checkpoints[0][0],
        "first_checkpoint_bytes": watch.checkpoints[0][1],
        "last_checkpoint_bytes": watch.checkpoints[-1][1],
        "checkpoint_ratio": watch.checkpoints[-1][1] / watch.checkpoints[0][1],
        "store_mib": size / 2**20,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def import_time(times: int = 5) -> tuple[float, list[str]]:
    """Least seconds of `import mtmc.search` in a fresh process, and the heavy modules it loads."""
    lines = [_python("-c", _IMPORT).split() for _ in range(times)]
    return min(float(line[0]) for line in lines), lines[0][1:]


def main() -> int:
    """Print the figures; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--durability", nargs="+", choices=["exit", "async"], default=["exit", "async"])
    parser.add_argument("--child", action="store_true", help="measure once and print JSON")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.nodes, arguments.batches[0], arguments.durability[0])))
        return 0
    missed = []
    for durability in arguments.durability:
        for batch in arguments.batches:
            missed += _report(arguments.nodes, batch, durability)
    seconds, heavy = import_time()
    print(f"import mtmc.search: {seconds:.3f} s (target {TARGET_IMPORT_S}), heavy modules loaded: {heavy or 'none'}")
    if seconds > TARGET_IMPORT_S or heavy:
        missed.append("import")
    print(f"missed: {', '.join(missed)}" if missed else "all targets met")
    return 1 if missed else 0


def _report(nodes: int, batch: int, durability: str) -> list[str]:
    """Measure one combination in a fresh process, print it, and name the targets it misses."""
    arguments = ("--child", "--nodes", str(nodes), "--batches", str(batch), "--durability", durability)
    figures = json.loads(_python(str(Path(__file__)), *arguments))
    target = TARGET_MS.get((durability, batch))
    goal = f" (target {target})" if target else ""
    print(
        f"batch {batch}, checkpoints {durability}: {figures['nodes']:.0f} nodes,"
        f" {figures['evaluations']:.0f} evaluations, {figures['seconds']:.1f} s\n"
        f"  {figures['ms_per_node']:.2f} ms a node{goal}, {figures['cpu_ms_per_node']:.2f} of CPU;"
        f" {figures['start_s']:.2f} s of imports before\n"
        f"  step: {figures['ms_at_100']:.2f} ms a node around node 100, {figures['ms_at_end']:.2f} at the end;"
        f" of CPU {figures['cpu_at_100']:.2f} and {figures['cpu_at_end']:.2f}, ratio {figures['step_ratio']:.2f}\n"
        f"  checkpoint: {figures['first_checkpoint_bytes']:.0f} bytes at node {figures['first_checkpoint_node']:.0f},"
        f" {figures['last_checkpoint_bytes']:.0f} at the end, ratio {figures['checkpoint_ratio']:.2f}\n"
        f"  store {figures['store_mib']:.1f} MiB, peak memory {figures['peak_mib']:.0f} MiB",
        flush=True,
    )
    name = f"batch {batch} {durability}"
    late = [f"{name} time"] if target and figures["ms_per_node"] > target else []
    grown = [f"{name} {what}" for what in ("step", "checkpoint") if figures[f"{what}_ratio"] > TARGET_RATIO]
    return late + grown


def _python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=FOLDER, env=_environment(), check=True, capture_output=True)
    return done.stdout.decode()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(FOLDER)}


if __name__ == "__main__":
    sys.exit(main())
