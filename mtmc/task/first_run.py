"""first_run: a task's file executed once at its full shapes, step by step, to say exactly what is wrong with it.

On the meta device first, which holds no data. What fails there may still run with data, so it is tried on the CPU next, as
far as that is cheap; where it is not, a failure counts unless it is of the kind that only the meta device has.

A file is the whole task: its text is kept in the run, goes to sandboxed processes that see no folder of the user's, and
ends in best.py. So one that reads other files is refused, also where they are there, and one that imports modules that are
neither installed nor beside it (those become part of the text, see `mtmc.task.bundling`).

All this happens in a child process (`mtmc.task.child`), as do all trials of a user's file at other shapes: a file that
exits, crashes or hangs ends the child alone, and the reason is said.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from mtmc.errors import TaskError
from mtmc.task.base import Variant
from mtmc.task.bundling import place
from mtmc.task.child import ChildDied, run_in_child

if TYPE_CHECKING:
    from mtmc.task.reference import Limits

Found = TypeVar("Found")

FIRST_RUN_S = 60.0
"""What the first run may take. It takes milliseconds, and some seconds where a constructor draws many numbers."""
TRIALS_S = 600.0
"""What all trials at other shapes may take after that, which are limited by the work that they do."""
_ON_CPU = (2**24, 2**32)
"""Elements of one tensor and multiply-adds of a run with data: about half a second."""
_CUDA_IN_A_FORK = "CUDA in forked subprocess"
_NO_FILES = (
    "a task is its text alone, for no file is beside it where versions are judged: make the values in the file, or give "
    "the live module to mtmc.optimize()"
)


def tried(source: str, name: str, trials: Callable[[], Found]) -> Found:
    """What `trials` finds out about a task's text, once its first run went well; both in a child process.

    In this process where CUDA is in use here and the file uses it, which a fork could not.
    Raises: TaskError with what is wrong with the file, and its line; what `trials` raises.
    """
    _load_torch()

    def work(allow: Callable[[float], None]) -> Found:
        sys.addaudithook(needs := _Needs(_File(source, name)))
        _keep_to_one_thread()
        first_run(source, name)
        needs.refuse()
        allow(TRIALS_S)
        return trials()

    try:
        return run_in_child(work, FIRST_RUN_S)
    except ChildDied as death:
        raise TaskError(_of_death(death, source, name)) from death
    except TaskError as error:
        if _CUDA_IN_A_FORK not in str(error):
            raise
    first_run(source, name)
    return trials()


@functools.cache
def _load_torch() -> None:
    """Let torch load what it loads at its first trial, some seconds of imports, once here and not in each child."""
    import torch

    from mtmc.task.reference import Meter, trial_conditions

    with trial_conditions(), torch.device("meta"), torch.no_grad(), Meter():
        torch.nn.functional.linear(torch.empty(2, 2), torch.empty(2, 2))


def _keep_to_one_thread() -> None:
    """In a child for good, also where the file sets a number itself: OpenMP's other threads are not in a fork, and torch
    would wait for them."""
    import torch

    torch.set_num_threads(1)
    torch.set_num_threads = lambda count: None  # type: ignore[assignment]


def first_run(source: str, name: str) -> None:
    """Execute the file, construct the model and call it at the full shapes. Raises: TaskError with what fails, and where."""
    from mtmc.task.reference import Limits, TooLargeError
    from mtmc.task.trials import CALLS

    try:
        _run(source, name, "meta", Limits(sys.maxsize, sys.maxsize, CALLS))
    except TooLargeError:
        return
    except TaskError as failure:
        try:
            _run(source, name, "cpu", Limits(*_ON_CPU, CALLS))
        except TooLargeError:
            if "meta" not in str(failure.__cause__).lower():
                raise failure from None


def _run(source: str, name: str, device: str, limits: Limits) -> None:
    """One run. Raises: TaskError; TooLargeError where it goes over the limits."""
    import torch

    from mtmc.task.reference import Meter, namespace, trial_conditions
    from mtmc.task.seeding import seed_torch
    from mtmc.task.tensors import flat_tensors

    full, file = Variant("full"), _File(source, name)
    with trial_conditions(), torch.random.fork_rng(devices=[]), torch.device(device), torch.no_grad(), Meter(limits):
        seed_torch(0)
        with _step(file, "the file"):
            names = namespace(source, full, name)
        arguments = _listed(names, full.init_inputs, "Model's constructor", file)
        fit = f"{full.init_inputs}() has to return the constructor's arguments"
        with _step(file, "Model.__init__", f"Model(*{full.init_inputs}())", fit):
            model = names["Model"](*arguments)
        if not isinstance(model, torch.nn.Module):
            raise TaskError(f"task {name}: Model is no torch.nn.Module: write `class Model(nn.Module)`")
        inputs = _listed(names, full.inputs, "forward", file)
        fit = f"{full.inputs}() has to return forward's arguments"
        with _step(file, "forward", f"Model's forward(*{full.inputs}())", fit):
            outputs = model(*inputs)
        if not flat_tensors(outputs):
            kind = type(outputs).__name__
            raise TaskError(f"task {name}: forward returns {kind} without a tensor: return what it computes")


def _listed(names: dict[str, Any], function: str, of: str, file: _File) -> list[Any]:
    """What a function of the file returns. Raises: TaskError if it fails or returns no list."""
    with _step(file, f"{function}()", f"{function}()", "it is called without arguments"):
        found = names[function]()
    if not isinstance(found, list | tuple):
        kind = type(found).__name__
        raise TaskError(
            f"task {file.name}: {function}() returns {kind}, no list: return the list of the arguments of {of}"
        )
    return list(found)


@dataclass(frozen=True)
class _File:
    """A task's text and its name."""

    source: str
    name: str


