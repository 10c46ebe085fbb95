"""rewards: what a step of the environment is worth. Pure functions of outcomes, each beside a hand-computed test.

`paper` is the reward of MTMC (arXiv 2511.20100, overview figure), `log_speedup` pays for speed alone, `progress` pays for
what a search returns: the best version so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mtmc.outcome import Outcome, speedup
from mtmc.reward import STEP_DECAY, shaped_reward

RewardName = Literal["paper", "log_speedup", "progress"]

FAILURE = -1.0
"""What `log_speedup` gives for a version that fails: as much as one that takes twice the time."""


@dataclass(frozen=True)
class Moment:
    """A step as its reward sees it.

    outcome: of the version that the step made. previous: of the one before. best_ms: runtime of the best right version
    of the episode before this step. step: 1 for the first.
    """

    outcome: Outcome
    previous: Outcome
    best_ms: float
    step: int


def log_gain(outcome: Outcome, previous: Outcome) -> float:
    """log2(runtime of the previous version / runtime of this one): 1 for twice as fast.

    Raises: ValueError where either has no runtime.
    """
    gain = speedup(outcome, previous)
    if gain is None:
        raise ValueError(f"no speedup of a version that is {outcome.status} over one that is {previous.status}")
    return math.log2(gain)


def paper(moment: Moment, decay: float = STEP_DECAY) -> float:
    """MTMC's shaped reward, see `mtmc.reward.shaped_reward`:

    r = (-1.0 fails to compile | +0.1) + (-0.5 wrong | +0.5 right) + 1.0 [faster than the previous] - decay * step
    """
    return shaped_reward(moment.outcome, moment.previous, moment.step, decay)


def log_speedup(moment: Moment, decay: float = 0.0, failure: float = FAILURE) -> float:
    """r = log2(t_previous / t) - decay * step for a right version, else failure - decay * step.

    Without decay and failures the rewards of an episode sum to the log2 speedup of its last version over the root.
    """
    worth = log_gain(moment.outcome, moment.previous) if moment.outcome.ok else failure
    return worth - decay * moment.step


def progress(moment: Moment, decay: float = 0.0) -> float:
    """r = max(0, log2(t_best / t)) - decay * step: what the step adds to the best version so far; a failure adds 0.

    Without decay the rewards of an episode sum to the log2 speedup of its best version over the root.
    """
    runtime = moment.outcome.runtime_ms
    gain = 0.0 if not moment.outcome.ok or runtime is None else max(0.0, math.log2(moment.best_ms / runtime))
    return gain - decay * moment.step


REWARDS: dict[RewardName, Callable[[Moment, float], float]] = {
    "paper": paper,
    "log_speedup": log_speedup,
    "progress": progress,
}
"""Rewards by name; the second argument is the step decay."""
