"""Row: what came of one module in one dtype, as plain data, and how it is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Row:
    """One module in one dtype, searched with one evaluator.

    name, library: see `tests.zoo.registry.Entry`. dtype: of its floating tensors.
    evaluator: "lab" estimates runtimes, "gpu" measures them.
    version: of the library.
    captured: a task was made of it; refused: why not. capture_s: seconds that took.
    root: status of the reference itself as a version. statuses: how many versions ended how, the root not counted.
    right: versions that are right and have a Triton kernel. diagnosis: of the first that failed, in one line.
    kernels_before, kernels_after: launches of the root and of the best version.
    speedup: of the best version over the root. why: why there is no more, in one line.
    drop_in: what the module that `mtmc.optimize` hands back does: "right", or what differs, or why that was not tried.
    seconds: wall time of it all. failure: what ended it otherwise: an exception, a crash, its time.
    """

    name: str
    library: str
    dtype: str
    evaluator: str
    version: str = ""
    captured: bool = False
    refused: str = ""
    capture_s: float = 0.0
    root: str = ""
    statuses: Mapping[str, int] = field(default_factory=dict)
    right: int = 0
    diagnosis: str = ""
    kernels_before: float | None = None
    kernels_after: float | None = None
    speedup: float | None = None
    why: str = ""
    drop_in: str = ""
    seconds: float = 0.0
    failure: str = ""

    @property
    def key(self) -> Key:
        """What tells rows apart."""
        return self.name, self.dtype, self.evaluator

    @property
    def found(self) -> bool:
        """Whether at least one version with a kernel is right."""
        return self.root == "ok" and self.right > 0

    @property
    def wrong(self) -> int:
        """Versions that failed."""
        return sum(count for status, count in self.statuses.items() if status != "ok")


def read_rows(path: Path) -> dict[Key, Row]:
    """The rows of a file, the last of each module; a line that a killed run left unfinished is skipped."""
    rows: dict[Key, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = Row(**json.loads(line))
        except json.JSONDecodeError:
            continue
        rows[row.key] = row
    return rows


def append_row(path: Path, row: Row) -> None:
    """Add a row to a file; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row), sort_keys=True) + "\n")


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write a file anew with one line a row."""
    path.write_text("".join(json.dumps(asdict(row), sort_keys=True) + "\n" for row in rows), encoding="utf-8")
