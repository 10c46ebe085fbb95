"""One answer of a candidate beside what it should be: every output right, and left behind what the reference leaves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from mtmc.evaluate.check.answers import MISSING
from mtmc.evaluate.check.candidate import Answer
from mtmc.evaluate.reference.compare import check_output
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.returned import fits
from mtmc.evaluate.reference.small_outputs import right_ones
from mtmc.outcome import Diagnosis

LEFT = "after the call (the reference changes it)"
_BUFFER = re.compile(rf"buffer ('[^']*'|\"[^\"]*\") {re.escape(LEFT)}")


def judge(
    answer: Answer, expected: ExpectedOutputs, where: str, stage: str = "check"
) -> tuple[float, Diagnosis | None]:
    """Largest norm-wise error over the outputs of one case, and the first thing that is wrong with it."""

    def wrong(kind: str, message: str) -> Diagnosis:
        return Diagnosis(stage, kind, f"{message} ({where})")

    mutated = [at for at in answer.changed_inputs if at not in expected.changed_inputs]
    if mutated:
        return 0.0, wrong("InputMutated", f"the forward changed its input {mutated[0]} in place")
    if answer.changed_parameters:
        return 0.0, wrong("ParameterMutated", f"the forward changed parameter {answer.changed_parameters[0]}")
    if answer.changed_buffers:
        message = f"the forward changed buffer {answer.changed_buffers[0]!r}, which the reference leaves as it is"
        return 0.0, wrong("BufferMutated", message)
    if not fits(answer.structure, expected.structure):
        message = f"the forward returns {answer.structure}, the reference {expected.structure}"
        return 0.0, wrong("Structure", message)
    worst, pairs = 0.0, list(_pairs(answer, expected))
    tensors = [at for at, (_, got, want) in enumerate(pairs) if not (isinstance(got, str) or isinstance(want, str))]
    right = {tensors[at]: error for at, error in right_ones([pairs[at][1:] for at in tensors]).items()}
    for at, (name, got, want) in enumerate(pairs):
        if at in right:
            worst = max(worst, right[at])
            continue
        if isinstance(got, str) or isinstance(want, str):
            if got == MISSING:
                return worst, wrong(
                    "Buffer", f"{name} is missing: register it in __init__, and leave in it what the reference does"
                )
            if got != want:
                return worst, wrong("Type", f"{name} is {_kind(got)}, the reference's is {_kind(want)}")
            continue
        error, mismatch = check_output(name, got, want)
        if mismatch is not None:
            return worst, wrong(mismatch.kind, mismatch.message)
        worst = max(worst, error)
    return worst, None


def _pairs(answer: Answer, expected: ExpectedOutputs) -> Iterator[tuple[str, Any, Any]]:
    """What to compare: its name, what there is, and what is expected. What is left behind comes first: an output that is
    wrong since the call before left something wrong behind says less."""
    for at, want in expected.left_inputs.items():
        yield f"input {at} {LEFT}", answer.left_inputs[at], want
    for (path, want), got in zip(expected.left_state.items(), answer.state, strict=True):
        yield f"buffer {path!r} {LEFT}", got, want
    for at, (got, output) in enumerate(zip(answer.outputs, expected.outputs, strict=True)):
        yield "the output" if len(expected.outputs) == 1 else f"output {at}", got, output


def blamed_buffer(message: str) -> str | None:
    """Path of the buffer that a diagnosis of `judge` is about; None where it is about something else."""
    found = _BUFFER.match(message)
    return None if found is None else str(ast.literal_eval(found[1]))


def _kind(value: Any) -> str:
    return value if isinstance(value, str) else "a plain tensor"
