"""Which patches stay in a model, and which of all the models is handed back. Pure: whoever calls brings the times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mtmc.dropin.compiled import COMPILED

EAGER = "eager"
PATCHED = "patched"
PATCHED_COMPILED = f"patched, {COMPILED}"

MARGIN = 0.005
"""Of the time: a patched model that is not faster by more is not handed back, for timing is no better than that."""

Keys = frozenset[str]
TimeSets = Callable[[Sequence[Keys]], Sequence[float]]
"""Milliseconds of the model with each of these sets of pieces in it, timed in turn."""


@dataclass(frozen=True)
class Settled:
    """kept: the pieces that stay. ms: of the model with these. dropped: by key, how many times faster the model was
    without it."""

    kept: Keys
    ms: float
    dropped: Mapping[str, float]


def settle(keys: Keys, time: TimeSets) -> Settled:
    """Begin with all pieces, and take out the one without which the model is fastest, as long as that is no slower.

    So a piece stays only where the whole model gets faster by it, beside the others that stay.
    """
    kept, dropped = keys, dict[str, float]()
    while True:
        order = sorted(kept)
        with_all, *without = time([kept, *(kept - {key} for key in order)])
        least = min(range(len(order)), key=lambda index: without[index], default=None)
        if least is None or without[least] > with_all:
            return Settled(kept, with_all, dropped)
        dropped[order[least]] = with_all / without[least]
        kept -= {order[least]}


def best_of(times: Mapping[str, float]) -> str:
    """Name of the model to hand back. times: milliseconds by name, that of `EAGER` among them.

    One with patches only where it is faster than the best without them by more than `MARGIN`.
    """
    plain = min((name for name in times if not is_patched(name)), key=lambda name: times[name])
    best = min(times, key=lambda name: times[name])
    return best if times[best] < (1 - MARGIN) * times[plain] or not is_patched(best) else plain


def is_patched(name: str) -> bool:
    """Whether a model of that name has patches in it."""
    return name.startswith(PATCHED)
