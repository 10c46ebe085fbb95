"""The build gate: every Triton kernel that a forward at the full shapes launches, compiled for the target. The audit of
the text comes first in the same job.

The forward runs on fake tensors (shapes and types, no data), and each launch is caught, recorded and compiled for a
GPU that is not there (`mtmc.evaluate.compiling.trace`). What comes back: the launches in order, with grid and
arguments, and for each distinct compiled kernel its binary and what it needs of a multiprocessor. Runs in a build worker.

For a GPU the build also fills the cache for a process that may compile nothing (`mtmc.evaluate.compiling.prebuilt`): with
the kernels of other shapes, all configurations of autotuned ones, and the host's side of launches.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mtmc.evaluate.audit.audit import audit
from mtmc.evaluate.audit.cuda_text import CudaText, texts_of
from mtmc.evaluate.audit.diagnosis import Failure, diagnose, diagnose_exception
from mtmc.evaluate.audit.gluon_names import chips
from mtmc.evaluate.audit.gluon_text import paths_of
from mtmc.evaluate.compiling.compiled_kernel import Forbidden, Kernel
from mtmc.evaluate.compiling.compiler import Compiler, launchers
from mtmc.evaluate.compiling.cuda_kernels import CudaBinary, compile_texts
from mtmc.evaluate.compiling.launched import Launch
from mtmc.evaluate.compiling.prebuilt import WITHOUT_LINES, fingerprint
from mtmc.evaluate.compiling.target import Target, install_driver, target
from mtmc.evaluate.compiling.torch_calls import TorchCall
from mtmc.evaluate.compiling.trace import Trace
from mtmc.evaluate.loading.clean_import import note_standard
from mtmc.evaluate.loading.modules import (
    candidate_text,
    construct,
    draw_inputs,
    init_inputs,
    load_module,
    load_reference,
)
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.outcome import RESOURCE_ERROR, Diagnosis
from mtmc.task import Task, Variant
from mtmc.task.tensors import map_tensors

if TYPE_CHECKING:
    import torch

COMPILE_THREADS = 4
"""Kernels of one candidate that compile at the same time."""


@dataclass(frozen=True)
class Prebuilt:
    """What lies in the cache for a process that may compile nothing.

    device: of the fake tensors. kernels: how many distinct ones. launchers: built, not needed, or why not.
    fingerprint: see `mtmc.evaluate.compiling.prebuilt.fingerprint`.
    """

    device: str
    kernels: int
    launchers: str
    fingerprint: str


@dataclass(frozen=True)
class Built:
    """What a version launches at the full shapes, see `Trace` for the fields. prebuilt: of a build for a GPU. cuda: how many
    kernels in CUDA C++ its text has. gluon: how many in Gluon it launches, at any shapes; 1 where its text has some and
    launches none."""

    launches: tuple[Launch, ...]
    kernels: tuple[Kernel, ...]
    autotuned: Mapping[str, int]
    prebuilt: Prebuilt | None = None
    calls: tuple[TorchCall, ...] = ()
    cuda: int = 0
    gluon: int = 0


def warm(
    target_name: str,
    multiprocessors: int,
    for_gpu: bool = False,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Once per warm process: import everything, compile a small kernel and run a small fake forward, so that no job
    pays for it.

    for_gpu: the builds are for a real GPU; `build` prepares for that itself otherwise, in each job anew.
    facts: what that GPU says of itself, see `describe_device`.
    Raises: EvaluatorError for an unknown target, or where launchers cannot be built.
    """
    note_standard()  # first: what comes after it is not there for a file that is imported by itself
    import torch

    import mtmc.evaluate.compiling.pretended  # noqa: F401
    from mtmc.evaluate.compiling import stand_in
    from mtmc.evaluate.compiling.warmup import compile_small_kernel
    from mtmc.evaluate.loading.fake import FakeMode

    torch.set_num_threads(1)
    stand_in.quicken()
    install_driver(target(target_name), multiprocessors, facts)
    compile_small_kernel()
    device = _prepare_for_gpu(target_name) if for_gpu else "cpu"
    with FakeMode(), torch.no_grad():
        torch.nn.functional.gelu(torch.nn.Linear(8, 8)(torch.randn(2, 8))).softmax(-1).sum()
        if device != "cpu":
            torch.nn.Linear(8, 8).to(device)(torch.randn(2, 8, device=device)).contiguous()[1:]


@functools.cache
def _prepare_for_gpu(target_name: str) -> str:
    """Once in a process: stand-ins for torch.cuda, and what all launches need in the cache. Returns: device of tensors."""
    import triton

    from mtmc.evaluate.compiling import stand_in

    device = stand_in.install()
    triton.runtime.driver.active.torch_device = device
    launchers()
    fingerprint(target_name)
    return device


