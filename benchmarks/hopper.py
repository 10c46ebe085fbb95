"""Products, attention, decode steps and quantized products on a Hopper GPU, against the libraries.

    python benchmarks/hopper.py --only products --minutes 8 --out out/hopper
    python benchmarks/hopper.py --dry-run --out /tmp/hopper

Each case is one kernel that mtmc prints, with some dozen schedules that a search can reach. All are compiled ahead in as
many processes as there are cores, then run on the GPU: first compared with the reference in fp32, then timed in turns
with the libraries, as CUDA graphs and with a cold L2 cache. Every build, comparison and time is a line of OUT/rows.jsonl as
soon as it is known; OUT/table.md is written after each case. --dry-run compiles for sm_90 and times nothing, without a GPU.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.hopper_build import Built, Case, build
from benchmarks.hopper_cases import GROUPS
from benchmarks.hopper_clock import COMPILED

HANGS_S = 20.0
"""Of a candidate that has not come back: it is left out."""
MOST_HANGS = 2
"""Of candidates whose labels begin with the same word: after so many the others of this word are left out, too."""


HUNG = "hangs, or has broken the process"


class Rows:
    """The rows of a run, written as they come."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._file = (out / "rows.jsonl").open("a", encoding="utf-8")
        self._table = out / "table.md"
        self.all: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        """Keep and write one row."""
        self.all.append(row)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def hung(self, label: str) -> int:
        """How many candidates hung whose labels begin with the same word."""
        word = label.partition("_")[0]
        failed = (row["label"] for row in self.all if row.get("failure") == HUNG)
        return sum(each.partition("_")[0] == word for each in failed)

    def of(self, case: Case) -> dict[str, dict[str, Any]]:
        """Everything that is known of a case, by label."""
        found: dict[str, dict[str, Any]] = {}
        for row in self.all:
            if row.get("case") == case.name:
                found.setdefault(row["label"], {}).update(row)
        return found

    def tabulate(self, cases: list[Case]) -> str:
        """Write and return the table of the best schedule of each case."""
        lines = [
            "| case | best | ms | TFLOPS | GB/s | library | ms | ratio | to the product alone | runners-up |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for case in cases:
            timed = {label: row for label, row in self.of(case).items() if "ms" in row}
            alone = timed.pop("product", None)
            library = {label: row for label, row in timed.items() if label in (*case.library, *case.also, *COMPILED)}
            ours = {label: row for label, row in timed.items() if label not in library and right(row, library)}
            if not ours or not library:
                continue
            best, *others = sorted(ours, key=lambda label: ours[label]["ms"])
            rival = min(library, key=lambda label: library[label]["ms"])
            ms, theirs = ours[best]["ms"], library[rival]["ms"]
            cells = (
                case.name, best, f"{ms:.4f}", f"{case.flops / ms / 1e9:.0f}", f"{case.bytes / ms / 1e6:.0f}", rival,
                f"{theirs:.4f}", f"{theirs / ms:.3f}", f"{alone['ms'] / ms:.3f}" if alone else "",
                ", ".join(f"{label} {theirs / ours[label]['ms']:.3f}" for label in others[:4]),
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
        text = "\n".join(lines) + "\n"
        self._table.write_text(text, encoding="utf-8")
        return text


def right(row: dict[str, Any], library: dict[str, dict[str, Any]]) -> bool:
    """Whether a candidate is as exact as the libraries, about."""
    errors = [each["error"] for each in library.values() if "error" in each]
    return "error" in row and row["error"] <= 2 * max(errors, default=0.0) + 2e-3


class Clock:
    """The process on the GPU."""

    def __init__(self) -> None:
        from benchmarks.hopper_clock import serve

        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        self.ready: tuple[Any, ...] = ()

    def answer(self, limit_s: float) -> tuple[Any, ...] | None:
        """The next answer; None where the process has died or says nothing for so long."""
        try:
            return tuple(self._pipe.recv()) if self._pipe.poll(limit_s) else None
        except (EOFError, OSError):
            return None

    def ask(self, what: Any) -> None:
        """Send a request."""
        self._pipe.send(what)

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.join()


def measure(
    case: Case, files: dict[str, str], clock: Clock | None, rows: Rows, arguments: argparse.Namespace
) -> Clock | None:
    """All rows of one case. clock: a process that is at hand. Returns: one for the next case."""
    left = {label: file for label, file in files.items() if rows.hung(label) < MOST_HANGS}
    for _ in range(4):  # processes
        if clock is None:
            clock = Clock()
            ready = clock.answer(120)
            if ready is None:
                clock.end()
                return None
            rows.add({"stage": "machine", "gpu": ready[1], "torch": ready[2]})
        clock.ask(("case", case, left, arguments.rounds, arguments.seed, arguments.compile))
        trying = ""
        while True:
            answer = clock.answer(HANGS_S * (6 if trying in (*COMPILED, *case.also, "") else 1))
            if answer is None:
                clock.end()
                clock = None
                rows.add({"case": case.name, "label": trying, "failure": HUNG})
                left.pop(trying, None)
                left = {label: file for label, file in left.items() if rows.hung(label) < MOST_HANGS}
                break
            if answer[0] == "done":
                return clock
            if answer[0] == "trying":
                trying = answer[1]
            else:
                rows.add({"stage": "ran", **answer[1]})
    return clock


def chosen(arguments: argparse.Namespace) -> list[Case]:
    """The cases of this run."""
    groups = arguments.only or GROUPS
    cases = [case for group in groups for case in GROUPS[group]()]
    return [case for case in cases if not arguments.cases or any(word in case.name for word in arguments.cases)]


def wanted(case: Case, words: list[str]) -> list[str]:
    """The schedules of a case that are looked at: all, or those with one of the words in their names."""
    return [label for label in case.settings if not words or any(word in label for word in words)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[*GROUPS], help="groups of cases; all without this")
    parser.add_argument("--cases", nargs="*", default=[], help="words of the cases' names")
    parser.add_argument(
        "--labels", nargs="*", default=[], help="words of the schedules' names, to leave the others out"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="start no further case after so long")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 4) - 2))
    parser.add_argument("--compile", nargs="*", choices=[*COMPILED], default=[], help="compare with torch.compile, too")
    parser.add_argument("--dry-run", action="store_true", help="compile and time nothing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    os.environ.setdefault("TRITON_CACHE_DIR", "/tmp/mtmc_hopper_cache")
    started, rows, cases = time.monotonic(), Rows(arguments.out), chosen(arguments)
    kernels = arguments.out / "kernels"
    kernels.mkdir(exist_ok=True)
    context = multiprocessing.get_context("spawn")
    clock: Clock | None = None
    with ProcessPoolExecutor(arguments.workers, mp_context=context) as pool:
        asked: dict[str, dict[str, Future[Built]]] = {
            case.name: {label: pool.submit(build, case, label, kernels) for label in wanted(case, arguments.labels)}
            for case in cases
        }
        for at, case in enumerate(cases):
            if time.monotonic() - started > 60 * arguments.minutes:
                print(f"{case.name} and what comes after it: no time left", flush=True)
                break
            files = {}
            for label, future in asked[case.name].items():
                built = future.result()
                rows.add({"stage": "built", **built.__dict__})
                if not built.failure:
                    files[label] = built.file
                else:
                    print(f"{case.name} {label}: {built.failure.splitlines()[0][:160]}", flush=True)
            print(f"{case.name}: {len(files)} built, {time.monotonic() - started:.0f} s", flush=True)
            if not arguments.dry_run:
                clock = measure(case, files, clock, rows, arguments)
                print(rows.tabulate(cases[: at + 1]), flush=True)
        for futures in asked.values():
            for future in futures.values():
                future.cancel()
    if clock is not None:
        clock.end()
    print(f"{time.monotonic() - started:.0f} s in all")


if __name__ == "__main__":
    main()
