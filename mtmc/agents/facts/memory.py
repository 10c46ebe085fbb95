"""memory: what an agent is told besides a version's ancestors: its siblings, failures elsewhere, the best version, and what
helped in other runs. Bounded: each part is told line by line as long as there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mtmc.agents.facts.harvest import task_ops
from mtmc.agents.facts.text import task_dtype
from mtmc.knowledge import Entry, nearest
from mtmc.protocols import EditRequest, Observation, Step

CHARACTERS = 3.5
"""Of a token, at the least that English and code have on the average."""
KNOWN = 4
"""Entries of knowledge that are told at most."""


def memory_text(asked: EditRequest | Observation, kind: str | None) -> str:
    """Markdown with a heading for each part; "" where nothing is known, or nothing may be told.

    kind: of the action that is to be applied; None for any. At most `asked.run.memory_tokens` tokens, for each half (this
    run, other runs) as many as the other leaves, and half of them where both have more.
    """
    room = round(asked.run.memory_tokens * CHARACTERS)
    own = _own(asked)
    others = _others(asked, kind)
    first = _fitting(own, room - min(room // 2, _size(others)), latest=True)
    second = _fitting(others, room - len(first), latest=False)
    return "\n\n".join(part for part in (first, second) if part)


def _own(asked: EditRequest | Observation) -> list[tuple[str, list[str]]]:
    """Headings and lines about versions of this run."""
    known = asked.relatives
    parts = []
    if known.siblings:
        parts.append(("# What was tried on this version already", [_told(step) for step in known.siblings]))
    if known.best:
        gain = known.best[-1].speedup
        head = (
            f"# The best version so far ({gain:.3g}x the reference), step by step"
            if gain
            else "# The best version so far"
        )
        parts.append((head, [_told(step) for step in known.best]))
    if known.failures:
        parts.append(("# What failed elsewhere", [_told(step) for step in known.failures]))
    return parts


def _others(asked: EditRequest | Observation, kind: str | None) -> list[tuple[str, list[str]]]:
    """The heading and the lines about other runs."""
    if not asked.run.knowledge:
        return []
    ops = task_ops(asked.task)
    found = nearest(asked.run.knowledge, ops, task_dtype(asked.task), asked.hardware, kind, KNOWN)
    if not found:
        return []
    lines = [_entry(entry) for entry in found]
    if found[0].diff and kind is not None:
        lines.append(f"The first of these changed:\n```diff\n{found[0].diff}\n```")
    return [("# What helped in other runs", lines)]


def _told(step: Step) -> str:
    """A step in a line: its action, and what it gave or why it failed."""
    outcome = step.outcome
    if outcome.ok:
        came = f"{step.speedup:.3g}x the reference" if step.speedup is not None else "right"
        return f"- {step.action.sentence}: {came}"
    why = "" if outcome.diagnosis is None else f", {outcome.diagnosis.kind}: {_short(outcome.diagnosis.message)}"
    return f"- {step.action.sentence}: {outcome.status.replace('_', ' ')}{why}"


def _entry(entry: Entry) -> str:
    params = ", ".join(f"{name}={value}" for name, value in entry.params.items())
    shapes = f" of {entry.shapes}" if entry.shapes else ""
    return (
        f"- {entry.sentence}{f' ({params})' if params else ''}: {entry.gain:.3g}x the version before "
        f"({entry.runtime_kind}, {entry.hardware}, {entry.task}, {entry.dtype}{shapes})"
    )


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 160 else f"{line[:159]}~"


def _size(parts: Iterable[tuple[str, Sequence[str]]]) -> int:
    return sum(len(head) + 1 + sum(len(line) + 1 for line in lines) for head, lines in parts)


def _fitting(parts: Sequence[tuple[str, Sequence[str]]], room: int, latest: bool) -> str:
    """The parts as far as they fit: of each the last lines or the first ones, and none without a line."""
    told = []
    for head, lines in parts:
        kept: list[str] = []
        left = room - len(head) - 2
        for line in reversed(lines) if latest else lines:
            if len(line) + 1 > left:
                break
            kept.append(line)
            left -= len(line) + 1
        if kept:
            told.append("\n".join([head, *(reversed(kept) if latest else kept)]))
            room = left
    return "\n\n".join(told)
