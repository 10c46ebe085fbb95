"""What is said of a task's file that raises, exits, crashes, hangs, or needs what is not there; nothing of it is left."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from mtmc.cli import main
from mtmc.errors import TaskError
from mtmc.task import first_run, task_from_module, task_from_source
from mtmc.task.child import Allow, ChildDied, run_in_child

NOT_FOUND = "No such file or directory; relative paths start from"


def text(
    top: str = "",
    init: str = "pass",
    forward: str = "return x.relu()",
    inputs: str = "return [torch.rand(rows, 24)]",
    init_inputs: str = "return []",
    signature: str = "",
) -> str:
    """A task's file with a statement of its own in one of its places, on lines 2, 9, 12, 16 and 20."""
    return f"""import torch
{top}
rows = 64


class Model(torch.nn.Module):
    def __init__(self{signature}):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    {inputs}


def get_init_inputs():
    {init_inputs}
"""


def refusal(source: str) -> str:
    """What is said of a file, in one line."""
    with pytest.raises(TaskError) as caught:
        task_from_source(source, "bad")
    said = str(caught.value)
    assert said.startswith("task bad: ") and "\n" not in said
    return said.removeprefix("task bad: ")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (text("raise ValueError('boom')"), "the file fails at line 2: ValueError: boom: a task has to run as it is"),
        (text(init="raise ValueError('boom')"), "Model.__init__ fails at line 9: ValueError: boom"),
        (text(forward="raise ValueError('boom')"), "forward fails at line 12: ValueError: boom"),
        (text(inputs="raise ValueError('boom')"), "get_inputs() fails at line 16: ValueError: boom"),
        (text(init_inputs="raise ValueError('boom')"), "get_init_inputs() fails at line 20: ValueError: boom"),
        (text(init="assert torch.rand(3).sum() < 0"), "Model.__init__ fails at line 9: AssertionError: no message"),
        (text(forward="return x @ x"), "forward fails at line 12: RuntimeError: mat1 and mat2 shapes"),
        (text(forward="return self.forward(x)"), "forward fails at line 12: RecursionError: maximum recursion depth"),
        (
            text(forward="return torch.nn.functional.rule(x)"),
            "line 12: AttributeError: module 'torch.nn.functional' has",
        ),
        (text("class Odd(Exception):\n    __str__ = None\nraise Odd"), "the file fails at line 4: Odd: no message"),
        (text("class Rows(KeyboardInterrupt): pass\nraise Rows('odd')"), "the file fails at line 3: Rows: odd"),
        (
            text("raise RuntimeError('no NVIDIA driver')"),
            "no NVIDIA driver (name no device in the file: mtmc puts model and",
        ),
    ],
)
def test_what_raises_says_where_and_what(source: str, said: str) -> None:
    assert said in refusal(source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            text("import lost_module"),
            "the file imports 'lost_module' at line 2, which is not installed here: install it, ",
        ),
        (
            text("from lost.part import x"),
            "imports 'lost' at line 2, which is not installed here: install it, or put lost.py",
        ),
        (text("import torch.lost"), "imports 'torch.lost' at line 2, which the torch installed here does not have"),
        (
            text("from torch import lost"),
            "the file fails at line 2: ImportError: cannot import name 'lost' from 'torch'",
        ),
        (text(forward="import lost_module"), "forward imports 'lost_module' at line 12, which is not installed here"),
    ],
)
def test_what_cannot_be_imported_is_named(source: str, said: str) -> None:
    assert said in refusal(source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (text("import sys; sys.exit(0)"), "the file exits at line 2 (SystemExit: 0): take that out, or put it under"),
        (text("raise SystemExit"), "the file exits at line 2 (SystemExit: None)"),
        (text(init="exit('done')"), "Model.__init__ exits at line 9 (SystemExit: done)"),
        (text(forward="raise SystemExit(3)"), "forward exits at line 12 (SystemExit: 3)"),
        (text("import os; os._exit(0)"), "the process that runs the file ends with status 0: take out"),
        (text(init="import os; os._exit(3)"), "ends with status 3: take out what ends it (os._exit"),
        (text(forward="import os; os.abort()"), "is killed by SIGABRT at line 12 (in forward): correct that first"),
        (text(inputs="import ctypes; ctypes.string_at(0)"), "is killed by SIGSEGV at line 16 (in get_inputs)"),
        (text("import os; os.kill(os.getpid(), 9)"), "is killed, as the system does where memory runs out"),
        (text(inputs="input('rows? ')"), "get_inputs() waits for input at line 16: nobody is asked"),
        (text(inputs="return [bytearray(1 << 50)]"), "get_inputs() needs more memory at line 16 than is free"),
    ],
)
def test_what_ends_its_process_is_told_here(source: str, said: str) -> None:
    assert said in refusal(source)


