"""report: the tables of a benchmark, as Markdown and JSON. Pure but for `write_report`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtmc.bench.figures import BASELINES, LevelFigures, Speedups, by_level, dissolved, speedups
from mtmc.bench.plot import speedups_png
from mtmc.bench.row import BETTER, COMPILED, EAGER, Row, Stopped, row_to_json
from mtmc.export.report import table
from mtmc.export.text import factor, number, runtime
from mtmc.files import write_whole
from mtmc.outcome import TF32_LAST
from mtmc.task.tolerance import DEFAULT

SHORT = {"torch.compile": "compile", "torch.compile max-autotune": "max-autotune", BETTER: "better compile"}
NONE = "\u2013"
_SHOWN = 30

WORDS = """\
Correct: the version that is handed back passed every gate, where the evaluator verifies that one too. It may be the
reference itself, which is at exactly 1.00x of eager. With Triton: a version with a Triton kernel passed. fast_p: problems
that are correct and more than p times as fast as eager, of all problems. Means are over the problems in brackets, those
with both runtimes. Roofline: mean fraction that the versions reach. GPU seconds: while evaluations held a GPU, baselines
left out."""


def write_report(rows: Sequence[Row], left: Sequence[str], settings: Mapping[str, Any], folder: Path) -> None:
    """Write bench.json, bench.md and, where any speedup is known, bench.png.

    left: problems that have no row yet. settings: what the rows have in common. Raises: RunError where it cannot be written.
    """
    figures = [asdict(each) for each in by_level(rows)]
    data = {
        "settings": dict(settings),
        "left": list(left),
        "figures": figures,
        "rows": [row_to_json(row) for row in rows],
    }
    write_whole(folder / "bench.json", json.dumps(data, indent=1) + "\n")
    picture = speedups_png(rows, runtime_kind(rows), folder / "bench.png")
    write_whole(folder / "bench.md", markdown(rows, left, settings, picture is not None))


def own_tolerances(rows: Sequence[Row]) -> str:
    """What outputs were compared by, of the problems that declare that themselves or where the reference's own error had a
    say; the others have the default."""
    told = [(row.id, row.tolerance) for row in rows if row.tolerance and row.tolerance != DEFAULT.text]
    return "## Tolerances other than the default\n\n" + table(("problem", "tolerance"), told) if told else ""


def rougher(rows: Sequence[Row]) -> str:
    """Where eager convolves in fp32 what torch.compile, and a version, may convolve in TF32."""
    told = [row.id for row in rows if TF32_LAST in row.metrics]
    words = f"""In {len(told)} problems the library convolves in fp32 channels first, as eager has it, and in TF32 channels
