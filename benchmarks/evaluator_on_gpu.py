"""All that is asked of the evaluator on a GPU, in order of importance, each part with a limit of its own.

    python benchmarks/evaluator_on_gpu.py --out runs/gpu --copy "$OUT" --minutes 9.5

Parts are commands of this repository (`--list` shows them). What each one says goes to OUT/NAME.log as it comes, its
tables to OUT/NAME.md and .json, and OUT/parts.json says how each ended. A part that ended is not run again: the same command
goes on with what is left, and a part that keeps rows (the table of attacks) goes on where it was cut off. `--copy` names a
folder that gets all files every few seconds, so that a machine which is taken away takes nothing with it. `--only` and
`--again` choose parts by name. Exit status: 0 if all parts ended well, 1 if one did not, 2 if some are left.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED_EVERY_S = 5.0
GRACE_S = 8.0
"""Seconds that an interrupted part has to write its files."""
LEAST_S = 20.0
"""Time below which no part is begun any more."""
CUT = "cut off"


@dataclass(frozen=True)
class Part:
    """One command. name: of its files. words: of the command; {out} stands for its file name without an end.

    limit_s: that it may take; one that runs into it counts as ended, unless the time of the whole run was up. expected: what
    it should show.
    """

    name: str
    words: tuple[str, ...]
    limit_s: float
    expected: str


def _tests(name: str, limit_s: float, *files: str) -> Part:
    words = ("-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", *files)
    return Part(name, words, limit_s, "all passed")


_TABLE = ("-m", "tests.exploits.table", "--evaluator", "gpu", "--setting", "timeout_s=8", "--out")
_ZOO = ("-m", "tests.zoo.run", "--evaluator", "gpu", "--budget", "3", "--workers", "4", "--limit", "90")
_SEARCH = """
import subprocess, sys
out = sys.argv[1]
options = ["task=softmax_gelu", "evaluator=gpu", "budget.evaluations=8", "batch=4", f"out={out}"]
code = subprocess.run([sys.executable, "-m", "mtmc", "search", *options]).returncode
print("mtmc search:", code, flush=True)
best = subprocess.run([sys.executable, f"{out}/best.py"]).returncode
print("python best.py:", best, flush=True)
sys.exit(code or best)
"""

_MENDED = (
    "norm_of_all",
    "normalized_lookup",
    "ragged_offsets",
    "sequential_modules",
    "side_stream",
    "side_stream_kernel",
    "whole_call_on_a_stream",
    "e84_leaves_a_stream_behind",
    "e86_spins_and_writes_late",
    "e124_works_ahead_behind_the_gate",
    "e125_works_in_the_first_call_of_a_row",
)
"""What the clock judged wrongly on an H100 once, and attacks that such a clock could reward."""

PARTS = (
    Part("mended", (*_TABLE, "{out}", "--only", *_MENDED), 120, "0 attacks rewarded, all honest candidates accepted"),
    Part(
        "launch_cost", ("benchmarks/launch_cost.py", "--out", "{out}"), 40, "a direct launch costs a third of another"
    ),
    Part(
        "exploits",
        (*_TABLE, "{out}", "--known", "results/exploits.json"),
        900,
        "0 attacks rewarded, all honest candidates accepted; what was never run on a GPU comes first",
    ),
    _tests("test_gpu", 240, "tests/evaluate/test_gpu.py"),
    Part(
        "sustained_rate",
        ("benchmarks/sustained_rate.py", "--limit", "300", "--warm-up", "20", "--minutes", "1.5", "--out", "{out}"),
        120,
        "at least 7 a second, nothing lost",
    ),
    Part(
        "clock_verdicts",
        ("benchmarks/clock_verdicts.py", "--times", "20", "--forged-times", "3", "--minutes", "2.5", "--out", "{out}"),
        180,
        "all honest accepted, all forged refused",
    ),
    Part(
        "faults",
        ("benchmarks/faults.py", "--limit", "200", "--timeout", "3", "--minutes", "1.8", "--out", "{out}"),
        130,
        "every fault has its status, nothing is left behind",
    ),
    Part(
        "repeatability",
        ("benchmarks/repeatability.py", "--times", "10", "--tries", "40", "--minutes", "1.5", "--out", "{out}"),
        120,
        "spreads of 0.3 to 1.4%; right choice in 95 of 100",
    ),
    Part("search", ("-c", _SEARCH, "{out}"), 90, "mtmc search: 0, python best.py: 0"),
    _tests("test_build", 90, "tests/evaluate/test_build.py", "tests/evaluate/test_pretended.py"),
    Part(
        "zoo",
        (*_ZOO, "--dtype", "bf16", "--only", "GatedMLP", "TransformerEncoder", "Gemma2", "Swin", "--out", "{out}.md"),
        240,
        "results right, drop-ins right",
    ),
    Part(
        "blocks",
        (
            "-m",
            "mtmc",
            "bench",
            "suite=blocks",
            "every=8",
            "policy=heuristic",
            "budget=16",
            "batch=4",
            "evaluator=gpu",
            "evaluator.reuse=16",
            "jobs=4",
            "problem_minutes=5",
            "out={out}",
        ),
        900,
        "no block behind the better mode of torch.compile",
    ),
    Part("naive", (*_TABLE, "{exploits}", "--naive", "--minutes", "4"), 260, "every attack fools the naive evaluator"),
)


@dataclass(frozen=True)
class Ended:
    """How a part ended. status: its exit status, or why it has none. seconds: that it took."""

    status: int | str
    seconds: float


class Run:
    """Parts, one after another. out: folder of their files. copy: folder that gets these too."""

    def __init__(self, out: Path, copy: Path | None, seconds: float) -> None:
        self.out, self._copy = out, copy
        self._until = time.monotonic() + seconds
        out.mkdir(parents=True, exist_ok=True)
        self._file = out / "parts.json"
        found: Mapping[str, dict[str, int | float | str]] = {}
        if self._file.exists():
            found = json.loads(self._file.read_text(encoding="utf-8"))
        self.ended = {name: Ended(**each) for name, each in found.items()}  # type: ignore[arg-type]

    def forget(self, names: Sequence[str]) -> None:
        """As if these parts had not run; rows that they keep are kept."""
        for name in names:
            self.ended.pop(name, None)

    def run(self, parts: Sequence[Part]) -> list[Part]:
        """Run what has not ended; the parts that are left."""
        for part in parts:
            if part.name in self.ended:
                continue
            left = self._until - time.monotonic()
            if left < LEAST_S:
                break
            self._one(part, left)
        return [part for part in parts if part.name not in self.ended]

    def _one(self, part: Part, left: float) -> None:
        words = [_filled(word, self.out, part.name) for word in part.words]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        print(f"\n=== {part.name}: {_shown(words)}\n    expected: {part.expected}", flush=True)
        started = time.monotonic()
        with (self.out / f"{part.name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words], cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                status = self._waited(process, started + min(part.limit_s, left))
            finally:
                _stopped(process)
        seconds = time.monotonic() - started
        if status is None and part.limit_s <= left:
            status = f"ran into its limit of {part.limit_s:g} s"
        if status is not None:
            self.ended[part.name] = Ended(status, round(seconds, 1))
            found = {name: asdict(each) for name, each in self.ended.items()}
            self._file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        self.copied()
        said = (self.out / f"{part.name}.log").read_text(encoding="utf-8", errors="replace").rstrip().splitlines()[-12:]
        print("\n".join(f"    {line[:200]}" for line in said))
        print(f"--- {part.name}: {CUT if status is None else status} after {seconds:.0f} s", flush=True)

    def _waited(self, process: subprocess.Popen[bytes], until: float) -> int | None:
        """Exit status, None where the time was up before. Copies files meanwhile."""
        while time.monotonic() < until:
            try:
                return process.wait(min(COPIED_EVERY_S, max(0.1, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                self.copied()
        return None

    def copied(self) -> None:
        """Bring the other folder up to date."""
        if self._copy is not None:
            shutil.copytree(self.out, self._copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.db-*"))


def _filled(word: str, out: Path, name: str) -> str:
    """A word of a command. Absolute names, since commands run in the repository's folder."""
    folder = out.resolve()
    return word.replace("{out}", str(folder / name)).replace("{exploits}", str(folder / "exploits"))


