"""What the tools tell: outcomes, metrics and versions as short text."""

from __future__ import annotations

import difflib
import math

from mtmc.action import Action
from mtmc.agents.coders.agent.session import Session, parent_number
from mtmc.freeform import is_freeform
from mtmc.outcome import KERNEL, Diagnosis, Outcome, speedup

METRICS = (
    "kernels",
    "bytes_moved",
    "bytes_min",
    "flops",
    "roofline",
    "registers",
    "spills",
    "shared_memory",
    "occupancy",
    "programs",
)
"""Metrics that a profile begins with, in this order; others follow by name."""

CUT = 16_000
"""Characters of one tool's answer at most: each is sent again with every later turn."""


def cut(text: str, limit: int = CUT) -> str:
    """Text of at most `limit` characters and a note where something was left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[{len(text) - limit} more characters left out]"


def numbered(source: str, first: int = 1, last: int | None = None) -> str:
    """Lines `first` to `last` (1-based, inclusive) of a source, with their numbers."""
    lines = source.split("\n")
    last = len(lines) if last is None else min(last, len(lines))
    return "\n".join(f"{number:4d}  {lines[number - 1]}" for number in range(max(1, first), last + 1))


def diagnosis_text(found: Diagnosis) -> str:
    """A diagnosis: stage, kind, line, message and excerpt."""
    where = "" if found.line is None else f", line {found.line}"
    head = f"failed in {found.stage}{where}: {found.kind}: {found.message}"
    return f"{head}\n{found.excerpt}" if found.excerpt else head


def outcome_text(outcome: Outcome, baseline: Outcome | None = None, whose: str = "") -> str:
    """An outcome in a line, with the speed relative to `baseline`; of a failure also the diagnosis."""
    from mtmc.export.text import factor, runtime

    if not outcome.ok:
        status = outcome.status.replace("_", " ")
        return status if outcome.diagnosis is None else f"{status}: {diagnosis_text(outcome.diagnosis)}"
    if outcome.runtime_ms is None:
        return "ok, runtime unknown"
    text = f"ok, {runtime(outcome.runtime_ms)} {outcome.runtime_kind or 'of unknown kind'}"
    gain = None if baseline is None else speedup(outcome, baseline)
    return text if gain is None else f"{text}, {factor(gain)} {whose} speed"


def action_text(action: Action) -> str:
    """An action in the words of the paper's prompt (section Micro Coding)."""
    params = "" if is_freeform(action) else "".join(f"\n# {name}: {value}" for name, value in action.params)
    return f"# Optimization Type: {action.kind}\n# Code Region: {action.region}{params}\n# Action: {action.sentence}"


def lineage_text(session: Session) -> str:
    """The steps from the root to the parent, a line each."""
    from mtmc.export.text import factor

    request = session.request
    lines = ["0: the root, which is the reference itself as ModelNew"]
    for number, step in enumerate(request.history, 1):
        gain = "" if step.speedup is None else f", {factor(step.speedup)} the root's speed"
        lines.append(f"{number}: {step.action.kind}: {step.action.sentence}: {outcome_text(step.outcome)}{gain}")
    lines[-1] += " (the parent)"
    if not request.history:
        lines[-1] += f": {outcome_text(request.outcome)}"
    return "\n".join([*lines, *_drafts(session)])


def _drafts(session: Session) -> list[str]:
    lines = []
    for number, draft in enumerate(session.drafts, 1):
        if draft.outcome is not None:
            found = outcome_text(draft.outcome, session.request.outcome, "the parent's").split("\n")[0]
        else:
            found = "not checked" if draft.diagnosis is None else diagnosis_text(draft.diagnosis).split("\n")[0]
        here = " (the present draft)" if number == session.present else ""
        lines.append(f"d{number}: {found}{here}")
    return lines


def diff_text(before: tuple[str, str], after: tuple[str, str]) -> str:
    """Unified diff of two (label, source) pairs; empty where they are equal."""
    old, new = before[1].splitlines(), after[1].splitlines()
    return "\n".join(difflib.unified_diff(old, new, before[0], after[0], lineterm=""))


def change_text(before: str, after: str) -> str:
    """How many lines came and went: "+12 -3 lines"."""
    lines = [line for line in diff_text(("", before), ("", after)).split("\n")[2:] if line]
    return f"+{sum(line[0] == '+' for line in lines)} -{sum(line[0] == '-' for line in lines)} lines"


def profile_text(session: Session, outcome: Outcome) -> str:
    """Runtime and metrics of the present draft beside the parent's, as a table."""
    from mtmc.export.text import quantity, runtime

    parent = session.request.outcome
    names = [name for name in METRICS if name in parent.metrics or name in outcome.metrics]
    others = (set(parent.metrics) | set(outcome.metrics)) - set(METRICS)
    names += sorted(name for name in others if not name.startswith(KERNEL))

    def of(found: Outcome, name: str) -> str:
        value = found.metrics.get(name)
        if value is None:
            return "-"
        return quantity(name, value) if math.isfinite(value) else str(value)

    def time_of(found: Outcome) -> str:
        return "-" if found.runtime_ms is None else f"{runtime(found.runtime_ms)} {found.runtime_kind or ''}".strip()

    head = ("metric", f"version {parent_number(session.request)} (parent)", f"d{session.present} (draft)")
    rows = [head, ("runtime", time_of(parent), time_of(outcome))]
    rows += [(name, of(parent, name), of(outcome, name)) for name in names]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
