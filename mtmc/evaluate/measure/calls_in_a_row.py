"""Calls in a row, the oracle's side: fresh inputs for each, the moments of a round, which outputs are compared.

See `call_time` for what is made of the moments. What a candidate could gain by in such a round, and why it does not:

- *Answers that it keeps.* Inputs are drawn for each call of each round: none comes twice, and there is nothing to know them
  by. Which slot a call has is drawn as well, so what is kept by address is wrong.
- *Work for calls to come.* The inputs of a call lie among the outputs, where no candidate sees them, until the call before
  has returned. Then the candidate's process copies them to their slot, by code of the evaluator's own and in the stream of
  the call: whatever was read there before is old.
- *Work that is left out.* Outputs are taken when the last flag is up, and nothing tells which of them are compared: the last
  and another one, or all of them, in a round by which the version would become faster. What a model keeps from call to
  call is put back once a round; there all calls are compared, with what the reference makes of them in the same order, and
  so is what the last one leaves in the model.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mtmc.evaluate.check.layout import place, viewed
from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.call_time import LEAD, LoopBudget, Moments, Rounds, RowPlan
from mtmc.evaluate.measure.conversation import Conversation
from mtmc.evaluate.measure.fast_threads import FastThreads
from mtmc.evaluate.measure.flags import Flags
from mtmc.evaluate.measure.output_buffer import OutputBuffer, write
from mtmc.evaluate.measure.wire import Loop, Returned, places_of
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.reference import Reference
from mtmc.task.tensors import flat_tensors

_random = random.SystemRandom()


@dataclass(frozen=True)
class InputSource:
    """Where the inputs of calls in a row come from, and what says what they should give.

    draw: inputs by a seed. answer: what inputs should give by a seed, and whether they are a round's first, see
    `Reference.answer`. changes: positions of input tensors that a call changes. keeps: paths of what the model keeps.
    """

    draw: Callable[[int], list[Any]]
    answer: Callable[[list[Any], int, bool], ExpectedOutputs]
    changes: tuple[int, ...] = ()
    keeps: tuple[str, ...] = ()

    @classmethod
    def of(cls, reference: Reference, seed: int) -> InputSource:
        """Those of a task. Raises: TaskError."""
        effects = reference.calibrate(seed).effects
        return cls(reference.draw, reference.answer, effects.inputs, effects.state)


@dataclass(frozen=True)
class _Row:
    """The calls of one round. slots: of each call. places: of input tensors in a slot. seeds: of the inputs, by slot.
    seed: of the candidate's random numbers."""

    serial: int
    slots: tuple[int, ...]
    places: Any
    seeds: dict[int, int]
    seed: int