@contextmanager
def _step(file: _File, step: str, call: str = "", fit: str = "") -> Iterator[None]:
    """Say what an exception of a step is. call, fit: the call that is made, and what its arguments have to be.

    Raises: TaskError; TooLargeError as it comes.
    """
    from mtmc.task.reference import TooLargeError, line_of

    try:
        yield
    except TooLargeError:
        raise
    except BaseException as error:  # SystemExit too, and what else a file may raise
        line = line_of(error, file.name)
        if isinstance(error, TypeError) and line is None and fit:
            raise TaskError(f"task {file.name}: {call} does not fit: {error}: {fit}") from error
        where = "" if line is None else f" at {place(file.source, line)}"
        raise TaskError(f"task {file.name}: {_what(error, step, where)}") from error


def _what(error: BaseException, step: str, where: str) -> str:
    """What a failed step did, and the fix. where: " at line 7"."""
    from mtmc.task.reference import first_line

    text = first_line(error)
    if isinstance(error, SystemExit):
        return f"{step} exits{where} (SystemExit: {error.code}): take that out, or put it under `if __name__ == '__main__'`"
    if isinstance(error, ModuleNotFoundError) and error.name:
        module, root = error.name, error.name.partition(".")[0]
        if root != module and root in sys.modules:
            return (
                f"{step} imports {module!r}{where}, which the {root} installed here does not have: correct the import"
            )
        return f"{step} imports {module!r}{where}, which is not installed here: install it, or put {root}.py beside the file"
    if isinstance(error, OSError) and error.filename is not None:
        start = "" if os.path.isabs(str(error.filename)) else f"; relative paths start from {os.getcwd()}"
        return f"{step} needs the file {str(error.filename)!r}{where} ({error.strerror}{start}): {_NO_FILES}"
    if isinstance(error, EOFError):
        return f"{step} waits for input{where}: nobody is asked while a task runs, so write the value into the file"
    if isinstance(error, MemoryError):
        return f"{step} needs more memory{where} than is free on this machine: make less of what is no tensor"
    if "CUDA" in text or "NVIDIA" in text:
        text += " (name no device in the file: mtmc puts model and inputs where they are needed)"
    return f"{step} fails{where}: {type(error).__name__}: {text}: a task has to run as it is, so correct that first"


def _of_death(death: ChildDied, source: str, name: str) -> str:
    found = re.search(rf'File "<task {re.escape(name)}>", line (\d+) in (\S+)', death.stack)
    where = f" at {place(source, int(found[1]))} (in {found[2]})" if found else ""
    fix = "correct that first" if found else "take out what ends it (os._exit, os.kill, a crash in a library)"
    return f"task {name}: the process that runs the file {death.how}{where}: {fix}"


class _Needs:
    """An audit hook: what a task's file takes from this machine besides what is installed.

    Files that it reads, itself or through a library, and modules that it imports from elsewhere.
    """

    def __init__(self, file: _File) -> None:
        self._file = file
        self._first: tuple[str, int] | None = None
        self._before = set(sys.modules)
        own = os.path.dirname(os.path.dirname(__file__))
        installed = [path for path in sys.path if path and any(Path(path).glob("*.dist-info"))]
        paths = {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, own, *installed}
        self._installed = tuple(
            os.path.realpath(path) + os.sep for path in (*paths, "/proc", "/sys", "/dev", "/usr", "/etc")
        )

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """What Python calls at every event, here for "open": path, mode, flags."""
        if event != "open" or self._first is not None or not isinstance(args[0], str | bytes):
            return
        if args[2] & os.O_ACCMODE == os.O_WRONLY or args[2] & os.O_CREAT:
            return
        line = self._line(sys._getframe(1))
        path = os.fsdecode(args[0])
        if line is not None and os.path.isfile(path) and not self._is_installed(path):
            self._first = path, line

    def _is_installed(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self._installed)

    def _line(self, frame: FrameType | None) -> int | None:
        """The line of the task's file that is at work, None where there is none or a module is being imported."""
        while frame is not None and frame.f_code.co_filename != f"<task {self._file.name}>":
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return None
            frame = frame.f_back
        return None if frame is None else frame.f_lineno

    def refuse(self) -> None:
        """Raises: TaskError if there was any."""
        start = f"task {self._file.name}:"
        if self._first is not None:
            path, line = self._first
            raise TaskError(f"{start} needs the file {path!r} at {place(self._file.source, line)}: {_NO_FILES}")
        for name in sorted(set(sys.modules) - self._before):
            origin = getattr(sys.modules[name], "__file__", None)
            if isinstance(origin, str) and os.path.isabs(origin) and not self._is_installed(origin):
                raise TaskError(
                    f"{start} imports {name!r} from {origin}, which is neither installed nor beside the task's file, so it "
                    "is not there where versions are judged: put it beside the file, or install it"
                )
