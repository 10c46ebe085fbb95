"""In which order a candidate is measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from mtmc.evaluate.check.cases import Checked
from mtmc.evaluate.measure import measurement
from mtmc.evaluate.measure.call_time import CallTime
from mtmc.evaluate.measure.clock import Timing
from mtmc.evaluate.measure.fast_threads import FastThreads
from mtmc.evaluate.measure.measurement import Measurement
from mtmc.evaluate.measure.questions import Measured
from mtmc.evaluate.measure.timing_validation import CHARGED_SHARE, SCREENED_SHARE


class _Steps:
    """Notes what is asked of it, and gives whatever fits."""

    def __init__(self, seen: list[str], in_a_row: Callable[[], Any]) -> None:
        self._seen, self._in_a_row = seen, in_a_row

    def __getattr__(self, name: str) -> Any:
        def step(*_arguments: Any, **_named: Any) -> Any:
            self._seen.append(name)
            if name == "in_a_row":
                return self._in_a_row()
            return {"check": Checked(0.0, 1, True), "time": SimpleNamespace()}.get(name, 0)

        return step


@pytest.mark.parametrize("charge", [False, True])
@pytest.mark.parametrize(("depth", "profile"), [("verify", True), ("verify", False), ("screen", True)])
def test_a_profiler_comes_when_all_is_timed(
    monkeypatch: pytest.MonkeyPatch, depth: str, profile: bool, charge: bool
) -> None:
    """A process that CUPTI has been in takes longer for each launch, for good: what calls in a row take would be wrong."""
    seen, found = measured(monkeypatch, depth, profile, charge)
    assert seen == [
        "check",
        "load",
        "ask_for",
        "time",
        "in_a_row",
        *(["profile"] if depth == "verify" and profile else []),
    ]
    assert ("profiled_ms" in found.metrics) == (seen[-1] == "profile")
    share = CHARGED_SHARE if charge else SCREENED_SHARE if depth == "screen" else 0.0
    assert (found.metrics["share"], found.metrics.get("charged_ms")) == (share, 0.25 if share else None)


@pytest.mark.parametrize(("depth", "times"), [("screen", 2), ("verify", 1)])
def test_a_screening_that_saw_what_nothing_explains_looks_once_more(
    monkeypatch: pytest.MonkeyPatch, depth: str, times: int
) -> None:
    seen, _ = measured(monkeypatch, depth, profile=False, charge=False, unexplained=True)
    assert seen.count("in_a_row") == times


@pytest.mark.parametrize(
    ("depth", "calls_ms", "looks", "counts_ms"),
    [
        ("verify", (1.0,), 1, 1.0),  # the device's time
        ("verify", (1.9, 1.1, 1.4), 3, 1.1),
        ("verify", (1.9, 1.0), 2, 1.0),
        ("screen", (1.9, 1.1), 1, 1.9),
    ],
)
def test_a_verification_that_waits_for_the_host_looks_again_later(
    monkeypatch: pytest.MonkeyPatch, depth: str, calls_ms: tuple[float, ...], looks: int, counts_ms: float
) -> None:
    given, called = iter(calls_ms), list[float]()
    monkeypatch.setattr(measurement, "LATER_S", 0.0)
    monkeypatch.setattr(measurement, "as_called", lambda found, call, *_: called.append(call.host_ms) or found)
    in_a_row = lambda: SimpleNamespace(hosts=[next(given)], slow_hosts=[])  # noqa: E731
    seen, _ = measured(monkeypatch, depth, profile=False, charge=False, in_a_row=in_a_row)
    assert (seen.count("in_a_row"), called) == (looks, [counts_ms])


def measured(
    monkeypatch: pytest.MonkeyPatch,
    depth: str,
    profile: bool,
    charge: bool,
    unexplained: bool = False,
    in_a_row: Callable[[], Any] = lambda: SimpleNamespace(hosts=[1.0], slow_hosts=[]),
) -> tuple[list[str], Measured]:
    """What is asked of a candidate, in order, and what was found. unexplained: whether all rounds of calls are so. in_a_row:
    gives the rounds of each look, whose hosts are what a call takes; 1 is the device's time."""
    seen = list[str]()
    timing = Timing(1.0, 1.0, 1.0, 8)

    def of(rounds: Any) -> Timing:
        return timing if rounds.hosts == [1.0] else Timing(rounds.hosts[0], 1.0, 2.0, 8)

    fakes: dict[str, Any] = {
        "plan": lambda *_: SimpleNamespace(cases=()),
        "Prefetcher": lambda _: SimpleNamespace(prepare=lambda: False, take=lambda: SimpleNamespace(note="")),
        "ReferenceClock": lambda *_: SimpleNamespace(
            enqueues=lambda _: True, gateable=True, times=[], hosts=[], behind_ms=0.0
        ),
        "timed": lambda take, budget, *_: take(budget),
        "charged": lambda samples, _, share: ((samples, share), 0.25),
        "runtime": lambda samples, *_: Measured(timing, {"share": samples[1] if isinstance(samples, tuple) else 0.0}),
        "validate": lambda *_: None,
        "profiler_check": lambda *_: {"profiled_ms": 1.0},
        "InputSource": SimpleNamespace(of=lambda *_: SimpleNamespace(changes=(0,))),
        "RowPlan": SimpleNamespace(of=lambda *_: None),
        "call_time": lambda rounds, *_: CallTime(of(rounds), rounds.hosts[0]),
        "at_device": lambda rounds, *_: of(rounds) is timing,
        "unexplained": lambda *_: unexplained,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(measurement, name, fake)
    expected = SimpleNamespace(changed_inputs=[0])
    reference = SimpleNamespace(calibration=None, timed=lambda *_, **__: expected, from_start=None)
    state = SimpleNamespace(
        task=SimpleNamespace(cuda_graph=False),
        variants=(),
        moved_at_full=lambda: False,
        reference=lambda *_: (reference, 0),
        gateable=True,
        overhead=None,
        work=None,
        slots=SimpleNamespace(),
        admission=SimpleNamespace(warnings=(), undecided=""),
    )
    request = SimpleNamespace(depth=depth, profile=profile, baseline="", source="", check_variants=None, charge=charge)
    overhead = SimpleNamespace(at_least=lambda _: None)
    backend = SimpleNamespace(asynchronous=True)
    made: Any = Measurement(
        _Steps(seen, in_a_row),  # type: ignore[arg-type]
        state,  # type: ignore[arg-type]
        request,  # type: ignore[arg-type]
        backend,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        overhead,  # type: ignore[arg-type]
        nullcontext,
        lambda: 0,
        FastThreads(),
    )
    return seen, made.made()
