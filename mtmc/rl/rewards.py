"""rewards: the reward of a step, but for the step decay. Pure functions, each beside a hand-computed test.

`paper` is the reward of MTMC (arXiv 2511.20100, overview figure), `log_speedup` pays for speed alone, `progress` pays for
what a search returns: the best version so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mtmc.outcome import Outcome, speedup
from mtmc.reward import shaped_reward

RewardName = Literal["paper", "log_speedup", "progress"]

FAILURE = -1.0
"""What `log_speedup` gives for a version that fails: as much as one that takes twice the time."""


def log_gain(outcome: Outcome, previous: Outcome) -> float:
    """log2(runtime of the previous version / runtime of this one): 1 for twice as fast.

    Raises: ValueError where either has no runtime.
    """
    gain = speedup(outcome, previous)
    if gain is None:
        raise ValueError(f"no speedup of a version that is {outcome.status} over one that is {previous.status}")
    return math.log2(gain)


def paper(outcome: Outcome, previous: Outcome) -> float:
    """MTMC's shaped reward, see `mtmc.reward.shaped_reward`:

    r = (-1.0 fails to compile | +0.1) + (-0.5 wrong | +0.5 right) + 1.0 [faster than the previous]
    """
    return shaped_reward(outcome, previous, step=0)


def log_speedup(outcome: Outcome, previous: Outcome) -> float:
    """r = log2(t_previous / t) for a right version, else `FAILURE`.

    Without failures the rewards of an episode sum to the log2 speedup of its last version over the root.
    """
    return log_gain(outcome, previous) if outcome.ok else FAILURE


def progress(best_ms: NDArray[np.float64], new_best_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """r = log2(t_best before the step / t_best after it): what the step adds to the best version so far, never below 0.

    The rewards of an episode sum to the log2 speedup of its best version over the root.
    """
    return np.log2(best_ms / new_best_ms)


OF_EDGES: dict[RewardName, Callable[[Outcome, Outcome], float]] = {"paper": paper, "log_speedup": log_speedup}
"""Rewards that a step has whatever came before it: of the outcome that it leads to and the one that it starts from."""
REWARDS: tuple[RewardName, ...] = (*OF_EDGES, "progress")
