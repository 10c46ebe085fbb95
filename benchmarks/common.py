"""What the benchmarks of the evaluators share: a report that is printed and kept as it grows, evaluators opened by name
from the command line, and streams of evaluations with a time limit.

A benchmark prints every line at once and keeps the files of `--out` up to date, so that a run that is cut off has shown
and kept what it found; one that ends by an error says so.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, fields
from datetime import date
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.figures import header, percentile, row
from mtmc.errors import ConfigError, MtmcError
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import Task, Variant

WRITTEN_EVERY_S = 5.0
"""How often a report's files are brought up to date."""
EVALUATOR = "evaluator"
"""`Diagnosis.stage` of an evaluation that the evaluator itself, not the version, is to blame for."""


def gpu_query(what: str) -> list[str]:
    """One value per GPU as `nvidia-smi` has it, e.g. "name" or "memory.used" (MiB); empty where there is no NVIDIA GPU.

    The asking process gets no CUDA context by it.
    """
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def machine() -> dict[str, Any]:
    """GPU, driver, versions, cores and date of this run."""
    found = {}
    for name in ("torch", "triton"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return {
        "gpus": gpu_query("name"),
        "driver": (gpu_query("driver_version") or ["none"])[0],
        **found,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "date": date.today().isoformat(),
    }


def shown_command() -> str:
    """The command of this run; of absolute paths only the last part, which is all that says anything elsewhere."""
    words = []
    for word in sys.argv[1:]:
        option, equals, value = word.rpartition("=")
        words.append(shlex.quote(f"{option}{equals}{Path(value).name if value.startswith('/') else value}"))
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])


