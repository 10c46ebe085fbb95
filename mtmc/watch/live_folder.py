"""LiveFolder: the runs of a folder as they come and grow. A run's own folder has one; that of a sweep has those below it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtmc.errors import MtmcError, RunError
from mtmc.export.record import flat_settings
from mtmc.export.sweep import ERROR_FILE, SEED, in_few_words, in_order, varying
from mtmc.store import has_run, runs_below
from mtmc.watch.live_run import LiveRun

LOOK_SHARE = 20
"""To look for new runs may take this part of the time at most."""


class LiveFolder:
    """The runs of a folder. Its methods may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        """Raises: RunError for a folder that is not there, or in which there is no run."""
        if not folder.is_dir():
            raise RunError(f"there is no folder {folder}: name a run's folder, or one that holds runs")
        self.folder = folder
        self.single = has_run(folder)
        self._guard = threading.Lock()
        self._runs: list[LiveRun] = []
        self._failed: dict[Path, str] = {}
        self._due = 0.0
        self.look()
        if not self._runs and not self._failed:
            raise RunError(f"there is no run in {folder} or below it: name a run's folder, or one that holds runs")
        if self.single:
            self._runs[0].progress()  # a run that cannot be read is said at once

    @property
    def runs(self) -> list[LiveRun]:
        """Those that are there by now, in the order in which they were found: a run's place never changes."""
        with self._guard:
            return list(self._runs)

    def look(self) -> None:
        """Look for new runs, if that has not been done just now."""
        with self._guard:
            now = time.monotonic()
            if now < self._due:
                return
            if self.single:
                found = [self.folder]
            else:
                found = sorted(runs_below(self.folder), key=in_order)
                failed = {path.parent: path for path in self.folder.rglob(ERROR_FILE)}
                self._failed = {at: _reason(path) for at, path in failed.items() if not has_run(at)}
            known = {run.folder for run in self._runs}
            self._runs += [LiveRun(folder) for folder in found if folder not in known]
            self._due = now + max(0.5, LOOK_SHARE * (time.monotonic() - now))

    def overview(self) -> dict[str, Any]:
        """How the runs compare, as plain JSON: "folder", "names" (settings that differ), and "runs" in the order of their
        names: "id" (its place in `runs`, None for one that could not begin), "name", the facts of a `Progress`, "choices" (a
        value for each of the names, None where the run has none), and "curve", see `LiveRun.overview`."""
        self.look()
        runs = self.runs
        rows = [self._row(number, run) for number, run in enumerate(runs)]
        short = [_told(run.settings) for run in runs]
        words = [flat_settings(each) for each in in_few_words(short)]
        names = [*varying(words), *([SEED] if len({each.get(SEED) for each in words}) > 1 else [])]
        for row, each in zip(rows, words, strict=True):
            row["choices"] = [each.get(name) for name in names]
        nothing = {"id": None, "choices": [None] * len(names), "curve": []}
        rows += [
            {**nothing, "name": self._name(at), "state": "failed", "finished": why} for at, why in self._failed.items()
        ]
        rows.sort(key=lambda row: in_order(Path(row["name"])))
        return {"folder": self.folder.absolute().name, "names": names, "runs": rows}

    def _row(self, number: int, run: LiveRun) -> dict[str, Any]:
        named = {"id": number, "name": self._name(run.folder)}
        try:
            progress, curve = run.overview()
        except MtmcError as error:
            return {**named, "state": "unreadable", "finished": str(error), "curve": []}
        return {**named, **asdict(progress), "curve": curve}

    def _name(self, folder: Path) -> str:
        return folder.relative_to(self.folder).as_posix()


def _told(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a table may have columns of: those that somebody has chosen."""
    return {name: value for name, value in settings.items() if name not in ("versions", "deterministic")}


def _reason(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1][:500]
    except (OSError, IndexError):
        return "no reason is given"