last, as torch.compile has it. Versions may do either."""
    return f"## TF32\n\n{words} {', '.join(told)}." if told else ""


def markdown(rows: Sequence[Row], left: Sequence[str], settings: Mapping[str, Any], picture: bool) -> str:
    """The whole report. picture: whether bench.png stands beside it."""
    parts = [
        f"# Benchmark: {settings.get('suite')}, {settings.get('dtype')}",
        about(rows, left, settings),
        figures_table(rows),
        without_dissolved(rows),
        left_out(rows),
        untimed(rows),
        WORDS if rows else "",
        "![Sorted speedups](bench.png)" if picture else "",
        *(problems_section(level, [row for row in rows if row.level == level]) for level in _levels(rows)),
        reasons(rows),
        what_stopped(rows),
        own_tolerances(rows),
        rougher(rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def about(rows: Sequence[Row], left: Sequence[str], settings: Mapping[str, Any]) -> str:
    """What the rows are: how many, by which settings, measured or estimated."""
    lines = [f"{len(rows)} of {len(rows) + len(left)} problems have ended."]
    if left:
        shown = ", ".join(left[:_SHOWN]) + (", ..." if len(left) > _SHOWN else "")
        lines.append(f"Not yet: {shown}. The same command goes on with them.")
    kind, gpu = runtime_kind(rows), settings.get("hardware", "")
    if kind == "estimated":
        lines.append(f"**All runtimes are estimates for {gpu}; nothing was measured.**")
    elif rows:
        lines.append(f"Runtimes are {kind} on {gpu}.")
    if settings.get("scored"):
        lines.append("The candidates were made elsewhere and are scored here.")
    else:
        names = [str(settings[each].get("name")) for each in ("strategy", "policy", "coder") if each in settings]
        budget = settings.get("budget", {})
        lines.append(f"Each search: {', '.join(names)}, at most {budget.get('evaluations')} evaluations.")
        if settings.get("headroom"):
            lines.append("What searches left of these went to problems below their bound.")
    versions = settings.get("versions", {})
    told = [*(f"{name} {version}" for name, version in versions.items()), str(settings.get("date", ""))]
    lines.append(", ".join(told) + "." if versions else "")
    return "\n".join(line for line in lines if line)


def runtime_kind(rows: Sequence[Row]) -> str:
    """What the runtimes are: "measured", "estimated", both, or "unknown"."""
    return " and ".join(sorted({row.runtime_kind for row in rows if row.runtime_kind})) or "unknown"


def figures_table(rows: Sequence[Row]) -> str:
    """The figures, one column a level."""
    levels = by_level(rows)
    if not levels:
        return ""
    columns = [figures_column(each) for each in levels]
    known = list(dict.fromkeys(name for column in reversed(columns) for name in column))
    names = [name for name in known if any(column.get(name, NONE) != NONE for column in columns)]
    body = [[name, *(column.get(name, NONE) for column in columns)] for name in names]
    return table(["", *(each.level for each in levels)], body, [False, *(True for _ in levels)])


def without_dissolved(rows: Sequence[Row]) -> str:
    """The geometric means without the problems whose work dissolves, a line a level that has some."""
    lines = []
    for level in _levels(rows):
        inside = [row for row in rows if row.level == level]
        gone, rest = [row for row in inside if dissolved(row)], [row for row in inside if not dissolved(row)]
        over = {SHORT.get(name, name): speedups(rest, name).geometric for name in BASELINES}
        told = ", ".join(f"{factor(value)} over {name}" for name, value in over.items() if value is not None)
        if gone and told:
            lines.append(
                f"{level} without {', '.join(row.name for row in gone)}, whose result takes next to none of the work "
                f"that the reference does: geometric mean {told}."
            )
    return "\n".join(lines)


def left_out(rows: Sequence[Row]) -> str:
    """The problems without a speedup because results tell no work from none there."""
    names = [row.id for row in rows if row.undecided]
    if not names:
        return ""
    which = f"{', '.join(names)}: the output says too little to tell work from none"
    return f"Left out of all means, and of fast_1 and fast_2 as if nothing were gained: {which}."


def untimed(rows: Sequence[Row]) -> str:
    """The problems that are compared without one of the baselines, by the reason for it."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, why in row.untimed.items():
            alike.setdefault((name, why), []).append(row.id)
    told = [f"- {name}: {', '.join(ids)} ({why})" for (name, why), ids in sorted(alike.items())]
    return (
        "Baselines without a time, which the other figures of these problems do without:\n\n" + "\n".join(told)
        if told
        else ""
    )


def figures_column(figures: LevelFigures) -> dict[str, str]:
    """The figures of one level in words, by name; those over the better of torch.compile's modes where both are known."""
    both = all(figures.over[name].count for name in COMPILED)
    over = {
        f"over {SHORT.get(name, name)}, {which}": _mean(figures.over[name], kind)
        for name in (*BASELINES, *([BETTER] if both else []))
        for which, kind in (("mean", "mean"), ("geometric mean", "geometric"))
    }
    return {
        "problems": str(figures.problems),
        "correct": str(figures.correct),
        "with Triton": str(figures.triton),
        "without a result": str(figures.failed),
        "fast_1": f"{figures.fast_1:.2f}",
        "fast_2": f"{figures.fast_2:.2f}",
        **over,
        **({"worst over better compile": _worst(figures.over[BETTER])} if both else {}),
        "below 0.98 of eager": str(figures.over[EAGER].slower),
        "roofline": _percent(figures.roofline),
        "evaluations": str(figures.evaluations),
        "GPU seconds": number(round(figures.gpu_seconds)) if figures.gpu_seconds else NONE,
        "seconds": number(round(figures.seconds)),
        "tokens": number(figures.tokens) if figures.tokens else NONE,
        "US dollars": f"{figures.usd:.2f}" if figures.usd else NONE,
    }


