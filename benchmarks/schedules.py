"""One kernel under many schedules: what every combination of some settings takes, beside eager and the search's start.

    PYTHONPATH=. python benchmarks/schedules.py --tasks .kb/KernelBench/level1/42_*.py --actions lower \\
        --settings rows=1,2,4 block=128,256 num_warps=4 --out results/schedules

Each action is a kind, or how its sentence begins; after them a version must have one kernel. A combination that cannot be
printed is counted with its reason. The others are compiled in processes, compared with the reference and timed in a plain
loop. A search tries a dozen schedules of a kernel: this shows what it starts with, and what there is to find. Needs a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import machine, shown_command
from benchmarks.hopper_build import forward, prepared
from benchmarks.schedule_record import EAGER, Measured, Row, Run, page, table, to_text
from mtmc.errors import ConfigError, MtmcError
from mtmc.evaluate.devices import visible_devices
from mtmc.optimizations import Version, legal_moves
from mtmc.optimizations.version import CallTimes
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Stage, root_plan
from mtmc.rewrite.sizes import NoExpression
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, load_task

START = "the start"
ROUND_MS, MOST_CALLS, ROUNDS = 20.0, 20, 2
SAME = "prints what another prints"

Choice = Mapping[str, int | str]


def words(choice: Choice) -> str:
    """Settings as the command line has them."""
    return " ".join(f"{name}={value}" for name, value in choice.items())


def combined(settings: Iterable[str]) -> list[Choice]:
    """Every combination of settings like "rows=1,2". Raises: ConfigError for one without a value."""
    values: dict[str, list[int | str]] = {}
    for text in settings:
        name, _, listed = text.partition("=")
        if not name or not all(listed.split(",")):
            raise ConfigError(f"--settings {text!r} has no value: write NAME=VALUE,VALUE")
        values[name] = [int(value) if value.lstrip("-").isdigit() else value for value in listed.split(",")]
    return [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]


def after(version: Version, beginnings: Sequence[str]) -> Version:
    """The version that some actions make, the first legal one of each kind or beginning. Raises: ConfigError."""
    for beginning in beginnings:
        moves = (move for move in legal_moves(version) if move.child is not None)
        found = (move for move in moves if beginning == move.action.kind or move.action.sentence.startswith(beginning))
        move = next(found, None)
        if move is None or move.child is None:
            raise ConfigError(
                f"--actions {beginning!r}: {version.task.name} has no legal action of that kind or beginning"
            )
        version = version.made(move.child)
    return version


def kernel_of(version: Version) -> Stage:
    """Its one kernel. Raises: ConfigError where there are several, or none."""
    kernels = version.kernels()
    if len(kernels) != 1:
        raise ConfigError(f"{version.task.name} has {len(kernels)} kernels: choose --actions after which it has one")
    return kernels[0]


def printed(version: Version, choices: Sequence[Choice]) -> tuple[dict[str, str], str, Counter[str]]:
    """Sources by schedule, which of them the start is, and how many were not printed, by reason."""
    stage, refused = kernel_of(version), Counter[str]()

    def source_of(choice: Choice) -> str:
        plan = version.plan.with_stage(stage, stage.scheduled(choice))
        return print_plan(version.task, version.graph, plan).source

    found: dict[str, str] = {}
    for choice in choices:
        try:
            source = source_of(choice)
        except (MtmcError, NotCovered, NoExpression, ValueError, KeyError) as error:
            refused[f"{type(error).__name__}: {error}"] += 1
            continue
        refused[SAME] += source in found
        found.setdefault(source, words(choice))
    start = found.setdefault(source_of({}), START)
    return {name: text for text, name in found.items()}, start, +refused


def compiled(job: tuple[Task, Path, int, str]) -> str:
    """Compile a version's kernels in this process. Returns: why that failed, or ""."""
    task, path, multiprocessors, target = job
    try:
        prepared(multiprocessors, target)
        forward(task, path)
    except Exception as error:  # of one version, which is left out
        return f"{type(error).__name__}: {str(error)[-150:]}"
    return ""


