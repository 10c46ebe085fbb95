"""The check gate: a candidate's outputs against the reference and the float64 oracle, under Triton's interpreter.

Fresh inputs at the small shapes and at shapes the candidate was not written for, from the task's own distribution and
from others (not centred at zero; samples of very different size), also with weights that hide no work; all outputs;
memory from `torch.empty` poisoned; inputs and parameters unchanged; no access outside of a kernel's tensors. What
passes is said in `mtmc.evaluate.reference.compare`. Runs in a check worker (TRITON_INTERPRET=1), as two processes: this one,
and a child with the candidate, which never sees an expected value.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import TaskError
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check.answers import OutOfMemory, Raised, Result
from mtmc.evaluate.check.cases import Checked, Plan, PlannedCase, call_name, plan
from mtmc.evaluate.plain import from_plain
from mtmc.evaluate.pool.messages import read_message, write_message
from mtmc.evaluate.reference.weaknesses import Weaknesses
from mtmc.outcome import Diagnosis
from mtmc.protocols import Depth
from mtmc.task import Task

if TYPE_CHECKING:
    from mtmc.evaluate.check.candidate import Answer
    from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
    from mtmc.evaluate.reference.reference import Reference

SEED_STEP = 7919
"""Between the seeds of a run's cases: a prime, so that cases of neighbouring run seeds do not share inputs."""


