"""Times on the GPU: of each call inside of a model, and of whole models beside each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from mtmc.whole.calls import CallTree, Place, Watcher
from mtmc.whole.site import Profile

WARM_UPS = 3
PROFILE_ROUNDS = 7
ROUNDS = 15
"""Of a comparison: the candidates take turns in each."""
ROUND_MS = 20.0
"""A round of a candidate takes so long at least, by calling it several times."""


class _Events(Watcher):
    """CUDA events around each call."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, Any, Any]] = []
        self._starts: list[Any] = []

    def enter(self, place: Place, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._starts.append(_recorded())

    def leave(self, place: Place) -> None:
        self.spans.append((place.index, self._starts.pop(), _recorded()))

    def totals(self) -> dict[int, float]:
        """Milliseconds by place, of one call of the model. The device has to have finished."""
        found: dict[int, float] = {}
        for index, start, end in self.spans:
            found[index] = found.get(index, 0.0) + start.elapsed_time(end)
        return found


def _recorded() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def measured(profile: Profile, tree: CallTree, model: torch.nn.Module, call: Callable[[], Any]) -> Profile:
    """The same profile with measured times: the median of several calls on the GPU, for each site.

    tree: the places that the profile's sites were made of. call: calls the model. A place that the traced call did not
    have is left out, and a site that is not called here keeps no time.
    """
    with torch.no_grad():
        for _ in range(WARM_UPS):
            call()
        rounds = []
        for _ in range(PROFILE_ROUNDS):
            events = _Events()
            with tree.watched(model, events):
                call()
            torch.cuda.synchronize()
            rounds.append(events.totals())
    ms = [statistics.median(each.get(site.index, 0.0) for each in rounds) for site in profile.sites]
    sites = tuple(replace(site, ms=each) for site, each in zip(profile.sites, ms, strict=True))
    return replace(profile, sites=sites, time_kind="measured")


Compare = Callable[[Sequence[Callable[[], Any]]], list[float]]
"""Milliseconds of one call of each candidate, timed in turn."""


def compare_on_gpu(calls: Sequence[Callable[[], Any]], seconds: float = 20.0) -> list[float]:
    """See `Compare`: medians of rounds in which every candidate has its turn, by CUDA events, after warm-up.

    seconds: no round starts later, but there are three at least.
    """
    with torch.no_grad():
        repeats = [_repeats(call) for call in calls]
        times: list[list[float]] = [[] for _ in calls]
        end = time.monotonic() + seconds
        for number in range(ROUNDS):
            if number >= 3 and time.monotonic() >= end:
                break
            for call, count, found in zip(calls, repeats, times, strict=True):
                found.append(_timed(call, count))
    return [statistics.median(each) for each in times]


def _repeats(call: Callable[[], Any]) -> int:
    for _ in range(WARM_UPS):
        call()
    return max(1, min(100, round(ROUND_MS / max(1e-3, _timed(call, 1)))))


def _timed(call: Callable[[], Any], count: int) -> float:
    torch.cuda.synchronize()
    start = _recorded()
    for _ in range(count):
        call()
    end = _recorded()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / count
