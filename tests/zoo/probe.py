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
from mtmc.task import Task, task_from_module
from tests.zoo.registry import Entry
from tests.zoo.row import Row

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def probe(entry: Entry, dtype: str, evaluator: Any, kind: str, evaluations: int) -> Row:
    """Everything about one module in one dtype. evaluator: an open one; kind: its name in the row."""
    start = time.monotonic()
    row = Row(entry.name, entry.library, dtype, kind, importlib.metadata.version(entry.library))
    try:
        made = entry.example(DTYPES[dtype])
        begin = time.monotonic()
        task = task_from_module(made.module, made.args, made.kwargs, name=_identifier(entry.name))
        row = replace(row, captured=True, capture_s=round(time.monotonic() - begin, 1))
    except MtmcError as error:
        return replace(row, refused=_line(str(error)), seconds=round(time.monotonic() - start, 1))
    try:
        result = search(task, evaluator=evaluator, budget=evaluations)
        row = _searched(row, task, result)
    except MtmcError as error:
        row = replace(row, failure=_line(f"{type(error).__name__}: {error}"))
    return replace(row, seconds=round(time.monotonic() - start, 1))


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