def warm(target_name: str, multiprocessors: int) -> None:
    """Once per warm process: import everything, correct the interpreter, run a small kernel. Raises: EvaluatorError for an
    unknown target."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import mtmc.evaluate.check.candidate
    import mtmc.evaluate.reference.reference  # noqa: F401
    from mtmc.evaluate.compiling.stand_in import swap_fake_parameters
    from mtmc.evaluate.compiling.target import install_driver, target
    from mtmc.evaluate.compiling.warmup import interpret_small_kernel
    from mtmc.evaluate.interpreter.interleaving import share_memory_of_threads
    from mtmc.evaluate.interpreter.interpreter import prepare

    torch.set_num_threads(1)
    share_memory_of_threads()
    swap_fake_parameters()  # traffic is counted on fake tensors here
    chosen = target(target_name)
    install_driver(chosen, multiprocessors)
    prepare("tf32" if chosen.backend == "cuda" else "ieee")
    interpret_small_kernel()
    with FakeTensorMode(), torch.no_grad():
        torch.nn.functional.gelu(torch.nn.Linear(8, 8)(torch.randn(2, 8))).softmax(-1).sum()


def check(
    task: Task, source: str, seed: int, depth: Depth, check_variants: int, autotuned: Mapping[str, int]
) -> Checked | Failure:
    """Check a candidate in the present folder.

    autotuned: configuration of each autotuned kernel, as the build chose.
    Raises: TaskError if the reference itself fails.
    """
    from mtmc.evaluate.compiling.autotune import pin_autotuners

    pin_autotuners(dict(autotuned))
    with _Candidate(source) as candidate:
        return _check_cases(candidate, task, plan(task, depth, check_variants), seed)


def weaknesses(task: Task) -> Weaknesses:
    """Look a task over at its small shapes. Raises: TaskError if it is refused."""
    from mtmc.evaluate.reference.admission import admit

    return admit(task, "cpu", Path.cwd()).weaknesses


def _check_cases(candidate: _Candidate, task: Task, todo: Plan, seed: int) -> Checked | Failure:
    from mtmc.evaluate.check.judge import judge

    references: dict[bool, Reference | None] = {}  # of the present case's model, by whether its weights are moved
    serial = -1
    worst, cases, exact = 0.0, 0, True
    for number, planned in enumerate(todo.cases):
        if planned.serial != serial:
            references, serial = {}, planned.serial
        case_seed = seed + SEED_STEP * (number + 1)
        case, calls = _expected(task, planned, references, seed, case_seed, todo.calls)
        if calls is None:
            continue
        reference = references[case.moved]
        assert reference is not None
        for at, expected in enumerate(calls):
            where = call_name(case.where, at, len(calls))
            answer = candidate.ask(task, case, reference.arguments, expected, seed, case_seed)
            if isinstance(answer, Failure):
                message = f"{answer.diagnosis.message} ({where})"
                return Failure(answer.status, replace(answer.diagnosis, message=message))
            error, diagnosis = judge(answer, expected, where)
            if diagnosis is not None:
                return Failure("wrong_result", diagnosis)
            worst = max(worst, error)
            exact = exact and expected.exact
        cases += 1
    return Checked(worst, cases, exact)


def _expected(
    task: Task, planned: PlannedCase, references: dict[bool, Reference | None], seed: int, case_seed: int, count: int
) -> tuple[PlannedCase, list[ExpectedOutputs] | None]:
    """The case, or the first that can take its place, and what its calls should give; None where there is none.

    references: of its model, found once. count: of calls in a row, see `Plan`."""
    for case in planned.attempts:
        if case.moved not in references:
            references[case.moved] = _reference(task, case, seed)
        reference = references[case.moved]
        if reference is None:
            continue
        calls = reference.expected(case.distribution, case_seed, count)  # type: ignore[arg-type]
        if calls is not None:
            return case, calls
    return planned, None


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


class _Candidate:
    """This side of the process that holds the candidate."""

    def __init__(self, source: str) -> None:
        from mtmc.evaluate.check.shared_input import SharedInputBuffer

        self._buffer = SharedInputBuffer()
        self._socket, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            from mtmc.evaluate.check.candidate import serve

            self._socket.close()
            serve(theirs, source, self._buffer)
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
        expected: ExpectedOutputs,
        model_seed: int,
        forward_seed: int,
    ) -> Answer | Failure:
        """Run one case: its answer, or a failure where there is none. Raises: TaskError as `SharedInputBuffer.put` does."""
        from mtmc.evaluate.check.candidate import Case, unpack

        constants = planned.variant.constants
        placed = self._buffer.put(expected.inputs)
        case = Case(
            planned.serial,
            constants,
            arguments,
            task.state,
            model_seed,
            forward_seed,
            placed,
            planned.moved,
            tuple(expected.left_state),
            expected.untouched,
            expected.first,
        )
        try:
            write_message(self._socket, pickle.dumps(case))
            said = from_plain(Result | Raised | OutOfMemory, json.loads(read_message(self._socket).decode()))
            body = read_message(self._socket)
            if isinstance(said, Raised):
                return Failure("crash", said.diagnosis)
            if isinstance(said, OutOfMemory):
                message = f"the candidate ran out of memory: {said.message}"
                return Failure("out_of_memory", Diagnosis("check", "MemoryError", message))
            answer = unpack(said, body)
            if len(answer.state) != len(expected.left_state):
                raise ValueError(f"{len(answer.state)} tensors of its state")
        except (EOFError, OSError):
            return self._death()
        except (AttributeError, ValueError, TypeError, RuntimeError) as error:
            message = f"the candidate's process answered nonsense: {error}"
            return Failure("crash", Diagnosis("check", "BadAnswer", message))
        changed = sorted({*answer.changed_inputs, *self._buffer.changed(expected.inputs)})
        return replace(answer, changed_inputs=changed, left_inputs=self._buffer.left(expected.left_inputs))

    def _death(self) -> Failure:
        _, self._status = os.waitpid(self._pid, 0)
        if not os.WIFSIGNALED(self._status):
            message = "the candidate's process ended before it answered"
            return Failure("crash", Diagnosis("check", "ProcessExit", message))
        name = signal.Signals(os.WTERMSIG(self._status)).name
        message = f"the candidate's process was ended by {name} in its forward"
        return Failure("out_of_memory" if name == "SIGKILL" else "crash", Diagnosis("check", name, message))
