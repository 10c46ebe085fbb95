"""Rewards: pure functions from outcomes to numbers.

Two of them. `shaped_reward` is the paper's (arXiv 2511.20100, overview figure) and is what a Macro policy is trained
on; `log_speedup` is the value of a node in the search.
"""

from __future__ import annotations

import math

from mtmc.outcome import Outcome, speedup

VALUE_FLOOR = -4.0
"""Value of a failed version and the least value of any: 2 ** -4, a sixteenth of the root's speed."""

COMPILE_FAILS, COMPILES = -1.0, 0.1
RUNS_WRONG, RUNS_RIGHT = -0.5, 0.5
FASTER = 1.0
STEP_DECAY = 0.02
"""Per step taken so far. The paper says that a decay grows with the step number but not its coefficient: ours."""


def shaped_reward(outcome: Outcome, previous: Outcome, step: int, decay: float = STEP_DECAY) -> float:
    """The paper's reward of one step.

    r = (-1.0 if the version does not compile, else +0.1)
      + (-0.5 if it runs wrong, +0.5 if right; only where it compiles)
      + (+1.0 if it is right and faster than the previous version)
      - decay * step

    outcome: of the version this step made. previous: of the version before it. step: 1 for the first action.
    A version that crashes, hangs, runs out of memory or is rejected did compile and ran wrong.
    One that was only compiled ("not_run") earns what compiling does.
    """
    penalty = decay * step
    if outcome.status == "build_error":
        return COMPILE_FAILS - penalty
    if outcome.status == "not_run":
        return COMPILES - penalty
    if not outcome.ok:
        return COMPILES + RUNS_WRONG - penalty
    gain = speedup(outcome, previous)
    faster = FASTER if gain is not None and gain > 1.0 else 0.0
    return COMPILES + RUNS_RIGHT + faster - penalty


def log_speedup(outcome: Outcome, root: Outcome, floor: float = VALUE_FLOOR) -> float:
    """Value of a version: log2 of its speedup over the root, `floor` for a failure and as the least value."""
    gain = speedup(outcome, root)
    if not outcome.ok or gain is None:
        return floor
    return max(floor, math.log2(gain))