@pytest.mark.parametrize("loop", ["while True: pass", "import time; time.sleep(1000)"])
def test_what_hangs_is_ended_and_its_line_said(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_run, "FIRST_RUN_S", 0.7)
    assert refusal(text(init=loop)).startswith(
        "the process that runs the file is not done after 0.7 s at line 9 (in __init__): correct that first"
    )


def test_what_ends_its_process_at_small_shapes_only_is_told_too() -> None:
    said = refusal(text(forward="assert len(x) > 63 or os._exit(2); return x.relu()", top="import os"))
    assert said.startswith("the process that runs the file ends with status 2: take out what ends it")


def test_files_that_a_task_needs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fix = "a task is its text alone"
    for opening in ("open('rows.txt')", "torch.load('rows.txt')"):
        said = refusal(text(init=opening))
        assert said.startswith(
            "Model.__init__ needs the file 'rows.txt' at line 9 (No such file or directory; relative "
        )
        assert f"start from {tmp_path}): {fix}" in said
    (tmp_path / "rows.txt").write_text("64")
    torch.save(torch.rand(3), tmp_path / "weights.pt")
    assert refusal(text("rows = int(open('rows.txt').read())")).startswith(
        f"needs the file 'rows.txt' at line 2: {fix}"
    )
    weights = str(tmp_path / "weights.pt")
    assert refusal(text(init=f"torch.load({weights!r})")).startswith(f"needs the file {weights!r} at line 9: {fix}")
    reading_its_libraries = text("import inspect, decimal", init="inspect.getsource(torch.nn.Linear)")
    assert task_from_source(reading_its_libraries, "good").name == "good"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (text(signature=", cols"), "Model(*get_init_inputs()) does not fit: Model.__init__() missing 1 required posit"),
        (
            text(init_inputs="return [1, 2]"),
            "__init__() takes 1 positional argument but 3 were given: get_init_inputs() has",
        ),
        (text(inputs="return []"), "Model's forward(*get_inputs()) does not fit: Model.forward() missing 1 required"),
        (text(inputs="return [torch.rand(4)] * 2"), "Model.forward() takes 2 positional arguments but 3 were given"),
        (
            text(inputs="return torch.rand(rows, 24)"),
            "get_inputs() returns Tensor, no list: return the list of the arg",
        ),
        (text(inputs="yield torch.rand(4)"), "get_inputs() returns generator, no list"),
        (
            text(inputs="return {'x': torch.rand(4)}"),
            "get_inputs() returns dict, no list: return the list of the arguments",
        ),
        (
            text(init_inputs="return 64"),
            "get_init_inputs() returns int, no list: return the list of the arguments of Mode",
        ),
        (text(init_inputs="pass"), "get_init_inputs() returns NoneType, no list"),
        (
            text().replace("get_inputs()", "get_inputs(rows)"),
            "get_inputs() does not fit: get_inputs() missing 1 required",
        ),
        (text(forward="pass"), "forward returns NoneType without a tensor: return what it computes"),
        (text(forward="return [x.shape, 3.0]"), "forward returns list without a tensor"),
        (text().replace("(torch.nn.Module)", ""), "Model is no torch.nn.Module: write `class Model(nn.Module)`"),
        (text().replace("def forward", "def forwards"), 'missing the required "forward" function'),
    ],
)
def test_what_does_not_fit_is_said(source: str, said: str) -> None:
    assert said in refusal(source)


