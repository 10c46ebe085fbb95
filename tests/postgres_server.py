"""A PostgreSQL server for the tests: programs of this machine, data and socket in a temporary folder, and no port."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

USER = "mtmc"


def missing() -> str:
    """Why there can be no server; "" where there can."""
    for package in ("psycopg", "langgraph.checkpoint.postgres"):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"{package} is not installed: mtmc[postgres]"
    return "" if _program("initdb") else "no PostgreSQL server is installed: apt install postgresql"


class Server:
    """One that runs until `close`. url: of its database."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mtmc-pg-"))
        self._data = self.folder / "data"
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(self.folder, "postgres")
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8", "--no-locale")
        self.url = f"postgresql://{USER}@/postgres?host={self.folder}"
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        options = f"-c listen_addresses='' -c unix_socket_directories={self.folder} -c fsync=off -c max_connections=40"
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """End at once, with all connections."""
        self._run("pg_ctl", "-D", str(self._data), "-m", "immediate", "-w", "stop")

    def close(self) -> None:
        """End, and leave nothing."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, name: str, *arguments: str) -> None:
        program = _program(name)
        assert program is not None
        user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        subprocess.run([program, *arguments], check=True, cwd=self.folder, timeout=300, **quiet, **user)  # type: ignore[call-overload]


def _program(name: str) -> str | None:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name)
    return next((str(place / name) for place in reversed(places) if (place / name).exists()), shutil.which(name))
