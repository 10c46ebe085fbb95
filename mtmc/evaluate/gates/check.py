"""The check gate: a candidate's outputs against the reference and the float64 oracle, under Triton's interpreter.

Fresh inputs at the small shapes and at shapes the candidate was not written for, from the task's own distribution and
from a wider one that is not centred at zero; all outputs; memory from `torch.empty` poisoned; inputs and parameters
unchanged; no access outside of a kernel's tensors. What passes is said in `mtmc.evaluate.gates.compare`. Runs in a check
worker (TRITON_INTERPRET=1), as two processes: this one, and a child with the candidate, which never sees an expected
value.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtmc.evaluate.pool.server import read_message, write_message
from mtmc.outcome import Diagnosis, Status
from mtmc.protocols import Depth
from mtmc.task import Task, Variant

SEED_STEP = 7919
"""Between the seeds of a run's cases: a prime, so that cases of neighbouring run seeds do not share inputs."""


@dataclass(frozen=True)
class Plan:
    """Cases to check: for each set of shapes the distributions to draw from."""

    variants: tuple[tuple[Variant, tuple[str, ...]], ...]

    @property
    def cases(self) -> list[tuple[int, Variant, str]]:
        """(serial number of the variant, variant, distribution), in order."""
        return [(at, variant, name) for at, (variant, names) in enumerate(self.variants) for name in names]


def plan(task: Task, depth: Depth, check_variants: int) -> Plan:
    """What a depth of evaluation checks.

    "screen": the small shapes from both distributions, and `check_variants` held-out shapes as the task draws them.
    "verify": everything from both.
    """
    both = ("drawn", "shifted")
    if depth == "verify":
        return Plan(tuple((variant, both) for variant in (task.small, *task.held_out)))
    return Plan(((task.small, both), *((variant, both[:1]) for variant in task.held_out[:check_variants])))


def warm(target_name: str, multiprocessors: int) -> None:
    """Once per warm process: import everything, mend the interpreter, run a small kernel. Raises: EvaluatorError for an
    unknown target."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import mtmc.evaluate.gates.candidate
    import mtmc.evaluate.gates.reference  # noqa: F401
    from mtmc.evaluate.gates.interpreter import prepare
    from mtmc.evaluate.gates.target import install_driver, target
    from mtmc.evaluate.gates.warmup import interpret_small_kernel

    torch.set_num_threads(1)
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
    from mtmc.evaluate.gates.autotune import pin_autotuners

    pin_autotuners(dict(autotuned))
    with _Candidate(source) as candidate:
        return _check_cases(candidate, task, plan(task, depth, check_variants), seed)


def _check_cases(candidate: _Candidate, task: Task, todo: Plan, seed: int) -> dict[str, Any]:
    from mtmc.evaluate.gates.reference import Reference

    references: dict[int, Reference] = {}
    worst, cases, exact = 0.0, 0, True
    for number, (at, variant, distribution) in enumerate(todo.cases):
        if at not in references:
            references[at] = Reference(task, variant, Path.cwd(), seed)
        reference, case_seed = references[at], seed + SEED_STEP * (number + 1)
        truth = reference.truth(distribution, case_seed)  # type: ignore[arg-type]
        if truth is None:
            continue
        answer = candidate.ask(task, at, variant, reference.arguments, truth.inputs, seed, case_seed)
        where = f"{variant.label} shapes, {distribution} inputs"
        if isinstance(answer, _Failure):
            return answer.to_json(where)
        error, diagnosis = _judge(answer, truth, where)
        if diagnosis is not None:
            return _Failure("wrong_result", diagnosis).to_json("")
        worst, cases = max(worst, error), cases + 1
        exact = exact and truth.exact
    return {"metrics": {"error": worst, "cases": float(cases), "float64_oracle": float(exact)}}


def _judge(answer: Any, truth: Any, where: str) -> tuple[float, Diagnosis | None]:
    """Largest norm-wise error over the outputs of one case, and the first thing that is wrong with it."""
    from mtmc.evaluate.gates.compare import check_output

    mutated = [at for at in answer.changed_inputs if at not in truth.changed_inputs]
    if mutated:
        return 0.0, _wrong("InputMutated", f"the forward changed its input {mutated[0]} in place", where)
    if answer.changed_parameters:
        return 0.0, _wrong("ParameterMutated", f"the forward changed parameter {answer.changed_parameters[0]}", where)
    if answer.structure != truth.structure:
        message = f"the forward returns {answer.structure}, the reference {truth.structure}"
        return 0.0, _wrong("Structure", message, where)
    worst = 0.0
    for at, (got, want) in enumerate(zip(answer.outputs, truth.outputs, strict=True)):
        name = "the output" if len(truth.outputs) == 1 else f"output {at}"
        if isinstance(got, str) or isinstance(want, str):
            if got != want:
                return worst, _wrong("Type", f"{name} is {_kind(got)}, the reference's is {_kind(want)}", where)
            continue
        error, mismatch = check_output(name, got, want)
        if mismatch is not None:
            return worst, _wrong(mismatch.kind, mismatch.message, where)
        worst = max(worst, error)
    return worst, None


def _kind(value: Any) -> str:
    return value if isinstance(value, str) else "a plain tensor"


def _wrong(kind: str, message: str, where: str) -> Diagnosis:
    return Diagnosis("check", kind, f"{message} ({where})")


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
        self._source = source
        self._socket, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            from mtmc.evaluate.gates.candidate import serve

            self._socket.close()
            serve(theirs, source)
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
        serial: int,
        variant: Variant,
        arguments: list[Any],
        inputs: list[Any],
        model_seed: int,
        forward_seed: int,
    ) -> Any:
        """Run one case: an `Answer`, or a `_Failure` where there is none."""
        from mtmc.evaluate.gates.candidate import Case, unpack

        case = Case(serial, variant.constants, arguments, task.state, model_seed, forward_seed, inputs)
        try:
            write_message(self._socket, pickle.dumps(case))
            header, body = _read_answer(self._socket)
            if "failure" in header:
                return _Failure("crash", Diagnosis(**header["failure"]))
            if "out_of_memory" in header:
                message = f"the candidate ran out of memory: {header['out_of_memory']}"
                return _Failure("out_of_memory", Diagnosis("check", "MemoryError", message))
            return unpack(header, body)
        except (EOFError, OSError):
            return self._death()
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            return _Failure(
                "crash", Diagnosis("check", "BadAnswer", f"the candidate's process answered nonsense: {error}")
            )

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
