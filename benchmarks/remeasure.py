"""The figures of a GPU by one command, as far as its time goes.

    PYTHONPATH=. python benchmarks/remeasure.py --out out/h100 --minutes 25
    PYTHONPATH=. python benchmarks/remeasure.py --list

Each step is a benchmark of this folder or of the tests, in a process of its own that is ended when its time is up; it keeps
its files up to date while it runs, so that what was found until then is kept. A step that has ended well is not run again
in the same folder. --bundle: a tar file that is written anew after each step, for a machine that one may lose.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.figures import header, row
from mtmc.files import write_whole

ROOT = Path(__file__).parent.parent
END_S = 5.0
"""Seconds that a step has for its last files when it is told to end."""
LEAST_S = 20.0
"""A step that would get less is not begun: it takes so long until the first evaluation."""


@dataclass(frozen=True)
class Step:
    """name: of its files. seconds: that it may take. command: after "python", where {out} is the folder with its name."""

    name: str
    seconds: float
    command: str


@dataclass(frozen=True)
class Ended:
    """How a step ended. status: of its process; None where its time was up. seconds: that it took."""

    status: int | None
    seconds: float


_BENCH = "-m mtmc bench policy=heuristic batch=4 evaluator=gpu evaluator.reuse=16"
STEPS = (
    Step("exploits", 300, "-m tests.exploits.table --evaluator gpu --out {out}"),
    Step("clock_verdicts", 150, "benchmarks/clock_verdicts.py --times 20 --forged-times 3 --out {out}"),
    Step("faults", 200, "benchmarks/faults.py --limit 200 --timeout 3 --out {out}"),
    Step("sustained_rate", 90, "benchmarks/sustained_rate.py --limit 175 --setting reuse=16 --out {out}"),
    Step("repeatability", 240, "benchmarks/repeatability.py --times 20 --tries 100 --out {out}"),
    Step("hopper_gluon", 120, "benchmarks/gluon_attention.py --out {out}"),
    Step("hopper_attention", 150, "benchmarks/hopper.py --only attention --minutes 2 --out {out}"),
    Step("hopper_products", 150, "benchmarks/hopper.py --only products --minutes 2 --out {out}"),
    Step("hopper_epilogues", 150, "benchmarks/hopper.py --only epilogues --minutes 2 --compile compile --out {out}"),
    Step("hopper_decode", 100, "benchmarks/hopper.py --only decode --minutes 1.5 --compile compile --out {out}"),
    Step("hopper_quantized", 100, "benchmarks/hopper.py --only quantized --minutes 1.5 --compile compile --out {out}"),
    Step(
        "gpu_searches", 560, "benchmarks/gpu_searches.py --policy heuristic --evaluations 32 --search-s 60 --out {out}"
    ),
    Step("blocks", 560, f"{_BENCH} suite=blocks every=6 budget=16 jobs=8 minutes=9 out={{out}}"),
    Step(
        "live_strategies",
        480,
        "benchmarks/live_strategies.py --setting reuse=16 --jobs 8 --minutes 6 --out {out}",
    ),
    Step("profiles", 130, "benchmarks/profile_on_gpu.py --out {out}"),
)


def words(step: Step, out: Path) -> list[str]:
    """The command of a step."""
    return [sys.executable, *(word.format(out=out / step.name) for word in shlex.split(step.command))]


def run(step: Step, out: Path, limit_s: float) -> Ended:
    """Run a step, its output in OUT/NAME.log. limit_s: seconds until it is told to end, and soon after killed."""
    began = time.monotonic()
    with open(out / f"{step.name}.log", "ab") as log:
        process = started(words(step, out), log)
        try:
            return Ended(process.wait(limit_s), time.monotonic() - began)
        except subprocess.TimeoutExpired:
            return Ended(None, time.monotonic() - began)
        finally:
            end(process)


def started(command: Sequence[str], output: IO[Any] | int) -> subprocess.Popen[Any]:
    """A process that may be told to end by SIGINT, also where this one ignores it (`nohup`, a job in the background)."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def end(process: subprocess.Popen[Any]) -> None:
    """End a process as Ctrl-C does, so that it writes what it has, then all that it has started."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def remeasure(steps: Sequence[Step], out: Path, seconds: float, bundle: Path | None = None) -> dict[str, Ended]:
    """Run the steps that have not ended well in `out`, in order, within so many seconds in all.

    Returns: how each ended that was begun, earlier runs in `out` included.
    """
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "steps.json"
    ended = {name: Ended(**fields) for name, fields in json.loads(kept.read_text()).items()} if kept.exists() else {}
    deadline = time.monotonic() + seconds
    for step in steps:
        left = deadline - time.monotonic() - END_S
        if (step.name in ended and ended[step.name].status == 0) or left < min(LEAST_S, step.seconds):
            continue
        print(f"{step.name}: at most {min(left, step.seconds):.0f} s", flush=True)
        ended[step.name] = run(step, out, min(left, step.seconds))
        print(f"{step.name}: {said(ended[step.name])}", flush=True)
        write_whole(kept, json.dumps({name: asdict(each) for name, each in ended.items()}, indent=1))
        if bundle is not None:
            _bundle(out, bundle)
    return ended


def _bundle(out: Path, bundle: Path) -> None:
    """All files of a folder as one, which is there whole or as it was."""
    bundle.parent.mkdir(parents=True, exist_ok=True)
    coming = bundle.with_name(f"{bundle.name}.part")
    with tarfile.open(coming, "w:gz") as archive:
        archive.add(out, out.name)
    coming.replace(bundle)


def said(ended: Ended) -> str:
    """How a step ended, in words."""
    how = "its time was up" if ended.status is None else "done" if ended.status == 0 else f"status {ended.status}"
    return f"{how} after {ended.seconds:.0f} s"


def table(steps: Sequence[Step], ended: Mapping[str, Ended]) -> str:
    """Markdown table of the steps: how each ended, if it was begun, and its command."""
    lines = [header("step", "ended", "command")]
    for step in steps:
        how = said(ended[step.name]) if step.name in ended else "not begun"
        lines.append(row(step.name, how, f"`python {step.command}`"))
    return "\n".join(lines)


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/remeasured"), help="a folder")
    parser.add_argument("--only", nargs="*", choices=[step.name for step in STEPS], metavar="STEP")
    parser.add_argument("--minutes", type=float, default=60.0, help="for everything")
    parser.add_argument("--bundle", type=Path, metavar="FILE.tar.gz")
    parser.add_argument("--list", action="store_true", help="say the steps and run nothing")
    arguments = parser.parse_args()
    named = {step.name: step for step in STEPS}
    steps = [named[name] for name in arguments.only] if arguments.only else STEPS
    out = arguments.out.resolve()
    bundle = arguments.bundle and arguments.bundle.resolve()
    ended = {} if arguments.list else remeasure(steps, out, 60 * arguments.minutes, bundle)
    print(table(steps, ended))


if __name__ == "__main__":
    main()
