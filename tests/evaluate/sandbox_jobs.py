"""Jobs that try to get out of the sandbox: what the tests of the sandbox have done in its processes.

An attempt that succeeds, where a protection fails, must do no harm to the machine that the tests run on: processes of others
are sent no more than signal 0, which only asks for the right to send one.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

NO_RESERVE = 0x4000  # MAP_NORESERVE


def warm() -> None:
    """Nothing to import."""


def attempt(action: Callable[[], object]) -> str:
    """ "done", or the name of the error that stopped it."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "OSError")
    except MemoryError:
        return "MemoryError"
    return "done"


def reach_out(port: int, address: str) -> dict[str, str]:
    """Every way to talk to a process outside: TCP, UDP, unix sockets by path and by abstract name."""

    def connect(family: int, kind: int, where: object) -> str:
        def action() -> None:
            with socket.socket(family, kind) as client:
                client.settimeout(2.0)
                client.connect(where)  # type: ignore[arg-type]

        return attempt(action)

    def by_pair() -> None:
        left, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        left.sendto(b"x", address)

    def by_connected_pair() -> None:
        left, _ = socket.socketpair()
        left.sendto(b"x", address)

    return {
        "tcp": connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
        "udp": connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)),
        "unix": connect(socket.AF_UNIX, socket.SOCK_STREAM, address),
        "abstract": connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0mtmc-test"),
        "datagram pair": attempt(by_pair),
        "stream pair": attempt(by_connected_pair),
    }


def own_pair() -> str:
    left, right = socket.socketpair()
    left.sendall(b"hello")
    return right.recv(5).decode()


def environment() -> dict[str, str]:
    return dict(os.environ)


def environment_of_others(outside: int) -> dict[str, str]:
    """What /proc tells of processes that are not this one's, where it tells anything."""
    seen = {}
    for pid in {os.getppid(), 1, outside}:
        seen[str(pid)] = attempt(lambda pid=pid: Path(f"/proc/{pid}/environ").read_bytes())  # type: ignore[misc]
    return seen


def memory_of(pid: int) -> str:
    def action() -> None:
        with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
            start = int(maps.readline().split("-")[0], 16)
        with open(f"/proc/{pid}/mem", "rb") as memory:
            memory.seek(start)
            memory.read(16)

    return attempt(action)


def read(path: str) -> str:
    return attempt(lambda: Path(path).read_bytes())


def listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def write(path: str) -> str:
    """Append to a file, or make it."""

    def action() -> None:
        with open(path, "a", encoding="ascii") as file:
            file.write("spoilt")

    return attempt(action)


def remove(path: str) -> str:
    return attempt(lambda: os.unlink(path))


def write_own(name: str) -> str:
    Path(name).write_text("mine")
    return Path(name).read_text()


def fork_bomb(most: int) -> None:
    for _ in range(most):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    time.sleep(60)


def thread_bomb(most: int, stack_kib: int) -> None:
    threading.stack_size(stack_kib << 10)
    for _ in range(most):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    time.sleep(60)


