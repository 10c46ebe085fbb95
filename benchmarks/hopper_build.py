"""hopper_build: from a case and settings to a version's file and its compiled kernels, in a process without a GPU.

Kernels are compiled for sm_90 through Triton's own launch path, with fake tensors, so that they lie in Triton's cache
under the keys by which a process on the GPU looks for them. Used by `hopper.py` and `schedules.py`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Settings = Mapping[str, int | str]


@dataclass(frozen=True)
class Case:
    """One thing to compute.

    name: of its files. group: see `hopper_cases.GROUPS`. text: a task in KernelBench's format.
    settings: candidate schedules of the one kernel that covers it, by label. flops, bytes: of the arithmetic and of the
    operands and results, each read or written once. library: what it is compared with: "eager", "product" (a part of it),
    "cudnn", "flash", "flash3" (where it is installed). fused: the expression that the last four evaluate;
    wide: of what it calls so. algebra: rules that are applied first. also: further expressions that it is compared with, by
    label.
    """

    name: str
    group: str
    text: str
    settings: Mapping[str, Settings]
    flops: float
    bytes: float
    library: tuple[str, ...]
    fused: str = ""
    wide: str = ""
    algebra: tuple[str, ...] = ()
    also: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Built:
    """What became of one candidate. file: of the version. failure: why there is none that can be run, "" otherwise.

    kernels: for each, name, registers, bytes of local memory (what spills), shared memory in bytes, warps, and kinds of
    instructions.
    """

    case: str
    label: str
    file: str = ""
    failure: str = ""
    seconds: float = 0.0
    kernels: list[dict[str, Any]] = field(default_factory=list)


@functools.cache
def prepared(multiprocessors: int, compiled_for: str = "sm_90") -> list[Any]:
    """Once in a process: Triton compiles for a target and runs nothing. Returns: where compiled kernels are noted."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from triton.runtime.jit import JITFunction

    from mtmc.evaluate.compiling.compiler import launchers
    from mtmc.evaluate.compiling.target import install_driver, target
    from mtmc.task import first_run

    torch.set_num_threads(1)
    first_run.tried = lambda source, name, trials: trials()  # these references are ours: no child tries them first
    install_driver(target(compiled_for), multiprocessors)
    stubs = launchers().build
    original, found = JITFunction.run, list[Any]()

    def run(jitted: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled = original(jitted, *args, grid=grid, warmup=True, **kwargs)
        if stubs is not None:
            stubs(compiled.src, compiled.metadata)
        found.append(compiled)
        return compiled

    JITFunction.run = run
    FakeTensor.data_ptr = lambda tensor: (1 << 40) + tensor.storage_offset() * tensor.element_size()
    return found


@functools.lru_cache(maxsize=8)
def _task(name: str, text: str) -> Any:
    from mtmc.task import task_from_source

    return task_from_source(text, name)


def source_of(case: Case, settings: Settings) -> str:
    """The version of a case with some settings changed from those it starts with. Raises: MtmcError."""
    from mtmc.errors import CoderError
    from mtmc.hardware import hardware
    from mtmc.optimizations import Version
    from mtmc.rewrite.exported import export_graph
    from mtmc.rewrite.plan import CyclicStages, Plan, graph_of, merged_ops, root_plan
    from mtmc.rewrite.source import print_plan

    task = _task(case.name, case.text)
    exported = export_graph(task)
    plan = Plan(root_plan(exported).stages, algebra=case.algebra)
    graph = graph_of(exported, plan)
    version = Version.of(task, Plan(root_plan(graph).stages, algebra=case.algebra), hardware("H100"))
    ways = (version.working(), list(version.plan.stages))  # the latter where views stand between the others
    splits = [(parts, 0) for parts in ways] + [(parts, split) for parts in ways for split in range(1, len(parts))]
    for parts, split in splits:  # what comes before the kernel of interest is one of its own only where it has to be
        with contextlib.suppress(CyclicStages):
            ahead, stage = (
                version.as_kernel(merged_ops(graph, each), {}) if each else None
                for each in (parts[:split], parts[split:])
            )
            if stage is None or (split and ahead is None):
                continue
            plan = version.plan.with_merged(graph, parts[split:], stage.scheduled(settings))
            if ahead is not None:
                plan = plan.with_merged(graph, parts[:split], ahead)
            return print_plan(task, graph, plan).source
    raise CoderError(f"{case.name} is neither one kernel nor two")


def build(case: Case, label: str, folder: Path, multiprocessors: int = 132) -> Built:
    """Print, write and compile one candidate. Runs in a worker process; never raises."""
    started = time.monotonic()
    path = folder / f"{case.name}__{label}.py"
    try:
        found = prepared(multiprocessors)
        source = source_of(case, case.settings[label])
        path.write_text(source, encoding="utf-8")
        found.clear()
        forward(_task(case.name, case.text), path)
        kernels = [_facts(each) for each in {kernel.hash: kernel for kernel in found}.values()]
        most = max(kernel["shared"] for kernel in kernels)
        failure = f"{most} bytes of shared memory" if most > 232_448 else ""
        return Built(case.name, label, str(path), failure, round(time.monotonic() - started, 2), kernels)
    except Exception as error:
        said = f"{type(error).__name__}: {str(error)[:300]}"
        if os.environ.get("HOPPER_TRACE"):
            said += traceback.format_exc()
        return Built(case.name, label, str(path), said, round(time.monotonic() - started, 2))


def forward(task: Any, path: Path) -> None:
    """Call a task's version with fake tensors, so that what it launches is compiled. path: of its file."""
    import torch

    from mtmc.evaluate.loading.fake import FakeMode
    from mtmc.evaluate.loading.modules import load_module

    reference = load_module(task.source, path.with_name(f"{task.name}.py"))
    candidate = load_module(path.read_text(encoding="utf-8"), path)
    with FakeMode(), torch.no_grad():
        model = candidate.ModelNew(*reference.get_init_inputs())
        model(*reference.get_inputs())


def _facts(kernel: Any) -> dict[str, Any]:
    """What a compiled kernel needs, and which instructions of interest its PTX has."""
    import tempfile

    from mtmc.evaluate.compiling.cuobjdump import usage_of

    ptx = kernel.asm["ptx"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        registers, local, _ = usage_of(Path(file.name))
    words = ("wgmma.mma_async", "cp.async.bulk.tensor", "setmaxnreg", "cp.async.cg", "mma.sync")
    return {
        "name": kernel.metadata.name,
        "registers": registers,
        "local": local,
        "shared": int(kernel.metadata.shared),
        "warps": int(kernel.metadata.num_warps),
        **{word: ptx.count(word) for word in words if word in ptx},
    }
