"""loading: Problem -> Task, in the benchmark's dtype. Small shapes, once found, are kept in the benchmark's folder."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mtmc.bench.problem import Problem, Suite
from mtmc.bench.row import digest
from mtmc.errors import TaskError
from mtmc.files import write_whole
from mtmc.task import Task, Variant, task_from_source
from mtmc.task.dtypes import in_dtype
from mtmc.task.load import check_source, declared_variants


def load_problem(suite: Suite, problem: Problem, dtype: str, kept: Path | None = None) -> Task:
    """The problem's task. kept: file that its shapes are kept in and taken from, if it is of the same text.

    Its shapes are derived from the text as it is: whether they run does not depend on the dtype.
    Raises: TaskError with the reason where there is no task.
    """
    source = suite.source(problem)
    task = _declared(source, problem) if suite.trusted(problem) else _kept(source, problem, kept)
    if task is None:
        task = task_from_source(source, problem.name)
        if kept is not None:
            data = {"digest": digest(source), "variants": [asdict(each) for each in task.variants]}
            write_whole(kept, json.dumps(data) + "\n")
    return replace(task, source=in_dtype(source, dtype))


def _declared(source: str, problem: Problem) -> Task:
    """The task with the shapes that its text declares; nothing is run. Raises: TaskError where it declares no small ones."""
    variants = declared_variants(check_source(source, problem.name), problem.name)
    small = variants.pop("small", None)
    if small is None:
        raise TaskError(f"task {problem.name} declares no small shapes")
    return Task(problem.name, source, Variant("full"), small, tuple(variants[label] for label in sorted(variants)))


def _kept(source: str, problem: Problem, path: Path | None) -> Task | None:
    """The task with the shapes that are kept; None where there are none of this text."""
    if path is None or not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        full, small, *held_out = [_variant(each) for each in data["variants"]]
        return Task(problem.name, source, full, small, tuple(held_out)) if data["digest"] == digest(source) else None
    except (OSError, ValueError, KeyError, TypeError):  # half a file, or another version's: they are derived again
        return None


def _variant(fields: dict[str, Any]) -> Variant:
    return Variant(**{**fields, "constants": tuple((name, value) for name, value in fields["constants"])})
