"""Run as a program in Triton's interpreter: compares kernels of core overloads with torch, element by element.

Reads a JSON list of overloads from standard input, writes {overload: null or what differs}. All kernels of an export stand
in one version; where it fails, halves of them are tried.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from mtmc.evaluate.interpreter.interpreter import prepare
from mtmc.evaluate.loading.modules import candidate_text
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, Variant, first_run
from mtmc.task.constants import apply_constants
from tests.rewrite.core_aten import exported, groups, kernel_of, part_of, samples, task_of, version_of
from tests.rewrite.interpreted import flat, load

Found = dict[str, str | None]
Rows = dict[str, list[Stage | str | None]]


def main() -> None:
    names = json.load(sys.stdin)
    torch.set_num_threads(1)
    prepare("ieee")
    first_run.tried = lambda source, name, trials: trials()
    found: Found = {}
    with tempfile.TemporaryDirectory() as folder:
        for group in groups(names):
            task = task_of(group)
            version, wanted = version_of(task, group), samples(task, group)
            rows = {name: [kernel_of(version, ops) for ops in ops_of] for name, ops_of in wanted.items()}
            found |= compared(task, group, rows, Path(folder))
    json.dump(found, sys.stdout)


def compared(task: Task, group: tuple[str, ...], rows: Rows, folder: Path) -> Found:
    """What differs, by overload. rows: the stages of each, for those whose kernels stand in this version."""
    try:
        graph, plan = part_of(exported(task, group), group, rows)
        source = print_plan(task, graph, plan).source
        found: Found = dict.fromkeys(rows)
        for variant in (task.small, *task.held_out[:1]):
            for name, problem in differences(task, source, variant, group, rows, folder).items():
                found[name] = found[name] or problem
        return found
    except Exception as error:
        names = list(rows)
        if len(names) == 1:
            return {names[0]: said(error)}
        parts = names[: len(names) // 2], names[len(names) // 2 :]
        found = {}
        for part in parts:
            found |= compared(task, group, {name: rows[name] for name in part}, folder)
        return found


def said(error: Exception) -> str:
    text = str(error.__cause__ or error).strip().replace("|", "/")
    lines = [line for line in text.splitlines() if line.strip()] or [type(error).__name__]
    if "-v" in sys.argv:
        traceback.print_exc()
    return f"{type(error).__name__}: {lines[-1][:200]}"


def differences(task: Task, source: str, variant: Variant, group: tuple[str, ...], rows: Rows, folder: Path) -> Found:
    reference = load(apply_constants(task.source, variant.constants), folder)
    candidate = load(candidate_text(source, variant.constants), folder)
    model, version = reference.Model(), candidate.ModelNew()
    torch.manual_seed(1)
    inputs = getattr(reference, variant.inputs)()
    with torch.no_grad():
        wanted = dict(zip(group, model(*[each.clone() for each in inputs]), strict=True))
        got = dict(zip(group, version(*[each.clone() for each in inputs]), strict=True))
    kept = {
        name: [x for x, stage in zip(wanted[name], row, strict=True) if isinstance(stage, Stage)]
        for name, row in rows.items()
    }
    return {name: differs(got[name], kept[name]) for name in rows}


def differs(got: Sequence[object], wanted: Sequence[object]) -> str | None:
    """What differs between the results of an overload's samples."""
    for at, (one, other) in enumerate(zip(got, wanted, strict=True)):
        for a, b in zip(flat(one), flat(other), strict=True):
            try:
                loose = {torch.float32: (5e-6, 2e-6), torch.float16: (2e-3, 1e-3), torch.bfloat16: (2e-2, 1e-2)}
                rtol, atol = loose.get(b.dtype, (0.0, 0.0))
                torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
            except AssertionError as error:
                return f"sample {at}: " + " ".join(str(error).split())[:200]
    return None


if __name__ == "__main__":
    main()
