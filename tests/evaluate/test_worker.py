"""The pool ends what hangs, crashes, grows or prints, says how it ended, and goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import evaluate_jobs
import psutil
import pytest

from mtmc.errors import EvaluatorError, TaskError
from mtmc.evaluate.pool.job import JobResult, status_of_signal
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.evaluate.pool.worker import Pool, Stopped

HERE = (Path(__file__).parent,)  # whose modules the workers import


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    os.environ["MTMC_TEST_SECRET"] = "sesame"
    pool = Pool(PoolSettings(evaluate_jobs.warm, workers=4, timeout_s=20.0, memory_mib=256, readable=HERE))
    assert run(pool, "add", a=1, b=1).value == 2, "its processes are there before a test counts them"
    yield pool
    pool.close()
    del os.environ["MTMC_TEST_SECRET"]


def run(pool: Pool, job: str, timeout_s: float | None = None, **arguments: object) -> JobResult:
    return pool.run(getattr(evaluate_jobs, job), arguments, timeout_s)


def test_value_and_output_come_back(pool: Pool) -> None:
    result = run(pool, "add", a=2, b=3)
    assert (result.status, result.value) == ("ok", 5)
    assert "adding" in result.output and result.seconds > 0


def test_processes_are_fresh(pool: Pool) -> None:
    assert [run(pool, "count").value for _ in range(3)] == [1, 1, 1]


def test_hang_times_out_and_takes_its_children_along(pool: Pool) -> None:
    before = inside(pool)
    for limit_s in (1.0, 8.0, 50.0):  # the child may take a while to be there
        ended, seen = threading.Event(), list[bool]()
        watcher = threading.Thread(
            target=lambda seen=seen, ended=ended: seen.append(
                soon(lambda: ended.is_set() or len(inside(pool) - before) == 2) and not ended.is_set()
            )
        )
        watcher.start()
        result = run(pool, "hang_with_child", timeout_s=limit_s)
        ended.set()
        watcher.join()
        assert result.status == "timeout" and result.seconds >= limit_s
        assert soon(lambda: inside(pool) <= before)
        if seen[0]:
            break
    assert seen[0] and result.output.split(), "the job and its child were there"


def test_jobs_stand_still_and_go_on(pool: Pool) -> None:
    before = inside(pool)
    results: list[JobResult] = []
    job = threading.Thread(target=lambda: results.append(run(pool, "hang_with_child", timeout_s=600.0)))
    job.start()
    assert soon(lambda: len(inside(pool) - before) == 2)
    both = inside(pool) - before
    pool.stand_still(True)
    assert soon(lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in both))
    pool.stand_still(False)
    assert soon(lambda: all(psutil.Process(pid).status() != psutil.STATUS_STOPPED for pid in both))
    for pid in both:
        with contextlib.suppress(ProcessLookupError):  # one that ends takes the other along
            os.kill(pid, signal.SIGKILL)
    job.join()
    assert results[0].status == "out_of_memory", "as whatever is killed from outside"


def test_a_job_that_begins_while_all_stand_still_stops_at_once(pool: Pool) -> None:
    before, results = inside(pool), list[JobResult]()
    pool.stand_still(True)
    job = threading.Thread(target=lambda: results.append(run(pool, "add", timeout_s=600.0, a=1, b=2)))
    job.start()
    try:
        assert soon(lambda: len(inside(pool) - before) == 1)
        [born] = inside(pool) - before
        assert soon(lambda: psutil.Process(born).status() == psutil.STATUS_STOPPED)
        assert not results
    finally:
        pool.stand_still(False)
    job.join()
    assert (results[0].status, results[0].value) == ("ok", 3)


def test_a_job_loses_no_time_by_standing_still(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = iter([1.0, *[601.0] * 1000])
    monkeypatch.setattr(pool, "_stopped_s", lambda: next(stopped))
    assert run(pool, "add", timeout_s=1e-6, a=1, b=2).status == "ok"
    monkeypatch.setattr(pool, "_stopped_s", lambda: 601.0)
    assert run(pool, "add", timeout_s=1e-6, a=1, b=2).status == "timeout"


@pytest.fixture(scope="module")
def patient() -> Iterator[Pool]:
    pool = Pool(
        PoolSettings(evaluate_jobs.warm, workers=2, timeout_s=1.0, memory_mib=256, readable=HERE, patience=30.0)
    )
    yield pool
    pool.close()


@pytest.mark.parametrize(("calls", "status"), [(1, "ok"), (2, "ok"), (3, "timeout")])
def test_a_job_that_has_not_worked_is_run_once_more(
    pool: Pool, calls: int, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What another thread has locked when a process is forked stays locked there: the fault is not the candidate's."""
    with pool.folder_for() as folder:
        arguments = {"path": str(folder / "calls"), "calls": calls}
        result = pool.run(evaluate_jobs.hang_until, arguments, 4.0, folder=folder)
        made = (folder / "calls").stat().st_size
    assert (result.status, made) == (status, min(calls, 2))
    assert ("did nothing for 4 s: once more" in caplog.text) == (calls > 1)


def test_a_job_that_has_worked_is_run_once(patient: Pool, caplog: pytest.LogCaptureFixture) -> None:
    assert run(patient, "work", seconds=600.0).status == "timeout"
    assert "once more" not in caplog.text


