"""Handing over: inputs into the arena, outputs out of it, and whether they are right. The oracle's side."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import torch

from mtmc.evaluate.check.answers import Text
from mtmc.evaluate.check.candidate import Answer
from mtmc.evaluate.check.judge import judge
from mtmc.evaluate.check.layout import Place, dense_places, dense_strides, memory_of, place, stretch, view
from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.conversation import Failed
from mtmc.evaluate.measure.reference_state import output_bytes
from mtmc.evaluate.measure.wire import Output, Returned, places_of
from mtmc.evaluate.reference.blocks import equal_bits
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.outcome import Diagnosis
from mtmc.task.tensors import flat_tensors

LATE_BYTES, LATE_SHARE = 1 << 16, 8
"""Of the inputs of a gated call, which are written when all else is ready: so many bytes of one, or one part in so many of a
small one. What is made of the inputs before the gate opens is made of others then."""
_random = random.SystemRandom()
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
"""Integers of an element's size, two where there is none so long."""


class OutputBuffer:
    """Both pieces of the arena, and what of them was taken when a timed call was done.

    kept: memory of the oracle's own, as large as `outputs`. judged: whether outputs must be right; those of the evaluator's
    own models set no standard.
    """

    def __init__(
        self, inputs: torch.Tensor, outputs: torch.Tensor, kept: torch.Tensor, backend: DeviceBackend, judged: bool
    ) -> None:
        self.inputs, self.outputs, self.kept = inputs, outputs, kept
        self._backend = backend
        self.judged = judged
        # Inputs that the reference changes, and room for them; a piece of the inputs, and what is to lie there.
        self._left: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._late = inputs[:0], inputs[:0]
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []  # what is taken, and where it goes

    def places(self, expected: ExpectedOutputs) -> tuple[Any, list[torch.Tensor]]:
        tensors = flat_tensors(expected.inputs)
        spots, _ = place(tensors)
        return places_of(expected.inputs, spots), tensors

    def fill(self, places: Any, tensors: list[torch.Tensor], expected: ExpectedOutputs) -> None:
        """Write the inputs, and poison where right outputs will lie."""
        self.poison(output_bytes(expected))
        write(self.inputs, places, tensors)
        self.watch(places, expected.left_inputs)

    def hold_back(self, places: Any, tensors: list[torch.Tensor], expected: ExpectedOutputs) -> None:
        """As `fill`, but for a small piece of one input, drawn at random: there lies what lay there before."""
        pieces = [stretch(self.inputs, spot).view(torch.uint8) for spot in _flat_places(places)]
        [memory] = _random.choices(pieces, [each.numel() + 1e-9 for each in pieces]) if pieces else [self.inputs[:0]]
        length = min(LATE_BYTES, -(-memory.numel() // LATE_SHARE))
        first = _random.randrange(memory.numel() - length + 1)
        piece = memory[first : first + length]
        before = piece.clone()
        self.fill(places, tensors, expected)
        self._late = piece, piece.clone()
        piece.copy_(before)

    def complete(self) -> None:
        """Write the piece that was held back."""
        piece, late = self._late
        piece.copy_(late)

    def poison(self, size: int) -> None:
        """Write over outputs of that many bytes, a multiple of 8."""
        self.outputs[:size].view(torch.int64).fill_(-1)  # 0xFF; by the byte it takes longer

    def watch(self, places: Any, positions: Iterable[int]) -> None:
        """Which input tensors are to be taken with the outputs, since the reference changes them."""
        spots = _flat_places(places)
        given = {at: stretch(self.inputs, spots[at]) for at in positions}
        self._left = {at: (memory, torch.empty_like(memory)) for at, memory in given.items()}

    def write(self, expected: ExpectedOutputs) -> Any:
        places, tensors = self.places(expected)
        self.fill(places, tensors, expected)
        return places

    def prepare(self, size: int) -> None:
        """Say what `take` is to take, and rehearse it: what a host does for the first time after a while takes it longer,
        which would count as time of the call. size: bytes of the outputs, see `output_bytes`."""
        pairs = [(self.outputs[:size].view(torch.int64), self.kept[:size].view(torch.int64)), *self._left.values()]
        self._pairs = [(_in_words(source), _in_words(target)) for source, target in pairs]
        self.take(wait=False)

    def take(self, wait: bool = True) -> None:
        """Take what there is now of outputs and changed inputs, as prepared, out of the candidate's reach, and wait until
        that is done (or leave it to the caller).

        Kernels of two processes do not run at the same time, and these are kernels (a copy would be left to another engine
        of the device): when they are done, nothing that the candidate does can be in what they took.
        """
        for source, target in self._pairs:
            torch.bitwise_or(source, source, out=target)
        if wait:
            self._backend.synchronize()

    def compare(self, said: Returned, expected: ExpectedOutputs, stage: str, where: str, taken: bool = False) -> float:
        """Norm-wise error of the outputs, in the arena or as they were taken. Raises: Failed."""
        return self.to_judge(said, expected, stage, where, taken)()

    def to_judge(
        self, said: Returned, expected: ExpectedOutputs, stage: str, where: str, taken: bool = False
    ) -> Callable[[], float]:
        """What `compare` tells, for later: of outputs that were taken, until others are. That the inputs are what they were
        is seen now, before the candidate has time to mend them. Raises: Failed; so does what is returned."""
        answer = self._answer(said, expected, stage, taken)

        def judged() -> float:
            error, diagnosis = judge(answer, expected, where, stage)
            if diagnosis is None or not self.judged:
                return error
            if taken and judge(self._answer(said, expected, stage, False), expected, where, stage)[1] is None:
                message = f"the outputs were written after the forward's stream said that they are complete ({where})"
                raise Failed("rejected", Diagnosis(stage, "LateOutput", message))
            raise Failed("wrong_result", diagnosis)

        return judged

    def _answer(self, said: Returned, expected: ExpectedOutputs, stage: str, taken: bool) -> Answer:
        memory = self.kept if taken else self.outputs
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
                outputs.append(view(memory, spot))
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
                self._left_inputs(expected, taken),
            )
        except (TypeError, ValueError, AttributeError, RuntimeError) as error:
            message = f"the candidate's process answered nonsense: {error}"
            raise Failed("crash", Diagnosis(stage, "BadAnswer", message)) from error

    def _left_inputs(self, expected: ExpectedOutputs, taken: bool) -> dict[int, torch.Tensor]:
        """What lies where the inputs are that the reference changes, now or when it was taken."""
        tensors = flat_tensors(expected.inputs)
        places, _ = place(tensors)
        if taken:
            return {
                at: room.as_strided(tensors[at].shape, tensors[at].stride()) for at, (_, room) in self._left.items()
            }
        return {at: view(self.inputs, places[at]) for at in expected.left_inputs}

    def _changed_inputs(self, expected: ExpectedOutputs) -> list[int]:
        """Which input tensors are no longer what was written."""
        tensors = flat_tensors(expected.inputs)
        pairs = zip(place(tensors)[0], tensors, strict=True)
        return [
            at
            for at, (spot, tensor) in enumerate(pairs)
            if not equal_bits(stretch(self.inputs, spot), memory_of(tensor))
        ]


def write(memory: torch.Tensor, places: Any, tensors: list[torch.Tensor]) -> None:
    """Write tensors to their places in a piece of memory."""
    for spot, tensor in zip(_flat_places(places), tensors, strict=True):
        stretch(memory, spot).copy_(memory_of(tensor))


def _in_words(tensor: torch.Tensor) -> torch.Tensor:
    """Its memory as integers."""
    return tensor.view(_WORDS[tensor.element_size()])


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
