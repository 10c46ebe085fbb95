"""WinnerCache: entries by key, each a JSON file that is written whole. Nothing is executed here.

Several processes may use it at the same time: readers see whole entries, writers take turns. What is damaged is not used:
a warning says so, and the next search replaces it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtmc.cache.folder import SOURCES, Unusable, check_private, private_folder, read_private, source_name, write_private
from mtmc.cache.key import Key
from mtmc.errors import MtmcError, RunError
from mtmc.files import DRAFTS, user_cache_folder
from mtmc.search.budget import Budget
from mtmc.task.base import Variant, variant_from_json

_log = logging.getLogger(__name__)

WINNERS = "winners"
FORMAT = 1
LIMIT_BYTES = 500 * 2**20
"""What all entries and sources together may take; beyond it those go first that were not used for the longest time."""


@dataclass(frozen=True)
class Entry:
    """What a search has found.

    task: its name. hardware: of the GPU that runtimes are for. sources: versions as they are handed out, with their guards,
    the fastest first; none where nothing was faster. reason: why there is none, in words, else "". speedup: of the best
    version over the root. runtime_ms: of one forward of it at the full shapes. runtime_kind: "measured" or "estimated".
    budget: what the search might spend. evaluations: what it spent. complete: whether nothing was left to try. made: when,
    in UTC, "2026-01-31 12:00". run: the run's folder, "" where it was not kept. small, held_out: the task's other shapes.
    baselines_ms: runtimes of what the reference is compared with besides itself, by name.
    """

    task: str
    hardware: str
    sources: tuple[str, ...]
    reason: str
    speedup: float | None
    runtime_ms: float | None
    runtime_kind: str | None
    budget: Budget
    evaluations: int
    complete: bool
    made: str
    run: str
    small: Variant
    held_out: tuple[Variant, ...]
    baselines_ms: Mapping[str, float]

    def serves(self, budget: Budget) -> bool:
        """Whether it stands for a search with that budget: it might spend as much, or has tried all there was to try."""
        return self.budget.covers(budget) or (self.complete and self.budget.depth >= budget.depth)


@dataclass(frozen=True)
class Listed:
    """An entry with the digest of its key. size: bytes of its file. used: when last, in seconds since the epoch."""

    digest: str
    entry: Entry
    size: int
    used: float


@dataclass(frozen=True)
class Cleared:
    """What was removed."""

    entries: int
    size: int


class WinnerCache:
    """The user's cache of winners. It makes its folder when something is added."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self.folder = user_cache_folder() / WINNERS

    def check(self) -> None:
        """Raises: RunError if the folder is there and is not the user's alone."""
        if self.folder.exists() or self.folder.is_symlink():
            check_private(self.folder)

    def find(self, key: Key, budget: Budget) -> Entry | None:
        """The entry of that key where it stands for a search with that budget, else None.

        Raises: RunError as `check`.
        """
        self.check()
        entry = self._read(key.digest)
        if entry is None or not entry.serves(budget):
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path(key.digest))
        return entry

    def add(self, key: Key, entry: Entry) -> bool:
        """Keep an entry, unless there is one that stands for it. Whether it is there now: where the folder cannot be written
        a warning says so.

        Raises: RunError as `check`.
        """
        self.check()
        try:
            with self._alone():
                old = self._read(key.digest)
                if old is None or old.budget == entry.budget or not old.serves(entry.budget):
                    write_private(self._path(key.digest), _text(entry).encode())
                self._shrink()
        except (RunError, OSError) as error:
            _log.warning("the winner of %s is not kept for the next time: %s", entry.task, error)
            return False
        return True

    def forget(self, key: Key) -> None:
        """Remove the entry of a key, if there is one."""
        with contextlib.suppress(OSError):
            self._path(key.digest).unlink()

    def entries(self) -> list[Listed]:
        """All entries that can be used, last used first. Raises: RunError as `check`."""
        self.check()
        found = []
        for path in self.folder.glob("*.json"):
            entry = self._read(path.stem)
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if entry is not None:
                    found.append(Listed(path.stem, entry, status.st_size, status.st_mtime))
        return sorted(found, key=lambda each: (-each.used, each.digest))

    def clear(self, task: str | None = None) -> Cleared:
        """Remove the entries of one task with their sources, or everything.

        Raises: RunError as `check`, or if there is no entry of that task.
        """
        listed = self.entries()
        if not self.folder.exists():
            return Cleared(0, 0)
        with self._alone():
            if task is None:
                return _removed(len(list(self.folder.glob("*.json"))), [*self._files(), *self._drafts()])
            chosen = [each for each in listed if each.entry.task == task]
            if not chosen:
                known = ", ".join(sorted({each.entry.task for each in listed})) or "nothing"
                raise RunError(f"the cache has no winner of a task {task!r}: it has {known}")
            names = {source_name(source) for each in chosen for source in each.entry.sources}
            sources = [path for path in (self.folder.parent / SOURCES).glob("*.py") if path.name in names]
            return _removed(len(chosen), [*(self._path(each.digest) for each in chosen), *sources])

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}.json"

    def _read(self, digest: str) -> Entry | None:
        path = self._path(digest)
        try:
            return _entry(read_private(path))
        except FileNotFoundError:
            return None
        except Unusable as reason:
            _log.warning("the cache's %s is not used (%s); the next search of that module replaces it", path, reason)
            return None

    def _files(self) -> list[Path]:
        return [*self.folder.glob("*.json"), *(self.folder.parent / SOURCES).glob("*.py")]

    def _drafts(self) -> list[Path]:
        """What killed processes have left behind."""
        return [path for folder in (self.folder, self.folder.parent / SOURCES) for path in folder.glob(f"{DRAFTS}*")]

    def _shrink(self) -> None:
        """Remove what was not used for the longest time, until the rest is within the limit."""
        sizes = {}
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                sizes[path] = (status.st_mtime, status.st_size)
        total = sum(size for _, size in sizes.values())
        for path in sorted(sizes, key=lambda path: sizes[path]):
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= sizes[path][1]

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time changes entries."""
        with open(private_folder(WINNERS) / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _text(entry: Entry) -> str:
    """An entry as JSON with its digest: what is read is executed later, so it has to be what was written."""
    data = _canonical(asdict(entry))
    return json.dumps({"format": FORMAT, "sha256": _digest(data), "entry": json.loads(data)}, indent=1)


def _entry(content: bytes) -> Entry:
    """The entry of a file's content. Raises: Unusable."""
    try:
        whole = json.loads(content)
        fields: Mapping[str, Any] = whole["entry"]
        if whole["format"] != FORMAT:
            raise Unusable(f"it has format {whole['format']}, this version of mtmc reads {FORMAT}")
        if whole["sha256"] != _digest(_canonical(fields)):
            raise Unusable("its content is not what was written")
        made = {
            "sources": tuple(fields["sources"]),
            "budget": Budget(**fields["budget"]),
            "small": variant_from_json(fields["small"]),
            "held_out": tuple(variant_from_json(each) for each in fields["held_out"]),
        }
        return Entry(**{**fields, **made})
    except (ValueError, KeyError, TypeError, MtmcError) as error:
        raise Unusable(f"it is damaged: {type(error).__name__}: {error}") from error


def _canonical(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _removed(entries: int, paths: list[Path]) -> Cleared:
    size = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                size += path.stat().st_size
                path.unlink()
    return Cleared(entries, size)