class Report:
    """Lines and data of one run: printed as they come; written to OUT.md and OUT.json every few seconds and at the end.

    out: path without an ending, or None; the attribute is the same. data: what the JSON file holds besides the machine and
    the command.
    """

    def __init__(self, title: str, out: Path | None) -> None:
        self.data: dict[str, Any] = {}
        self._title, self.out = title, out
        self._lines: list[str] = []
        self._machine = machine()
        self._written = time.monotonic()

    def __enter__(self) -> Report:
        self.say(f"# {self._title}\n")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self.data["ended_early"] = f"{type(error).__name__}: {error}"
            self.say(f"\n**Ended early by {self.data['ended_early']}**")
        found = self._machine
        gpus = ", ".join(found["gpus"]) or "no GPU"
        about = f"{gpus}, driver {found['driver']}, torch {found['torch']}, triton {found['triton']}, "
        about += f"Python {found['python']}, {found['cores']} cores, {found['date']}. Command: `{shown_command()}`."
        self.say(f"\n{about}")
        self._write()

    def say(self, text: str = "") -> None:
        """Print a line (or several) at once and keep it."""
        self._lines.append(text)
        print(text, flush=True)
        if time.monotonic() > self._written + WRITTEN_EVERY_S:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if self.out is None:
            return
        self.out.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{self.out}.md").write_text("\n".join(self._lines) + "\n", encoding="utf-8")
        data = {"machine": self._machine, "command": shown_command(), **self.data}
        Path(f"{self.out}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def origin(path: Path, report: Report) -> dict[str, Any]:
    """Where and how an earlier run measured, told and as data."""
    found = json.loads(path.read_text(encoding="utf-8"))
    here = found["machine"]
    report.say(
        f"Measured on {', '.join(here['gpus'])}, driver {here['driver']}, torch {here['torch']}, triton {here['triton']}, "
        f"{here['date']}: `{found['command']}`.\n"
    )
    return {"machine": here, "command": found["command"]}


class Deadline:
    """A limit on the wall time of a run, from the moment this is made. minutes: 0 for none."""

    def __init__(self, minutes: float = 0.0) -> None:
        self._end = time.monotonic() + 60 * minutes if minutes > 0 else math.inf

    @property
    def passed(self) -> bool:
        """Whether no more work may start."""
        return time.monotonic() >= self._end


def parser(text: str | None, evaluator: str = "gpu") -> argparse.ArgumentParser:
    """A command line with the options that all of these benchmarks have. text: of the script."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--evaluator", default=evaluator, help="name in mtmc.evaluate.EVALUATORS")
    made.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="of the evaluator")
    made.add_argument("--minutes", type=float, default=0.0, help="start nothing new after so long; 0: no limit")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    return made


def settings_of(arguments: argparse.Namespace, **defaults: Any) -> Any:
    """The evaluator's settings: `defaults` where its class has such a field, then what the command line says.

    Raises: ConfigError for an evaluator or a setting that does not exist.
    """
    from mtmc.evaluate import EVALUATORS
    from mtmc.search.components import make

    maker: Any = EVALUATORS.get(arguments.evaluator)
    known = {field.name: field.type for field in fields(maker)} if maker else {}
    chosen = {name: value for name, value in defaults.items() if name in known}
    for text in arguments.setting:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--setting {text!r} has no value: write NAME=VALUE")
        chosen[name] = value if known.get(name) in ("str", str) else _literal(value)
    return make("evaluator", arguments.evaluator, chosen)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@dataclass(frozen=True)
class Timed:
    """One evaluation of a stream. index: of its request. started, ended: seconds since the stream began."""

    index: int
    outcome: Outcome
    started: float
    ended: float

    @property
    def seconds(self) -> float:
        """Wall time from asking to answer, waiting for its turn included."""
        return self.ended - self.started


def evaluated(evaluator: Evaluator, request: EvaluationRequest) -> Outcome:
    """The outcome of one request; a crash of the stage `EVALUATOR` where the evaluator itself fails."""
    try:
        [outcome] = evaluator.evaluate([request])
    except MtmcError as error:
        return Outcome("crash", diagnosis=Diagnosis(EVALUATOR, type(error).__name__, str(error)))
    return outcome


def stream(
    evaluator: Evaluator, requests: Iterable[EvaluationRequest], in_flight: int, deadline: Deadline | None = None
) -> Iterator[Timed]:
    """Evaluate requests, `in_flight` at a time from as many threads, and yield each as it ends.

    Once the deadline has passed no more are started. Where the evaluator itself fails, the outcome is a crash of the
    stage `EVALUATOR`, so that one failure does not take the other evaluations along.
    """
    begin = time.monotonic()
    waiting = enumerate(requests)
    running: set[Future[Timed]] = set()

    def evaluate(index: int, request: EvaluationRequest) -> Timed:
        started = time.monotonic() - begin
        outcome = evaluated(evaluator, request)
        return Timed(index, outcome, started, time.monotonic() - begin)

    with ThreadPoolExecutor(in_flight, thread_name_prefix="benchmark") as pool:
        while True:
            while len(running) < in_flight and not (deadline and deadline.passed):
                following = next(waiting, None)
                if following is None:
                    break
                running.add(pool.submit(evaluate, *following))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from sorted((future.result() for future in done), key=lambda timed: timed.ended)


def stage_seconds(outcomes: Iterable[Outcome]) -> dict[str, list[float]]:
    """Seconds of each stage over all outcomes that state it: metrics whose name ends in "_s", without that ending."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        for name, value in outcome.metrics.items():
            if name.endswith("_s"):
                found.setdefault(name.removesuffix("_s"), []).append(float(value))
    return found


def stage_table(outcomes: Iterable[Outcome]) -> str:
    """Markdown table of `stage_seconds`: median, 90th percentile, greatest and total."""
    lines = [header("stage", "median s", "p90 s", "greatest s", "total s", "evaluations")]
    for name, values in stage_seconds(outcomes).items():
        middle, late = statistics.median(values), percentile(values, 90)
        lines.append(
            row(name, *(f"{each:.3f}" for each in (middle, late, max(values))), f"{sum(values):.1f}", len(values))
        )
    return "\n".join(lines)


def failure(outcome: Outcome) -> str:
    """Status and diagnosis of a failed outcome in one short line."""
    found = outcome.diagnosis
    message = f" {found.stage}/{found.kind}: {' '.join(found.message.split())[:160]}" if found else ""
    return f"{outcome.status}{message}"


def task_to_json(task: Task) -> dict[str, Any]:
    """The shapes of a task without its text, which `task_from_json` is given again."""
    variants = [[v.label, list(v.constants), v.inputs, v.init_inputs] for v in task.variants]
    return {"name": task.name, "variants": variants}


def task_from_json(data: Mapping[str, Any], source: str) -> Task:
    """Inverse of `task_to_json`: nothing is run to find the shapes again."""
    full, small, *held_out = (
        Variant(label, tuple((name, value) for name, value in constants), inputs, init_inputs)
        for label, constants, inputs, init_inputs in data["variants"]
    )
    return Task(data["name"], source, full, small, tuple(held_out))
