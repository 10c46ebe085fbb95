"""probe: one module of the zoo through capture, search and drop-in -> its Row. For a process of its own."""

from __future__ import annotations

import importlib.metadata
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from mtmc.bench.facts import has_kernel, launches, row_of
from mtmc.bench.problem import Problem
from mtmc.errors import MtmcError
from mtmc.outcome import Outcome
from mtmc.search import SearchResult, search
from mtmc.task import Capture, Task, capture_module
from tests.zoo.example import Example
from tests.zoo.in_place import compare_drop_in
from tests.zoo.registry import Entry
from tests.zoo.row import Row

DROP_IN_S = 90.0
"""Seconds that the drop-in's kernels may be interpreted for."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def probe(entry: Entry, dtype: str, evaluator: Any, kind: str, evaluations: int, drop_in: bool = True) -> Row:
    """Everything about one module in one dtype.

    evaluator: an open one; kind: its name in the row. evaluations: of the search. drop_in: whether what is found is used in
    the place of the module too, in this process and so in the main thread.
    """
    start = time.monotonic()
    row = Row(entry.name, entry.library, dtype, kind, importlib.metadata.version(entry.library))
    try:
        made = entry.example(DTYPES[dtype])
        begin = time.monotonic()
        capture = capture_module(made.module, made.args, made.kwargs, name=_identifier(entry.name))
        row = replace(row, captured=True, capture_s=round(time.monotonic() - begin, 1))
    except MtmcError as error:
        return replace(row, refused=_line(str(error)), seconds=round(time.monotonic() - start, 1))
    try:
        result = search(capture.task, evaluator=evaluator, budget=evaluations)
        row = _searched(row, capture.task, result)
        if drop_in:
            row = replace(row, drop_in=_dropped_in(made, capture, result, kind))
    except MtmcError as error:
        row = replace(row, failure=_line(f"{type(error).__name__}: {error}"))
    return replace(row, seconds=round(time.monotonic() - start, 1))


def _dropped_in(made: Example, capture: Capture, result: SearchResult, kind: str) -> str:
    if kind == "gpu":
        made = made.on("cuda")
    return _line(compare_drop_in(made, capture, result, DROP_IN_S))


def _searched(row: Row, task: Task, result: SearchResult) -> Row:
    """The row with what the search found."""
    tree = result.versions
    versions = [node for node in tree if node is not tree.root]
    problem = Problem(row.library, 1, row.name, result.run_dir)
    facts = row_of(problem, task, result, False, 0.0, exported=True)
    failed = next((node.outcome for node in (tree.root, *versions) if not node.outcome.ok), None)
    best = tree.best
    return replace(
        row,
        root=tree.root.outcome.status,
        statuses=dict(Counter(node.outcome.status for node in versions)),
        right=sum(node.outcome.ok and has_kernel(node.source) for node in versions),
        diagnosis=_diagnosis(failed),
        kernels_before=launches(tree.root.outcome.metrics),
        kernels_after=launches(best.outcome.metrics),
        speedup=tree.speedup(best.id),
        why=facts.why.text if facts.why is not None else "",
    )


def _diagnosis(outcome: Outcome | None) -> str:
    if outcome is None or outcome.diagnosis is None:
        return "" if outcome is None else outcome.status
    found = outcome.diagnosis
    return _line(f"{found.stage}, {found.kind}: {found.message}")


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _line(text: str) -> str:
    return " ".join(text.split())[:600]
