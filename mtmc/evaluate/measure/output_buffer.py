"""Handing over: inputs into the arena, outputs out of it, and whether they are right. The oracle's side."""

from __future__ import annotations

from typing import Any

import torch

from mtmc.evaluate.check.answers import Text
from mtmc.evaluate.check.candidate import Answer
from mtmc.evaluate.check.judge import judge
from mtmc.evaluate.check.layout import Place, dense_places, dense_strides, memory_of, place, stretch, view
from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.reference_state import output_bytes, tensors_of
from mtmc.evaluate.measure.wire import Output, Returned, places_of
from mtmc.evaluate.reference.blocks import equal_bits
from mtmc.evaluate.reference.reference import ExpectedOutputs
from mtmc.outcome import Diagnosis


class OutputBuffer:
    """Both pieces of the arena. judged: whether outputs must be right; those of the evaluator's own models set no
    standard."""

    def __init__(self, inputs: torch.Tensor, outputs: torch.Tensor, backend: DeviceBackend, judged: bool) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._backend = backend
        self.judged = judged

    def places(self, expected: ExpectedOutputs) -> tuple[Any, list[torch.Tensor]]:
        tensors = tensors_of(expected.inputs)
        spots, _ = place(tensors)
        return places_of(expected.inputs, spots), tensors

    def fill(self, places: Any, tensors: list[torch.Tensor], expected: ExpectedOutputs) -> None:
        """Write the inputs, and poison where right outputs will lie."""
        self.outputs[: output_bytes(expected)].view(torch.int64).fill_(-1)  # 0xFF; by the byte it takes longer
        for spot, tensor in zip(_flat_places(places), tensors, strict=True):
            stretch(self.inputs, spot).copy_(memory_of(tensor))

    def write(self, expected: ExpectedOutputs) -> Any:
        places, tensors = self.places(expected)
        self.fill(places, tensors, expected)
        return places

    def compare(self, said: Returned, expected: ExpectedOutputs, stage: str, where: str) -> float:
        """Norm-wise error of the outputs in the arena. Raises: Failed."""
        answer = self._answer(said, expected, stage)
        error, diagnosis = judge(answer, expected, where, stage)
        if diagnosis is not None and self.judged:
            raise Failed("wrong_result", diagnosis)
        return error

    def _answer(self, said: Returned, expected: ExpectedOutputs, stage: str) -> Answer:
        try:
            outputs: list[torch.Tensor | str] = []
            if len(said.state) != len(expected.left_state):
                raise ValueError(f"{len(said.state)} tensors of its state")
            stated = [_stand_in(item) for item in (*said.outputs, *said.state)]
            places, size = dense_places(stated)
            if size > self.outputs.numel():
                raise Failed("wrong_result", Diagnosis(stage, "Shape", f"the outputs take {size} bytes"))
            for item, spot in zip((*said.outputs, *said.state), places, strict=True):
                if isinstance(item, Text) or spot is None:
                    outputs.append(item.text if isinstance(item, Text) else "")
                    continue
                outputs.append(view(self.outputs, spot))
                if item.device != self._backend.device.type:
                    what = "an output" if len(outputs) <= len(said.outputs) else "a buffer"
                    message = f"{what} lies on {item.device!r}, not on {self._backend.device.type!r}"
                    raise Failed("wrong_result", Diagnosis(stage, "Device", message))
            count = len(said.outputs)
            return Answer(
                outputs[:count],
                said.structure,
                self._changed_inputs(expected),
                list(said.changed_parameters),
                list(said.changed_buffers),
                outputs[count:],
                self._left_inputs(expected),
            )
        except (TypeError, ValueError, AttributeError, RuntimeError) as error:
            message = f"the candidate's process answered nonsense: {error}"
            raise Failed("crash", Diagnosis(stage, "BadAnswer", message)) from error

    def _left_inputs(self, expected: ExpectedOutputs) -> dict[int, torch.Tensor]:
        """What lies now where the inputs are that the reference changes."""
        places, _ = place(tensors_of(expected.inputs))
        return {at: view(self.inputs, places[at]) for at in expected.left_inputs}

    def _changed_inputs(self, expected: ExpectedOutputs) -> list[int]:
        """Which input tensors are no longer what was written."""
        tensors = tensors_of(expected.inputs)
        pairs = zip(place(tensors)[0], tensors, strict=True)
        return [
            at
            for at, (spot, tensor) in enumerate(pairs)
            if not equal_bits(stretch(self.inputs, spot), memory_of(tensor))
        ]


def _stand_in(item: Output | Text) -> Any:
    """A tensor without memory of the stated type, shape and order, or the text of what is none.

    A false order is a false value: the elements are looked for where it says.
    """
    if isinstance(item, Text):
        return item.text
    strides = dense_strides(item.shape, item.order)
    return torch.empty_strided(item.shape, strides, dtype=getattr(torch, item.dtype), device="meta")


def _flat_places(value: Any) -> list[Place]:
    if isinstance(value, Place):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [spot for item in value for spot in _flat_places(item)]
    return []
