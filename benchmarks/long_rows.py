"""Rows that fit neither the registers of a program nor, all that are at work, the cache: who reads them how often?

Times every way that mtmc has for some norms and softmaxes of long rows, beside eager mode and torch.compile, each called in
a plain loop (triton.testing.do_bench). Needs a GPU with 40 GB. Prints a row a task, and the ratio of the fastest way to
torch.compile.

    python benchmarks/long_rows.py [--out results/long_rows.json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from mtmc.evaluate.loading.modules import load_module
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, task_from_source

SOURCE = """
import torch
from torch import nn
import torch.nn.functional as F

rows, columns = {rows}, {columns}
VARIANTS = {{"small": {{"rows": 3, "columns": 640}}, "odd1": {{"rows": 2, "columns": 700}}}}


class Model(nn.Module):
    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.rand(rows, columns, dtype=torch.{dtype})]


def get_init_inputs():
    return []
"""
NORM, GATED = "F.layer_norm(x, (columns,))", "F.silu(F.layer_norm(x, (columns,)))"
CASES = (
    (7168, 262144, "float32", NORM),
    (896, 2097152, "float32", NORM),
    (64, 4194304, "bfloat16", GATED),
    (4096, 393216, "float32", "torch.softmax(x, -1)"),
    (4096, 262144, "float32", NORM),
    (32768, 65535, "float32", "x / torch.norm(x, p=2, dim=1, keepdim=True)"),
    (512, 32768, "float32", GATED),
    (256, 1048576, "bfloat16", GATED),
    (256, 131072, "bfloat16", GATED),
    (512, 32768, "bfloat16", GATED),
)
OFFERED = ("share each row", "loop over each row", "hold each row")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "long_rows: needs a GPU\n")
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": []}
    for case in CASES:
        found["rows"].append(measured(*case))
        if arguments.out:
            arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measured(rows: int, columns: int, dtype: str, body: str) -> dict[str, Any]:
    """Milliseconds of each way, by name."""
    from triton.testing import do_bench

    task = task_from_source(SOURCE.format(rows=rows, columns=columns, dtype=dtype, body=body), "long_rows")
    times: dict[str, float] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        reference = load_module(task.source, Path(folder) / "reference.py")
        [x] = (each.cuda() for each in reference.get_inputs())
        model = reference.Model()
        wanted = model(x)
        times["eager"] = do_bench(lambda: model(x))
        torch._dynamo.reset()
        compiled = torch.compile(model)
        compiled(x)
        times["torch.compile"] = do_bench(lambda: compiled(x))
        for at, (way, source) in enumerate(versions(task)):
            try:
                version = load_module(source, Path(folder) / f"version_{at}.py").ModelNew().cuda()
                off = float((version(x).float() - wanted.float()).norm() / wanted.float().norm())
                if off > (1e-2 if dtype == "bfloat16" else 1e-6):
                    raise ValueError(f"off by {off:.1e}")
                times[way] = do_bench(lambda version=version: version(x))
            except (RuntimeError, ValueError, OutOfResources) as error:
                failed[way] = f"{type(error).__name__}: {error}"
    ours = {way: ms for way, ms in times.items() if way not in ("eager", "torch.compile")}
    best = min(ours, key=lambda way: ours[way])
    said = ", ".join(f"{way} {ms:.3f}" for way, ms in times.items())
    print(f"{rows} x {columns} {dtype}, {body}: {said}; {best} {times['torch.compile'] / ours[best]:.2f}x", flush=True)
    for way, why in failed.items():
        print(f"  {way} failed: {why.splitlines()[0]}", flush=True)
    return {"rows": rows, "columns": columns, "dtype": dtype, "body": body, "ms": times, "failed": failed}


def versions(task: Task) -> Iterator[tuple[str, str]]:
    """All in one kernel as it starts, and each other way to go through its rows: what it is called, and its source."""
    version = Version.of(task, root_plan(export_graph(task)), hardware("H100"))
    for kind in ("lower", "fuse"):
        while True:
            moves = [move for move in legal_moves(version) if move.action.kind == kind]
            if not moves:
                break
            version = after(version, moves[0])
    yield (
        f"start ({dict(version.plan.stages[0].schedule)['passes']})",
        print_plan(task, version.graph, version.plan).source,
    )
    for move in legal_moves(version):
        if move.action.sentence.startswith(OFFERED):
            child = after(version, move)
            settings = dict(child.plan.stages[0].schedule)
            yield f"{settings['passes']} {settings['block_cols']}", print_plan(task, child.graph, child.plan).source


def after(version: Version, move: Any) -> Version:
    """The version that an action makes."""
    assert move.child is not None
    return Version.of(version.task, move.child, version.hardware)


if __name__ == "__main__":
    main()