def ready() -> bool:
    """Job function that does nothing: when it has run, `warm` has ended well."""
    return True


def build(
    task: Task,
    source: str,
    target_name: str,
    variants: Sequence[Variant] = (),
    for_gpu: bool = False,
    lines: bool = False,
) -> Built | Failure:
    """Audit a candidate, then compile its kernels, see `compiled`.

    The audit is here since reading a large file takes a second, which would hold up the process that all GPUs share.
    lines: whether kernels keep line numbers in any case, so that the compiler can say where one is wrong.
    Returns: as `compiled`; a failure for what is refused, too. Raises: TaskError if the reference itself fails.
    """
    refused = audit(source, task.source)
    if refused is not None:
        assert refused.diagnosis is not None
        return Failure(refused.status, refused.diagnosis)
    if lines:
        os.environ.pop(WITHOUT_LINES, None)
    return compiled(task, source, target_name, variants, for_gpu)


def compiled(
    task: Task, source: str, target_name: str, variants: Sequence[Variant] = (), for_gpu: bool = False
) -> Built | Failure:
    """Compile a candidate's kernels at the task's full shapes, in the present folder.

    variants: further shapes whose kernels go into the cache. for_gpu: compile all that a process on a GPU launches.
    Returns: a failure where the candidate does not build. Raises: TaskError if the reference itself fails.
    """
    import torch

    from mtmc.evaluate.loading.fake import FakeMode

    device = _prepare_for_gpu(target_name) if for_gpu else "cpu"
    compiler = Compiler(COMPILE_THREADS) if for_gpu else None
    gluon = paths_of(source)
    other_chip = wrong_target(gluon, target(target_name), source)
    if other_chip is not None:
        return Failure("build_error", other_chip)
    cuda = _cuda(source, target_name)
    if isinstance(cuda, Failure):
        return cuda
    trace = Trace(target(target_name), compiler, device, cuda)
    trace.install()
    shapes = (task.full, *(variant for variant in variants if variant != task.full))
    modules: dict[str, tuple[ModuleType, Path]] = {}
    with FakeMode(), torch.no_grad():
        for variant in shapes:
            failure = _forward(task, variant, source, trace, device, modules)
            if failure is not None:
                return _failed(failure)
    failure = _finish(trace, source)
    if failure is not None:
        return _failed(failure)
    prebuilt = None
    if compiler is not None:
        prebuilt = Prebuilt(device, compiler.kernels, launchers().note, fingerprint(target_name))
    calls, in_gluon = tuple(trace.calls), len(trace.gluon) or int(bool(gluon))
    return Built(tuple(trace.launches), tuple(trace.kernels), trace.autotuned, prebuilt, calls, len(cuda), in_gluon)


def _failed(diagnosis: Diagnosis) -> Failure:
    return Failure("rejected" if diagnosis.kind == Forbidden.__name__ else "build_error", diagnosis)


def wrong_target(paths: Set[str], chosen: Target, source: str) -> Diagnosis | None:
    """Why a version in Gluon cannot be built for a target, told before the compiler is asked, which would end at it.

    paths: of Gluon, which the version uses. Returns: None where it can."""
    arch = chosen.arch if isinstance(chosen.arch, int) else 0
    for path in sorted(paths):
        least, most = chips(path)
        if not least <= arch <= most:
            name = path.rpartition(".")[2]
            line = next((at for at, text in enumerate(source.splitlines(), 1) if re.search(rf"\b{name}\b", text)), None)
            kind = "Hopper" if least == 90 else "Ampere"
            message = (
                f"{path} is of NVIDIA's {kind}{'' if least == most else ' and later'} (sm_{least}), and this is built for "
                f"{chosen.name}: write it in Triton, or in what gluon.language has for every GPU"
            )
            return diagnose("build", "WrongTarget", message, source, line)
    return None


def _cuda(source: str, target_name: str) -> Mapping[CudaText, CudaBinary] | Failure:
    """The version's kernels in CUDA C++, compiled before any of it runs. Raises: EvaluatorError where they cannot be."""
    from triton import knobs

    texts = texts_of(source)
    return compile_texts(texts, target(target_name), source, Path(knobs.cache.dir)) if texts else {}


