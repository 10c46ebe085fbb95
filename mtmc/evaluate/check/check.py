"""The check gate: a candidate's outputs against the reference and the float64 oracle, under Triton's interpreter.

Fresh inputs at the small shapes and at shapes the candidate was not written for, from the task's own distribution and
from others (not centred at zero; samples of very different size), also with weights that hide no work; all outputs;
memory from `torch.empty` poisoned; inputs and parameters unchanged; no access outside of a kernel's tensors. What
passes is said in `mtmc.evaluate.reference.compare`. Runs in a check worker (TRITON_INTERPRET=1), as two processes: this one,
and a child with the candidate, which never sees an expected value.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import TaskError
from mtmc.evaluate.check.cases import Plan, PlannedCase, plan
from mtmc.evaluate.pool.server import read_message, write_message
from mtmc.outcome import Diagnosis, Status
from mtmc.protocols import Depth
from mtmc.task import Task

if TYPE_CHECKING:
    from mtmc.evaluate.reference.reference import Reference

SEED_STEP = 7919
"""Between the seeds of a run's cases: a prime, so that cases of neighbouring run seeds do not share inputs."""


def warm(target_name: str, multiprocessors: int) -> None:
    """Once per warm process: import everything, mend the interpreter, run a small kernel. Raises: EvaluatorError for an
    unknown target."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import mtmc.evaluate.check.candidate
    import mtmc.evaluate.reference.reference  # noqa: F401
    from mtmc.evaluate.compiling.stand_in import swap_fake_parameters
    from mtmc.evaluate.compiling.target import install_driver, target
    from mtmc.evaluate.compiling.warmup import interpret_small_kernel
    from mtmc.evaluate.interpreter.interpreter import prepare

    torch.set_num_threads(1)
    swap_fake_parameters()  # traffic is counted on fake tensors here
    chosen = target(target_name)
    install_driver(chosen, multiprocessors)
    prepare("tf32" if chosen.backend == "cuda" else "ieee")
    interpret_small_kernel()
    with FakeTensorMode(), torch.no_grad():
        torch.nn.functional.gelu(torch.nn.Linear(8, 8)(torch.randn(2, 8))).softmax(-1).sum()


def check(
    task: Task, source: str, seed: int, depth: Depth, check_variants: int, autotuned: dict[str, int]
) -> dict[str, Any]:
    """Check a candidate in the present folder.

    autotuned: configuration of each autotuned kernel, as the build chose.
    Returns: {"metrics": ...} where it is right: "error" (the largest norm-wise one), "cases" (forwards compared),
    "float64_oracle" (1, or 0 where the reference does not run in float64); else {"failure": {"status", "diagnosis"}}.
    Raises: TaskError if the reference itself fails.
    """
    from mtmc.evaluate.compiling.autotune import pin_autotuners

    pin_autotuners(dict(autotuned))
    with _Candidate(source) as candidate:
        return _check_cases(candidate, task, plan(task, depth, check_variants), seed)


def _check_cases(candidate: _Candidate, task: Task, todo: Plan, seed: int) -> dict[str, Any]:
    from mtmc.evaluate.check.judge import judge

    reference: Reference | None = None
    serial = -1
    worst, cases, exact = 0.0, 0, True
    for number, case in enumerate(todo.cases):
        if case.serial != serial:
            reference, serial = _reference(task, case, seed), case.serial
        case_seed = seed + SEED_STEP * (number + 1)
        truth = reference.truth(case.distribution, case_seed) if reference is not None else None  # type: ignore[arg-type]
        if reference is None or truth is None:
            continue
        answer = candidate.ask(task, case, reference.arguments, truth.inputs, seed, case_seed)
        if isinstance(answer, _Failure):
            return answer.to_json(case.where)
        error, diagnosis = judge(answer, truth, case.where)
        if diagnosis is not None:
            return _Failure("wrong_result", diagnosis).to_json("")
        worst, cases = max(worst, error), cases + 1
        exact = exact and truth.exact
    return {"metrics": {"error": worst, "cases": float(cases), "float64_oracle": float(exact)}}


def _reference(task: Task, case: PlannedCase, seed: int) -> Reference | None:
    """The reference of a case's model; None where weights are to be moved and its constructor refuses, or has none such."""
    from mtmc.evaluate.reference.blocks import differ
    from mtmc.evaluate.reference.reference import Reference

    try:
        reference = Reference(task, case.variant, Path.cwd(), seed, moved=case.moved)
    except TaskError:
        if not case.moved:
            raise
        return None
    if case.moved:
        plain = Reference(task, case.variant, Path.cwd(), seed)
        if not any(map(differ, _weights(reference.model), _weights(plain.model))):
            return None
    return reference


def _weights(model: Any) -> list[Any]:
    """Parameters, buffers, and the plain tensors that modules keep as attributes."""
    import torch

    attributes = [value for module in model.modules() for value in vars(module).values()]
    return [*model.parameters(), *model.buffers(), *(value for value in attributes if isinstance(value, torch.Tensor))]


@dataclass(frozen=True)
class _Failure:
    status: Status
    diagnosis: Diagnosis

    def to_json(self, where: str) -> dict[str, Any]:
        data = asdict(self.diagnosis)
        data["message"] += f" ({where})" if where else ""
        return {"failure": {"status": self.status, "diagnosis": data}}


class _Candidate:
    """This side of the process that holds the candidate."""

    def __init__(self, source: str) -> None:
        from mtmc.evaluate.check.tray import Tray

        self._tray = Tray()
        self._socket, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            from mtmc.evaluate.check.candidate import serve

            self._socket.close()
            serve(theirs, source, self._tray)
        theirs.close()
        self._status: int | None = None

    def __enter__(self) -> _Candidate:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def ask(
        self,
        task: Task,
        planned: PlannedCase,
        arguments: list[Any],
        inputs: list[Any],
        model_seed: int,
        forward_seed: int,
    ) -> Any:
        """Run one case: an `Answer`, or a `_Failure` where there is none. Raises: TaskError as `Tray.put` does."""
        from mtmc.evaluate.check.candidate import Case, unpack

        constants = planned.variant.constants
        placed = self._tray.put(inputs)
        case = Case(planned.serial, constants, arguments, task.state, model_seed, forward_seed, placed, planned.moved)
        try:
            write_message(self._socket, pickle.dumps(case))
            header, body = _read_answer(self._socket)
            if "failure" in header:
                return _Failure("crash", Diagnosis(**header["failure"]))
            if "out_of_memory" in header:
                message = f"the candidate ran out of memory: {header['out_of_memory']}"
                return _Failure("out_of_memory", Diagnosis("check", "MemoryError", message))
            answer = unpack(header, body)
        except (EOFError, OSError):
            return self._death()
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            return _Failure(
                "crash", Diagnosis("check", "BadAnswer", f"the candidate's process answered nonsense: {error}")
            )
        changed = sorted({*answer.changed_inputs, *self._tray.changed(inputs)})
        return replace(answer, changed_inputs=changed)

    def _death(self) -> _Failure:
        _, self._status = os.waitpid(self._pid, 0)
        if not os.WIFSIGNALED(self._status):
            message = "the candidate's process ended before it answered"
            return _Failure("crash", Diagnosis("check", "ProcessExit", message))
        name = signal.Signals(os.WTERMSIG(self._status)).name
        message = f"the candidate's process was ended by {name} in its forward"
        return _Failure("out_of_memory" if name == "SIGKILL" else "crash", Diagnosis("check", name, message))


def _read_answer(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    import json

    header = json.loads(read_message(connection).decode())
    return header, read_message(connection)
