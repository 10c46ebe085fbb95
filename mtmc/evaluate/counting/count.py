"""The count behind an estimate: what a candidate's forward moves and computes at the task's full shapes.

A job in a check worker: the candidate's kernels must be interpreted, see `mtmc.evaluate.counting.traffic`.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from mtmc.errors import EvaluatorError
from mtmc.evaluate.gates.diagnosis import diagnose_exception
from mtmc.evaluate.gates.loading import candidate_text, construct, draw_inputs, init_inputs, load_module, load_reference
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.task import Task


def count(task: Task, source: str, autotuned: dict[str, int]) -> dict[str, Any]:
    """Count a candidate's forward in the present folder.

    autotuned: configuration of each autotuned kernel, as the build chose.
    Returns: {"records": see `count_traffic`}, or {"failure": {"status", "diagnosis"}} where a kernel fails at the full
    shapes. Raises: TaskError if the reference fails; EvaluatorError if counting itself cannot work.
    """
    from mtmc.evaluate.counting.traffic import count_traffic, fake_tensors
    from mtmc.evaluate.gates.autotune import pin_autotuners

    folder = Path.cwd()
    path = folder / "mtmc_candidate.py"
    text = candidate_text(source, task.full.constants)
    pin_autotuners(dict(autotuned))
    with fake_tensors():
        reference = load_reference(task, task.full, folder)
        arguments = init_inputs(reference, task.full, 0)
        inputs = draw_inputs(reference, task.full, 0)
        try:
            model = construct(load_module(text, path), "ModelNew", arguments, 0, None)
            return {"records": count_traffic(model, inputs)}
        except EvaluatorError:
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            diagnosis = diagnose_exception("estimate", error, str(path), text)
            return {"failure": {"status": "crash", "diagnosis": asdict(diagnosis)}}
