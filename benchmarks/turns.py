"""Parts of one benchmark as processes of their own: they prepare at the same time, and are timed one after another.

A part that has prepared waits until all have (`Turns.wait`), and has the machine to itself while it holds its turn
(`Turns.mine`). Each has its share of the cores, so that host times are those of as many cores as the report says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Report
from mtmc.evaluate.measure.device_lock import DeviceLock

TURN, READY, POLL_S = "turn", ".ready", 0.2


@dataclass(frozen=True)
class Turns:
    """folder: shared by all parts. count: of the parts. end: when nobody waits any longer, in `time.time()` seconds."""

    folder: Path
    count: int
    end: float

    @classmethod
    def read(cls, text: str) -> Turns:
        """From what `argument` has written."""
        count, end, folder = text.split(":", 2)
        return cls(Path(folder), int(count), float(end))

    @property
    def argument(self) -> str:
        """One word for the command line of a part."""
        return f"{self.count}:{self.end}:{self.folder}"

    def ready(self, name: str) -> None:
        """A part has prepared, or will not."""
        (self.folder / f"{name}{READY}").touch()

    def wait(self, name: str) -> None:
        """Until all parts have prepared, or `end` is there."""
        self.ready(name)
        while time.time() < self.end and len(list(self.folder.glob(f"*{READY}"))) < self.count:
            time.sleep(POLL_S)

    @contextmanager
    def mine(self) -> Iterator[None]:
        """While no other part has its turn."""
        lock = DeviceLock(self.folder / TURN)
        try:
            with lock:
                yield
        finally:
            lock.close()


def together(script: str, parts: Sequence[str], options: Sequence[str], seconds: float, report: Report) -> bool:
    """Run a script once for each part, at the same time, and tell what they report. Returns whether all of them ended well.

    script: its file; it takes "--models PART", "--turns ARGUMENT" and "--out PATH" behind `options`, whatever these say of
    the same. seconds: from now until no part waits for another. What a part reports lies beside the report, OUT-PART.md,
    until it is told here, so that it is there where the whole is cut off.
    """
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // len(parts))
    with tempfile.TemporaryDirectory(prefix="mtmc-turns-") as name:
        turns = Turns(Path(name), len(parts), time.time() + seconds)
        outs = {part: Path(f"{report.out or Path(name) / 'out'}-{part}") for part in parts}
        running = {}
        for index, part in enumerate(parts):
            own = ",".join(str(cores[(index * share + at) % len(cores)]) for at in range(share))
            words = [*options, "--models", part, "--turns", turns.argument, "--out", str(outs[part])]
            running[part] = subprocess.Popen(["taskset", "-c", own, sys.executable, script, *words])
        while any(process.poll() is None for process in running.values()):
            for part, process in running.items():
                if process.poll() is not None:
                    turns.ready(part)  # nobody waits for one that has died
            time.sleep(POLL_S)
        report.say(f"{len(parts)} at the same time, {share} cores each; loops are timed one after another.")
        for part in parts:
            _tell(outs[part], report)
    return not any(process.returncode for process in running.values())


def _tell(out: Path, report: Report) -> None:
    """What a part has reported, without its title and its machine."""
    try:
        lines = Path(f"{out}.md").read_text(encoding="utf-8").splitlines()
        data = json.loads(Path(f"{out}.json").read_text(encoding="utf-8"))
    except OSError as error:
        report.say(f"\n**{out.name}: {error}**")
        return
    start = next((index for index, line in enumerate(lines) if line.startswith("## ")), len(lines))
    report.say("\n" + "\n".join(line for line in lines[start:] if "Command: `" not in line).strip())
    for key, value in data.items():
        if isinstance(value, dict) and key != "machine":
            report.data.setdefault(key, {}).update(value)
    for ending in ("md", "json"):
        Path(f"{out}.{ending}").unlink()
