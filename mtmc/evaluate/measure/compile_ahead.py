"""What torch.compile does for a baseline, done before the device is taken for measuring it.

Compiling takes seconds to minutes of the host's time, and where it tries configurations out, moments of the device's. Here
it goes on beside what is measured, for several tasks at a time, and takes the device for these moments only. What comes of
it is found in Inductor's cache by the process that is measured. A task that does not compile here says so there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from mtmc.evaluate.measure.device_lock import DeviceLock
from mtmc.evaluate.reference.reference import Reference
from mtmc.task import Task

SEED = 1


def compile_ahead(task: Task, mode: str, device: str, lock: DeviceLock) -> None:
    """Compile a task's reference at the full shapes. mode: of torch.compile. Raises: whatever compiling raises."""
    torch.set_grad_enabled(False)
    with lock:
        reference = Reference(task, task.full, Path.cwd(), SEED, device)
        inputs = reference.draw(SEED)
    inductor = torch._TorchCompileInductorWrapper(mode, None, None)

    def backend(graph: Any, given: Any) -> Callable[..., Any]:
        compiled = inductor(graph, given)

        def run(*arguments: Any) -> Any:
            with lock:
                return compiled(*arguments)

        return run

    with _taking_turns(lock):
        torch.compile(reference.model, backend=backend)(*inputs)
    if device != "cpu":
        torch.cuda.synchronize()


@contextmanager
def _taking_turns(lock: DeviceLock) -> Iterator[None]:
    """Inductor times configurations when it is its turn on the device."""
    from torch._inductor.runtime.benchmarking import benchmarker

    timed = benchmarker.benchmark_gpu

    def in_turn(*arguments: Any, **named: Any) -> Any:
        with lock:
            return timed(*arguments, **named)

    with mock.patch.object(benchmarker, "benchmark_gpu", in_turn):
        yield
