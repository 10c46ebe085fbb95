"""Console: how a search looks while it goes on, and how its result is told. Text only; the commands print it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mtmc.export.no_gain import why_no_gain
from mtmc.export.record import speedup_kind
from mtmc.export.text import factor, one_line, runtime
from mtmc.search.display import bar, best_text, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtmc.outcome import Outcome
    from mtmc.search import Progress, SearchResult

LINES = 10
"""Where there is no terminal, about so many lines of progress are printed, and one for each new best."""

FILES = {
    "best.py": "the fastest version that is right, standalone",
    "tree.html": "the tree, to click through",
    "report.md": "the run in words and tables",
    "tree.png": "the tree as a picture",
    "progress.png": "best so far against evaluations",
    "roofline.png": "kernels of profiled versions under the roofs",
    "tree.json": "the tree for networkx (tree.graphml for other tools)",
}
"""What a run's folder may hold, for the summary."""


@contextmanager
def progress_display(name: str, lines: bool = True) -> Iterator[Callable[[Progress], None] | Literal[False]]:
    """Something to hand to a search as `progress`: a bar on a terminal's stderr, else plain lines there.

    name: what is searched, in a word. lines: whether to print lines where there is no terminal.
    """
    if not sys.stderr.isatty():
        yield PlainLines(name) if lines else False
        return
    with bar(name) as show:
        yield show


class PlainLines:
    """Progress as lines: the first, each new best, about `LINES` in between, and the last."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._best: dict[str, float | None] = {}
        self._next: dict[str, int] = {}
        self._last = ""

    def __call__(self, progress: Progress) -> None:
        """Print a line on stderr if there is something to tell."""
        what = progress.what
        is_best = progress.runtime_ms != self._best.get(what)
        if progress.evaluations < self._next.get(what, 0) and not is_best and progress.finished is None:
            return
        self._best[what] = progress.runtime_ms
        self._next[what] = progress.evaluations + max(1, progress.budget // LINES)
        counts = f"{progress.evaluations}/{progress.budget} evaluations, {progress.nodes} versions"
        line = f"{told(self._name, progress)}: {counts}, best {best_text(progress)}"
        if line != self._last:
            print(f"{line}, {progress.seconds:.0f} s", file=sys.stderr)
        self._last = line


def summary(result: SearchResult) -> str:
    """What a run has found: root and best with what kind of times these are, speedup, steps, and where the files are."""
    rows = [*_found(result), *_where(result)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def one_line_summary(result: SearchResult) -> str:
    """A run in one line, for a sweep."""
    tree = result.tree
    gain = tree.speedup(tree.best.id)
    told = "no speedup known" if gain is None else f"{factor(gain)} {speedup_kind(tree, tree.best.id)}"
    early = f"; it ended early: {result.finished}" if result.cut_short else ""
    return f"{told} after {result.evaluations} evaluations, {len(tree)} versions: {result.run_dir}{early}"


def resume_hint(folder: Path) -> str:
    """How to go on with a run."""
    import shlex

    return f"go on with: mtmc resume {shlex.quote(str(folder))}"


def _found(result: SearchResult) -> Iterator[tuple[str, str]]:
    tree, settings = result.tree, result.record.settings
    parts = [settings.get(kind) for kind in ("strategy", "policy", "coder", "evaluator")]
    names = [str(part.get("name", part.get("object"))) for part in parts if isinstance(part, dict)]
    yield "task", f"{tree.task_name} for {settings.get('hardware')} ({', '.join(names)})"
    if not result.tolerance.is_default:
        yield "compared", result.record.contract
    yield "root", _time(tree.root.outcome)
    for name, outcome in result.baselines.items():
        why = outcome.diagnosis if outcome.runtime_ms is None else None
        yield name, _time(outcome) + ("" if why is None else f": {one_line(why.message)}")
    if tree.best.id == tree.root.id:
        yield "best", f"the root: {why_no_gain(tree)}"
    else:
        gain = tree.speedup(tree.best.id)
        told = "" if gain is None else f", {factor(gain)} as fast as the root ({speedup_kind(tree, tree.best.id)})"
        yield "best", _time(tree.best.outcome) + told
    for number, node in enumerate(tree.path(tree.best.id)):
        if node.action is not None:
            yield "", f"{number}. {node.action.sentence}"


def _where(result: SearchResult) -> Iterator[tuple[str, str]]:
    tree = result.tree
    yield "tree", f"{len(tree)} versions, {result.evaluations} evaluations; the best is version {tree.best.id}"
    yield "ended", result.finished or "not yet"
    yield "folder", str(result.run_dir)
    for name, what in FILES.items():
        if (result.run_dir / name).exists():
            yield "", f"{name:<13} {what}"


def _time(outcome: Outcome) -> str:
    if outcome.runtime_ms is None:
        return outcome.status.replace("_", " ")
    return f"{runtime(outcome.runtime_ms)} {outcome.runtime_kind}"
