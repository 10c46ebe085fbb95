"""Does a task's output say enough to tell work from none? Answers that take no work are put to the checks.

Such *null answers* are zeros, one number throughout, what other inputs give, and what other weights give. Where each output
of a reference passes for one of them in every kind of check, whatever is faster than the reference may have left the work
out, and no comparison of results will ever show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mtmc.errors import TaskError
from mtmc.evaluate.reference.blocks import same_bits
from mtmc.evaluate.reference.compare import check_output
from mtmc.evaluate.reference.distributions import Distribution
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.reference import Reference
from mtmc.evaluate.reference.returned import tensors_in
from mtmc.task import Task
from mtmc.task.tensors import flat_tensors

NULL_ANSWERS = {
    "zeros": "zeros pass for it",
    "constant": "one number throughout passes for it",
    "inputs": "it stays the same whatever the inputs are",
    "weights": "it stays the same whatever the weights are",
}
ASKED: tuple[tuple[Distribution, bool], ...] = (("drawn", False), ("spiky", False), ("drawn", True), ("spiky", True))
"""(distribution of the inputs, whether weights are moved) of the cases in which each null answer has to pass."""


def undecided(task: Task, device: str, folder: Path, seeds: tuple[int, int]) -> str:
    """Why no version of a task can be told from one that does no work: a part of a sentence, "" where it can.

    Asked at the small shapes, where every output has an oracle. seeds: of weights and inputs, and of others.
    Raises: TaskError if the reference fails there.
    """
    left: list[set[str]] | None = None  # by output, the null answers that have passed so far
    for distribution, moved in ASKED:
        for passed in _passing(task, device, folder, seeds, distribution, moved):
            left = passed if left is None else [a & b for a, b in zip(left, passed, strict=True)]
        if left is not None and not all(left):
            return ""
    if not left:
        return ""
    told = [
        f"output {at}: {NULL_ANSWERS[next(n for n in NULL_ANSWERS if n in names)]}" for at, names in enumerate(left)
    ]
    return "its output says too little to tell work from none: " + "; ".join(told)


def _passing(
    task: Task, device: str, folder: Path, seeds: tuple[int, int], distribution: Distribution, moved: bool
) -> Iterator[list[set[str]]]:
    """For each tensor of the result the null answers that pass for it, in a case that the reference takes."""
    try:
        reference = Reference(task, task.small, folder, seeds[0], device, moved)
        calls = reference.expected(distribution, seeds[0])
    except TaskError:
        if not moved:
            raise
        return
    if calls is None or len(calls) > 1:  # a reference that changes something tells by that, too
        return
    answers = _null_answers(reference, calls[0], distribution, seeds)
    wanted = [each for each in calls[0].outputs if not isinstance(each, str) and each.value.numel()]
    yield [
        {name for name, each in answers.items() if check_output("", each[at], want)[1] is None}
        for at, want in enumerate(wanted)
    ]


def _null_answers(
    reference: Reference, expected: ExpectedOutputs, distribution: Distribution, seeds: tuple[int, int]
) -> dict[str, list[torch.Tensor]]:
    """The tensors of each null answer that there is: a reference may have no inputs that are drawn, or no weights."""
    values = [each.value for each in expected.outputs if not isinstance(each, str) and each.value.numel()]
    answers = {"zeros": [torch.zeros_like(value) for value in values]}
    others = reference.drawn(distribution, seeds[1])
    if not all(map(_same, flat_tensors(expected.inputs), flat_tensors(others))):
        answers["inputs"] = _tensors(reference.run(others, seeds[0]))
        # Of other inputs: who does no work knows no level of these, and a single number is its own.
        answers["constant"] = [_level(value) for value in answers["inputs"]]
    if any(parameter.is_floating_point() for parameter in reference.model.parameters()):
        other = reference.other_model(seeds[1])
        answers["weights"] = _tensors(reference.run(expected.inputs, seeds[0], other))
    alike = [value.shape for value in values]
    return {name: each for name, each in answers.items() if [value.shape for value in each] == alike}


def _level(value: torch.Tensor) -> torch.Tensor:
    """The mean of a floating tensor in all of its places, the middle of the range of integers, or the first element."""
    first = value.reshape(-1)[0]
    if value.is_complex() or value.dtype == torch.bool:
        return first.expand_as(value)
    if value.is_floating_point():
        return torch.full_like(value, value.double().mean().item())
    low, high = (int(end) for end in torch.aminmax(value))
    return torch.full_like(value, (low + high) // 2)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and bool(same_bits(one, other))


def _tensors(result: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(result) if tensor.numel()]
