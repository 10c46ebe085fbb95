"""Verification: the last gate, for a batch's best version only.

A version becomes the run's best only when it has passed. The versions of a batch that are faster than the best so far
are verified fastest first until one passes: those after it are slower, so none of them can become the best. One that
does not pass is rejected, and the next takes its place. So is one that takes longer there than the reference, with which
it is timed in turn where that can be done: what was faster once, on a busy host say, is not handed back.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.search.context import Flight, Run
from mtmc.search.evaluation import outcome_of


def verify_best(run: Run, flights: Sequence[Flight]) -> None:
    """Verify what would become the best version of a batch whose trials have all ended; nothing where none would."""
    if not run.parts.evaluator.verifies:
        return
    for flight in contenders(flights, run.tree.best.outcome.runtime_ms):
        attempt = flight.attempts[flight.attempt]
        assert attempt.source is not None
        _, verified = outcome_of(run, attempt.source, "verify", run.batch_id)
        if verified.ok:
            return
        flight.outcome, flight.gate = verified, "verify"


def contenders(flights: Sequence[Flight], best_ms: float | None) -> list[Flight]:
    """The trials that ended with a version faster than `best_ms` (ms; None: any), fastest first, ties in trial order."""
    timed = [
        (flight.outcome.runtime_ms, flight.row.trial.id, flight)
        for flight in flights
        if flight.duplicate_of is None and flight.outcome is not None and flight.outcome.ok
        if flight.outcome.runtime_ms is not None and (best_ms is None or flight.outcome.runtime_ms < best_ms)
    ]
    return [flight for _, _, flight in sorted(timed, key=lambda each: each[:2])]
