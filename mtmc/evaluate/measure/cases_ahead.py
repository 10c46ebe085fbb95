"""Cases of the next screening, made while nothing is examined: each is drawn for itself, and given to one candidate only.

What a case should give takes the reference three forwards and more, two of them in float64, and hangs on no candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from mtmc.evaluate.check.cases import PlannedCase
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.task.tensors import held

AHEAD_BYTES = 1 << 28
"""Bytes of a device that cases may take which wait: no further one is made while those there are take more."""

Calls: TypeAlias = "list[ExpectedOutputs] | None"
"""What the calls of a case should give; None where the reference refuses such inputs, or weights so moved."""


class CasesAhead:
    """Cases that wait for a candidate, at most one of a kind. make: what a case asked with so many calls in a row should
    give, on inputs that it draws with a secret of their own."""

    def __init__(self, make: Callable[[PlannedCase, int], Calls]) -> None:
        self._make = make
        self._waiting: dict[tuple[PlannedCase, int], Calls] = {}

    def take(self, case: PlannedCase, calls: int) -> Calls:
        """One that waits, which nobody is given again; else a new one. Raises: TaskError as `make`."""
        key = _kind(case, calls)
        return self._waiting.pop(key) if key in self._waiting else self._make(case, calls)

    def prepare(self, cases: Iterable[PlannedCase], calls: int) -> bool:
        """Make the first of these that does not wait yet, or what takes its place where the reference refuses it. Returns:
        whether one was made; False where all wait, or what waits takes `AHEAD_BYTES`. Raises: TaskError as `make`."""
        if _bytes(self._waiting.values()) > AHEAD_BYTES:
            return False
        for planned in cases:
            for case in planned.attempts:
                key = _kind(case, calls)
                if key not in self._waiting:
                    self._waiting[key] = self._make(case, calls)
                    return True
                if self._waiting[key] is not None:
                    break
        return False

    def clear(self) -> None:
        """Let go of all: they are of other weights, or something else needs the memory."""
        self._waiting.clear()


def _kind(case: PlannedCase, calls: int) -> tuple[PlannedCase, int]:
    """The same for what any candidate is asked alike: which model of its plan a case is of makes no difference."""
    return PlannedCase(0, case.variant, case.distribution, case.moved), calls


def _bytes(waiting: Iterable[Calls]) -> int:
    return held([_tensors(call) for calls in waiting for call in calls or ()])


def _tensors(call: ExpectedOutputs) -> Sequence[Any]:
    outputs = [each for each in call.everything if not isinstance(each, str)]
    return [call.inputs, [[getattr(each, field.name) for field in fields(each)] for each in outputs]]