def test_what_fails_at_small_shapes_only_says_how_it_failed_first() -> None:
    source = text(
        forward="assert x.numel() > 2**20, 'few'; return x.relu()", inputs="return [torch.rand(rows, *[20000])]"
    )
    with pytest.raises(TaskError) as caught:
        task_from_source(source, "bad")
    said = str(caught.value)
    assert said.startswith("task bad has no small inputs, and none were found by shrinking its integers (rows, ")
    assert "the first failure: task bad at its small shapes: line 12: AssertionError: few at {'rows': " in said
    assert "last tried: " in said and "get_small_inputs" in said


def test_values_that_cannot_be_looked_at_are_no_fault_of_ours() -> None:
    with pytest.raises(
        TaskError, match=r"^task bad has no small inputs.*RuntimeError: Tensor.item\(\) cannot be called on meta"
    ):
        task_from_source(text("torch.set_default_device('meta')"), "bad")


def test_no_trial_waits_for_threads_that_are_not_in_a_fork() -> None:
    torch.rand(400, 400, 10).exp() @ torch.rand(10, 10)
    product = "torch.rand(700, 700, device='cpu') @ torch.rand(700, 700, device='cpu').exp()"
    assert task_from_source(text("torch.set_num_threads(4)", init=product), "threads").name == "threads"
    assert torch.get_num_threads() != 4


def test_a_file_that_cannot_run_in_a_fork_runs_here() -> None:
    """As one that uses CUDA, where this process does already."""
    only_here = f"if os.getpid() != {os.getpid()}: raise RuntimeError('Cannot re-initialize CUDA in forked subprocess')"
    assert task_from_source(text("import os", init=only_here), "here").name == "here"


