"""Run as a program: hands out kernel versions of small references with their guards, and calls them in many ways.

Interpretation is chosen when triton is imported, so this needs a process of its own (TRITON_INTERPRET=1). Reads a JSON
list of cases from standard input: {"name", "source", "calls"}, where a call is {"name", "do", "inputs", "under"}:
statements on the module `m`, which both the reference and the version get, an expression of the arguments, and what both
run under. A number in place of the calls is how many are drawn by chance. Writes {case: {call: what became of it}}:
"right", "refused: REASON", "both fail" or "WRONG: how".
"""

from __future__ import annotations

import copy
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from mtmc.errors import MtmcError
from mtmc.evaluate.interpreter.interpreter import prepare
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.guard_derivation import derive_guards
from mtmc.rewrite.guard_text import guarded
from mtmc.rewrite.plan import graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreted import apply, flat, load


def main() -> None:
    cases = json.load(sys.stdin)
    torch.set_num_threads(1)
    prepare("ieee")
    with tempfile.TemporaryDirectory() as folder:
        json.dump({case["name"]: run(case, Path(folder)) for case in cases}, sys.stdout)


def run(case: dict[str, Any], folder: Path) -> dict[str, str]:
    try:
        task = task_from_source(case["source"], case["name"])
        plan = apply(task, ["lower", "fuse"])
        text = print_plan(task, graph_of(export_graph(task), plan), plan).source
        text = guarded(text, derive_guards(task))
    except MtmcError as error:
        return {"made": str(error)}
    reference, version = load(case["source"], folder), load(text, folder)
    calls = case["calls"]
    if isinstance(calls, int):
        calls = list(drawn(reference.get_inputs(), calls))
    return {call["name"]: one_call(reference, version, call) for call in calls}


def one_call(reference: Any, version: Any, call: dict[str, str]) -> str:
    """What becomes of a call after the statements on the module."""
    arguments = reference.get_init_inputs()
    torch.manual_seed(0)
    model = reference.Model(*arguments)
    torch.manual_seed(0)
    new = version.ModelNew(*arguments)
    first = reference.get_inputs()
    with torch.no_grad():  # what is remembered of a call that it holds for makes no difference
        outputs = [flat(module(*copy.deepcopy(first))) for module in (new, model)]
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*outputs, strict=True))
    for module in (model, new):
        torch.manual_seed(1)
        exec(call.get("do", ""), {"m": module, "torch": torch})
    inputs = eval(call["inputs"], {"torch": torch, "x": first[0], "first": first}) if "inputs" in call else first
    context = eval(call.get("under", "torch.no_grad()"), {"torch": torch})
    with context:
        try:
            given = copy.deepcopy(inputs)
            wanted: Any = [*flat(model(*given)), *given]
        except Exception:
            wanted = None
        try:
            found = [*flat(new(*inputs)), *inputs]
        except ValueError as error:
            return f"refused: {error}"
        except Exception as error:
            return "both fail" if wanted is None else f"WRONG: {type(error).__name__}: {error}"
    if wanted is None:
        return "WRONG: the reference fails"
    for a, b in zip(found, wanted, strict=True):
        if not isinstance(a, torch.Tensor):
            continue
        if a.shape != b.shape or a.dtype != b.dtype or a.requires_grad != b.requires_grad:
            return f"WRONG: {a.shape} {a.dtype} {a.requires_grad} instead of {b.shape} {b.dtype} {b.requires_grad}"
        if not torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-4, equal_nan=True):
            return f"WRONG: off by {float((a.double() - b.double()).abs().max()):.1e}"
    return "right"


def drawn(first: list[torch.Tensor], count: int) -> Any:
    """Calls by chance: other ranks and sizes, ties that are broken, dtypes, strides."""
    draw = random.Random(0)
    for number in range(count):
        sizes = {size: draw.choice((1, 2, 3, 5, 6, 7, 8, size)) for x in first for size in x.shape}
        inputs = []
        for x in first:
            shape = [sizes[size] for size in x.shape] if draw.random() < 0.6 else list(x.shape)
            if draw.random() < 0.15 and shape:
                shape[draw.randrange(len(shape))] = draw.choice((0, 1, 2, 3, 4, 11))
            if draw.random() < 0.1:
                shape = [*shape, 2] if draw.random() < 0.5 else shape[1:]
            dtype = draw.choice((torch.float64, torch.float16, torch.int64)) if draw.random() < 0.1 else x.dtype
            text = f"torch.linspace(-1, 1, {_count(shape)}).reshape({shape})"
            if len(shape) > 1 and draw.random() < 0.15:
                turned = [*shape[:-2], shape[-1], shape[-2]]
                text = f"torch.linspace(-1, 1, {_count(shape)}).reshape({turned}).transpose(-1, -2)"
            inputs.append(f"{text}.to({dtype})")
        yield {"name": f"{number}: {', '.join(inputs)}", "inputs": f"[{', '.join(inputs)}]"}


def _count(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


if __name__ == "__main__":
    main()
