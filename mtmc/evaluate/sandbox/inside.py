"""What a process inside the sandbox finds when it tries to get out: run by `mtmc.evaluate.sandbox.protection.probe`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtmc.evaluate.sandbox.limits import limit_process
from mtmc.evaluate.sandbox.lockdown import lock_down

MEMORY_MIB = 64


def main(fd: int, secret: str, port: int, parent: int, names: dict[str, str]) -> None:
    """Try each way out, write what was found to `fd` as JSON.

    secret: a file of the user's. port: of a listener on this machine. parent: a process outside of the sandbox. names:
    the name spaces outside, as `namespaces` gives them.
    """
    found: dict[str, Any] = {
        "own": [name for name, value in namespaces().items() if value != names.get(name)],
        "hidden": not os.path.exists(secret),
        "environment": sorted(os.environ),
        "connects": _works(lambda: socket.create_connection(("127.0.0.1", port), timeout=2.0).close()),
    }
    limit_process(MEMORY_MIB)
    found["allocates"] = _works(lambda: bytearray(16 * MEMORY_MIB << 20))
    found["active"] = lock_down("candidate", [Path.cwd()])
    found["privileges"] = _privileges()
    found["reads"] = _works(lambda: Path(secret).read_bytes())
    found["writes"] = _works(lambda: Path(secret).write_text("spoilt"))
    found["writes_own"] = _works(lambda: Path("own").write_text("kept"))
    found["forks"] = _works(_fork)
    found["sockets"] = _works(lambda: socket.socket().close())
    found["signals"] = _works(lambda: os.kill(parent, 0))
    os.write(fd, json.dumps(found).encode())


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
