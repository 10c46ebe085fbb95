"""What the tests of the worker pool have done in its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from mtmc.errors import TaskError
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check.cases import Checked
from mtmc.evaluate.check.check import check
from mtmc.evaluate.compiling.build import Built, build
from mtmc.task import Task

_counter = 0


def warm() -> None:
    """Nothing to import."""


def broken_warm() -> None:
    raise RuntimeError("no torch here")


def add(a: int, b: int) -> int:
    print("adding")
    return a + b


def count() -> int:
    global _counter
    _counter += 1
    return _counter


def hang_with_child() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    time.sleep(600)


def leave_child() -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def die(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(600)


def leave(code: int) -> None:
    os._exit(code)


def allocate(mib: int) -> int:
    return len(bytearray(mib << 20))


def print_much(mib: int) -> None:
    for _ in range(mib):
        sys.stdout.write("x" * (1 << 20))


def surroundings() -> dict[str, object]:
    return {"environment": dict(os.environ), "folder": os.getcwd(), "listing": os.listdir()}


def parent() -> int:
    return os.getppid()


def fail_task() -> None:
    raise TaskError("no such shape")


def fail_itself() -> None:
    raise ZeroDivisionError("oops")


def build_for(task: Task, source: str, target_name: str) -> Built | Failure:
    """Build for another target than the worker's own."""
    from mtmc.evaluate.compiling.target import install_driver, target

    install_driver(target(target_name), 100)
    return build(task, source, target_name)


def check_in_order(task: Task, source: str, seed: int) -> Checked | Failure:
    """A verification's check, in which no program gives way: all run one after another, whichever way round."""
    from mtmc.evaluate.interpreter import interleaving

    interleaving.GIVES_WAY, interleaving.NEAR, interleaving.BEGUN = 0.0, 0, 1
    return check(task, source, seed, "verify", 0, {})