def _forward(
    task: Task,
    variant: Variant,
    source: str,
    trace: Trace,
    device: str,
    modules: dict[str, tuple[ModuleType, Path]],
) -> Diagnosis | None:
    """Run one forward at one set of shapes. modules: those that were executed, by their text, with their files.

    Returns: what the candidate did wrong."""
    from mtmc.evaluate.compiling.pretended import settle

    folder = Path.cwd() if variant == task.full else Path.cwd() / variant.label
    folder.mkdir(exist_ok=True)
    text = candidate_text(source, variant.constants)
    trace.label = variant.label
    reference = load_reference(task, variant, folder)
    path = modules[text][1] if text in modules else folder / "mtmc_candidate.py"
    arguments = init_inputs(reference, variant, 0, device=device)
    inputs = draw_inputs(reference, variant, 0, device=device)
    if trace.for_gpu:
        inputs = map_tensors(inputs, _at_its_start)
    try:
        module = _module(text, path, trace, modules)
        with _gpu(trace.for_gpu, constructing=True):
            # No state: a live module's weights have the shapes that its constructor gives them.
            model = construct(module, "ModelNew", arguments, 0, None, device=device)
        settle(model)
        if not trace.for_gpu:
            _record(model, inputs, trace, text)
        else:
            with trace.torch_calls():
                model(*inputs)
            with trace.unrecorded():  # a version may prepare itself in its first call
                model(*inputs)
    except Exception as error:
        if out_of_memory(error):
            raise
        host, launching = error, trace.launching
    else:
        if not trace.failed:
            return None
        host, launching = next(iter(trace.failed.values()))  # swallowed: what runs is not what was written
    failure = _finish(trace, text)  # an error of a kernel that was launched before goes first
    if failure is not None:
        return failure
    trace.launching, trace.label = launching, variant.label
    return _failure(host, trace, str(path), text)


def _module(text: str, path: Path, trace: Trace, modules: dict[str, tuple[ModuleType, Path]]) -> ModuleType:
    """The candidate's module at one set of shapes. One that has the same text at several is executed once, as in the process
    that is timed."""
    if text not in modules:
        with _gpu(trace.for_gpu):
            modules[text] = load_module(text, path), path
        trace.know(modules[text][0])
    module, _ = modules[text]
    sys.modules[module.__name__] = module  # of all that have this name
    return module


def _record(model: Any, inputs: Sequence[Any], trace: Trace, source: str) -> None:
    """Run the forward whose launches are recorded. Of a version that prepares itself it is the second one."""
    from mtmc.evaluate.compiling.pretended import pretended_gpu
    from mtmc.evaluate.compiling.pretended_graph import Journal, prepares_itself

    with pretended_gpu(journal=Journal(trace.launches)):
        if prepares_itself(source):
            model(*inputs)
            trace.launches.clear()
        model(*inputs)


def _gpu(for_gpu: bool, constructing: bool = False) -> contextlib.AbstractContextManager[None]:
    """What a version takes for a machine with a GPU; where one is built for, its tensors say so themselves."""
    from mtmc.evaluate.compiling.pretended import pretended_gpu

    return contextlib.nullcontext() if for_gpu else pretended_gpu(constructing)


def _at_its_start(tensor: torch.Tensor) -> torch.Tensor:
    """The same fake tensor at the start of its memory, where a GPU's arena has every input."""
    return tensor if tensor.storage_offset() == 0 else tensor.new_empty_strided(tensor.shape, tensor.stride())


def _finish(trace: Trace, source: str) -> Diagnosis | None:
    """Wait for the kernels that still compile. Returns: what is wrong with one of them."""
    try:
        trace.finish()
    except Exception as error:
        if out_of_memory(error):
            raise
        return _failure(error, trace, "", source)
    return None


def _failure(error: Exception, trace: Trace, path: str, source: str) -> Diagnosis:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources

    where = "" if trace.label == "full" else f" (at the {trace.label} shapes)"
    kernel, line = trace.launching
    if isinstance(error, Forbidden):
        return diagnose("build", Forbidden.__name__, str(error), source, error.line)
    if isinstance(error, CompilationError):
        line, message = trace.locate(error)
        return diagnose("build", type(error).__name__, message + where, source, line)
    if isinstance(error, OutOfResources):
        return diagnose("build", RESOURCE_ERROR, f"kernel {kernel}: {error}{where}", source, line)
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        found = diagnose_exception("build", error, path, source)
        message = (
            "the forward needs the value of a tensor (.item(), a boolean test, nonzero, ...) to go on; "
            f"a version must be launched from shapes alone ({error}){where}"
        )
        return diagnose("build", "DataDependent", message, source, found.line)
    found = diagnose_exception("build", error, path, source)
    return diagnose("build", found.kind, found.message + where, source, line if found.line is None else found.line)