def _shown(words: Sequence[str]) -> str:
    return "python " + " ".join("..." if "\n" in word else shlex.quote(word) for word in words)


def _stopped(process: subprocess.Popen[bytes]) -> None:
    """End a part and all that it has started: it may write its files first."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            if process.poll() is None or number == signal.SIGKILL:
                os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--copy", type=Path, help="folder that gets all files every few seconds, too")
    parser.add_argument(
        "--minutes", type=float, default=25.0, help="that the run may take; parts that are left come next time"
    )
    names = [part.name for part in parts]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PART")
    parser.add_argument("--again", nargs="+", choices=names, default=[], metavar="PART")
    parser.add_argument("--list", action="store_true", help="show the commands and run none")
    chosen = parser.parse_args(arguments)
    wanted = [part for part in parts if part.name in chosen.only]
    if chosen.list:
        for part in wanted:
            words = [_filled(word, chosen.out, part.name) for word in part.words]
            print(f"{part.name} (up to {part.limit_s:g} s; {part.expected}):\n    {_shown(words)}")
        return 0
    run = Run(chosen.out, chosen.copy, 60 * chosen.minutes)
    run.forget(chosen.again)
    left = run.run(wanted)
    run.copied()
    for part in wanted:
        ended = run.ended.get(part.name)
        print(f"{part.name:<16} {'left' if ended is None else f'{ended.status} ({ended.seconds:g} s)'}")
    bad = any(run.ended[part.name].status != 0 for part in wanted if part.name in run.ended)
    return 1 if bad else 2 if left else 0


if __name__ == "__main__":
    sys.exit(main())
