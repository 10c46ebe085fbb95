"""child: a function run in a process forked from this one, so that what ends or hangs that process is only told here.

A fork has all that is loaded here and takes some 20 ms. The function must keep to one thread of torch's, as the trials of a
task do: OpenMP's other threads are not in a fork. For POSIX.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, NoReturn, TypeVar

from mtmc.errors import MtmcError

Result = TypeVar("Result")
Allow = Callable[[float], None]
"""Called in the child: from now on it may take so many seconds."""

_TIMEOUT = "Timeout ("
"""How faulthandler begins what it writes when the time is over."""
_PAUSES_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Before a fork is tried again."""
_SHORTEST_S, _LONGEST_S = 0.0005, 0.02
"""Between two looks at whether a child has ended."""
_log = logging.getLogger(__name__)


class ChildDied(Exception):
    """A child that ended without a result.

    how: "is killed by SIGSEGV", "ends with status 3" or "is not done after 60 s". stack: what faulthandler
    wrote, innermost frame first; "" where the process ended by itself.
    """

    def __init__(self, how: str, stack: str) -> None:
        super().__init__(how)
        self.how = how
        self.stack = stack


def run_in_child(function: Callable[[Allow], Result], seconds: float) -> Result:
    """What `function` returns, called in a child of its own; what it logs is logged here. seconds: what it may take.

    The child has no input and nobody sees what it prints. It may take the memory that is free when it starts. What it
    starts ends with it, and it ends with this process or where this one is interrupted.
    Raises: ChildDied; the MtmcError that the function raises; RuntimeError with the trace for any other error.
    """
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as stack:
        child = 0
        try:
            with _interrupts_held():
                child = _fork()
            if child == 0:
                _be_child(function, seconds, report, stack)
            status = _wait(child)
        finally:
            if child:
                _end(child)
        report.seek(0)
        stack.seek(0)
        written = report.read()
        if not written:
            raise _how(status, stack.read().decode(errors="replace"))
    kind, value, records = pickle.loads(written)
    for record in records:
        logging.getLogger(record.name).handle(record)
    if kind == "bug":
        raise RuntimeError(f"in a child process:\n{value}")
    if kind == "raised":
        raise value
    result: Result = value
    return result


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """An interrupt that comes while this is open is there when it ends, in this process alone.

    Around a fork modules run code of their own (logging takes its lock, and gives it back): what is raised in there is
    swallowed, and the lock stays taken for good.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield  # no handler of Python's runs in this thread
        return
    here, held = os.getpid(), list[int]()
    signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held and os.getpid() == here:
            # Not raised again: where this thread blocks it, it would wait for good.
            handler(signal.SIGINT, sys._getframe())


def _fork() -> int:
    """`os.fork`, once no other thread is where forking is refused: filelock raises while one of its locks changes hands.

    Raises: RuntimeError where that takes more than some seconds.
    """
    for pause in _PAUSES_S:
        try:
            return _quiet_fork()
        except RuntimeError as error:
            _log.debug("not forked yet: %s", error)
            time.sleep(pause)
    return _quiet_fork()


def _quiet_fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12 where there are other threads
        return os.fork()


def _wait(child: int) -> int:
    """Wait for the child's end; its status as of `waitpid`, 0 where another took it.

    Never for long at once: a signal that came a moment before, or to another thread, ends no call of the system's, and its
    handler runs between two of them.
    """
    pause = _SHORTEST_S
    while True:
        try:
            ended, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:
            return 0
        if ended:
            return status
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_S)


def _end(child: int) -> None:
    """End what is left of a child: itself where this process was interrupted, and what it has started."""
    with suppress(ChildProcessError):
        if os.waitpid(child, os.WNOHANG) == (0, 0):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _how(status: int, stack: str) -> ChildDied:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM and stack.startswith(_TIMEOUT):
        hours, minutes, seconds = stack[len(_TIMEOUT) :].partition(")")[0].split(":")
        return ChildDied(f"is not done after {3600 * int(hours) + 60 * int(minutes) + float(seconds):g} s", stack)
    stack = stack.partition("\n")[2] if stack.startswith(_TIMEOUT) else stack
    if os.WIFEXITED(status):
        return ChildDied(f"ends with status {os.WEXITSTATUS(status)}", "")
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL:
        return ChildDied("is killed, as the system does where memory runs out", stack)
    known = {each.value: each.name for each in signal.Signals}
    return ChildDied(f"is killed by {known.get(number, f'signal {number}')}", stack)


def _be_child(function: Callable[[Allow], Any], seconds: float, report: IO[bytes], stack: IO[bytes]) -> NoReturn:
    """Call the function, write what came of it, and end."""
    status = 1
    try:
        os.setsid()
        _die_with_parent()
        _limit_memory()
        _be_silent()
        records = _Records()
        logger = logging.getLogger("mtmc")
        logger.handlers, logger.propagate = [records], False
        faulthandler.disable()  # or enabling it leaves the handlers of whoever has put others over them since, as Ray does
        faulthandler.enable(stack)
        # Not by dump_traceback_later: where the parent has one under way (pytest's faulthandler_timeout, say), it waits here
        # for a thread that the child does not have.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.register(signal.SIGALRM, file=stack, chain=True)

        def allow(seconds: float) -> None:
            stack.seek(0)
            stack.truncate()
            minutes, rest = divmod(seconds, 60)
            hours, minutes = divmod(int(minutes), 60)
            stack.write(f"{_TIMEOUT}{hours}:{minutes:02d}:{rest:09.6f})!\n".encode())
            stack.flush()
            signal.setitimer(signal.ITIMER_REAL, seconds)

        allow(seconds)
        try:
            found: tuple[str, Any] = ("returned", function(allow))
        except MtmcError as error:
            found = ("raised", error)
        except BaseException:
            found = ("bug", traceback.format_exc())
        report.write(pickle.dumps((*found, records.kept)))
        report.flush()
        status = 0
    finally:
        os._exit(status)


def _die_with_parent() -> None:
    import ctypes

    with suppress(OSError, AttributeError):  # elsewhere than on Linux
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _limit_memory() -> None:
    """What may be written to privately: as much as is free now, so that a task that takes more fails by itself."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/meminfo", encoding="ascii") as meminfo:
            free = next(int(line.split()[1]) << 10 for line in meminfo if line.startswith("MemAvailable"))
        with open("/proc/self/statm", encoding="ascii") as statm:
            used = int(statm.read().split()[5]) * resource.getpagesize()
    except (OSError, StopIteration):  # elsewhere than on Linux
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = used + free if hard == resource.RLIM_INFINITY else min(used + free, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _be_silent() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")


class _Records(logging.Handler):
    """Keeps what is logged, ready to be sent to another process."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args, record.exc_info = record.getMessage(), None, None
        self.kept.append(record)
