"""gpu_baselines: what the GPU evaluator compares versions with: eager, torch.compile in two modes, a task's own library.

The modes compile at the same time. max-autotune may take minutes, so that nobody waits for it who has other work: the quick
ones come first, with "not_run" in its place, and a search asks for it beside its evaluations. What was measured once is
kept in a file (`mtmc.evaluate.baselines`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mtmc.evaluate.baselines import BaselineFile, Fingerprint
from mtmc.evaluate.devices import Device
from mtmc.evaluate.measure.questions import LIBRARY
from mtmc.outcome import Diagnosis, Outcome
from mtmc.task import Task
from mtmc.tree import source_hash

AUTOTUNED = "torch.compile max-autotune"
BASELINES: Mapping[str, str] = {
    "eager": "eager",
    "torch.compile": "compile:default",
    AUTOTUNED: "compile:max-autotune-no-cudagraphs",
    LIBRARY: LIBRARY,
}
"""What a version is compared with, by name: see `measure.wire.Load.baseline`."""
SLOW = frozenset({AUTOTUNED})
"""Those that may take minutes."""
_LATE = "it was not compiled by the time that the search ended; a search that goes on takes it up"
BESIDE = Outcome("not_run", diagnosis=Diagnosis("time", "Beside", _LATE))
"""Of a slow one, as long as it is not measured."""

Measure = Callable[[Task, str, Path], Outcome]
"""Takes a task, a value of `BASELINES`, and the folder where torch.compile keeps its caches."""


class GpuBaselines:
    """The baselines of a GPU evaluator. names: of `BASELINES`. path: of the file that keeps them, see `BaselineFile.of`.
    device: that they hold for. From any thread."""

    def __init__(self, names: Sequence[str], path: str, device: Device, measure: Measure) -> None:
        self._names, self._path, self._device, self._measure = names, path, device, measure

    def quick(self, task: Task) -> dict[str, Outcome]:
        """All of a task's, in the order of the settings: taken from the file where it was measured on this hardware with
        these versions of torch and triton before, else measured, else, of the slow ones, `BESIDE`.

        A mode that does not compile is an outcome that says why. Raises: what `measure` raises, ConfigError of the file.
        """
        found = self._found(task, [name for name in self._wanted(task) if name not in SLOW])
        return {name: found.get(name, BESIDE) for name in self._wanted(task)}

    def slow(self, task: Task) -> dict[str, Outcome]:
        """The slow ones, measured where they are not known. Raises: as `quick`."""
        wanted = [name for name in self._wanted(task) if name in SLOW]
        found = self._found(task, wanted)
        return {name: found[name] for name in wanted}

    def _wanted(self, task: Task) -> dict[str, str]:
        """By name, what the file calls them: a library's text is part of that."""
        wanted = {name: name for name in self._names if name != LIBRARY}
        if LIBRARY in self._names and task.library:
            wanted[LIBRARY] = f"{LIBRARY} {source_hash(task.library)}"
        return wanted

    def _found(self, task: Task, names: Sequence[str]) -> dict[str, Outcome]:
        """All that the file knows, and those of `names`, measured at the same time where it does not."""
        kept, wanted = BaselineFile.of(self._path), self._wanted(task)
        fingerprint = Fingerprint.of(task, self._device)
        known = kept.find(fingerprint)
        found = {name: known[text] for name, text in wanted.items() if text in known}

        def measure(name: str) -> None:
            found[name] = self._measure(task, BASELINES[name], kept.begun(fingerprint))
            if found[name].ok:  # a failure may be one of the moment
                kept.add(fingerprint, wanted[name], found[name])

        missing = [name for name in names if name not in found]
        if missing:
            with ThreadPoolExecutor(len(missing), thread_name_prefix="mtmc-baseline") as threads:
                list(threads.map(measure, missing))
            late = any(found[name].status == "timeout" for name in missing)
            if not late and found.keys() >= SLOW & wanted.keys():
                kept.ended(fingerprint)
        return found


def too_late(seconds: float) -> Outcome:
    """Of a mode that was not compiled in time. What it has found out is kept for a later run."""
    message = f"torch.compile had not compiled it after {seconds:g} s: give more evaluator.compile_s, or run it again"
    return Outcome("timeout", diagnosis=Diagnosis("time", "Timeout", message))
