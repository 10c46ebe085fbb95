"""Refinement: a trial whose version is right goes on with the same model for some turns, as long as that pays.

    the last turn paid = (runtime before it - runtime after it) / runtime before it >= agents.refine_gain

A turn that fails may be repaired, within the rounds of repair that the trial has. All turns of a trial make one node: its
fastest right version. The turns between are no nodes, because a strategy is promised one child of a trial, and because they
are steps to the same edit that nobody would go on from: they stay in the record as attempts with their evaluations.
"""

from __future__ import annotations

import math

from mtmc.outcome import Outcome
from mtmc.search.run_state import Run, TrialRun
from mtmc.store import Attempt


def choose(trial_run: TrialRun) -> None:
    """Make the trial's fastest right version the one that becomes the child, the earliest of equals; the last version where
    none is right."""
    right = _right(trial_run)
    attempt, outcome = right[0] if right else trial_run.evaluated[-1]
    trial_run.outcome, trial_run.gate, trial_run.attempt = outcome, "screen", attempt.number


def step_back(trial_run: TrialRun, failed: Outcome) -> None:
    """After a verification that failed: the trial's next slower right version becomes the child; where there is none, the
    version that failed does, as such. failed: what the verification found."""
    slower = [each for each in _right(trial_run) if _place(each) > _place(_present(trial_run))]
    if slower:
        trial_run.attempt, trial_run.outcome = slower[0][0].number, slower[0][1]
    else:
        trial_run.outcome, trial_run.gate = failed, "verify"


def may_refine(run: Run, trial_run: TrialRun) -> bool:
    """Whether a faster version is to be asked for: the last one is right and a model's own, and the last turn has paid."""
    attempt, outcome = trial_run.evaluated[-1]
    if not run.parts.coder.refines or trial_run.refinements >= run.settings.agents.refinements:
        return False
    if not outcome.ok or outcome.undecided or outcome.runtime_ms is None or attempt.plan is not None:
        return False  # what has a plan was written by rules, which have nothing to add
    before = [_runtime(other) for other in trial_run.evaluated[:-1] if other[1].ok]
    return not before or pays(min(before), outcome.runtime_ms, run.settings.agents.refine_gain)


def pays(before_ms: float, after_ms: float, share: float) -> bool:
    """Whether a turn has saved such a share of the runtime. before_ms, after_ms: the fastest right version without it, and
    its own."""
    return before_ms - after_ms >= share * before_ms and after_ms < before_ms


def _right(trial_run: TrialRun) -> list[tuple[Attempt, Outcome]]:
    """The right versions of a trial, fastest first."""
    return sorted((each for each in trial_run.evaluated if each[1].ok), key=_place)


def _present(trial_run: TrialRun) -> tuple[Attempt, Outcome]:
    return next(each for each in trial_run.evaluated if each[0].number == trial_run.attempt)


def _place(version: tuple[Attempt, Outcome]) -> tuple[float, int]:
    return _runtime(version), version[0].number


def _runtime(version: tuple[Attempt, Outcome]) -> float:
    runtime_ms = version[1].runtime_ms
    return math.inf if runtime_ms is None else runtime_ms
