"""target: what is profiled: a version's forward at the full shapes, in a process inside the sandbox.

It warms up first (kernels are compiled, algorithms of libraries chosen), and only then lets the profiler see anything.
How it went is printed; what it prints and leaves is evidence of a candidate's process, and no verdict rests on it.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Literal

How = Literal["ncu", "proton"]
JOB, PROFILE = "job.pickle", "profile"
"""Files in the folder of the process: what it is to do, and what Proton writes (with the ending .hatchet)."""
DONE = "mtmc: profiled"
"""Printed when the forward has run under the profiler."""
WARM_UPS, CALLS = 3, 10
"""Calls before the profiler looks, and under Proton; under ncu it is one, whose kernels are launched once a counter."""


def main(how: How) -> None:
    """Profile what `JOB` names, in the present folder."""
    import torch

    torch.set_grad_enabled(False)
    task, source = pickle.loads(Path(JOB).read_bytes())
    model, inputs = _made(task, source)
    for _ in range(WARM_UPS):
        model(*inputs)
    torch.cuda.synchronize()
    _with_counters(model, inputs) if how == "ncu" else _with_proton(model, inputs)
    print(DONE, flush=True)


def _made(task: Any, source: str) -> tuple[Any, list[Any]]:
    """The version's module and its inputs on the device."""
    from mtmc.evaluate.loading.modules import candidate_text, construct, draw_inputs, init_inputs, load_module
    from mtmc.evaluate.loading.modules import load_reference as load

    folder = Path.cwd()
    reference = load(task, task.full, folder)
    arguments = init_inputs(reference, task.full, 0, device="cuda")
    module = load_module(candidate_text(source, task.full.constants), folder / "mtmc_candidate.py")
    model = construct(module, "ModelNew", arguments, 0, task.state, device="cuda")
    return model, draw_inputs(reference, task.full, 0, device="cuda")


def _with_counters(model: Any, inputs: list[Any]) -> None:
    import torch

    torch.cuda.cudart().cudaProfilerStart()
    model(*inputs)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def _with_proton(model: Any, inputs: list[Any]) -> None:
    import torch
    import triton.profiler as proton

    proton.start(PROFILE, context="shadow")
    for _ in range(CALLS):
        model(*inputs)
    torch.cuda.synchronize()
    proton.finalize()
