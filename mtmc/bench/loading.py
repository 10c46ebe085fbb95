"""loading: Problem -> Task, in the benchmark's dtype. Small shapes, once found, are kept in the benchmark's folder."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mtmc.bench.problem import Problem, Suite
from mtmc.bench.row import digest
from mtmc.files import write_whole
from mtmc.task import Task, Variant, task_from_source
from mtmc.task.dtypes import in_dtype
from mtmc.task.load import check_source, without_library


def load_problem(suite: Suite, problem: Problem, dtype: str, kept: Path | None = None) -> Task:
    """The problem's task. kept: file that its shapes are kept in and taken from, if it is of the same text.

    Its shapes are derived from the text as it is: whether they run does not depend on the dtype.
    Raises: TaskError with the reason where there is no task.
    """
    source = suite.source(problem)
    trusted = suite.trusted(problem)
    task = None if trusted else _kept(source, problem, kept)
    if task is None:
        task = task_from_source(source, problem.name, trusted)
        if kept is not None and not trusted:
            data = {"digest": digest(source), "variants": [asdict(each) for each in task.variants]}
            write_whole(kept, json.dumps(data) + "\n")
    return replace(task, source=in_dtype(task.source, dtype))


def _kept(source: str, problem: Problem, path: Path | None) -> Task | None:
    """The task with the shapes that are kept; None where there are none of this text."""
    if path is None or not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        full, small, *held_out = [_variant(each) for each in data["variants"]]
        if data["digest"] != digest(source):
            return None
        own, library = without_library(source, check_source(source, problem.name))
        return Task(problem.name, own, full, small, tuple(held_out), library=library)
    except (OSError, ValueError, KeyError, TypeError):  # half a file, or another version's: they are derived again
        return None


def _variant(fields: dict[str, Any]) -> Variant:
    return Variant(**{**fields, "constants": tuple((name, value) for name, value in fields["constants"])})