def loop_ms(call: Callable[[], Any]) -> float:
    """Milliseconds of a call in a plain loop, the better of some rounds."""
    import torch

    def timed(count: int) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / count

    timed(1)  # which compiles
    count = max(2, min(MOST_CALLS, int(ROUND_MS / max(timed(1), 1e-3))))
    return min(timed(count) for _ in range(ROUNDS))


def measured(file: str, arguments: argparse.Namespace, folder: Path) -> Measured:
    """Print, compile, compare and time all schedules of one task's kernel, on the first GPU. Raises: MtmcError."""
    import torch

    from mtmc.evaluate.loading.modules import load_module

    task, [device, *_] = load_task(file), visible_devices()
    reference = load_module(task.source, folder / "reference.py")
    torch.manual_seed(0)
    with torch.device("cuda"):
        model, inputs = reference.Model(*reference.get_init_inputs()), reference.get_inputs()
    expected = model(*inputs)
    eager_ms = loop_ms(lambda: model(*inputs))
    # cuDNN convolves in TF32 unless it is told not to, and a search that has seen that starts with TF32, too.
    tf32, times = torch.backends.cudnn.allow_tf32, CallTimes(eager_ms, eager_ms)
    root = Version.of(task, root_plan(export_graph(task)), device.hardware, tf32, times)
    version = after(root, arguments.actions)
    sources, start, refused = printed(version, combined(arguments.settings))
    paths = {name: folder / f"version_{at}.py" for at, name in enumerate(sources)}
    for name, path in paths.items():
        path.write_text(sources[name], encoding="utf-8")
    jobs = [(task, path, device.hardware.sms, device.hardware.target) for path in paths.values()]
    with ProcessPoolExecutor(arguments.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        failures = list(pool.map(compiled, jobs))

    def row_of(name: str, failure: str) -> Row:
        if failure:
            return Row(name, failure=failure)
        try:
            new = load_module(sources[name], paths[name]).ModelNew(*reference.get_init_inputs()).cuda()
            new.load_state_dict(model.state_dict())
            error = float((new(*inputs) - expected).abs().max() / expected.abs().max())
            if error != error:
                return Row(name, failure="gives NaN")
            return Row(name, loop_ms(lambda: new(*inputs)), error)
        except Exception as caught:  # of one schedule: the others go on
            return Row(name, failure=f"{type(caught).__name__}: {str(caught)[-150:]}")

    rows = [Row(EAGER, eager_ms, 0.0), *map(row_of, sources, failures)]
    return Measured(task.name, words(dict(kernel_of(version).schedule)), start, tuple(rows), refused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", required=True, help="files in KernelBench's format, or names")
    parser.add_argument("--actions", nargs="*", default=["lower"], help="kinds of actions, or beginnings of sentences")
    parser.add_argument("--settings", nargs="+", required=True, metavar="NAME=VALUE,VALUE")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 4) - 2))
    parser.add_argument("--out", type=Path, required=True, help="write OUT.md and OUT.json")
    arguments = parser.parse_args()
    combined(arguments.settings)  # what is wrong with them is said before anything is measured
    [device, *_] = visible_devices()
    import torch

    torch.set_grad_enabled(False)
    here, tasks = machine(), []
    about = {
        "gpu": device.name,
        **{name: here[name] for name in ("torch", "triton", "date")},
        "command": shown_command(),
    }
    for file in arguments.tasks:
        with tempfile.TemporaryDirectory() as folder:
            tasks.append(measured(file, arguments, Path(folder)))
        print(table(tasks[-1]), flush=True)
        run = Run(about, tuple(tasks))
        Path(f"{arguments.out}.json").write_text(to_text([run]), encoding="utf-8")
        Path(f"{arguments.out}.md").write_text(page([run]), encoding="utf-8")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