def outlive(heartbeat: str) -> dict[str, str]:
    """Leave a process behind: a grandchild with a session of its own that writes on and on."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        session = attempt(os.setsid)
        group = attempt(lambda: os.setpgid(0, 0))
        if os.fork() == 0:
            os.write(writer, f"{session} {group}".encode())
            os.close(writer)
            for _ in range(60_000):
                with open(heartbeat, "a", encoding="ascii") as file:
                    file.write(".")
                time.sleep(0.01)
            os._exit(0)
        os._exit(0)
    os.close(writer)
    session, group = os.read(reader, 100).decode().split()
    while not os.path.exists(heartbeat) or os.path.getsize(heartbeat) == 0:
        time.sleep(0.01)
    return {"setsid": session, "setpgid": group, "wrote": str(os.path.getsize(heartbeat) > 0)}


def children_allocate(count: int, mib: int) -> None:
    """Stay below the limit of each process, and far above it together."""
    for _ in range(count):
        if os.fork() == 0:
            kept = bytearray(os.urandom(1 << 20) * mib)
            time.sleep(60)
            os._exit(len(kept) & 1)
    time.sleep(60)


def fill_disk(files: int, mib: int) -> None:
    for number in range(files):
        Path(f"file{number}").write_bytes(bytes(mib << 20))
    time.sleep(60)


def make_many_files(count: int) -> None:
    for number in range(count):
        Path(f"file{number}").touch()
    time.sleep(60)


def write_huge_file(mib: int) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def action() -> None:
        with open("huge", "wb") as file:
            file.truncate(mib << 20)

    return attempt(action)


def dig(depth: int) -> int:
    """Make folders in folders, deeper than any path can be long."""
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    return depth


def signal_others(number: int) -> dict[str, str]:
    """Send a signal to the warm process, ask to send one to its siblings and to all, and have the kernel send one."""
    import fcntl

    parent = os.getppid()
    siblings = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (os.getpid(), parent)]
    results = {
        "parent": attempt(lambda: os.kill(parent, number)),
        "its thread": attempt(lambda: _tgkill(parent, number)),
        "all": attempt(lambda: os.kill(-1, 0)),
        "siblings": "EPERM",
    }
    for pid in siblings:
        if attempt(lambda pid=pid: os.kill(pid, 0)) == "done":  # type: ignore[misc]
            results["siblings"] = "done"
    reader, _ = os.pipe()
    results["owner"] = attempt(lambda: fcntl.fcntl(reader, fcntl.F_SETOWN, parent))
    results["limits"] = attempt(lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (0, 0)))
    results["priority"] = attempt(lambda: os.setpriority(os.PRIO_PROCESS, parent, 10))
    return results


def _tgkill(pid: int, number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.tgkill(pid, pid, number) != 0:
        raise OSError(ctypes.get_errno(), "tgkill")


def die_by_signal(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def abort() -> None:
    os.abort()


def start_processes() -> dict[str, str]:
    """Every way to another process or program."""
    libc = ctypes.CDLL(None, use_errno=True)

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def clone3() -> None:
        arguments = (ctypes.c_uint64 * 11)(0, 0, 0, 0, signal.SIGCHLD)
        pid = libc.syscall(435, arguments, ctypes.c_size_t(ctypes.sizeof(arguments)))
        if pid == 0:
            os._exit(0)
        if pid < 0:
            raise OSError(ctypes.get_errno(), "clone3")

    return {
        "fork": attempt(fork),
        "clone3": attempt(clone3),
        "spawn": attempt(lambda: subprocess.run([sys.executable, "-c", ""], check=True)),
        "posix_spawn": attempt(lambda: os.posix_spawn("/bin/true", ["true"], {})),
    }


def execute() -> str:
    return attempt(lambda: os.execv("/bin/true", ["true"]))


def system_calls() -> dict[str, str]:
    """Doors into the kernel, by name; "done" where one opened."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(*arguments: object) -> Callable[[], None]:
        def action() -> None:
            if getattr(libc, str(arguments[0]))(*arguments[1:]) < 0:
                raise OSError(ctypes.get_errno(), str(arguments[0]))

        return action

    page = ctypes.create_string_buffer(4096)
    return {
        "ptrace": attempt(call("ptrace", 16, os.getppid(), None, None)),
        "unshare": attempt(call("unshare", 0x10000000)),
        "mount": attempt(call("mount", b"none", os.getcwd().encode(), b"tmpfs", 0, None)),
        "chroot": attempt(lambda: os.chroot(".")),
        "shmget": attempt(call("shmget", 0, 4096, 0o600)),
        "memfd": attempt(lambda: os.memfd_create("m")),
        "keyctl": attempt(call("syscall", 250 if os.uname().machine == "x86_64" else 219, 0, -3, 1)),
        "io_uring": attempt(call("syscall", 425, 8, page)),
        "bpf": attempt(call("syscall", 321 if os.uname().machine == "x86_64" else 280, 0, page, 64)),
        "unknown": attempt(call("syscall", 2000)),
        "mkfifo": attempt(lambda: os.mkfifo("pipe")),
        "sethostname": attempt(lambda: socket.sethostname(socket.gethostname())),
        "namespace clone": attempt(
            call("syscall", 56 if os.uname().machine == "x86_64" else 220, 0x10000011, 0, 0, 0, 0)
        ),
    }


def privileges() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}


def threads_work() -> int:
    found: list[int] = []
    threads = [threading.Thread(target=found.append, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(found)


def compile_c() -> int:
    """Build and call a library, as Triton does for its launchers."""
    Path("two.c").write_text("int two(void) { return 2; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "two.so", "two.c"], check=True)
    return int(ctypes.CDLL("./two.so").two())


def reserve(gib: int) -> str:
    """Take addresses, no memory, as a GPU driver does."""
    return attempt(lambda: mmap.mmap(-1, gib << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE, 0))


def allocate(mib: int) -> int:
    return len(bytearray(mib << 20))


def stand_by(here: str, go: str) -> None:
    """Say that it is here, and wait until it is to go."""
    Path(here).touch()
    while not os.path.exists(go):
        time.sleep(0.005)


def forge(answer: str) -> None:
    """Answer the pool in the job's place, over whatever socket is open."""
    body = answer.encode()
    for fd in range(3, 64):
        try:
            kind = os.fstat(fd).st_mode & 0o170000
            if kind == 0o140000:
                os.write(fd, len(body).to_bytes(8, "little") + body)
        except OSError:
            continue
    os._exit(0)


def mode() -> str:
    return os.environ["MTMC_SANDBOX"]
