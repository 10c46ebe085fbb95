"""The build gate: every Triton kernel that a forward at the full shapes launches, compiled for the target.

The forward runs on fake tensors (shapes and types, no data), and each launch is caught, recorded and compiled for a
GPU that is not there (`mtmc.evaluate.gates.trace`). What comes back: the launches in order, with grid and arguments, and for
each distinct compiled kernel its binary and what it needs of a multiprocessor. Runs in a build worker.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtmc.evaluate.gates.diagnosis import diagnose, diagnose_exception
from mtmc.evaluate.gates.loading import candidate_text, construct, draw_inputs, init_inputs, load_module, load_reference
from mtmc.evaluate.gates.target import install_driver, target
from mtmc.evaluate.gates.trace import Trace
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.outcome import RESOURCE_ERROR, Diagnosis
from mtmc.task import Task


def warm(target_name: str, multiprocessors: int) -> None:
    """Once per warm process: import everything, compile a small kernel and run a small fake forward, so that no job
    pays for it. Raises: EvaluatorError for an unknown target."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from mtmc.evaluate.gates.warmup import compile_small_kernel

    torch.set_num_threads(1)
    install_driver(target(target_name), multiprocessors)
    compile_small_kernel()
    with FakeTensorMode(), torch.no_grad():
        torch.nn.functional.gelu(torch.nn.Linear(8, 8)(torch.randn(2, 8))).softmax(-1).sum()


def build(task: Task, source: str, target_name: str) -> dict[str, Any]:
    """Compile a candidate's kernels at the task's full shapes, in the present folder.

    Returns: {"launches": [...], "kernels": [...], "autotuned": {...}} as `Trace` describes them, or
    {"failure": {"status", "diagnosis"}} where the candidate does not build.
    Raises: TaskError if the reference itself fails.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    folder = Path.cwd()
    path = folder / "mtmc_candidate.py"
    trace = Trace(target(target_name))
    trace.install()
    text = candidate_text(source, task.full.constants)
    with FakeTensorMode(), torch.no_grad():
        reference = load_reference(task, task.full, folder)
        arguments = init_inputs(reference, task.full, 0)
        inputs = draw_inputs(reference, task.full, 0)
        try:
            module = load_module(text, path)
            trace.know(module)
            # No state: a live module's weights have the shapes that its constructor gives them.
            model = construct(module, "ModelNew", arguments, 0, None)
            model(*inputs)
        except Exception as error:
            if out_of_memory(error):
                raise
            return {"failure": {"status": "build_error", "diagnosis": asdict(_failure(error, trace, str(path), text))}}
    return {"launches": trace.launches, "kernels": trace.kernels, "autotuned": trace.autotuned}


def _failure(error: Exception, trace: Trace, path: str, source: str) -> Diagnosis:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources

    if isinstance(error, CompilationError):
        line, message = trace.locate(error)
        return diagnose("build", type(error).__name__, message, source, line)
    if isinstance(error, OutOfResources):
        kernel, line = trace.launching
        return diagnose("build", RESOURCE_ERROR, f"kernel {kernel}: {error}", source, line)
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        found = diagnose_exception("build", error, path, source)
        message = (
            "the forward needs the value of a tensor (.item(), a boolean test, nonzero, ...) to go on; "
            f"a version must be launched from shapes alone ({error})"
        )
        return diagnose("build", "DataDependent", message, source, found.line)
    return diagnose_exception("build", error, path, source)