def test_a_child_gives_results_errors_and_what_it_logs(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("mtmc.task.child")

    def work(allow: Allow) -> int:
        log.warning("%d rows", 7)
        print("nobody sees this")
        return os.getpid()

    assert run_in_child(work, 300.0) != os.getpid()
    assert [record.getMessage() for record in caplog.records] == ["7 rows"]

    def refuse(allow: Allow) -> None:
        raise TaskError("no")

    with pytest.raises(TaskError, match=r"^no$"):
        run_in_child(refuse, 300.0)
    with pytest.raises(RuntimeError, match=r"in a child process:\n(.*\n)*ZeroDivisionError: "):
        run_in_child(lambda allow: 1 / 0, 300.0)

    def wait(allow: Allow) -> None:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        allow(0.3)
        time.sleep(1000)

    with pytest.raises(ChildDied, match=r"is not done after 0.3 s"):
        run_in_child(wait, 300.0)


def test_a_fork_is_tried_again_where_a_library_refuses_it_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, refusals = os.fork, [RuntimeError("os.fork is unsafe while a lock changes hands")] * 2

    def refusing() -> int:
        if refusals:
            raise refusals.pop()
        return fork()

    monkeypatch.setattr(os, "fork", refusing)
    assert run_in_child(lambda allow: 7, 300.0) == 7


def test_the_command_line_ends_with_status_2_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(text("import sys; sys.exit(0)"))
    environment = {**os.environ, "PYTHONPATH": str(Path(first_run.__file__).parents[2])}
    command = [sys.executable, "-m", "mtmc", "search", "task=bad.py", "out=new/run"]
    done = subprocess.run(command, capture_output=True, env=environment, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mtmc: task bad: the file exits at line 2 (SystemExit: 0): take that out")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["bad.py"]


def test_the_line_of_a_crash_is_told_whatever_handles_signals_in_this_process() -> None:
    """Ray, for one, puts handlers of its own over Python's."""
    import ctypes
    import faulthandler

    libc, was = ctypes.CDLL(None), faulthandler.is_enabled()
    faulthandler.enable()
    libc.signal.restype = libc.signal.argtypes = None
    libc.signal(int(signal.SIGABRT), 0)  # as one in C would: Python thinks that its own is in place
    try:
        assert "is killed by SIGABRT at line 12 (in forward)" in refusal(text(forward="import os; os.abort()"))
    finally:
        faulthandler.disable()
        if was:
            faulthandler.enable()


def test_a_folder_that_was_there_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kept").mkdir()
    Path("bad.py").write_text(text("import os; os.abort()"))
    for out in (["out=kept"], []):
        assert main(["search", "task=bad.py", *out]) == 2
        said, error = capfd.readouterr()
        assert (said, error.count("\n")) == ("", 1)
        assert error.startswith("mtmc: task bad: the process that runs the file is killed by SIGABRT at line 2")
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["bad.py", "kept"]


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT is a KeyboardInterrupt, which it is not in what a shell has started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_that_another_thread_takes_ends_the_child_too() -> None:
    def interrupt(allow: Allow) -> None:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(1000)

    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    start = time.monotonic()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with interruptible(), pytest.raises(KeyboardInterrupt):
            run_in_child(interrupt, 900.0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        done.set()
        other.join()
    assert time.monotonic() - start < 900  # not by its limit


def test_ctrl_c_while_a_task_is_loaded_ends_its_process_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(first_run, "FIRST_RUN_S", 300.0)
    stopping = "import os, signal, time; open('pid', 'w').write(str(os.getpid())); os.kill(os.getppid(), signal.SIGINT)"
    Path("bad.py").write_text(text(f"{stopping}; time.sleep(1000)"))
    with interruptible():
        assert main(["search", "task=bad.py"]) == 130
    assert capfd.readouterr() == ("", "mtmc: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("pid").read_text()), 0)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bad.py", "pid"]


class Live(torch.nn.Module):
    """A module whose forward is given."""

    def __init__(self, function: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x)


def leave(x: torch.Tensor) -> object:
    sys.exit(0)


def branch(x: torch.Tensor) -> object:
    return x * x.sum().item() if x.sum().item() > 0 else x


def through_numpy(x: torch.Tensor) -> object:
    return torch.from_numpy(x.numpy())


@pytest.mark.parametrize(
    ("function", "inputs", "said"),
    [
        (
            leave,
            torch.rand(4),
            r"fails on its example inputs: test_bad_tasks.py, line \d+, `sys.exit\(0\)`: SystemExit: 0$",
        ),
        (branch, torch.rand(4), r"cannot be exported: test_bad_tasks.py, line \d+, `return x \* x.sum\(\).item\(\)"),
        (through_numpy, torch.rand(4), r"cannot be exported: test_bad_tasks.py, line \d+, `return torch.from_numpy"),
        (torch.relu, (torch.rand(4),) * 2, r"the example inputs do not fit forward of Live: too many positional arg"),
        (torch.relu, torch.rand(4, device="meta"), r"on the meta device: use dense real tensors that hold data"),
        (
            torch.relu,
            None,
            r"^the example inputs are a NoneType: give the list of forward's arguments, a dict as example_kw",
        ),
        (torch.relu, {"x": torch.rand(4)}, r"^the example inputs are a dict: give the list of forward's arguments"),
        (torch.relu, "x", r"^the example inputs are a str: give the list"),
    ],
)
def test_live_modules_and_example_inputs_that_do_not_go_together(
    function: Callable[[torch.Tensor], object], inputs: Any, said: str
) -> None:
    with pytest.raises(TaskError, match=said):
        task_from_module(Live(function), inputs)


def test_what_exits_in_a_command_is_bad_input_not_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("leaving.py").write_text("import sys\n\nsys.exit(0)\n")
    assert main(["optimize", "leaving:model", "--inputs", "leaving:inputs"]) == 2
    said, error = capfd.readouterr()
    assert said == ""
    assert (
        error == "mtmc: what mtmc optimize runs exits by itself at leaving.py, line 3 (SystemExit: 0): take that out\n"
    )
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["leaving.py"]
