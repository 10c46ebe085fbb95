"""The reference's own time, measured between a candidate's timed calls: same moment, same device, cold cache.

The calls that are timed are those that give the expected outputs: a second one on the same inputs would tell no more, and
at gigabytes takes as long as the candidate's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from mtmc.evaluate.check.layout import without_gaps
from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.call_time import LEAD, LoopBudget, RowPlan
from mtmc.evaluate.measure.clock import median
from mtmc.evaluate.measure.fast_threads import FastThreads
from mtmc.evaluate.measure.flags import OWN_GATE, Flags
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.returned import flatten

_Result = TypeVar("_Result")

AGAIN = 2
"""Rounds of calls in a row where there are enough of other candidates'."""
LEAST_OPEN_MS = 20.0
OPEN_FACTOR = 4.0
"""How many times its own time a reference's host code has to return behind the gate before that opens by itself."""


class ReferenceClock:
    """Times a reference a call at a time. Its work is enqueued behind the oracle's own gate, so that its host code does
    not count. Where that cannot be, since it waits for the device or launches more than a stream that stands still takes
    (a thousand kernels; recurrent nets have more), its host code counts too, and that of the versions. One that
    changes its inputs has no time here.

    gateable: whether its work can be enqueued; None before the first call, where that is not known yet. most: calls that are
    timed. times: of its calls. hosts: of calls in a row, what the host takes for each, see `call_time`; from the start those
    that are known.
    """

    def __init__(
        self, backend: DeviceBackend, flags: Flags, model: Any, gateable: bool | None = None, most: int = 15
    ) -> None:
        self._backend, self._flags, self._model, self._most = backend, flags, model, most
        self.gateable = gateable
        self.times: list[float] = []
        self._behind: list[float] = []
        self.hosts: list[float] = []

    def enqueues(self, expected: ExpectedOutputs) -> bool:
        """Whether a version's calls are to be enqueued as well: like is compared with like, so that a version gains
        nothing by host code that counts for the reference and not for it."""
        if self.gateable is None and not expected.changed_inputs:
            self.gateable = self._returns(expected)
        return self.gateable is not False

    @property
    def behind_ms(self) -> float:
        """What other streams do after the reference's own, or the end of waits for those that had nothing left to do: the
        library's recurrent nets have their layers on streams of their own. 0 where it was not measured."""
        return median(self._behind) if self._behind else 0.0

    @property
    def enough(self) -> bool:
        """Whether no further call is timed."""
        return len(self.times) >= self._most

    def timed(self, forward: Callable[[], _Result]) -> _Result:
        """What the reference gives for the inputs of a case, with its time noted if there are not enough. Not before
        `enqueues`. forward: calls the reference on them. Raises: whatever `forward` raises."""
        if self.enough:
            return forward()
        return self._open(forward) if self.gateable is False else self._gated(forward)

    def in_a_row(
        self,
        restart: Callable[[], None],
        model: Any,
        inputs: Sequence[Any],
        budget: LoopBudget,
        plan: RowPlan,
        threads: FastThreads,
    ) -> None:
        """Note what the host takes a call, where calls follow one another.

        restart: lets the model keep what it keeps at first. inputs: of all calls; it leaves them as they are. plan: as for
        candidates. threads: this one's; nothing is built now. Rounds on a slow thread count where there are no others.
        """
        if not self.times:
            return
        most, rounds, started = AGAIN if len(self.hosts) >= budget.most else budget.most, 0, time.monotonic()
        slow: list[float] = []
        while rounds < most and not budget.enough(rounds, time.monotonic() - started):
            rounds += 1
            fast = threads.settle(anywhere=True)
            restart()
            for _ in range(plan.warm + LEAD):
                model(*inputs)
            begun = time.perf_counter()
            for _ in range(plan.counted):
                model(*inputs)
            took_ms = (time.perf_counter() - begun) * 1e3 / plan.counted
            self._backend.synchronize()
            (self.hosts if fast and threads.fast_here() else slow).append(took_ms)
        if not self.hosts:
            self.hosts += slow

    def _open(self, forward: Callable[[], _Result]) -> _Result:
        """Notes milliseconds from the call to the end of its work."""
        self._backend.flush()
        self._backend.synchronize()
        started = time.perf_counter()
        result = _complete(forward())
        self._backend.synchronize()
        self.times.append((time.perf_counter() - started) * 1e3)
        return result

    def _gated(self, forward: Callable[[], _Result]) -> _Result:
        """Notes milliseconds between the device's marks before and after its work."""
        words = self._flags.words
        serial = int(words[OWN_GATE]) + 1
        self._backend.flush()
        if self._backend.asynchronous:
            self._backend.wait(OWN_GATE, serial)
        try:
            first = self._backend.mark()
            result = _complete(forward())
            last = self._backend.mark()
            self._backend.join()
            joined = self._backend.mark()
        finally:  # or whoever waits for the device next waits for ever
            words[OWN_GATE] = serial
        self._backend.synchronize()
        beyond = self._backend.beyond_ms(last, joined)
        self.times.append(self._backend.elapsed_ms(first, last) + beyond)
        self._behind.append(beyond)
        return result

    def _returns(self, expected: ExpectedOutputs) -> bool:
        """Whether the reference's host code returns while the device waits at the gate."""
        if not self._backend.asynchronous:
            return True
        return not self._waits(expected) and self._fits(expected)

    def _waits(self, expected: ExpectedOutputs) -> bool:
        """Whether it waits for the device by itself."""
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            self._model(*expected.inputs)
        except RuntimeError:
            return True
        finally:
            torch.cuda.set_sync_debug_mode(before)
        return False

    def _fits(self, expected: ExpectedOutputs) -> bool:
        """Whether its launches fit into the queue of a stream that waits.

        The device opens the gate itself: a host that is held up in a launch keeps Python's lock, so no other thread could.
        """
        self._backend.synchronize()
        started = time.perf_counter()
        self._model(*expected.inputs)
        took_ms = (time.perf_counter() - started) * 1e3
        self._backend.synchronize()
        serial = int(self._flags.words[OWN_GATE]) + 1
        # First, since what a process launches for the first time waits for the device: it would never be launched behind.
        self._backend.signal_after(OWN_GATE, serial, max(LEAST_OPEN_MS, OPEN_FACTOR * took_ms))
        self._backend.wait(OWN_GATE, serial)
        self._model(*expected.inputs)
        fits = int(self._flags.words[OWN_GATE]) < serial
        self._backend.synchronize()
        return fits


def _complete(result: _Result) -> _Result:
    """A result, when all of it has been done that the time of a version's call includes."""
    for leaf in flatten(result)[0]:
        if isinstance(leaf, torch.Tensor):
            without_gaps(leaf)
    return result
