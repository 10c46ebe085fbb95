"""table: rows of the zoo -> a page in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import geometric_mean

from tests.zoo.row import Row

_HEAD = (
    "module",
    "dtype",
    "captured",
    "versions right",
    "kernels",
    "estimated",
    "measured",
    "drop-in",
    "why no more",
)
_REASON = 160
"""Characters of a reason in the table; zoo.json has it whole."""


def page(rows: Iterable[Row]) -> str:
    """The whole page: a summary, then a table for each library."""
    rows = list(rows)
    measured = {(row.name, row.dtype): row for row in rows if row.evaluator != "lab"}
    shown = list((measured | {(row.name, row.dtype): row for row in rows if row.evaluator == "lab"}).values())
    sections = (_section(library, shown, measured) for library in dict.fromkeys(row.library for row in shown))
    parts = [_summary(shown), _measurements(measured.values()), *sections]
    return "# The zoo\n\n" + _INTRODUCTION + "\n" + "\n".join(parts)


_INTRODUCTION = """\
Real modules with random weights, made from configurations, each handed to mtmc as a user would hand it over:
`python -m tests.zoo.run --out results/zoo.md` writes this page. *captured*: seconds until a task was made of the module.
*versions right*: right ones with a Triton kernel, of all that were made; the search is a short one, so that what is told is
whether kernels are found at all, not how fast they can get. *kernels*: launches of one forward, of the module and of
the best version. *estimated*: speedup by the model of an H100 (`evaluator=lab`); *measured*: on a GPU, where there was one.
"""


def _summary(rows: Sequence[Row]) -> str:
    lines = ["| | modules | captured | searched, root right | with a right Triton version |", "|---|---|---|---|---|"]
    for dtype in dict.fromkeys(row.dtype for row in rows):
        of = [row for row in rows if row.dtype == dtype]
        counts = (
            len(of),
            sum(row.captured for row in of),
            sum(row.root == "ok" for row in of),
            sum(row.found for row in of),
        )
        lines.append(f"| {dtype} | {' | '.join(map(str, counts))} |")
    return "\n".join([*lines, ""])


def _measurements(rows: Iterable[Row]) -> str:
    """What was measured, in a sentence."""
    of = list(rows)
    speedups = [row.speedup for row in of if row.speedup is not None]
    if not speedups:
        return "Nothing was measured.\n"
    captured, found = sum(row.captured for row in of), sum(row.found for row in of)
    same = sum(speedup < 1.005 for speedup in speedups)
    return (
        f"Measured: {len(of)} modules, {captured} captured, {found} with a right Triton version. {len(speedups)} searches "
        f"ended; their geometric mean is {geometric_mean(speedups):.2f}x over eager, and {same} found nothing faster.\n"
    )


def _section(library: str, rows: Sequence[Row], measured: dict[tuple[str, str], Row]) -> str:
    of = [row for row in rows if row.library == library]
    version = next((row.version for row in of if row.version), "")
    lines = [f"## {library} {version}".rstrip(), "", f"| {' | '.join(_HEAD)} |", "|" + "---|" * len(_HEAD)]
    lines += [_line(row, measured.get((row.name, row.dtype))) for row in of]
    return "\n".join([*lines, ""])


def _line(row: Row, measured: Row | None) -> str:
    made = sum(row.statuses.values())
    cells = (
        row.name,
        row.dtype,
        f"{row.capture_s:.1f} s" if row.captured else "no",
        f"{row.right} of {made}" if row.root == "ok" else row.root or "",
        f"{_number(row.kernels_before)} → {_number(row.kernels_after)}" if row.root == "ok" else "",
        _times(row.speedup) if row.evaluator == "lab" else "",
        _times(measured.speedup) if measured is not None else "",
        row.drop_in,
        reason(row),
    )
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def reason(row: Row) -> str:
    """Why there is nothing, or no more, and what failed."""
    if row.refused or row.failure:
        return row.refused or row.failure
    wrong = Counter({status: count for status, count in row.statuses.items() if status != "ok"})
    failed = f"{', '.join(f'{count} {status}' for status, count in wrong.items())}: {row.diagnosis}" if wrong else ""
    if row.root and row.root != "ok":
        failed = row.diagnosis
    return "; ".join(part for part in (failed, row.why) if part)


def _cell(text: str) -> str:
    short = text if len(text) <= _REASON else text[: _REASON - 1] + "…"
    return short.replace("|", "\\|")


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"
