"""One answer of a candidate beside what it should be: inputs and weights unchanged, every output right."""

from __future__ import annotations

from typing import Any

from mtmc.evaluate.check.candidate import Answer
from mtmc.evaluate.reference.compare import check_output
from mtmc.evaluate.reference.reference import ExpectedOutputs
from mtmc.outcome import Diagnosis


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
    if answer.structure != expected.structure:
        message = f"the forward returns {answer.structure}, the reference {expected.structure}"
        return 0.0, wrong("Structure", message)
    worst = 0.0
    for at, (got, want) in enumerate(zip(answer.outputs, expected.outputs, strict=True)):
        name = "the output" if len(expected.outputs) == 1 else f"output {at}"
        if isinstance(got, str) or isinstance(want, str):
            if got != want:
                return worst, wrong("Type", f"{name} is {_kind(got)}, the reference's is {_kind(want)}")
            continue
        error, mismatch = check_output(name, got, want)
        if mismatch is not None:
            return worst, wrong(mismatch.kind, mismatch.message)
        worst = max(worst, error)
    return worst, None


def _kind(value: Any) -> str:
    return value if isinstance(value, str) else "a plain tensor"
