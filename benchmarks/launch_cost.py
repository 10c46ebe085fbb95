"""What a call costs the host, by how its kernel is launched: the same small kernel by Triton, directly, in torch's modes.

    PYTHONPATH=. python benchmarks/launch_cost.py --out results/launch_cost

The two examples of the optimization direct_launch, their reference in eager mode, under torch.compile, and as a CUDA graph.
Calls in a row without waiting, so that the host is the limit; the best of some rounds. Needs a GPU.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import Report, parser
from benchmarks.figures import header, row
from mtmc.agents.coders.playbook import page
from mtmc.task import load_task

CALLS, ROUNDS = 500, 20


def loaded(source: str, folder: Path, name: str) -> Any:
    """A text as a module."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def microseconds(forward: Callable[..., Any], x: torch.Tensor) -> float:
    """Of the host a call, the best of some rounds."""
    for _ in range(20):
        forward(x)
    best = float("inf")
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(CALLS):
            forward(x)
        best = min(best, (time.perf_counter() - started) / CALLS)
    torch.cuda.synchronize()
    return best * 1e6


def replayed(model: Any, x: torch.Tensor) -> Callable[[torch.Tensor], Any]:
    """A CUDA graph of a model, its input copied in and its result copied out."""
    own, graph = x.clone(), torch.cuda.CUDAGraph()
    model(own)
    with torch.cuda.graph(graph):
        result = model(own)

    def forward(given: torch.Tensor) -> torch.Tensor:
        own.copy_(given)
        graph.replay()
        return result.clone()

    return forward


def main() -> int:
    arguments = parser(__doc__).parse_args()
    if not torch.cuda.is_available():
        print("needs a GPU: none is visible to torch", file=sys.stderr)
        return 1
    torch.set_grad_enabled(False)
    found = page("direct_launch")
    with tempfile.TemporaryDirectory() as folder:
        task = loaded(load_task(str(task_file())).source, Path(folder), "reference")
        plain = loaded(found.before, Path(folder), "plain").ModelNew()
        direct = loaded(found.after, Path(folder), "direct").ModelNew()
        reference, [x] = task.Model(), [each.cuda() for each in task.get_inputs()]
        assert torch.allclose(plain(x), reference(x)) and torch.allclose(direct(x), reference(x))
        ways = {
            "eager, three ops": reference,
            "torch.compile": torch.compile(reference),
            "launched by Triton": plain,
            "launched directly": direct,
            "as a CUDA graph": replayed(plain, x),
        }
        times = {name: microseconds(forward, x) for name, forward in ways.items()}
    with Report("What a call costs the host", arguments.out) as report:
        report.say(header("way", "us a call", "launched by Triton over it"))
        for name, us in times.items():
            report.say(row(name, f"{us:.1f}", f"{times['launched by Triton'] / us:.2f}x"))
        report.data["us"] = times
    return 0


def task_file() -> Path:
    """The example's reference."""
    import mtmc.optimizations.examples as examples

    return Path(examples.__file__).parent / "direct_launch_task.py"


if __name__ == "__main__":
    sys.exit(main())
