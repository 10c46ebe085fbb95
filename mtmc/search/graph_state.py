"""The typed state of the graph that `build_graph` hands out: plain data, ids and counters."""

from __future__ import annotations

from typing import TypedDict


class SearchInput(TypedDict):
    """What the graph is given. task: a built-in name, the path of a file, or its text. out: the run's folder; a run that is
    there is gone on with."""

    task: str
    out: str


class SearchOutput(TypedDict, total=False):
    """What the graph hands back: plain data.

    evaluations, nodes: how many so far. best: id of the best version. source: of its file, which refuses calls that it does
    not hold for. speedup: over the root, None where it is not known. runtime_ms: of one forward, ms. runtime_kind:
    "measured" or "estimated". finished: why the search has ended, "" while it goes on.
    """

    evaluations: int
    nodes: int
    best: int
    source: str
    speedup: float | None
    runtime_ms: float | None
    runtime_kind: str | None
    finished: str


class SearchState(SearchInput, SearchOutput, total=False):
    """The graph's own state. trials: ids of those in flight. rounds: batches that ended. ended: those to back up."""

    trials: list[int]
    rounds: int
    ended: list[int]
