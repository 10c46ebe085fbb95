"""BenchFolder: where a benchmark keeps what it has, so that the same command goes on with it.

bench.json  bench.md  bench.png     the tables, of all rows that are there
settings.json                       what rows must have in common
rows/LEVEL/NAME.json                one problem that has ended
runs/LEVEL/NAME/                    its search, a run's folder like any other
tasks/LEVEL/NAME.json               its small shapes, which take seconds to find
logs/                               what the processes had to say
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.bench.problem import Problem
from mtmc.bench.row import Row, row_from_json, row_text
from mtmc.errors import RunError
from mtmc.files import write_whole
from mtmc.renamed import under_new_names
from mtmc.store.folder_lock import LOCK_NAME, FolderLock

SETTINGS = "settings.json"
LOADED = ("tasks", "logs", LOCK_NAME)
"""What there is where problems were only loaded."""


@dataclass(frozen=True)
class BenchFolder:
    """The folder of one benchmark."""

    path: Path

    @contextmanager
    def opened(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Alone with the folder, which is made, or was made with the same settings.

        settings: plain data that all rows must have in common.
        Raises: RunError where they differ, naming the first that does, where it cannot be made or is something else, or
        where another process is at work on it.
        """
        self._check(settings)
        lock = FolderLock(self.path)
        try:
            yield
        finally:
            lock.release()

    def _check(self, settings: Mapping[str, Any]) -> None:
        kept = self.path / SETTINGS
        try:
            if not kept.exists():
                if self.path.exists() and any(each.name not in LOADED for each in self.path.iterdir()):
                    raise RunError(f"the folder {self.path} holds something else than a benchmark: choose another one")
                self.path.mkdir(parents=True, exist_ok=True)
                write_whole(kept, json.dumps(dict(settings), indent=1, sort_keys=True) + "\n")
                return
            found = json.loads(kept.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"the folder {self.path} cannot be used ({error}): choose another one") from error
        old, new = _flat(_renamed(found)), _flat(_renamed(json.loads(json.dumps(dict(settings)))))
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                values = f"{name} {old.get(name)!r}, not {new.get(name)!r}"
                fix = "choose another folder, or the same settings"
                raise RunError(f"the rows in {self.path} were made with {values}: {fix}")

    def run(self, problem: Problem) -> Path:
        """Folder of a problem's search."""
        return self.path / "runs" / problem.level / problem.name

    def task(self, problem: Problem) -> Path:
        """File that a problem's shapes are kept in."""
        return self.path / "tasks" / problem.level / f"{problem.name}.json"

    def log(self, number: int) -> Path:
        """What the process `number` says."""
        return self.path / "logs" / f"{number}.log"

    def keep(self, row: Row) -> None:
        """Keep a row, in place of an older one. Raises: RunError where it cannot be written."""
        write_whole(self._row(row.level, row.name), row_text(row))

    def find(self, problem: Problem) -> Row | None:
        """The row of a problem, None where it has none yet. Raises: RunError where it cannot be read."""
        path = self._row(problem.level, problem.name)
        if not path.exists():
            return None
        try:
            return row_from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{path} holds no row ({error}): remove it, and its problem is run again") from error

    def _row(self, level: str, name: str) -> Path:
        return self.path / "rows" / level / f"{name}.json"


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that benchmarks have in common, those of their parts under the names that these have now."""
    return {
        name: {**value, "settings": under_new_names(name, value["settings"])}
        if isinstance(value, Mapping) and "settings" in value
        else value
        for name, value in values.items()
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted name -> value."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
