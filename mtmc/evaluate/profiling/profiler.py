"""profiler: a version's kernels under ncu, and where that gives no counters, under Proton, which gives times.

The whole profiler runs inside the sandbox with the version, so it has no capability there: where the driver gives counters
to administrators only, ncu says ERR_NVGPUCTRPERM. That is told, and recorded in the metrics; a candidate is given no
capability for it.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mtmc.errors import EvaluatorError
from mtmc.evaluate.pool.job import remove_tree
from mtmc.evaluate.profiling import ncu, proton
from mtmc.evaluate.profiling.figures import Figures, added
from mtmc.evaluate.profiling.target import CALLS, DONE, JOB, PROFILE, How
from mtmc.evaluate.sandbox import bubblewrap
from mtmc.evaluate.sandbox.launch import start
from mtmc.evaluate.sandbox.lockdown import Mode
from mtmc.task import Task

_log = logging.getLogger(__name__)

MOST_OUTPUT = 8 << 20
"""Bytes that are read of what a profiler prints."""
_CODE = "from mtmc.evaluate.profiling.target import main\nmain({how!r})"
_WAKE_S = 0.05


@dataclass(frozen=True)
class Profile:
    """What a profiler told. by: "ncu", "proton", or "" where none told anything. kernels: figures by name.

    notes: why a profiler that was tried first told nothing, by its name.
    """

    by: str
    kernels: Figures = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, float]:
        """Which profiler it was, and whether counters were refused, as metrics of an outcome."""
        found = {f"profiled_by_{self.by}": 1.0} if self.by else {}
        return found | ({"counters_refused": 1.0} if ncu.REFUSED in self.notes.get("ncu", "") else {})


@dataclass(frozen=True)
class Ran:
    """How a process ended. output: what it and its profiler printed. written: of Proton."""

    output: str
    written: str
    timed_out: bool


Run = Callable[[How, Sequence[str], float], Ran]
"""Runs the target under a profiler: how, what stands before its command, and seconds that it may take."""


def profile(
    task: Task, source: str, visible: str, mode: Mode = "auto", limit_s: float = 60.0, memory_mib: int = 16384
) -> Profile:
    """A version's kernels at the full shapes, by the first profiler that tells anything.

    visible: what CUDA_VISIBLE_DEVICES is to be. limit_s: seconds for all that is tried together. mode: of the sandbox; but
    for "off", a version is not profiled where bubblewrap cannot hold it.
    Raises: EvaluatorError where the sandbox cannot be made that `mode` asks for.
    """
    reason = bubblewrap.problem(gpu=True) if mode == "auto" else None
    if reason is not None:
        _log.warning("nothing is profiled: there are no name spaces to hold a version in (%s)", reason)
        return Profile("", {}, {"sandbox": reason})
    return tried(partial(_run, task, source, visible, mode, memory_mib), limit_s)


def tried(run: Run, limit_s: float, tool: str | None = None) -> Profile:
    """The ladder of profilers. tool: path of ncu; None: the one on the path."""
    ends = time.monotonic() + limit_s
    notes: dict[str, str] = {}
    found = tool or shutil.which("ncu")
    if found is None:
        notes["ncu"] = "there is no ncu on the path"
    for counters in (ncu.FULL, ncu.BASIC) if found is not None else ():
        assert found is not None
        ran = run("ncu", ncu.command(found, counters), max(1.0, (ends - time.monotonic()) * 0.6))
        rows = [(each.name, figures) for each in ncu.parse(ran.output) if "ms" in (figures := ncu.figures(each))]
        if rows:
            return Profile("ncu", added(rows))
        notes["ncu"] = ncu.refusal(ran.output) or _why(ran)
        _log.info("ncu counted nothing: %s", notes["ncu"])
        if ncu.REFUSED in notes["ncu"] or ran.timed_out:
            break
    ran = run("proton", (), max(1.0, ends - time.monotonic()))
    kernels = proton.parse(ran.written, CALLS)
    if kernels:
        _log.warning("no hardware counters (%s): kernels are profiled by Proton, which has times alone", notes["ncu"])
        return Profile("proton", added(kernels), notes)
    notes["proton"] = _why(ran)
    _log.warning("no profile: %s", "; ".join(f"{name}: {why}" for name, why in notes.items()))
    return Profile("", {}, notes)


def _why(ran: Ran) -> str:
    if ran.timed_out:
        return "it took too long"
    last = [line for line in ran.output.splitlines() if line.strip()][-1:]
    return f"it ended without a profile: {last[0][:300]}" if last else "it ended without a word"


def _run(
    task: Task,
    source: str,
    visible: str,
    mode: Mode,
    memory_mib: int,
    how: How,
    before: Sequence[str],
    seconds: float,
) -> Ran:
    """The target in a process of its own. Raises: EvaluatorError as `start`."""
    folder = Path(tempfile.mkdtemp(prefix="mtmc-profile-"))
    try:
        (folder / JOB).write_bytes(pickle.dumps((task, source)))
        tool = [_installed(Path(before[0]))] if before else []
        environment = {"CUDA_VISIBLE_DEVICES": visible}
        process = start(
            *(_CODE.format(how=how), folder),
            mode=mode,
            environment=environment,
            readable=tool,
            gpu=True,
            before=before,
            memory_mib=memory_mib,
        )
        ends = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < ends:
            time.sleep(_WAKE_S)
        timed_out = process.poll() is None
        process.end()
        output = _read(folder / "server.log")
        written = _read(folder / f"{PROFILE}.hatchet") if DONE in output else ""
        return Ran(output, written, timed_out)
    finally:
        remove_tree(str(folder))


def _installed(tool: Path) -> Path:
    """The folder that ncu was installed in, with its libraries: its own one, or that of the program that it stands for."""
    real = tool.resolve()
    if not real.exists():
        raise EvaluatorError(f"there is no profiler {tool}: set PATH so that ncu is found, or leave it out there")
    return real.parent


def _read(path: Path) -> str:
    """A file of a folder that a version could write to: it may have put a link, or anything else, in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return file.read(MOST_OUTPUT).decode("utf-8", "replace")
