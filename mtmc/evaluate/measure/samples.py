"""Timed calls of a version, one by one, as its time and the validation of its time are found from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.memory import dense


class CallTimes(NamedTuple):
    """One timed call, see `Samples`. flush: None where the call was not enqueued behind the gate."""

    stated: float
    wall: float
    flush: float | None
    behind: float = 0.0
    late: float = 0.0


@dataclass
class Samples:
    """Timed calls, in milliseconds. stated: by the candidate's events; walls: by the oracle's clock.

    ahead: whether the calls were enqueued behind the gate. everywhere: whether all other streams waited for it as well.
    flushes: the oracle's own work while the gate was closed, of the same calls; none where they were not enqueued.
    output_bytes, outputs: bytes and number of a call's outputs, with what it leaves in the model. kept: number of the
    latter, which is put back before each call. input_bytes, changed_bytes: of its inputs, and of those that it changes.
    behind: what other streams did after each call's own, a part of what is stated; reference_behind: what they do after a
    reference's. lates: by the oracle's clock, what writing the last piece of the inputs (see `OutputBuffer.hold_back`) and
    that work took; of the same calls as flushes.
    """

    stated: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    flushes: list[float] = field(default_factory=list)
    ahead: bool = True
    output_bytes: int = 0
    outputs: int = 0
    kept: int = 0
    input_bytes: int = 0
    changed_bytes: int = 0
    behind: list[float] = field(default_factory=list)
    lates: list[float] = field(default_factory=list)
    everywhere: bool = False
    reference_behind: float = 0.0

    def add(self, call: CallTimes) -> None:
        """Note one more call."""
        self.stated.append(call.stated)
        self.walls.append(call.wall)
        if call.flush is not None:
            self.flushes.append(call.flush)
            self.lates.append(call.late)
        self.behind.append(call.behind)

    def note_sizes(self, expected: ExpectedOutputs) -> None:
        """Note how large inputs and outputs of a call are."""
        given = [*expected.outputs, *expected.left_state.values()]
        tensors = [each.value for each in given if not isinstance(each, str)]
        self.output_bytes, self.outputs = sum(t.numel() * t.element_size() for t in tensors), len(tensors)
        self.kept = len(expected.left_state)
        self.input_bytes = dense(expected.inputs)
        self.changed_bytes = dense([each.value for each in expected.left_inputs.values()])
