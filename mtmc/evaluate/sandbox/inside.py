"""What a process inside the sandbox finds when it tries to get out: run by `mtmc.evaluate.sandbox.protection.probe`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from mtmc.evaluate.sandbox.limits import limit_process
from mtmc.evaluate.sandbox.lockdown import lock_down

MEMORY_MIB = 64


@dataclass(frozen=True)
class Found:
    """What a process inside found.

    own: kinds of name spaces that are its own. hidden: whether the user's file is not there. environment: names in it.
    active: what the lock-down says is active. privileges: whether it has or can gain any. The others: whether each worked:
    connecting to the listener, allocating far too much, reading and writing the user's file, writing one of its own,
    forking, making a socket, signalling the process outside.
    """

    own: tuple[str, ...]
    hidden: bool
    environment: tuple[str, ...]
    connects: bool
    allocates: bool
    active: tuple[str, ...]
    privileges: bool
    reads: bool
    writes: bool
    writes_own: bool
    forks: bool
    sockets: bool
    signals: bool


def main(fd: int, secret: str, port: int, parent: int, names: dict[str, str]) -> None:
    """Try each way out, write what was found to `fd` as JSON.

    secret: a file of the user's. port: of a listener on this machine. parent: a process outside of the sandbox. names:
    the name spaces outside, as `namespaces` gives them.
    """
    own = tuple(name for name, value in namespaces().items() if value != names.get(name))
    hidden, environment = not os.path.exists(secret), tuple(sorted(os.environ))
    connects = _works(lambda: socket.create_connection(("127.0.0.1", port), timeout=2.0).close())
    limit_process(MEMORY_MIB)
    allocates = _works(lambda: bytearray(16 * MEMORY_MIB << 20))
    active = tuple(lock_down("candidate", [Path.cwd()]))
    found = Found(
        own,
        hidden,
        environment,
        connects,
        allocates,
        active,
        privileges=_privileges(),
        reads=_works(lambda: Path(secret).read_bytes()),
        writes=_works(lambda: Path(secret).write_text("spoilt")),
        writes_own=_works(lambda: Path("own").write_text("kept")),
        forks=_works(_fork),
        sockets=_works(lambda: socket.socket().close()),
        signals=_works(lambda: os.kill(parent, 0)),
    )
    os.write(fd, json.dumps(asdict(found)).encode())


def namespaces() -> dict[str, str]:
    """Identity of each name space of this process, by its kind: "net", "pid", "ipc", "uts", "mnt", "user"."""
    found = {}
    for kind in ("net", "pid", "ipc", "uts", "mnt", "user"):
        with contextlib.suppress(OSError):
            found[kind] = os.readlink(f"/proc/self/ns/{kind}")
    return found


def _privileges() -> bool:
    """Whether this process has any capability or can gain one by executing a program."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["CapPrm"], 16) != 0 or fields.get("NoNewPrivs", "0").strip() != "1"


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _works(action: Callable[[], object]) -> bool:
    try:
        action()
    except (OSError, MemoryError):
        return False
    return True