class CallsInARow:
    """Rounds with one candidate. Each method raises `Failed` where it is to blame."""

    def __init__(
        self,
        conversation: Conversation,
        buffer: OutputBuffer,
        backend: DeviceBackend,
        flags: Flags,
        plan: RowPlan,
        draw_seed: Callable[[], int],
        threads: FastThreads,
    ) -> None:
        self._threads = threads
        self._asked, self._buffer, self._backend, self._flags = conversation, buffer, backend, flags
        self._plan, self._slots, self._draw_seed = plan, plan.slots, draw_seed
        self._pieces = [self._piece(slot) for slot in range(plan.slots.count)]

    def rounds(
        self,
        source: InputSource,
        number: int,
        budget: LoopBudget,
        agree: Callable[[Rounds], bool] = lambda _: True,
    ) -> Rounds:
        """Rounds until the budget is spent. number: of the model. agree: see `LoopBudget`."""
        self._asked.stage = "time"
        counted = self._plan.counted
        found = Rounds(counted)
        with self._threads.lending(self._asked.process) as lend:
            started = time.monotonic()
            while not budget.enough(len(found.hosts), spent := time.monotonic() - started, agree(found)):
                if found.slow_hosts and spent >= (budget.doubtful_seconds or budget.long_seconds):
                    break
                self._round(source, number, found, lend)
        found.end()
        return found

    def _round(self, source: InputSource, number: int, found: Rounds, lend: Callable[[], Callable[[], bool]]) -> None:
        """One round, noted and compared. lend: see `FastThreads.lending`."""
        self._asked.where = f"full shapes, {LEAD + found.counted} calls in a row"
        row, own_ms, still_fast = self._prepared(source, number, LEAD + found.counted, lend)
        moments, said = self._moments(row, own_ms)
        faster = found.add(moments, still_fast())
        compared = _compared(row.slots, faster or bool(source.keeps))
        if source.changes and not self._slots.revealed:  # each call but the first finds what the one before left there
            compared = []
        outputs = self._compare(source, row, said, compared)
        found.outputs, found.output_bytes = len(outputs), sum(outputs)
        found.input_bytes = self._slots.input_step if self._slots.revealed else 0

    def _prepared(
        self, source: InputSource, number: int, calls: int, lend: Callable[[], Callable[[], bool]]
    ) -> tuple[_Row, float, Callable[[], bool]]:
        """A round of which the candidate's process waits for the first call to begin, with the inputs of all calls.

        They are there before it is asked where it does not see them, so that it need not wait long, and get cold, after its
        warm calls; else when those are done, so that nothing can be made of them sooner. Returns: it, the milliseconds
        that taking its outputs takes on an idle device, and what tells whether the candidate's thread is fast still.
        """
        count = self._slots.count
        order = _random.sample(range(count), count)
        slots = tuple(order[call % count] for call in range(calls))
        seeds = {slot: self._draw_seed() for slot in slots}
        drawn: list[Any] | None = source.draw(seeds[slots[0]])
        places = places_of(drawn, place(flat_tensors(drawn))[0])
        row = _Row(self._flags.next_gate(), slots, places, seeds, self._draw_seed())
        if not self._slots.revealed:
            drawn, still_fast = None, lend()
            self._begun(source, number, row)
        for slot, seed in seeds.items():
            if drawn is None:
                drawn = source.draw(seed)
            write(self._before(slot), places, flat_tensors(drawn))
            drawn = None  # two of them may be more than the device has
            self._pieces[slot].poison(self._slots.output_step)
            self._pieces[slot].watch(places, source.changes)
            self._pieces[slot].prepare(self._slots.output_step)
        self._backend.synchronize()
        own_ms = self._taken(row, time.perf_counter())
        if self._slots.revealed:
            still_fast = lend()
            self._begun(source, number, row)
        return row, own_ms, still_fast

    def _begun(self, source: InputSource, number: int, row: _Row) -> None:
        """Have the candidate's process make its warm calls and wait for the gate."""
        sources = self._slots.sources if self._slots.revealed else None
        steps, warm = (self._slots.input_step, self._slots.output_step), self._plan.warm
        self._asked.send(
            Loop(number, row.places, row.seed, row.serial, row.slots, LEAD, *steps, sources, source.keeps, warm)
        )
        self._asked.begins(row.serial)

    def _moments(self, row: _Row, own_ms: float) -> tuple[Moments, Returned]:
        start = time.perf_counter()
        self._asked.open_gate()
        moments = self._asked.await_loop(row.serial, start)
        return replace(moments, taken=self._taken(row, start) - own_ms), self._asked.hear(Returned)

    def _taken(self, row: _Row, start: float) -> float:
        """Take the outputs of all calls. Returns: milliseconds from `start`."""
        for slot in dict.fromkeys(row.slots):
            self._pieces[slot].take(wait=False)
        self._backend.synchronize()
        return (time.perf_counter() - start) * 1e3

    def _compare(self, source: InputSource, row: _Row, said: Returned, compared: list[int]) -> list[int]:
        """Hold what these calls gave against what they should give. Returns: bytes of each output of a call."""
        sizes: list[int] = []
        for call in range(len(row.slots)) if source.keeps else compared or [0]:
            slot = row.slots[call]
            inputs = viewed(self._before(slot), row.places)
            if not self._slots.revealed:  # what lies there may have been changed
                inputs = source.draw(row.seeds[slot])
            expected = source.answer(inputs, row.seed, call == 0 or not source.keeps)
            tensors = [each.value for each in expected.outputs if not isinstance(each, str)]
            sizes = [each.numel() * each.element_size() for each in tensors]
            where = f"full shapes, call {call + 1} of {len(row.slots)} in a row"
            if call in compared:
                outputs = replace(expected, left_state={}, untouched=())  # later calls leave something else there
                handed = replace(said, state=())
                self._pieces[slot].compare(handed, outputs, self._asked.stage, where, taken=True)
                if source.keeps and call == len(row.slots) - 1:  # it is handed over when the outputs are taken
                    after = replace(expected, left_inputs={}, untouched=())
                    self._pieces[slot].compare(said, after, self._asked.stage, where)
            del expected, tensors  # two of them may be more than the device has
        return sizes

    def _before(self, slot: int) -> Any:
        """Where the inputs of a slot lie before the call that they are for."""
        step = self._slots.input_step
        if not self._slots.revealed:
            return self._buffer.inputs[step * slot : step * (slot + 1)]
        first = self._slots.sources + step * slot
        return self._buffer.outputs[first : first + step]

    def _piece(self, slot: int) -> OutputBuffer:
        """The buffer of one slot."""
        first, room = self._slots.input_step * slot, self._slots.output_step
        inputs = self._buffer.inputs[first : first + self._slots.input_step]
        outputs, kept = self._buffer.outputs[room * slot :], self._buffer.kept[room * slot :]
        return OutputBuffer(inputs, outputs, kept, self._backend, self._buffer.judged)


def _compared(slots: tuple[int, ...], every: bool) -> list[int]:
    """Calls that are compared: of those whose outputs still lie there the last and another one, or every one."""
    lie = [call for call, slot in enumerate(slots) if slot not in slots[call + 1 :]]
    return lie if every else sorted({_random.choice(lie), lie[-1]})
