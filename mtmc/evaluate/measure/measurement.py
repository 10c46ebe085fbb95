"""Measurement: what is asked of a candidate's process, from the checks to calls in a row, and what follows from the answers.

It is made in the oracle, which knows the device and the task; the candidate only answers.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from mtmc.evaluate.check.cases import Plan, plan
from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.call_time import LoopBudget, Rounds, RowPlan, at_device, call_time, settled, unexplained
from mtmc.evaluate.measure.calls_in_a_row import InputSource
from mtmc.evaluate.measure.clock import OverheadTable, Timing, TimingBudget, median
from mtmc.evaluate.measure.examination import FULL, Examination
from mtmc.evaluate.measure.fast_threads import FastThreads
from mtmc.evaluate.measure.flags import Flags
from mtmc.evaluate.measure.prefetcher import Prefetcher
from mtmc.evaluate.measure.questions import Examine, Measured
from mtmc.evaluate.measure.reference_state import ReferenceState
from mtmc.evaluate.measure.reference_time import ReferenceClock
from mtmc.evaluate.measure.samples import Samples
from mtmc.evaluate.measure.timing_validation import (
    CHARGED_SHARE,
    SCREENED_SHARE,
    as_called,
    charged,
    profiler_check,
    runtime,
    timed,
    validate,
)
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.reference import Reference
from mtmc.hardware import Hardware
from mtmc.outcome import REFERENCE_ERROR
from mtmc.protocols import Depth
from mtmc.task import Task

PROFILED_CALLS = 3
HARD_ONCE_IN = 4
"""One timed call in so many, at random, has inputs that stand out: a candidate's host code cannot know which."""
TIMING_BUDGETS: Mapping[str, TimingBudget] = {
    # A quarter of a microsecond is little beside what a launch takes the host: who comes first is settled at verification.
    "screen": TimingBudget(least=8, most=60, precision=0.005, seconds=0.15, enough_ms=2.5e-4),
    "verify": TimingBudget(least=20, most=100, precision=0.003, seconds=0.5),
}
REFERENCE_CALLS: Mapping[str, int] = {"screen": 8, "verify": 15}
"""Of the reference, timed for one candidate at most."""
HOSTS = 16
"""Rounds of the reference's calls in a row, of one candidate and those before, that a screening goes by."""
LOOP_BUDGETS: Mapping[str, LoopBudget] = {
    "screen": LoopBudget(least=3, most=6, seconds=0.008, long_seconds=0.03, doubtful=12, doubtful_seconds=0.12),
    "verify": LoopBudget(least=6, most=16, seconds=0.03, long_seconds=0.1, doubtful=40, doubtful_seconds=0.4),
}
LATER_LOOKS, LATER_S = 2, 0.25
"""Further looks of a verification at calls that take longer than the device, and how long it waits before each."""


def planned(task: Task, depth: Depth, check_variants: int) -> Plan:
    """What is checked of a version on a device."""
    # Where TF32 is allowed, float16 is as precise as it for numbers around one.
    return plan(task, depth, check_variants, ("huge",))


def screened(task: Task, check_variants: int) -> Plan:
    """What a screening checks."""
    return planned(task, "screen", check_variants)


