"""Shared-prompt attention, forward and backward, against scaled_dot_product_attention with the prompt replicated.

    PYTHONPATH=. python benchmarks/shared_prompt.py --out results/shared_prompt

The kernel of `examples/shared_prompt/` at N=32 responses, a prompt of 8192 tokens, responses of 1024, 8 heads of width 128
in bf16, with as many heads of keys and values and with a quarter of them. Checked, timed and verified by the evaluator,
beside eager mode and torch.compile. Memory is what a call takes at its peak beyond its inputs. The arithmetic that either
has to do is counted from the shapes: rows times columns that they see, 4 * width flops a pair forward and 10 backward.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import Report, failure, parser, settings_of
from benchmarks.figures import header, row
from mtmc.evaluate.loading.modules import load_module
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import Task, load_task
from mtmc.task.constants import apply_constants

FOLDER = Path(__file__).parents[1] / "examples" / "shared_prompt"
SIZES = {"responses": 32, "prompt": 8192, "response": 1024, "heads": 8, "width": 128}
FORWARD, BACKWARD = 4, 10
"""Flops a pair of a row and a column it sees, per element of a head: two products forward, five backward."""


def flops(sizes: dict[str, int]) -> tuple[float, float]:
    """(with the prompt replicated, with it shared): causal pairs times what each costs."""
    each = sizes["heads"] * sizes["width"] * (FORWARD + BACKWARD)
    n, p, r = sizes["responses"], sizes["prompt"], sizes["response"]
    replicated = n * (p + r) ** 2 / 2
    shared = p**2 / 2 + n * (r * p + r**2 / 2)
    return each * replicated, each * shared


def variant(kv_heads: int) -> Task:
    """The task with so many heads of keys and values, everything else as in its text."""
    task = load_task(str(FOLDER / "task.py"))
    full = dataclasses.replace(task.full, constants=(("kv_heads", kv_heads),))
    return dataclasses.replace(task, name=f"shared_prompt_{kv_heads}", full=full)


def peak_bytes(task: Task, source: str, name: str) -> int:
    """Bytes of the device that one forward takes at its peak beyond its inputs."""
    import torch

    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        reference = load_module(apply_constants(task.source, task.full.constants), Path(folder) / "reference.py")
        module = load_module(source, Path(folder) / "candidate.py") if name == "ModelNew" else reference
        model: Any = getattr(module, name)()
        inputs = [tensor.cuda() for tensor in reference.get_inputs()]
        for _ in range(2):  # the first call compiles
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            model(*inputs)
            torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)


def compare(evaluator: Evaluator, kv_heads: int, source: str, report: Report) -> bool:
    """One table row; whether the kernel was right."""
    task = variant(kv_heads)
    [screened] = evaluator.evaluate([EvaluationRequest(task, source)])
    [verified] = evaluator.evaluate([EvaluationRequest(task, source, depth="verify")]) if screened.ok else [screened]
    if not verified.ok:
        report.say(f"\n**{kv_heads} heads of keys and values: {failure(verified)}**")
        return False
    found = evaluator.baselines(task)
    for name, outcome in found.items():
        if not outcome.ok:
            report.say(f"\n{name} with {kv_heads} heads of keys and values: {failure(outcome)}\n")
    baselines = {name: outcome.runtime_ms for name, outcome in found.items()}
    eager = verified.metrics.get("eager_ms", baselines.get("eager") or math.nan)
    _, needed = flops(SIZES)
    assert verified.runtime_ms is not None
    memory = [peak_bytes(task, source, name) / 2**30 for name in ("Model", "ModelNew")]
    report.data.setdefault("rows", []).append(
        {
            "kv_heads": kv_heads,
            "eager_ms": eager,
            "baselines_ms": baselines,
            "runtime_ms": verified.runtime_ms,
            "speedup": eager / verified.runtime_ms,
            "tflops": needed / verified.runtime_ms / 1e9,
            "gib": memory,
            "error": verified.metrics.get("error"),
        }
    )
    compiled = [f"{ms:.2f}" if ms else "none" for name, ms in baselines.items() if name != "eager"]
    report.say(
        row(kv_heads, f"{eager:.2f}", *compiled, f"{verified.runtime_ms:.2f}", f"{eager / verified.runtime_ms:.2f}x",
            f"{needed / verified.runtime_ms / 1e9:.0f}", *(f"{gib:.2f}" for gib in memory))
    )  # fmt: skip
    return True


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--kv-heads", type=int, nargs="*", default=[8, 2])
    arguments: argparse.Namespace = options.parse_args()
    source = (FOLDER / "kernel.py").read_text(encoding="utf-8")
    replicated, shared = flops(SIZES)
    with Report("Shared-prompt attention, forward and backward", arguments.out) as report:
        report.say(f"{replicated / 1e12:.1f} Tflop with the prompt replicated, {shared / 1e12:.1f} with it shared.\n")
        names = (
            "heads of k and v",
            "eager ms",
            "torch.compile ms",
            "max-autotune ms",
            "ours ms",
            "times faster",
            "Tflop/s",
        )
        report.say(header(*names, "eager GiB", "ours GiB"))
        with settings_of(arguments, timeout_s=300.0).open() as evaluator:
            good = [compare(evaluator, kv_heads, source, report) for kv_heads in arguments.kv_heads]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
