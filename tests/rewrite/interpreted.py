"""Run as a program: writes kernels for many small references, runs them in Triton's interpreter, prints what differs.

Interpretation is chosen when triton is imported, so this needs a process of its own (TRITON_INTERPRET=1). Reads a JSON
list of {"name", "source", "ways"} from standard input, where each way is a list of action kinds to apply greedily
("lower", "fuse", ...: every legal action of that kind, first to last, until none is left) or of exact sentences'
beginnings. A case with "whole" must be lowered whole, others in part; one with a "candidate" instead of ways is only
compared with its reference. One with "same" is compared element by element, NaN and signs of zeros included, instead of
as a whole with float64; the results of one with "laid" have to lie in memory as the reference's do. Programs of one with
"waits" run side by side, as they wait for each other. Writes {name: null or what went wrong}. The first way is compared at
all small shapes, each further one at the even and some odd ones.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import sys
import tempfile
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from mtmc.errors import MtmcError
from mtmc.evaluate.interpreter.interleaving import interleaved_programs
from mtmc.evaluate.interpreter.interpreter import prepare
from mtmc.evaluate.loading.modules import candidate_text
from mtmc.evaluate.reference.fp64 import computing_in, widen, widen_model
from mtmc.hardware import hardware
from mtmc.optimizations import KINDS, Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, graph_of, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, Variant, first_run, task_from_source
from mtmc.task.constants import apply_constants
from mtmc.task.quantized import readable

TOLERANCE = 3e-6
"""Norm-wise, against the reference in float64: some roundings of fp32."""
NUMBERS = itertools.count()
"""Of the files that are loaded."""


def main() -> None:
    cases = json.load(sys.stdin)
    torch.set_num_threads(1)
    prepare("ieee")
    first_run.tried = lambda source, name, trials: trials()  # these references are ours: no child tries them first
    with tempfile.TemporaryDirectory() as folder:
        json.dump({case["name"]: run(case, Path(folder)) for case in cases}, sys.stdout)


def run(case: dict[str, Any], folder: Path) -> str | None:
    try:
        task = task_from_source(case["source"], case["name"])
        if "candidate" in case:
            compare = elements if case.get("same") else differences
            return compare(task, case["candidate"], (task.small, *task.held_out), folder)
        tried = set[str]()
        for way in case["ways"]:
            plan = apply(task, way)
            left = [stage for stage in plan.stages if stage.is_torch]
            if left and (len(left) == len(plan.stages) or case.get("whole")):
                return f"{left[0]} was not lowered by {way}"
            if plan.to_json() in tried:  # one op has nothing to be fused with
                continue
            odd = [task.held_out[len(tried) % len(task.held_out)]] if tried else task.held_out
            tried.add(plan.to_json())
            source = print_plan(task, graph_of(export_graph(task), plan), plan).source
            compared = elements if case.get("same") else partial(differences, laid=case.get("laid", False))
            with interleaved_programs(1, backwards_first=True) if case.get("waits") else nullcontext():
                problem = compared(task, source, (task.small, *odd), folder)
            if problem:
                return f"{way}: {problem}"
    except MtmcError as error:
        return str(error)
    return None


def apply(task: Task, way: list[str]) -> Plan:
    """The plan after the way's actions."""
    plan = root_plan(export_graph(task))
    for wanted in way:
        for _ in range(40):
            version = Version.of(task, plan, hardware("H100"))
            moves = KINDS[wanted].legal(version) if wanted in KINDS else legal_moves(version)  # all kinds take long
            found = [m for m in moves if m.action.kind == wanted or m.action.sentence.startswith(wanted)]
            if not found:
                break
            assert found[0].child is not None
            plan = found[0].child
            if found[0].action.kind not in ("lower", "fuse"):
                break
    return plan


def differences(task: Task, source: str, variants: Iterable[Variant], folder: Path, laid: bool = False) -> str | None:
    """What differs from the reference at these shapes, or None. laid: whether results have to lie in memory as its do."""
    for variant in variants:
        reference = load(apply_constants(task.source, variant.constants), folder)
        candidate = load(candidate_text(source, variant.constants), folder)
        arguments = getattr(reference, variant.init_inputs)()
        torch.manual_seed(0)
        model = reference.Model(*arguments)
        torch.manual_seed(0)
        version = candidate.ModelNew(*arguments)
        torch.manual_seed(1)
        inputs = getattr(reference, variant.inputs)()
        wide = [widen(x) for x in inputs]
        exact_model = copy.deepcopy(model)
        widen_model(exact_model)
        calls = 2 if changes(copy.deepcopy(model), inputs) else 1
        models = ((version, inputs), (model, inputs), (exact_model, wide))
        found, wanted = (after_calls(each, given, calls) for each, given in models[:2])
        with computing_in(torch.float64):
            exact = after_calls(*models[2], calls)
        for index, (a, b, c) in enumerate(zip(found, wanted, exact, strict=True)):
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"{variant.label}: output {index} is {a.shape} {a.dtype}, not {b.shape} {b.dtype}"
            if laid and a.stride() != b.stride():
                return f"{variant.label}: output {index} has strides {a.stride()}, not {b.stride()}"
            error = float((a.double() - c.double()).norm() / (c.double().norm() + 1e-30))
            own = float((b.double() - c.double()).norm() / (c.double().norm() + 1e-30))
            if not error <= max(TOLERANCE, 4 * own):
                return f"{variant.label}: output {index} is off by {error:.2e}"
    return None


def elements(task: Task, source: str, variants: Iterable[Variant], folder: Path) -> str | None:
    """What differs from the reference, element by element: NaN and signs of zeros too."""
    for variant in variants:
        reference = load(apply_constants(task.source, variant.constants), folder)
        candidate = load(candidate_text(source, variant.constants), folder)
        torch.manual_seed(1)
        inputs = getattr(reference, variant.inputs)()
        model, version = reference.Model(), candidate.ModelNew()
        found, wanted = after_calls(version, inputs, 1), after_calls(model, inputs, 1)
        for index, (a, b) in enumerate(zip(found, wanted, strict=True)):
            try:
                torch.testing.assert_close(a, b, equal_nan=True)
                zeros = b == 0
                assert torch.equal(a.signbit() & zeros, b.signbit() & zeros), "other signs of zeros"
            except AssertionError as error:
                return f"{variant.label}: output {index}: {' '.join(str(error).split())[:300]}"
    return None


def changes(model: Any, inputs: list[Any]) -> bool:
    """Whether a call changes its inputs or the model's buffers, so that a second one may give something else."""
    before = [*(x.clone() for x in inputs), *(buffer.clone() for buffer in model.buffers())]
    given = [x.clone() for x in inputs]
    with torch.no_grad():
        model(*given)
    after = [*given, *model.buffers()]
    pairs = ((readable(a).nan_to_num(), readable(b).nan_to_num()) for a, b in zip(before, after, strict=True))
    return any(not torch.equal(a, b) for a, b in pairs)


def after_calls(model: Any, inputs: list[Any], calls: int) -> list[torch.Tensor]:
    """What calls in a row give, and leave behind in the inputs and in the model's buffers."""
    found = []
    for _ in range(calls):
        given = [x.clone() for x in inputs]
        with torch.no_grad():
            found += flat(model(*given))
        found += [*given, *(buffer.clone() for buffer in model.buffers())]
    return [tensor.clone() for tensor in found]


def load(source: str, folder: Path) -> ModuleType:
    path = folder / f"version_{next(NUMBERS)}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in flat(part)]


if __name__ == "__main__":
    main()
