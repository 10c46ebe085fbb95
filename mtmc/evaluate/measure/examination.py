"""One candidate before the oracle: is it right at every set of shapes, and how long does it take at the full ones?

Runs in the oracle's process. Everything that counts is decided here: inputs, expected values, the clock, the verdict.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from mtmc.evaluate.check.cases import Checked, Plan, PlannedCase, call_name
from mtmc.evaluate.check.ownership import owned
from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.call_time import LoopBudget, Rounds, RowPlan
from mtmc.evaluate.measure.calls_in_a_row import CallsInARow, InputSource
from mtmc.evaluate.measure.clock import TimingBudget
from mtmc.evaluate.measure.conversation import Conversation, Failed
from mtmc.evaluate.measure.fast_threads import FastThreads
from mtmc.evaluate.measure.flags import Flags
from mtmc.evaluate.measure.output_buffer import OutputBuffer
from mtmc.evaluate.measure.prefetcher import Prefetcher
from mtmc.evaluate.measure.reference_state import ReferenceState, output_bytes
from mtmc.evaluate.measure.samples import CallTimes, Samples
from mtmc.evaluate.measure.wire import Call, Load, Profile, Profiled, Ready, Restore, Returned
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.reference import Reference
from mtmc.task.tensors import flat_tensors

FULL = 0
WARM_CALLS = 2
"""Timed calls that are thrown away: clocks rise, caches of the host fill."""
PREFETCHED_CASES = 3
"""Cases whose expected outputs wait for the candidate at most: their shapes are small."""
HELD_BYTES = 1 << 27
"""Inputs and outputs of a call that are compared while the candidate has the next one; more of them, with those of the next
call, might be more than the device has."""
CROWDED_MS = 1.0
"""What writing the last piece of the inputs and emptying the cache takes at least, in milliseconds, where streams that wait
behind the gate are given turns of the device: a bound chosen by reasoning, not measured. Each kernel that finds the device
idle may wait for such a turn to end, and to compare what a deep network leaves behind takes hundreds of them."""


class Examination:
    """What one candidate is put through. Each method raises `Failed` where the candidate is to blame."""

    def __init__(
        self,
        conversation: Conversation,
        buffer: OutputBuffer,
        backend: DeviceBackend,
        flags: Flags,
        draw_seed: Callable[[], int],
        threads: FastThreads | None = None,
    ) -> None:
        """threads: where calls in a row are made; None: wherever the system puts them."""
        self._asked = conversation
        self._threads = threads or FastThreads()
        self._buffer = buffer
        self._backend = backend
        self._flags = flags
        self._draw_seed = draw_seed
        self.reference_s = 0.0  # that the reference took for what the cases of a check should give
        self._given = ""  # digest of the weights that the candidate's process has

    # -- correctness ---------------------------------------------------------------------------------------------

    def load(
        self,
        state: ReferenceState,
        variant: int,
        source: str,
        moved: bool = False,
        baseline: str = "",
        meanwhile: Callable[[], bool] | None = None,
    ) -> int:
        """Have the candidate construct its model at a set of shapes; the number to call it by. meanwhile: see `ask`."""
        _, seed = state.reference(variant, moved)
        number = 2 * variant + int(moved)
        shapes = state.variants[variant]
        arguments = state.arguments(variant, moved)
        self._asked.where = f"construction at the {shapes.label} shapes"
        known = bool(self._given) and self._given == state.task.state_digest
        weights = None if known else state.task.state
        request = Load(number, source, shapes.constants, arguments, weights, seed, moved, baseline, known)
        self._asked.ask(request, Ready, meanwhile)
        self._given = state.task.state_digest
        return number

    def check(self, state: ReferenceState, source: str, plan: Plan) -> Checked:
        """All cases of a plan, ungated."""
        worst, cases, exact = 0.0, 0, True
        coming = Prefetcher(self._cases(state, plan), PREFETCHED_CASES)
        # Of the first one it is certain that the reference takes it: the candidate need not wait to hear of it.
        first = plan.cases[0]
        variant = state.variants.index(first.variant)
        models = {(variant, first.moved): self.load(state, variant, source, first.moved, meanwhile=coming.prepare)}
        while (found := coming.take()) is not None:
            case, variant, expected, at, calls = found
            if (variant, case.moved) not in models:
                loaded = self.load(state, variant, source, case.moved, meanwhile=coming.prepare)
                models[variant, case.moved] = loaded
            number = models[variant, case.moved]
            where = call_name(case.where, at, calls)
            worst = max(worst, self.ask_for(expected, number, where, check=True, meanwhile=coming.prepare))
            cases += at == 0
            exact = exact and expected.exact
        return Checked(worst, cases, exact)

    def _cases(self, state: ReferenceState, plan: Plan) -> Iterator[tuple[PlannedCase, int, ExpectedOutputs, int, int]]:
        """Each call of each case of a plan that the reference takes: the case, the index of its shapes, what the call should
        give, which call of the case it is and of how many."""
        for planned in plan.cases:
            variant = state.variants.index(planned.variant)
            started = time.perf_counter()
            for case in planned.attempts:
                calls = state.case(case, plan.calls)
                if calls is not None:
                    break
            self.reference_s += time.perf_counter() - started
            for at, expected in enumerate(calls or []):
                yield case, variant, expected, at, len(calls or [])

    def ask_for(
        self,
        expected: ExpectedOutputs,
        number: int,
        where: str,
        check: bool = False,
        meanwhile: Callable[[], bool] | None = None,
    ) -> float:
        """One ungated forward and its comparison with what is expected; the norm-wise error. meanwhile: see `ask`."""
        self._asked.where = where
        places = self._buffer.write(expected)
        self._backend.synchronize()
        request = self._call(expected, number, places, 0, gated=False)
        request = replace(request, check=check, untouched=expected.untouched if check else ())
        said = self._asked.ask(request, Returned, meanwhile)
        return self._buffer.compare(said, expected, self._asked.stage, where)

    # -- time ----------------------------------------------------------------------------------------------------

    def load_own(self, baseline: str, number: int) -> int:
        """Have the process make one of the evaluator's own models; the number to call it by."""
        self._asked.where = "calibration"
        self._asked.ask(Load(number, "", (), b"", None, 0, False, baseline), Ready)
        return number

    def time(
        self,
        draw: Callable[[int], ExpectedOutputs],
        number: int,
        budget: TimingBudget,
        ahead: bool,
        everywhere: bool = False,
        early: Callable[[], bool] = lambda: False,
    ) -> Samples:
        """Timed forwards on fresh inputs until the budget is spent, every output checked.

        draw: what a seed should give. ahead: whether to try to have the calls enqueued. everywhere: behind a gate for all
        streams. early: whether a call's draw may be made while the candidate is at work for the call before. It is not, and
        nothing is compared meanwhile, where streams that wait take turns of the device, see `CROWDED_MS`.
        """
        self._asked.stage = "time"
        samples, calls = Samples(ahead=ahead, everywhere=everywhere), 0
        coming = Prefetcher(draw(self._draw_seed()) for _ in itertools.repeat(None))
        started = time.monotonic()
        compare: Callable[[], object] = _nothing
        crowded = everywhere

        def meanwhile() -> None:
            compare()
            if early() and not crowded and 0 < samples.output_bytes + samples.input_bytes <= HELD_BYTES:
                coming.prepare()

        while not budget.enough(samples.stated, time.monotonic() - started):
            expected = coming.take()
            assert expected is not None
            calls += 1
            call, compare = self._timed_call(expected, number, calls, samples, meanwhile)
            if samples.ahead and call.flush is None:
                samples, started = Samples(ahead=False, everywhere=everywhere), time.monotonic()
            elif calls > WARM_CALLS:
                samples.add(call)
            samples.note_sizes(expected)
            crowded = everywhere or call.late > CROWDED_MS
            if call.flush is None or crowded or samples.output_bytes + samples.input_bytes > HELD_BYTES:
                compare()
                compare = _nothing
            del expected  # before the next one is drawn: two of them may be more than the device has
        compare()
        return samples

    def _timed_call(
        self, expected: ExpectedOutputs, number: int, call: int, samples: Samples, meanwhile: Callable[[], object]
    ) -> tuple[CallTimes, Callable[[], object]]:
        """One call, and what compares its outputs. samples: says whether to try to have it enqueued behind the gate, and
        behind which. meanwhile: is called while the candidate enqueues it.

        The seed that the candidate's generator is set to says nothing of the inputs.
        """
        where = f"full shapes, timed call {call}{expected.note}"
        self._asked.where = where
        places, tensors = self._buffer.places(expected)
        if not samples.ahead:
            return self._open_call(expected, number, where)
        request = replace(self._gated(expected, number, places), everywhere=samples.everywhere)
        self._asked.send(request)
        try:
            meanwhile()
        except Failed:
            self._flags.open_gate()  # a device that waits for ever takes longer to be given back
            raise
        if not self._asked.enqueued(request.serial):
            return self._open_call(expected, number, where)
        self._buffer.hold_back(places, tensors, expected)
        self._buffer.prepare(output_bytes(expected))
        self._backend.synchronize()
        start = time.perf_counter()
        first = self._backend.mark()
        self._buffer.complete()
        self._backend.flush()  # after the last piece, or that would be the one that is not cold
        last = self._backend.mark()
        self._backend.synchronize()
        late = (time.perf_counter() - start) * 1e3
        flush = self._backend.elapsed_ms(first, last)
        start = time.perf_counter()
        self._asked.open_gate()
        wall, said = self._taken(request, start)
        times = CallTimes(max(said.ms, 0.0), wall, flush, max(said.behind_ms, 0.0), late)
        return times, self._buffer.to_judge(said, expected, self._asked.stage, where, taken=True)

    def _taken(self, request: Call, start: float) -> tuple[float, Returned]:
        """Milliseconds from `start` until the oracle has the outputs of a call, and what is said of them.

        The flag says only when it is worth looking: a candidate that raises it before its outputs are there has none.
        """
        self._asked.await_done(request.done)
        self._buffer.take()
        wall = (time.perf_counter() - start) * 1e3
        return wall, self._asked.hear(Returned)

    def _gated(self, expected: ExpectedOutputs, number: int, places: Any) -> Call:
        return self._call(expected, number, places, self._flags.next_gate())

    def _open_call(self, expected: ExpectedOutputs, number: int, where: str) -> tuple[CallTimes, Callable[[], object]]:
        """A call whose host code waits for the device: the gate is open, and its host time counts too."""
        if self._flags.shut and self._asked.pending:  # the call that did not return behind the gate
            self._asked.open_gate()
            self._asked.hear(Returned)
        if expected.first and expected.left_state:  # hundreds of copies in the time of a call of a deep network
            self._asked.ask(Restore(number, tuple(expected.left_state)), Ready)
        places, tensors = self._buffer.places(expected)
        self._buffer.fill(places, tensors, expected)
        self._buffer.prepare(output_bytes(expected))
        self._backend.flush()
        self._backend.synchronize()
        request = replace(self._gated(expected, number, places), first=False)
        self._asked.open_gate()
        start = time.perf_counter()
        self._asked.send(request)
        wall, said = self._taken(request, start)
        times = CallTimes(wall, wall, None, max(said.behind_ms, 0.0))
        return times, self._buffer.to_judge(said, expected, self._asked.stage, where, taken=True)

    def in_a_row(
        self,
        source: InputSource,
        number: int,
        plan: RowPlan,
        budget: LoopBudget,
        agree: Callable[[Rounds], bool] = lambda _: True,
    ) -> Rounds:
        """Calls in a row, see `calls_in_a_row`. agree: see `LoopBudget`."""
        device = (self._buffer, self._backend, self._flags)
        calls = CallsInARow(self._asked, *device, plan, self._draw_seed, self._threads)
        return calls.rounds(source, number, budget, agree)

    def _call(self, expected: ExpectedOutputs, number: int, places: Any, serial: int, gated: bool = True) -> Call:
        return Call(
            number,
            places,
            self._draw_seed(),
            serial,
            1 + secrets.randbelow((1 << 31) - 1),  # as good as never the one before
            gated,
            kept=tuple(expected.left_state),
            first=expected.first,
            own=self._own(expected),
        )

    def _own(self, expected: ExpectedOutputs) -> tuple[bool, ...]:
        """See `Call.own`: () where nothing is asked, of the evaluator's own models and where inputs change (what is expected
        holds others then than the reference was given)."""
        if not self._buffer.judged or expected.changed_inputs:
            return ()
        return owned([getattr(each, "value", each) for each in expected.outputs], flat_tensors(expected.inputs))

    def profile(self, reference: Reference, number: int, calls: int) -> Profiled:
        """What the profiler sees."""
        self._asked.stage = "verify"
        self._asked.where = "profiled calls"
        expected = reference.timed(self._draw_seed())
        places, kept = self._buffer.write(expected), tuple(expected.left_state)
        self._backend.synchronize()
        return self._asked.ask(Profile(number, places, self._draw_seed(), calls, kept), Profiled)


def _nothing() -> None:
    """There is no call before."""
