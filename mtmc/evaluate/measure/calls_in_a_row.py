"""Calls in a row, the oracle's side: inputs into slots, the moments of a round, which outputs are compared. See `call_time`.

Nothing that a candidate has tells which calls are compared. Their outputs are taken when the last flag is up, and the last
moment of a round is when the oracle has them. Which of a few sets of inputs lies in which slot, and which call has which
slot, is drawn anew for each round, so that what is kept by address is wrong.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.call_time import LEAD, LoopBudget, Moments, Rounds, Slots
from mtmc.evaluate.measure.conversation import Conversation
from mtmc.evaluate.measure.flags import Flags
from mtmc.evaluate.measure.output_buffer import OutputBuffer
from mtmc.evaluate.measure.reference_state import output_bytes
from mtmc.evaluate.measure.wire import Loop, Returned
from mtmc.evaluate.reference.reference import ExpectedOutputs

SETS = 4
"""Different sets of inputs, where they are small; two where they are not."""

_random = random.SystemRandom()

Draw = Callable[[int], ExpectedOutputs]


class CallsInARow:
    """Rounds with one candidate. Each method raises `Failed` where it is to blame."""

    def __init__(
        self,
        conversation: Conversation,
        buffer: OutputBuffer,
        backend: DeviceBackend,
        flags: Flags,
        slots: Slots,
        draw_seed: Callable[[], int],
    ) -> None:
        self._asked, self._buffer, self._backend, self._flags = conversation, buffer, backend, flags
        self._slots, self._draw_seed = slots, draw_seed
        self._pieces = [self._piece(slot) for slot in range(slots.count)]

    def rounds(self, draw: Draw, number: int, counted: int, budget: LoopBudget) -> Rounds:
        """Rounds until the budget is spent. draw: what a seed should give. number: of the model. counted: see `Rounds`."""
        self._asked.stage = "time"
        sets = _Sets(draw, [self._draw_seed() for _ in range(SETS if self._slots.held else 2)], self._slots.held)
        found, started = Rounds(counted), time.monotonic()
        while not budget.enough(len(found.hosts), time.monotonic() - started):
            moments, outputs = self._round(sets, number, LEAD + counted)
            found.add(moments)
            found.outputs, found.output_bytes = len(outputs), sum(outputs)
        return found

    def _round(self, sets: _Sets, number: int, calls: int) -> tuple[Moments, list[int]]:
        """One round, and the bytes of each output of a call."""
        self._asked.where = f"full shapes, {calls} calls in a row"
        order = _random.sample(range(self._slots.count), self._slots.count)
        slots = tuple(order[call % len(order)] for call in range(calls))
        lies = {slot: _random.choice(sets.seeds) for slot in set(slots)}
        first = sets.case(lies[slots[0]])
        places, _ = self._buffer.places(first)
        compared, kept = _compared(slots, first), tuple(first.left_state)
        outputs = [each.value for each in first.outputs if not isinstance(each, str)]
        sizes = [each.numel() * each.element_size() for each in outputs]
        room = output_bytes(first)
        del first, outputs  # two of them may be more than the device has
        serial = self._flags.next_gate()
        request = Loop(
            number,
            places,
            self._draw_seed(),
            serial,
            slots,
            LEAD,
            self._slots.input_step,
            self._slots.output_step,
            kept,
        )
        self._asked.send(request)
        self._asked.begins(serial)
        for seed in sets.seeds:
            self._fill(sets, seed, [slot for slot in lies if lies[slot] == seed])
        self._backend.synchronize()
        own = self._taken(slots, compared, room, time.perf_counter())
        start = time.perf_counter()
        self._asked.open_gate()
        moments = self._asked.await_loop(serial, start)
        moments = replace(moments, taken=self._taken(slots, compared, room, start) - own)
        said = self._asked.hear(Returned)
        for call in compared:
            self._compare(said, sets.case(lies[slots[call]]), slots[call], f"call {call + 1} of {calls} in a row")
        return moments, sizes

    def _taken(self, slots: tuple[int, ...], compared: list[int], room: int, start: float) -> float:
        """Take the outputs of the calls that are compared. room: bytes of each. Returns: milliseconds from `start`."""
        for call in compared:
            self._pieces[slots[call]].take(room, wait=False)
        self._backend.synchronize()
        return (time.perf_counter() - start) * 1e3

    def _fill(self, sets: _Sets, seed: int, slots: list[int]) -> None:
        if not slots:
            return
        expected = sets.case(seed)
        places, tensors = self._buffer.places(expected)
        for slot in slots:
            self._pieces[slot].fill(places, tensors, expected)

    def _compare(self, said: Returned, expected: ExpectedOutputs, slot: int, call: str) -> None:
        """What is left in the model is no part of it: later calls leave something else there."""
        outputs = replace(expected, left_state={}, untouched=())
        self._pieces[slot].compare(said, outputs, self._asked.stage, f"full shapes, {call}", taken=True)

    def _piece(self, slot: int) -> OutputBuffer:
        """The buffer of one slot."""
        first, room = self._slots.input_step * slot, self._slots.output_step
        inputs = self._buffer.inputs[first : first + self._slots.input_step]
        outputs, kept = self._buffer.outputs[room * slot :], self._buffer.kept[room * slot :]
        return OutputBuffer(inputs, outputs, kept, self._backend, self._buffer.judged)


class _Sets:
    """What a few seeds give. held: whether it is kept; else one at a time is made, each time anew."""

    def __init__(self, draw: Draw, seeds: list[int], held: bool) -> None:
        self._draw, self.seeds, self._held = draw, seeds, held
        self._known: dict[int, ExpectedOutputs] = {}

    def case(self, seed: int) -> ExpectedOutputs:
        if seed not in self._known:
            if not self._held:
                self._known.clear()
            case = self._draw(seed)
            self._held = self._held and not case.left_state  # its outputs may be what the model keeps
            self._known[seed] = case
        return self._known[seed]


def _compared(slots: tuple[int, ...], expected: ExpectedOutputs) -> list[int]:
    """Calls that are compared: one of those whose outputs still lie there, and the last. Of a model that keeps something
    the first alone, which starts from what it keeps at first; of inputs that are changed no second call on them."""
    lie = [call for call, slot in enumerate(slots) if slot not in slots[call + 1 :]]
    if expected.changed_inputs:
        lie = [call for call in lie if slots.count(slots[call]) == 1]
    if expected.left_state:
        return [call for call in lie if call == 0]
    return sorted({_random.choice(lie), lie[-1]}) if lie else []
