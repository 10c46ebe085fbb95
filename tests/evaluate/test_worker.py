"""The pool ends what hangs, crashes, grows or prints, says how it ended, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from mtmc.errors import EvaluatorError, TaskError
from mtmc.evaluate.pool.job import JobResult, status_of_signal
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.evaluate.pool.worker import Pool, PoolSettings

JOBS = "evaluate_jobs"


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    os.environ["MTMC_TEST_SECRET"] = "sesame"
    pool = Pool(PoolSettings(f"{JOBS}:warm", workers=4, timeout_s=20.0, memory_mib=256))
    yield pool
    pool.close()
    del os.environ["MTMC_TEST_SECRET"]


def run(pool: Pool, job: str, timeout_s: float | None = None, **arguments: object) -> JobResult:
    return pool.run(f"{JOBS}:{job}", arguments, timeout_s)


def test_value_and_output_come_back(pool: Pool) -> None:
    result = run(pool, "add", a=2, b=3)
    assert (result.status, result.value) == ("ok", 5)
    assert "adding" in result.output and result.seconds < 10


def test_processes_are_fresh(pool: Pool) -> None:
    assert [run(pool, "count").value for _ in range(3)] == [1, 1, 1]


def test_hang_times_out_and_takes_its_children_along(pool: Pool) -> None:
    result = run(pool, "hang_with_child", timeout_s=1.0)
    assert result.status == "timeout" and 1.0 <= result.seconds < 3.0
    child = int(result.output.split()[-1])
    deadline = time.monotonic() + 5.0
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(child)


def test_children_left_behind_are_ended(pool: Pool) -> None:
    child = int(run(pool, "leave_child").value)
    deadline = time.monotonic() + 5.0
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(child)


def test_segmentation_fault_is_a_crash_with_its_signal(pool: Pool) -> None:
    result = run(pool, "die", number=int(signal.SIGSEGV))
    assert (result.status, result.signal) == ("crash", "SIGSEGV")


def test_early_exit_is_a_crash(pool: Pool) -> None:
    for code in (0, 3):
        result = run(pool, "leave", code=code)
        assert (result.status, result.signal) == ("crash", None)


def test_memory_is_limited(pool: Pool) -> None:
    assert run(pool, "allocate", mib=64).status == "ok"
    assert run(pool, "allocate", mib=1024).status == "out_of_memory"


def test_kill_from_outside_reads_as_out_of_memory(pool: Pool) -> None:
    assert run(pool, "die", number=int(signal.SIGKILL)).status == "out_of_memory"


def test_failed_allocations_are_told_from_other_errors() -> None:
    assert out_of_memory(MemoryError())
    assert out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"))
    assert not out_of_memory(RuntimeError("shape mismatch"))
    assert (
        status_of_signal("SIGABRT", "terminate called after throwing an instance of 'std::bad_alloc'")
        == "out_of_memory"
    )
    assert status_of_signal("SIGABRT", "assertion failed") == "crash"


def test_endless_output_is_cut_and_ended(pool: Pool) -> None:
    result = run(pool, "print_much", mib=100)
    assert result.status == "output_limit"
    assert len(result.output) <= 16 << 10 and result.seconds < 10


def test_environment_and_folder_are_the_jobs_own(pool: Pool) -> None:
    surroundings = run(pool, "surroundings").value
    assert "MTMC_TEST_SECRET" not in surroundings["environment"]
    assert surroundings["environment"]["HOME"] == str(pool.folder)
    assert surroundings["folder"].startswith(str(pool.folder)) and surroundings["listing"] == []
    assert not os.path.exists(surroundings["folder"])


def test_errors_of_the_task_and_of_the_step_itself_are_raised(pool: Pool) -> None:
    with pytest.raises(TaskError, match="no such shape"):
        run(pool, "fail_task")
    with pytest.raises(EvaluatorError, match="ZeroDivisionError"):
        run(pool, "fail_itself")


def test_threads_share_a_pool(pool: Pool) -> None:
    results: dict[int, object] = {}

    def work(number: int) -> None:
        results[number] = run(pool, "add", a=number, b=number).value

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: 2 * number for number in range(12)}
    assert time.monotonic() - start < 15


def test_a_killed_warm_process_is_started_again(pool: Pool) -> None:
    os.kill(int(run(pool, "parent").value), signal.SIGKILL)
    assert run(pool, "add", a=1, b=1).value == 2


def test_a_broken_warm_process_is_an_error_that_shows_its_log() -> None:
    pool = Pool(PoolSettings(f"{JOBS}:broken_warm"))
    try:
        with pytest.raises(EvaluatorError, match="no torch here"):
            run(pool, "add", a=1, b=1)
    finally:
        pool.close()


def test_close_ends_everything_and_may_be_called_twice() -> None:
    pool = Pool(PoolSettings(f"{JOBS}:warm"))
    server = int(run(pool, "parent").value)
    folder = pool.folder
    pool.close()
    pool.close()
    assert not _alive(server) and not folder.exists()
    with pytest.raises(EvaluatorError, match="closed"):
        run(pool, "add", a=1, b=1)


def test_nothing_is_left_of_a_pool_whose_owner_is_killed() -> None:
    code = (
        "import evaluate_jobs\nfrom mtmc.evaluate.pool.worker import Pool, PoolSettings\n"
        f"pool = Pool(PoolSettings('{JOBS}:warm'))\n"
        f"print(pool.run('{JOBS}:parent', dict()).value, pool.folder, flush=True)\n"
        f"pool.run('{JOBS}:hang_with_child', dict())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True) as owner:
        assert owner.stdout is not None
        server, folder = owner.stdout.readline().split()
        owner.kill()
    deadline = time.monotonic() + 10.0
    while (_alive(int(server)) or os.path.exists(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(int(server)) and not os.path.exists(folder)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