def problems_section(level: str, rows: Sequence[Row]) -> str:
    """One line a problem, with the reason where it is not 1.05 times as fast as its better baseline."""
    names = [name for name in BASELINES if any(name in row.baselines_ms for row in rows)]
    gains = [*names, BETTER] if all(name in names for name in COMPILED) else names
    head = ["problem", "ms", *(SHORT.get(name, name) for name in names), *(f"over {SHORT.get(n, n)}" for n in gains)]
    numeric = [False] + [True] * (len(head) - 1) + [True, True, False]
    lines = [
        [
            row.name,
            NONE if row.best_ms is None else runtime(row.best_ms),
            *(_or(runtime, row.baselines_ms.get(name)) for name in names),
            *(_or(factor, row.speedup(name)) for name in gains),
            _percent(row.roofline),
            str(row.evaluations),
            note(row),
        ]
        for row in rows
    ]
    return f"## {level}\n\n{table([*head, 'roofline', 'evaluations', 'note'], lines, numeric)}"


def note(row: Row) -> str:
    """Why there is no result, or no more of one; empty where there is nothing to say."""
    if row.failure is not None:
        return f"{spelled(row.failure.kind)}: {row.failure.message}"
    if not row.correct:
        return f"not right: {row.finished}"
    if row.undecided:
        return f"no reward: {row.undecided}"
    told = f"{spelled(row.why.kind)}: {row.why.text}" if row.why is not None else ""
    cut = row.finished if row.cut_off else ""
    handed = "the reference itself" if row.is_reference else ""
    return "; ".join(each for each in (handed, told, cut) if each)


def reasons(rows: Sequence[Row]) -> str:
    """How often each reason stands in the tables."""
    failed = Counter(spelled(row.failure.kind) for row in rows if row.failure is not None)
    slow = Counter(spelled(row.why.kind) for row in rows if row.why is not None)
    told = [
        f"{name}: " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) + "."
        for name, counts in (("Under 1.05x of the better baseline", slow), ("Without a result", failed))
        if counts
    ]
    return "## Reasons\n\n" + "\n\n".join(told) if told else ""


def what_stopped(rows: Sequence[Row]) -> str:
    """What stopped versions, over all problems: the gate and its reason, how often, and the first that it stopped."""
    alike: dict[tuple[str, str], list[tuple[Row, Stopped]]] = {}
    for row in rows:
        for each in row.stopped:
            alike.setdefault((each.stage, each.kind), []).append((row, each))
    lines = []
    for (stage, kind), some in sorted(alike.items(), key=lambda each: -sum(it.versions for _, it in each[1])):
        row, first = some[0]
        cells = [stage, kind, str(sum(each.versions for _, each in some)), str(len(some)), row.id, first.step]
        lines.append([*cells, first.message])
    head = ["gate", "reason", "versions", "problems", "the first: problem", "action", "message"]
    numeric = [False, False, True, True, False, False, False]
    return f"## What stopped versions\n\n{table(head, lines, numeric)}" if lines else ""


def spelled(kind: str) -> str:
    """A kind of reason in words."""
    return kind.replace("_", " ")


def _levels(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.level for row in rows))


def _mean(over: Speedups, which: str) -> str:
    value = getattr(over, which)
    return NONE if value is None else f"{factor(value)} ({over.count})"


def _worst(over: Speedups) -> str:
    return NONE if over.least is None else f"{factor(over.least)}, {over.worst}"


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.0f}%"


def _or(text: Callable[[float], str], value: float | None) -> str:
    return NONE if value is None else text(value)
