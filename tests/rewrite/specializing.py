"""Run as a program: counts for how many kinds of arguments Triton would compile the kernels of a version, over many lengths.

Needs a process of its own (TRITON_INTERPRET=1, see `tests/interpreter.py`). Reads a JSON list of {"name", "source", "way",
"constants"} from standard input: a reference, a list of action kinds to apply greedily as in `interpreted.py`, and for each
length the module-level constants that change. Writes {name: {"wrong": null or what differs from the reference, "kernels":
{kernel: kinds of its arguments}}}. A kind is what Triton keys its cache by: the values of compile-time arguments and
options, and of each whole number whether it is 1, a multiple of 16 or neither, and of 64 bits.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton.runtime.interpreter as interpreter

from mtmc.evaluate.interpreter.interpreter import prepare
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import graph_of
from mtmc.rewrite.source import print_plan
from mtmc.task import Variant, first_run, task_from_source
from tests.rewrite.interpreted import apply, differences

SEEN: dict[str, dict[str, list[Any]]] = {}
"""Kernel -> the kinds of arguments that it was launched with, each by its text."""


def main() -> None:
    cases = json.load(sys.stdin)
    torch.set_num_threads(1)
    prepare("ieee")
    first_run.tried = lambda source, name, trials: trials()  # these references are ours: no child tries them first
    run = interpreter.InterpretedFunction.run

    def noted(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kind = kind_of(self, args, kwargs)
        SEEN.setdefault(self.__name__, {})[json.dumps(kind)] = kind
        return run(self, *args, grid=grid, warmup=warmup, **kwargs)

    interpreter.InterpretedFunction.run = noted
    with tempfile.TemporaryDirectory() as folder:
        json.dump({case["name"]: counted(case, Path(folder)) for case in cases}, sys.stdout)


def counted(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    SEEN.clear()
    task = task_from_source(case["source"], case["name"])
    plan = apply(task, case["way"])
    source = print_plan(task, graph_of(export_graph(task), plan), plan).source
    lengths = [Variant(str(constants), tuple(constants.items())) for constants in case["constants"]]
    wrong = differences(task, source, lengths, folder)
    return {"wrong": wrong, "kernels": {name: list(kinds.values()) for name, kinds in SEEN.items()}}


def kind_of(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What Triton compiles a launch's kernel for, by argument; without addresses, which are multiples of 16 here."""
    parameters = inspect.signature(kernel.fn).parameters
    given = dict(zip(parameters, args, strict=False)) | kwargs
    constexprs = {name for name, each in parameters.items() if "constexpr" in str(each.annotation)}
    options = given.keys() - parameters.keys()
    return {name: value if name in constexprs | options else specialized(value) for name, value in given.items()}


def specialized(value: Any) -> str:
    """The kind of an argument that is not known at compile time."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype)
    if isinstance(value, bool) or not isinstance(value, int):
        return type(value).__name__
    if value == 1:
        return "1"
    return ("i64" if abs(value) >= 2**31 else "i32") + (", 16" if value % 16 == 0 else "")


if __name__ == "__main__":
    main()
