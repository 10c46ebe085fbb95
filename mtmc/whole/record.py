"""Record: what is known of a whole model after it was optimized, and the table of it. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mtmc.whole.settle import EAGER
from mtmc.whole.site import TimeKind


@dataclass(frozen=True)
class Row:
    """A piece. share: of the model's time, 0 to 1. places: submodules that it stands for. evaluations: spent on it.

    speedup: of its best version over the original, None where it was not searched. kept: whether that is in the model.
    note: why not, or what else there is to say.
    """

    name: str
    share: float
    places: int
    evaluations: int = 0
    speedup: float | None = None
    kept: bool = False
    note: str = ""


@dataclass(frozen=True)
class Record:
    """A whole model.

    rows: pieces, and what was passed over, each by share. rest: share of what is in no row. times_ms: of the whole, by
    name of the model, `settle.EAGER` among them. times_kind: "measured" on `device`, or "estimated" for it. chosen: name
    of the model that was handed back. notes: what else there is to say, a sentence each. folder: where the runs are,
    None where they were not kept. evaluations: spent in all. cut_short: whether the search of a piece ended for want of a
    model that answers with something usable.
    """

    rows: tuple[Row, ...]
    rest: float
    times_ms: Mapping[str, float]
    times_kind: TimeKind
    device: str
    chosen: str
    notes: tuple[str, ...] = ()
    folder: str | None = None
    cut_short: bool = False

    @property
    def evaluations(self) -> int:
        """Spent in all."""
        return sum(row.evaluations for row in self.rows)

    @property
    def speedup(self) -> float:
        """Of the model that was handed back over the original one in eager mode."""
        return self.times_ms[EAGER] / self.times_ms[self.chosen]

    @property
    def reason(self) -> str:
        """Why the model that was handed back has no kernels of mtmc in it, "" where it has some."""
        if any(row.kept for row in self.rows):
            return ""
        known = [f"{row.name}: {row.note}" for row in self.rows if row.note]
        return "; ".join(known) or "no submodule takes enough of the time"

    @property
    def table(self) -> str:
        """One table, as Markdown: the pieces, then the whole."""
        lines = ["| piece | share | places | evaluations | speedup | |", "|---|---:|---:|---:|---:|---|"]
        lines += [_line(row) for row in self.rows]
        lines.append(f"| in no piece | {self.rest:.1%} | | | | |")
        for name, ms in sorted(self.times_ms.items(), key=lambda each: -each[1]):
            told = f"{ms:.4g} ms {self.times_kind}" + (", handed back" if name == self.chosen else "")
            gain = f"{self.times_ms[EAGER] / ms:.2f}x"
            lines.append(f"| **the whole, {name}** | | | | {gain} | {told} |")
        return "\n".join(lines)

    @property
    def text(self) -> str:
        """The table with all that there is to say besides."""
        return "\n".join([self.table, *(f"\n{note}" for note in self.notes)])

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        return {**asdict(self), "speedup": self.speedup, "evaluations": self.evaluations}


def _line(row: Row) -> str:
    gain = "" if row.speedup is None else f"{row.speedup:.2f}x"
    return f"| {row.name} | {row.share:.1%} | {row.places} | {row.evaluations or ''} | {gain} | {row.note} |"
