"""What it gains that kernels ask the L2 cache to keep what they read once, or to forget it.

    PYTHONPATH=. python benchmarks/eviction.py --tasks layernorm softmax --out results/eviction_h200

Of each task one version is taken: all neighbours fused that gain by it, or else its first fusion, or its first call as a
kernel. Its kernels are printed with each policy, compared with the first, and timed in turns: after a flush of the cache,
and in a plain loop. A version whose text does not depend on the policy is left out. Needs a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import machine, shown_command
from benchmarks.hopper_build import forward, prepared
from mtmc.errors import MtmcError
from mtmc.evaluate.devices import visible_devices
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.rewrite.templates.eviction import FORGOTTEN, KEPT, LIKE_ALL_ELSE, POLICY
from mtmc.task import load_task
from mtmc.tree import source_hash

POLICIES = (LIKE_ALL_ELSE, KEPT, FORGOTTEN)
FAMILIES = ("pointwise", "rowwise", "scan")
ROUNDS, CALLS = 6, 6
FLUSHED_BYTES = 1 << 30

Times = Mapping[str, Mapping[str, float]]
"""Milliseconds of a call by policy, "cold" and "loop"."""


def fused(version: Version) -> Version:
    """The version whose kernels are timed. Raises: MtmcError where no call becomes a kernel."""
    moves = [move for move in legal_moves(version) if move.child is not None]
    ranked = [
        *(move for move in moves if move.action.kind == "fuse" and "all neighbours" in move.action.sentence),
        *(move for move in moves if move.action.kind == "fuse"),
        *(move for move in moves if move.action.kind == "lower"),
    ]
    if not ranked:
        raise MtmcError(f"{version.task.name} has no call that becomes a kernel")
    assert ranked[0].child is not None
    return version.made(ranked[0].child)


def printed(job: tuple[str, str, Path]) -> tuple[str, dict[str, str], str]:
    """Print and compile a task's version with each policy, in this process. job: file, GPU, folder.

    Returns: the task's name, the files by policy, and why there are none, or "".
    """
    file, gpu, folder = job
    try:
        prepared(hardware(gpu).sms, hardware(gpu).target)
        task = load_task(file)
        version, files, texts = fused(Version.of(task, root_plan(export_graph(task)), hardware(gpu))), {}, set()
        for policy in POLICIES:
            told = {s: s.scheduled({POLICY: policy}) for s in version.plan.stages if s.template in FAMILIES}
            texts.add(text := print_plan(task, version.graph, version.plan.with_stages(told)).source)
            files[policy] = folder / f"{source_hash(task.source)[:12]}_{policy}.py"
            files[policy].write_text(text, encoding="utf-8")
            forward(task, files[policy])
    except Exception as error:  # of one task: the others go on
        return Path(file).stem, {}, f"{type(error).__name__}: {str(error)[-150:]}"
    return task.name, {policy: str(path) for policy, path in files.items()}, "" if len(texts) > 1 else "no load to tell"


def timed(file: str, files: Mapping[str, str], folder: Path) -> Times:
    """Milliseconds of a call with each policy, in turns. Raises: AssertionError where they do not give the same."""
    import torch

    from mtmc.evaluate.loading.modules import load_module

    reference = load_module(load_task(file).source, folder / "reference.py")
    torch.manual_seed(0)
    with torch.device("cuda"):
        model, inputs = reference.Model(*reference.get_init_inputs()), reference.get_inputs()
    calls: dict[str, Callable[[], Any]] = {}
    for policy, path in files.items():
        new = (
            load_module(Path(path).read_text(encoding="utf-8"), Path(path))
            .ModelNew(*reference.get_init_inputs())
            .cuda()
        )
        new.load_state_dict(model.state_dict())
        calls[policy] = lambda new=new: new(*inputs)
    first = calls[LIKE_ALL_ELSE]()
    for call in calls.values():
        torch.testing.assert_close(call(), first)
    flushed = torch.empty(FLUSHED_BYTES // 4, device="cuda")
    found: dict[str, dict[str, list[float]]] = {policy: {"cold": [], "loop": []} for policy in calls}

    def between(work: Callable[[], Any], before: Callable[[], Any]) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end))

    for _ in range(ROUNDS):
        for policy, call in calls.items():
            found[policy]["cold"] += [between(call, flushed.zero_) for _ in range(CALLS)][1:]
            found[policy]["loop"].append(between(lambda call=call: [call() for _ in range(CALLS)], call) / CALLS)
    return {policy: {way: statistics.median(each) for way, each in times.items()} for policy, times in found.items()}


def page(about: Mapping[str, Any], rows: Mapping[str, Times], refused: Mapping[str, str]) -> str:
    """The record as Markdown."""
    lines = [
        "# What kernels read once, and the L2 cache",
        "",
        f"{about['gpu']}, torch {about['torch']}, triton {about['triton']}, {about['date']}: `{about['command']}`",
        "",
        "Speedups over the same kernels whose loads say nothing, after a flush of the cache and in a plain loop.",
        "",
        "| task | ms | kept (evict_last) | in a loop | forgotten (evict_first) | in a loop |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, times in sorted(rows.items()):
        plain = times[LIKE_ALL_ELSE]
        gains = [f"{plain[way] / times[policy][way]:.3f}x" for policy in (KEPT, FORGOTTEN) for way in ("cold", "loop")]
        lines.append(f"| {name} | {plain['cold']:.4f} | {' | '.join(gains)} |")
    lines += ["", *(f"- {name}: {why}" for name, why in sorted(refused.items()))] if refused else []
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", required=True, help="files in KernelBench's format, or names")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 4) - 2))
    parser.add_argument("--out", type=Path, required=True, help="write OUT.md and OUT.json")
    arguments = parser.parse_args()
    [device, *_] = visible_devices()
    import torch

    torch.set_grad_enabled(False)
    here = machine()
    about = {"gpu": device.name, **{key: here[key] for key in ("torch", "triton", "date")}, "command": shown_command()}
    rows: dict[str, Times] = {}
    refused: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        jobs = [(file, device.hardware.name, folder) for file in arguments.tasks]
        with ProcessPoolExecutor(arguments.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            versions = list(pool.map(printed, jobs))
        for file, (name, files, why) in zip(arguments.tasks, versions, strict=True):
            if not why:
                try:
                    rows[name] = timed(file, files, folder)
                except Exception as error:  # of one task: the others go on
                    why = f"{type(error).__name__}: {str(error)[:150]}"
            refused |= {name: why} if why else {}
            gc.collect()
            torch.cuda.empty_cache()
            text = page(about, rows, refused)
            Path(f"{arguments.out}.md").write_text(text, encoding="utf-8")
            Path(f"{arguments.out}.json").write_text(
                json.dumps({"about": about, "ms": rows, "refused": refused}, indent=1) + "\n", encoding="utf-8"
            )
    print(text)


if __name__ == "__main__":
    sys.exit(main())
