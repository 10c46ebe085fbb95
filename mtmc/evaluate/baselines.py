"""What versions are compared with besides their root, kept between runs: eager and torch.compile take minutes to measure."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mtmc.errors import ConfigError
from mtmc.evaluate.devices import Device
from mtmc.files import user_cache_folder, write_whole
from mtmc.outcome import Outcome, outcome_from_json, outcome_to_json
from mtmc.task import Task

RUNTIME = "call_ms"
"""The metric that a runtime is, see `mtmc.evaluate.measure.call_time`."""


@dataclass(frozen=True)
class Fingerprint:
    """What a baseline's runtime holds for: the task at its full shapes, the GPU and its driver, torch and triton, and what
    is called a runtime: those of the device alone, which were kept before, are measured anew."""

    task: str
    gpu: str
    driver: str
    torch: str
    triton: str
    runtime: str = RUNTIME

    @classmethod
    def of(cls, task: Task, device: Device) -> Fingerprint:
        """The fingerprint of a task on a device, with the packages installed here."""
        digest = hashlib.sha256(f"{task.source}\0{task.full}\0".encode())
        digest.update(task.state or b"")
        return cls(
            digest.hexdigest()[:16], device.name, device.driver, metadata.version("torch"), metadata.version("triton")
        )

    @property
    def key(self) -> str:
        """As text."""
        return "|".join(asdict(self).values())


@dataclass(frozen=True)
class BaselineFile:
    """A JSON file {fingerprint: {name: outcome}}. Several processes may add to it."""

    path: Path

    @classmethod
    def of(cls, path: str) -> BaselineFile:
        """The file at `path`; empty: baselines.json in the user's cache folder for mtmc."""
        if path:
            return cls(Path(path).expanduser().absolute())  # who compiles works in another folder
        return cls(user_cache_folder() / "baselines.json")

    def find(self, fingerprint: Fingerprint) -> dict[str, Outcome]:
        """What is known, by name. Raises: ConfigError if the file is none of baselines."""
        kept = self._read().get(fingerprint.key, {})
        return {name: outcome_from_json(data) for name, data in kept.items()}

    def add(self, fingerprint: Fingerprint, name: str, outcome: Outcome) -> None:
        """Keep one outcome. Raises: ConfigError or RunError if the file cannot be written."""
        with self._alone():
            everything = self._read()
            everything.setdefault(fingerprint.key, {})[name] = outcome_to_json(outcome)
            write_whole(self.path, json.dumps(everything, indent=1, sort_keys=True))

    @property
    def compiling(self) -> Path:
        """The folder beside the file where compilers keep what they have found out for baselines that are not done yet. It
        is made. Raises: ConfigError where it cannot be."""
        folder = self.path.with_suffix(".compiling")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        return folder

    def begun(self, fingerprint: Fingerprint) -> Path:
        """Where torch.compile keeps its caches for one task: an autotuning that was cut off goes on there where it was."""
        return self.compiling / hashlib.sha256(fingerprint.key.encode()).hexdigest()[:16]

    def ended(self, fingerprint: Fingerprint) -> None:
        """All baselines of a task are kept: nothing is left to go on with."""
        shutil.rmtree(self.begun(fingerprint), ignore_errors=True)

    def _read(self) -> dict[str, dict[str, Any]]:
        if not self.path.exists():
            return {}
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            assert isinstance(found, dict)
        except (OSError, ValueError, AssertionError) as error:
            raise ConfigError(
                f"{self.path} holds no baselines ({error}): remove it, or set evaluator.baselines_file"
            ) from error
        return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = open(self.path.with_suffix(".lock"), "w")  # noqa: SIM115
        except OSError as error:
            raise self._unwritable(error) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self.path} cannot be written ({error}): set evaluator.baselines_file")
