"""A child process that looks at a task, where the process around it has a watchdog of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import faulthandler, time
faulthandler.dump_traceback_later(300)
from mtmc.task.child import ChildDied, run_in_child
assert run_in_child(lambda allow: 3, 280.0) == 3
try:
    run_in_child(lambda allow: time.sleep(60), 0.2)
except ChildDied as died:
    print(died)
faulthandler.cancel_dump_traceback_later()
"""


def test_a_watchdog_of_the_parent_holds_up_no_child_and_a_late_one_is_ended() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    assert "is not done after 0.2 s" in done.stdout


INTERRUPTED = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts tests in the background has it ignored
armed, blocked = True, sys.argv[1:] == ["blocked"]
def interrupt():
    if armed:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2 if blocked else 0)
os.register_at_fork(after_in_parent=interrupt)
import logging
from mtmc.task.child import run_in_child
if blocked:  # another thread takes it
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
try:
    print(run_in_child(lambda allow: 3, 280.0), "and the interrupt is lost")
except KeyboardInterrupt:
    print("interrupted")
armed = False
other = threading.Thread(target=lambda: logging.getLogger("other"), daemon=True)
other.start()
other.join(60)
print("held up" if other.is_alive() else "logging goes on", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print(run_in_child(lambda allow: 4, 280.0))
"""


@pytest.mark.parametrize("blocked", [[], ["blocked"]])
def test_an_interrupt_beside_a_fork_is_neither_lost_nor_in_the_way(blocked: list[str]) -> None:
    program = [sys.executable, "-c", INTERRUPTED, *blocked]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["interrupted", "logging goes on True", "4"], done.stderr
