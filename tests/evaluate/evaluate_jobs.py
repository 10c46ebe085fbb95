"""What the tests of the worker pool have done in its processes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from typing import Any

from mtmc.errors import TaskError
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check.cases import Checked
from mtmc.evaluate.check.check import check, weaknesses
from mtmc.evaluate.compiling.build import Built, build
from mtmc.evaluate.counting import floor as of_floor
from mtmc.evaluate.counting.count import Counted
from mtmc.evaluate.counting.count import count as count_forward
from mtmc.evaluate.counting.floor import Floor, StandingOut, floor, standing_out
from mtmc.evaluate.counting.program import Program
from mtmc.evaluate.counting.tiling import Tiles
from mtmc.evaluate.reference.weaknesses import Weaknesses
from mtmc.protocols import Depth
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


def hang_until(path: str, calls: int) -> int:
    """Does nothing for ever, but for the call of that number, which says how many there were. path: in a pool's folder."""
    with open(path, "a") as noted:
        noted.write(".")
    made = os.path.getsize(path)
    if made < calls:
        time.sleep(600)
    return made


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


def work(seconds: float) -> float:
    """Take so many seconds of a core, however long that takes."""
    while time.process_time() < seconds:
        pass
    return time.process_time()


def work_slowly(seconds: float) -> float:
    """The same, of a process that is kept from its core half of the time, as on a busy machine."""
    stopper = "import os, signal, sys, time\nwhile True:\n"
    for name in ("STOP", "CONT"):
        stopper += f"    os.kill(int(sys.argv[1]), signal.SIG{name}); time.sleep(0.1)\n"
    with subprocess.Popen([sys.executable, "-c", stopper, str(os.getpid())]) as child:
        try:
            return work(seconds)
        finally:
            child.kill()


def work_in_a_child(seconds: float) -> int:
    program = f"import time\nwhile time.process_time() < {seconds}: pass"
    return subprocess.run([sys.executable, "-c", program], check=True).returncode


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def _slow_clocks() -> None:
    """Each look at a clock finds it hours later, as on a machine that is busy beyond all measure."""
    looks = itertools.count(1)
    for name in ("monotonic", "perf_counter", "time"):
        setattr(time, name, lambda: 1e4 * next(looks))


def slow_floor(task: Task, secret: int) -> Floor:
    _slow_clocks()
    return floor(task, secret)


def slow_standing_out(task: Task, tiles: Tiles, secret: int) -> StandingOut:
    _slow_clocks()
    return standing_out(task, tiles, secret)


def slow_weaknesses(task: Task) -> Weaknesses:
    _slow_clocks()
    return weaknesses(task)


def slow_check(
    task: Task, source: str, seed: int, depth: Depth, check_variants: int, autotuned: dict[str, int]
) -> Checked | Failure:
    _slow_clocks()
    return check(task, source, seed, depth, check_variants, autotuned)


def slow_count(task: Task, source: str, **arguments: Any) -> Counted | Failure:
    """In an interpreter that is kept from its core now and then, too."""
    _slow_clocks()
    run = Program.run

    def slowly(self: Program, *args: Any, **kwargs: Any) -> Any:
        time.sleep(0.005)
        return run(self, *args, **kwargs)

    Program.run = slowly  # type: ignore[method-assign]
    return count_forward(task, source, **arguments)


def floor_of_little_work(task: Task, secret: int) -> Floor:
    """A floor for which next to nothing may be tried."""
    of_floor.WORK_S = 1e-9
    return floor(task, secret)


def floor_of_little_memory(task: Task, secret: int) -> Floor:
    """A floor whose small draw takes more memory than there is."""

    def draws(*_: object) -> Tiles:
        raise MemoryError

    of_floor.tiles = draws  # type: ignore[assignment]
    return floor(task, secret)