@dataclass(frozen=True)
class Measurement:
    """Of one candidate. overhead: of the clock, as calibrated. quiet: while it is open, nothing is built on this machine
    and no process gets ready for this GPU. seed: draws a secret one. threads: where the host's time is measured."""

    examination: Examination
    state: ReferenceState
    request: Examine
    backend: DeviceBackend
    flags: Flags
    hardware: Hardware
    overhead: OverheadTable
    quiet: Callable[[], AbstractContextManager[None]]
    seed: Callable[[], int]
    threads: FastThreads

    def made(self) -> Measured:
        """All of it. Raises: Failed for a version that is wrong, or whose times are not to be believed."""
        examination, state, request = self.examination, self.state, self.request
        started = time.perf_counter()
        metrics: dict[str, float] = {}
        if not request.baseline:
            todo = planned(state.task, request.depth, request.check_variants)
            metrics |= examination.check(state, request.source, todo).metrics
        moved = not request.baseline and request.depth == "verify" and state.moved_at_full()
        reference, _ = state.reference(FULL, moved)
        number, expected = self._first_call(reference, moved)
        checked = time.perf_counter()
        calls = REFERENCE_CALLS[request.depth]
        eager = ReferenceClock(self.backend, self.flags, reference.from_start, state.gateable, calls)
        ahead = eager.enqueues(expected)
        del expected  # gigabytes, and the calls that follow draw their own
        overheads = self.overhead.at_least(state.overhead)
        samples, looks, charge = self._timed_calls(reference, number, eager, ahead, overheads)
        metrics |= charge
        found = runtime(samples, eager.times, state.work, overheads, self.hardware)
        if self._judged:
            validate(samples, found, overheads, self.hardware, state.work, lambda: state.bytes_that_matter)
        validated = time.perf_counter()
        found = self._as_called(found, reference, number, eager)
        called = time.perf_counter()
        if self._judged and request.depth == "verify" and request.profile:
            # Last: a process that was profiled takes half as long again for each launch, for good.
            metrics |= profiler_check(examination.profile(reference, number, PROFILED_CALLS), samples)
        metrics |= {
            "reference_s": examination.reference_s,
            "check_s": checked - started,
            "time_s": validated - checked,
            "loop_s": called - validated,
        }
        metrics |= {"verify_s": time.perf_counter() - called, "looks": float(looks)}
        if reference.calibration is not None and (error := reference.calibration.error) is not None:
            metrics[REFERENCE_ERROR] = error
            metrics |= reference.calibration.metrics
        told = state.admission
        return replace(found, metrics={**found.metrics, **metrics}, warnings=told.warnings, undecided=told.undecided)

    @property
    def _judged(self) -> bool:
        """Whether times are validated: not those of the evaluator's own models, nor where calls end before they return."""
        return self.backend.asynchronous and not self.request.baseline

    def _first_call(self, reference: Reference, moved: bool) -> tuple[int, ExpectedOutputs]:
        """Load the candidate at the full shapes and check one call. Returns: its number, and what the call should give."""
        examination, request = self.examination, self.request
        hard = not request.baseline
        first = Prefetcher(reference.timed(seed, hard=hard) for seed in [self.seed()])
        number = examination.load(self.state, FULL, request.source, moved, request.baseline, first.prepare)
        expected = first.take()
        assert expected is not None
        weights = ", weights moved" if moved else ""
        examination.ask_for(expected, number, f"full shapes, first call{expected.note}{weights}")
        return number, expected

    def _timed_calls(
        self, reference: Reference, number: int, eager: ReferenceClock, ahead: bool, overheads: OverheadTable
    ) -> tuple[Samples, int, dict[str, float]]:
        """Timed calls of the candidate, how often they were taken, and "charged_ms" where something is charged."""
        request, looks = self.request, 0

        def draw(seed: int) -> ExpectedOutputs:
            hard = not request.baseline and secrets.randbelow(HARD_ONCE_IN) == 0
            return reference.timed(seed, eager.timed, hard=hard)

        def take(budget: TimingBudget, everywhere: bool = False) -> Samples:
            nonlocal looks
            looks += 1
            samples = self.examination.time(draw, number, budget, ahead, everywhere, lambda: eager.enough)
            samples.reference_behind = eager.behind_ms
            return samples

        budget = TIMING_BUDGETS[request.depth]
        share = SCREENED_SHARE if request.depth == "screen" else 0.0
        samples = timed(take, budget, overheads, self.quiet, share) if self._judged else take(budget)
        self.state.gateable = eager.gateable
        share = CHARGED_SHARE if request.charge else share
        if not (self._judged and share):
            return samples, looks, {}
        samples, charged_ms = charged(samples, overheads, share)
        return samples, looks, {"charged_ms": charged_ms}

    def _looked(self, look: Callable[[LoopBudget], Rounds], device: Timing) -> Rounds:
        """Rounds of calls in a row, from several looks where the first one may have seen what else the machine did.

        look: makes rounds. device: of one call. A screening that saw what nothing explains looks once more, for as long as a
        verification: what would be lost is a version that is right and fast. A verification whose calls take longer than the
        device looks again later, since a machine that is busy for a tenth of a second doubles what the host takes: the look
        that saw least counts, as of rounds.
        """
        screened = self.request.depth == "screen"
        found = [look(LOOP_BUDGETS[self.request.depth])]
        if screened and unexplained(found[0], device, self.overhead):
            return look(LOOP_BUDGETS["verify"])
        while not screened and len(found) <= LATER_LOOKS and not at_device(found[-1], device, self.overhead):
            time.sleep(LATER_S)
            found.append(look(LOOP_BUDGETS["verify"]))
        return min(found, key=lambda rounds: call_time(rounds, device, self.overhead).timing.median_ms)

    def _as_called(self, found: Measured, reference: Reference, number: int, eager: ReferenceClock) -> Measured:
        """What was found of one call at a time, as the version's user has it: with what the host takes in calls in a row."""
        state, budget = self.state, LOOP_BUDGETS[self.request.depth]
        keeps = reference.calibration is not None and bool(reference.calibration.effects.state)
        source = InputSource.of(reference, self.seed())
        row = RowPlan.of(found.timing.median_ms, state.slots, keeps, bool(source.changes))

        def agree(rounds: Rounds) -> bool:
            return settled(rounds, found.timing, self.overhead)

        asked = time.perf_counter()
        with self.quiet():
            quiet_s = time.perf_counter() - asked
            rounds = self._looked(
                lambda budget: self.examination.in_a_row(source, number, row, budget, agree), found.timing
            )
            expected = reference.timed(self.seed())
            if not expected.changed_inputs:
                eager.hosts += state.hosts if self.request.depth == "screen" else ()
                plan = RowPlan.of(median(eager.times or [0.0]), state.slots, keeps, changes=False)
                eager.in_a_row(reference.restarted, reference.model, expected.inputs, budget, plan, self.threads)
                state.hosts = tuple(eager.hosts[-HOSTS:])
            self.threads.settle()
        called = call_time(rounds, found.timing, self.overhead)
        waited = {
            "loop_quiet_s": quiet_s,
            "rounds": float(len(rounds.hosts)),
            "slow_rounds": float(len(rounds.slow_hosts)),
        }
        found = replace(found, metrics={**found.metrics, **waited})
        return as_called(found, called, eager.hosts, state.task.cuda_graph)
