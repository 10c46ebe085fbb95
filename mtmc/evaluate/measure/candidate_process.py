"""The candidate's process: made before it is needed, locked down before the candidate's text runs, gone after one job.

It connects to the oracle, warms the device up, and does what the oracle asks, see `subject`.
"""

from __future__ import annotations

import importlib
import os
import socket
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import torch

from mtmc.evaluate.check.candidate import poisoned_memory
from mtmc.evaluate.compiling import cuda_kernels
from mtmc.evaluate.compiling.prebuilt import install, prime
from mtmc.evaluate.compiling.target import target
from mtmc.evaluate.core_split import keep_to
from mtmc.evaluate.measure.backend import open_backend
from mtmc.evaluate.measure.device_lock import DeviceLock
from mtmc.evaluate.measure.flags import Flags
from mtmc.evaluate.measure.rehearsal import rehearse
from mtmc.evaluate.measure.subject import Subject
from mtmc.evaluate.measure.wire import (
    READY,
    Gone,
    Hello,
    Line,
    Open,
)
from mtmc.evaluate.sandbox.lockdown import lock_calls, lock_files
from mtmc.task import Task

if TYPE_CHECKING:
    from mtmc.evaluate.measure.compile_ahead import Prepared

TOKEN = 32
"""Characters by which the oracle knows which process a connection is from."""


def warm(backend: str, target_name: str, compiles: bool = False) -> None:
    """Once in the warm server: import everything, touch no device, so that forked processes may use it.

    compiles: whether the processes compile with torch.compile, which takes seconds to load.
    Raises: EvaluatorError for an unknown target, ImportError for a missing package.
    """
    torch.set_num_threads(1)
    with poisoned_memory():  # its first use imports a good part of torch
        torch.empty(1)
    if backend == "cuda":
        importlib.import_module("cuda.bindings.driver")
        importlib.import_module("mtmc.evaluate.measure.cuda_backend")
        prime(target_name)
        if compiles:
            load_compiler()
    else:
        _interpret(target_name)


def load_compiler() -> None:
    """Import torch.compile's compiler where processes will be forked that use the GPU.

    Importing it asks `torch.cuda.is_available`, which counts devices through CUDA's runtime: after that no forked process
    could use them. There is a GPU, or nothing would be compiled for one, so the question is answered without looking.
    """
    with mock.patch.object(torch.cuda, "is_available", lambda: True):
        importlib.import_module("torch._inductor.compile_fx")


def _interpret(target_name: str) -> None:
    """Let kernels run on CPU tensors."""
    from mtmc.evaluate.compiling.autotune import pin_autotuners
    from mtmc.evaluate.compiling.target import install_driver
    from mtmc.evaluate.interpreter.interpreter import prepare

    install_driver(target(target_name), 1)
    prepare("tf32")
    pin_autotuners({})


def serve(
    oracle: str,
    token: str,
    backend: str,
    locked: bool,
    cache: str,
    target_name: str,
    task: Task | None = None,
    mode: str = "",
    turns: str = "",
    done: str = "",
    caches: str = "",
    quiet: Sequence[int] = (),
    others: Sequence[int] = (),
) -> None:
    """Job function of the candidates' pool: until the oracle hangs up, after one candidate as a rule.

    oracle: path of its socket. token: see `TOKEN`. locked: whether to lock this process down before a candidate runs;
    not for the evaluator's own models, which need a compiler. cache: folder of compiled kernels, to be read.
    target_name: what they were compiled for. task, mode: whose reference is compiled before the oracle is told of this
    process, see `compile_ahead`. turns: path of the device's lock. done: path of a file that then tells that it is.
    caches: folder of what torch.compile keeps.
    quiet, others: hardware threads that it keeps to in its turn, and that it compiles on, see `mtmc.evaluate.core_split`.
    """
    prepared = None if task is None else _compiled(task, mode, backend, Path(turns), Path(done), caches)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(oracle)
    connection.sendall(token.encode())
    line = Line(connection)
    if locked:  # before the device's context: its driver's threads are then born inside
        lock_files([Path.cwd()], [Path(cache)], gpu=backend == "cuda")
    device = open_backend(backend)
    device.warm_up()
    refusals = _ready_triton() if backend == "cuda" and locked else []
    if backend == "cuda" and locked:
        cuda_kernels.install(Path(cache), target(target_name), refusals)
        rehearse(str(device.device), Path.cwd())
    request, [fd] = line.asked(fds=1)
    assert isinstance(request, Hello)
    flags = Flags(fd)
    device.share(flags)  # slow where the driver is busy with other processes, so before it is this one's turn
    line.say(READY)
    request, [inputs, outputs] = line.asked(fds=2)
    assert isinstance(request, Open)
    keep_to(quiet)
    window = device.window(outputs, request.outputs)
    memory = device.open(inputs, request.inputs)
    subject = Subject(line, device, flags, memory, window, request.outputs, refusals, prepared, others)
    os.close(inputs)
    if locked:
        device.leave_room()
        lock_calls("candidate")
    torch.set_grad_enabled(False)
    line.say(READY)
    try:
        while True:
            request, _ = line.asked()
            subject.answer(request)
    except (Gone, OSError):
        os._exit(0)


def _compiled(task: Task, mode: str, backend: str, lock: Path, done: Path, caches: str) -> Prepared | None:
    """A reference compiled before its turn; None where it does not compile: when it is its turn, it says why."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = caches  # Inductor looks there whenever it keeps or seeks something
    from mtmc.evaluate.measure.compile_ahead import compile_ahead

    turns = DeviceLock(lock)
    try:
        with turns:  # a context is made
            device = open_backend(backend).device
        return compile_ahead(task, mode, str(device), turns)
    except Exception:
        traceback.print_exc()
        return None
    finally:
        turns.close()
        done.touch()


def _ready_triton() -> list[str]:
    """Triton as a candidate finds it: its driver loaded, compiling refused, tuning quick.

    Returns: a list that gets every refusal, also those that a candidate swallows.
    """
    import triton

    from mtmc.evaluate.compiling.autotune import quick_autotune

    triton.runtime.driver.active.get_current_target()
    quick_autotune()
    return install()
