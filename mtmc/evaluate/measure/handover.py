"""Handing over: inputs into the arena, outputs out of it, and whether they are right. The oracle's side."""

from __future__ import annotations

from typing import Any

import torch

from mtmc.evaluate.check.answers import Text
from mtmc.evaluate.check.candidate import Answer
from mtmc.evaluate.check.judge import judge
from mtmc.evaluate.check.layout import Place, dense_places, dense_strides, memory_of, place, stretch, view
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.fabric import Fabric
from mtmc.evaluate.measure.grounds import output_bytes, tensors_of
from mtmc.evaluate.measure.wire import Output, Returned, places_of
from mtmc.evaluate.reference.blocks import equal_bits
from mtmc.evaluate.reference.reference import Truth
from mtmc.outcome import Diagnosis


class Handover:
    """Both pieces of the arena. judged: whether outputs must be right; those of the evaluator's own models set no
    standard."""

    def __init__(self, inputs: torch.Tensor, outputs: torch.Tensor, fabric: Fabric, judged: bool) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._fabric = fabric
        self.judged = judged

    def places(self, truth: Truth) -> tuple[Any, list[torch.Tensor]]:
        tensors = tensors_of(truth.inputs)
        spots, _ = place(tensors)
        return places_of(truth.inputs, spots), tensors

    def fill(self, places: Any, tensors: list[torch.Tensor], truth: Truth) -> None:
        """Write the inputs, and poison where right outputs will lie."""
        self.outputs[: output_bytes(truth)].view(torch.int64).fill_(-1)  # 0xFF; by the byte it takes longer
        for spot, tensor in zip(_flat_places(places), tensors, strict=True):
            stretch(self.inputs, spot).copy_(memory_of(tensor))

    def write(self, truth: Truth) -> Any:
        places, tensors = self.places(truth)
        self.fill(places, tensors, truth)
        return places

    def compare(self, said: Returned, truth: Truth, stage: str, where: str) -> float:
        """Norm-wise error of the outputs in the arena. Raises: Failed."""
        answer = self._answer(said, truth, stage)
        error, diagnosis = judge(answer, truth, where, stage)
        if diagnosis is not None and self.judged:
            raise Failed("wrong_result", diagnosis)
        return error

    def _answer(self, said: Returned, truth: Truth, stage: str) -> Answer:
        try:
            outputs: list[torch.Tensor | str] = []
            stated = [_stand_in(item) for item in said.outputs]
            places, size = dense_places(stated)
            if size > self.outputs.numel():
                raise Failed("wrong_result", Diagnosis(stage, "Shape", f"the outputs take {size} bytes"))
            for item, spot in zip(said.outputs, places, strict=True):
                if isinstance(item, Text) or spot is None:
                    outputs.append(item.text if isinstance(item, Text) else "")
                    continue
                outputs.append(view(self.outputs, spot))
                if item.device != self._fabric.device.type:
                    message = f"an output lies on {item.device!r}, not on {self._fabric.device.type!r}"
                    raise Failed("wrong_result", Diagnosis(stage, "Device", message))
            return Answer(outputs, said.structure, self._changed_inputs(truth), list(said.changed_parameters))
        except (TypeError, ValueError, AttributeError, RuntimeError) as error:
            message = f"the candidate's process answered nonsense: {error}"
            raise Failed("crash", Diagnosis(stage, "BadAnswer", message)) from error

    def _changed_inputs(self, truth: Truth) -> list[int]:
        """Which input tensors are no longer what was written."""
        tensors = tensors_of(truth.inputs)
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
