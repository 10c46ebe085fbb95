"""Run as a program in Triton's interpreter: a showcase's kernel against its reference in float64, at every small shape.

Argument: the showcase's folder. Writes {shapes: [[error, the reference's own error] of each output]}, for bf16 and fp32.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch

from mtmc.evaluate.interpreter.interpreter import prepare
from mtmc.evaluate.loading.modules import candidate_text, load_module
from mtmc.task import load_task
from mtmc.task.constants import apply_constants


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Norm-wise."""
    return float((found.double() - exact).norm() / exact.norm())


def outputs(result: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """All tensors of a forward."""
    return (result,) if isinstance(result, torch.Tensor) else result


def main() -> None:
    prepare()
    folder = Path(sys.argv[1])
    task, source = load_task(str(folder / "task.py")), (folder / "kernel.py").read_text(encoding="utf-8")
    results = {}
    for variant in (task.small, *task.held_out):
        with tempfile.TemporaryDirectory() as name:
            reference = load_module(apply_constants(task.source, variant.constants), Path(name) / "reference.py")
            candidate = load_module(candidate_text(source, variant.constants), Path(name) / "candidate.py")
        for dtype in (torch.bfloat16, torch.float32):
            torch.manual_seed(0)
            inputs = [tensor.to(dtype) for tensor in reference.get_inputs()]
            model, new = (
                module(*reference.get_init_inputs()).to(dtype) for module in (reference.Model, candidate.ModelNew)
            )
            new.load_state_dict(model.state_dict())
            with torch.no_grad():
                ours, theirs = outputs(new(*inputs)), outputs(model(*inputs))
                exact = outputs(model.double()(*[tensor.double() for tensor in inputs]))
            pairs = [[error(a, c), error(b, c)] for a, b, c in zip(ours, theirs, exact, strict=True)]
            results[f"{variant.label} {dtype}"] = pairs
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
