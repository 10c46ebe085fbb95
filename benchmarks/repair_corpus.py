"""The corpus of broken kernels (tests/agents/broken): what breaks each, what the lab says of it, and which rules mend it.

Each kernel goes through the lab, then through the rules of `mtmc.agents.coders.repair`, until it is right or no rule fits.
What is right at the end has been verified. Exit status 1 where a kernel that is mechanical was not mended, or any was
changed without being right in the end.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import Report
from benchmarks.figures import header, row
from mtmc.evaluate.lab import LabSettings
from tests.agents.broken import RIGHT, Broken, corpus
from tests.agents.broken.mending import History, histories

MAX_SAID = 90
"""Characters of a message that the table shows."""
AT_A_TIME = 24
"""Kernels between two signs of life."""


def broken_by(one: Broken) -> str:
    """What was exchanged, the first line of each text."""
    return "; ".join(
        f"`{_line(old)}` is `{_line(new)}`" if new.strip() else f"no `{_line(old)}`" for old, new in one.changes
    )


def said_by_lab(history: History) -> str:
    """Status, kind and message of the first outcome, in one line."""
    outcome = history.outcomes[0]
    found = outcome.diagnosis
    return outcome.status if found is None else f"{outcome.status}, {found.kind}: {_short(found.message)}"


def mended_by(history: History) -> str:
    """The rules that were used, or why none may be."""
    rules = ", ".join(fixed.rule for fixed in history.repairs)
    return rules or history.row.left_alone or "no rule knows it"


def table(found: Sequence[History]) -> str:
    """One line a kernel."""
    lines = [header("kernel", "of", "broken by", "the lab says", "becomes", "rules, or why none")]
    for one in found:
        cells = (one.row.name, one.row.right, broken_by(one.row), said_by_lab(one), one.verdict, mended_by(one))
        lines.append(row(*cells))
    return "\n".join(lines)


def summary(found: Sequence[History]) -> str:
    """How many became what, and how often each rule was used."""
    verdicts = Counter(one.verdict for one in found)
    mechanical = [one for one in found if not one.row.left_alone]
    mended = sum(one.verdict == "mended" for one in mechanical)
    changed = sum(bool(one.repairs) and one.verdict != "mended" for one in found)
    others = len(found) - len(mechanical)
    used = Counter(fixed.rule for one in found for fixed in one.repairs)
    return (
        f"{len(found)} broken kernels of {len(list(RIGHT.glob('*.py')))} right ones. {len(mechanical)} are mechanical: "
        f"{mended} of them are mended, and the mended versions pass the lab's verification. "
        f"Of {others} whose meaning is wrong or unknown, {verdicts['left alone']} are left alone. "
        f"{changed} were changed without being right in the end.\n\n"
        f"Repairs by rule: {', '.join(f'{rule} {count}' for rule, count in used.most_common())}."
    )


def as_json(one: History) -> dict[str, Any]:
    """A history as plain data."""
    repairs = [{"rule": fixed.rule, "what": fixed.what} for fixed in one.repairs]
    facts = {"name": one.row.name, "right": one.row.right, "left_alone": one.row.left_alone}
    return {**facts, "said": said_by_lab(one), "verdict": one.verdict, "repairs": repairs}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a mechanical kernel is not mended, or one is mended wrongly."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workers", type=int, default=2, help="candidates that the lab evaluates at a time")
    options.add_argument("--names", nargs="*", default=[], help="only kernels whose names have one of these in them")
    options.add_argument("--out", type=Path, help="write OUT.md and OUT.json")
    given = options.parse_args(arguments)
    rows = [one for one in corpus() if not given.names or any(name in one.name for name in given.names)]
    found: list[History] = []
    with Report("Broken kernels, and the rules that mend them", given.out) as report:
        with LabSettings(workers=given.workers).open() as evaluator:
            for start in range(0, len(rows), AT_A_TIME):
                found += histories(rows[start : start + AT_A_TIME], evaluator)
        report.data.update(kernels=[as_json(one) for one in found])
        report.say(summary(found) + "\n")
        report.say(table(found))
    return int(any(one.verdict not in ("mended", "left alone") for one in found))


def _line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines()]
    shown = lines[-1] if lines else ""
    return (shown if len(shown) <= MAX_SAID else shown[:MAX_SAID] + "...").replace("`", "'")


def _short(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= MAX_SAID else text[:MAX_SAID] + "..."


if __name__ == "__main__":
    raise SystemExit(main())