@pytest.mark.parametrize("job", ["work", "work_slowly"])
def test_a_job_that_is_kept_from_its_core_loses_no_time(patient: Pool, job: str) -> None:
    """The slow one takes twice its limit of the wall, and less than its limit of a core."""
    result = run(patient, job, seconds=0.8)
    assert result.status == "ok" and (job == "work" or result.seconds > 1.2)


@pytest.mark.parametrize("job", ["work", "work_slowly", "work_in_a_child"])
def test_a_job_that_takes_more_of_a_core_than_it_may_is_ended(patient: Pool, job: str) -> None:
    result = run(patient, job, seconds=600.0)
    assert result.status == "timeout" and 1.0 <= result.seconds < 30.0


def test_a_job_that_does_nothing_is_ended_by_the_wall_clock(patient: Pool) -> None:
    result = run(patient, "sleep", timeout_s=0.1, seconds=600.0)
    assert result.status == "timeout" and result.seconds >= 3.0


def test_seconds_of_standing_still() -> None:
    told = Stopped()
    seconds = []
    for on, now in ((False, 1.0), (True, 2.0), (True, 4.0), (False, 7.0), (False, 9.0), (True, 10.0)):
        told = told.told(on, now)
        seconds.append((told.seconds(now), told.seconds(now + 0.5)))
    assert seconds == [(0, 0), (0, 0.5), (2, 2.5), (5, 5), (5, 5), (5, 5.5)]


def test_children_left_behind_are_ended(pool: Pool) -> None:
    before = inside(pool)
    assert int(run(pool, "leave_child").value) > 0
    assert soon(lambda: inside(pool) <= before)


def test_segmentation_fault_is_a_crash_with_its_signal(pool: Pool) -> None:
    result = run(pool, "die", number=int(signal.SIGSEGV))
    assert (result.status, result.signal) == ("crash", "SIGSEGV")
    assert "Segmentation fault" in result.output and " in die" in result.output  # where Python was


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
    assert len(result.output) <= 16 << 10


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
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: 2 * number for number in range(12)}


def test_a_killed_warm_process_is_started_again(pool: Pool) -> None:
    os.kill(outside_number(pool, int(run(pool, "parent").value)), signal.SIGKILL)
    assert run(pool, "add", a=1, b=1).value == 2


def test_a_broken_warm_process_is_an_error_that_shows_its_log() -> None:
    pool = Pool(PoolSettings(evaluate_jobs.broken_warm, readable=HERE))
    try:
        with pytest.raises(EvaluatorError, match="no torch here"):
            run(pool, "add", a=1, b=1)
    finally:
        pool.close()


def test_close_ends_everything_and_may_be_called_twice() -> None:
    pool = Pool(PoolSettings(evaluate_jobs.warm, readable=HERE))
    server = outside_number(pool, int(run(pool, "parent").value))
    folder, processes = pool.folder, inside(pool)
    assert server in processes
    pool.close()
    pool.close()
    assert soon(lambda: not any(map(_alive, processes))) and not folder.exists()  # what is killed is reaped by others
    with pytest.raises(EvaluatorError, match="closed"):
        run(pool, "add", a=1, b=1)


def test_nothing_is_left_of_a_pool_whose_owner_is_killed() -> None:
    code = (
        "import pathlib, evaluate_jobs\nfrom mtmc.evaluate.pool.worker import Pool, PoolSettings\n"
        f"pool = Pool(PoolSettings(evaluate_jobs.warm, readable=(pathlib.Path({str(HERE[0])!r}),)))\n"
        f"assert pool.run(evaluate_jobs.add, dict(a=1, b=1)).value == 2\n"
        "print(pool._server._process.pid, pool.folder, flush=True)\n"
        f"pool.run(evaluate_jobs.hang_with_child, dict())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True) as owner:
        assert owner.stdout is not None
        server, folder = owner.stdout.readline().split()
        assert soon(lambda: any(map(_sleeps, _with_descendants(int(server)))))
        processes = _with_descendants(int(server))
        owner.kill()
    assert soon(lambda: not any(map(_alive, processes)) and not os.path.exists(folder))


def inside(pool: Pool) -> set[int]:
    """Running processes of a pool, by the numbers that they have here."""
    assert pool._server is not None
    return _with_descendants(pool._server._process.pid)


def outside_number(pool: Pool, number: int) -> int:
    """The number that a process of a pool has here, from the one that it has inside."""
    for pid in inside(pool):
        if f"\t{number}\n" in _status_line(pid, "NSpid"):
            return pid
    raise AssertionError(f"no process {number} inside")


def soon(happens: Callable[[], bool], limit_s: float = 60.0) -> bool:
    """Whether something comes about at all; on a busy machine that may take a while."""
    deadline = time.monotonic() + limit_s
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _with_descendants(pid: int) -> set[int]:
    try:
        root = psutil.Process(pid)
        return {each.pid for each in (root, *root.children(recursive=True)) if _alive(each.pid)}
    except psutil.NoSuchProcess:
        return set()


def _sleeps(pid: int) -> bool:
    """Whether it is the child of `hang_with_child`."""
    try:
        return psutil.Process(pid).cmdline()[-1].endswith("time.sleep(600)")
    except (psutil.NoSuchProcess, IndexError):
        return False


def _status_line(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next((line for line in status if line.startswith(name + ":")), "")


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
