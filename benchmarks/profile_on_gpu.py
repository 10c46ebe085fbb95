"""Profiles of the best versions of a few built-in tasks on a GPU: counters by ncu, else times by Proton, and a roofline.

    PYTHONPATH=. python benchmarks/profile_on_gpu.py --out DIR

Each task is searched by the rewriter in the lab for a few evaluations, and the root and the best version are profiled on the
device: in the sandbox first; where the driver refuses counters there, outside of it, since all that runs is the rewriter's
own. DIR gets profiles.md, profiles.json (everything that was told, and why a profiler told nothing), and TASK.png.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import Report
from benchmarks.figures import header, row
from mtmc.evaluate import LabSettings
from mtmc.evaluate.devices import Device, visible_devices
from mtmc.evaluate.profiling.figures import joined
from mtmc.evaluate.profiling.ncu import REFUSED
from mtmc.evaluate.profiling.profiler import Profile, profile
from mtmc.export.plots import save_figure
from mtmc.export.roofline import Point, roofline_figure
from mtmc.outcome import kernel_figures, of_kernels
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.search import SearchResult, search
from mtmc.task import Task, load_task

TASKS = ("softmax_gelu", "linear_gelu", "layernorm")
MOST_S = 40.0
"""Seconds that one version's profile may take."""
LEFT_S = 8.0
"""Seconds below which no further version is begun."""


def profiled(task: Task, source: str, device: Device, limit_s: float) -> tuple[Profile, str]:
    """What is told of a version, and where: in the sandbox, or outside of it."""
    ends = time.monotonic() + limit_s
    found = profile(task, source, device.uuid, "auto", limit_s)
    refused = REFUSED in found.notes.get("ncu", "") or "sandbox" in found.notes or "ncu" in found.notes
    if found.by == "ncu" or not refused or ends - time.monotonic() < LEFT_S:
        return found, "in the sandbox"
    outside = profile(task, source, device.uuid, "off", ends - time.monotonic())
    notes = {f"{tool} in the sandbox": why for tool, why in found.notes.items()}
    if outside.by == "ncu" or not found.by:
        return replace(outside, notes={**notes, **outside.notes}), "outside of the sandbox"
    return replace(found, notes={**notes, **outside.notes}), "in the sandbox"


def counted(lab: Evaluator, task: Task, source: str) -> dict[str, dict[str, float]]:
    """What the lab counts of each kernel: flops and bytes, which Proton does not have. No times."""
    [told] = lab.evaluate([EvaluationRequest(task, source, depth="profile")])
    wanted = ("flops", "dot_flops", "bytes_dram", "bytes_moved")
    kernels = kernel_figures(told.metrics)
    return {name: {each: own[each] for each in wanted if each in own} for name, own in kernels.items()}


def points(version: str, kernels: dict[str, dict[str, float]]) -> list[Point]:
    """Of the kernels whose time, flops and bytes are known."""
    found = []
    for name, own in kernels.items():
        moved, flops, ms = own.get("bytes_dram", 0.0), own.get("flops", 0.0), own.get("ms", 0.0)
        if moved > 0 and flops > 0 and ms > 0:
            found.append(Point(version, name, flops / moved, flops / ms / 1e6, ms))
    return found


def one_task(
    name: str, result: SearchResult, lab: Evaluator, device: Device, ends: float, folder: Path, report: Report
) -> bool:
    """Profile root and best of a task; whether something was told of the best."""
    task, drawn, told = load_task(name), [], False
    versions = {"root": result.tree.root, "best": result.tree.best}
    for version, node in versions.items():
        left = ends - time.monotonic()
        if left < LEFT_S:
            report.say(f"\n{name} {version}: not begun, {left:.0f} s are left\n")
            continue
        began = time.monotonic()
        found, where = profiled(task, node.source, device, min(MOST_S, left - 2))
        known = counted(lab, task, node.source)
        measured = kernel_figures({**node.outcome.metrics, **of_kernels(joined(found.kernels, known))})
        drawn += points(version, measured)
        told = bool(found.by) and (version == "best" or told)
        entry: dict[str, Any] = {"task": name, "version": version, "by": found.by, "where": where}
        entry |= {"notes": found.notes, "counters": found.kernels, "lab": known, "seconds": time.monotonic() - began}
        report.data.setdefault("profiles", []).append(entry)
        for kernel, own in sorted(measured.items(), key=lambda item: -item[1].get("ms", 0.0)):
            shares = [
                f"{100 * own[each]:.0f}" if each in own else "-" for each in ("dram_share", "tensor_share", "occupancy")
            ]
            moved = f"{own['bytes_dram'] / 1e6:.1f}" if "bytes_dram" in own else "-"
            report.say(row(name, version, found.by, where, kernel, f"{own.get('ms', 0.0):.4f}", moved, *shares))
        for tool, why in found.notes.items():
            report.say(row(name, version, f"not {tool}", where, why.replace("|", "/"), "-", "-", "-", "-", "-"))
    if drawn:
        title = f"{name} on an {device.hardware.name} (measured)"
        save_figure(roofline_figure(drawn, device.hardware, title), folder / f"{name}.png")
    return told


def main() -> int:
    """Print the table; 0 where every best version was profiled."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--evaluations", type=int, default=4, help="of each search in the lab")
    parser.add_argument("--seconds", type=float, default=115.0, help="for everything")
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.seconds
    device = visible_devices()[0]
    arguments.out.mkdir(parents=True, exist_ok=True)
    good = []
    with Report("Profiles on a GPU", arguments.out / "profiles") as report:
        report.say(
            header("task", "version", "by", "where", "kernel", "ms", "DRAM MB", "DRAM %", "tensor %", "occupancy %")
        )
        settings = LabSettings(target=device.hardware.target, workers=4)
        with settings.open() as lab:
            for name in arguments.tasks:
                if ends - time.monotonic() < 2 * LEFT_S:
                    report.say(f"\n{name}: not begun, the time is up\n")
                    good.append(False)
                    continue
                result = search(name, budget=arguments.evaluations, evaluator=lab, policy="heuristic", progress=False)
                good.append(one_task(name, result, lab, device, ends, arguments.out, report))
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
