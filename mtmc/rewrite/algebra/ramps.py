"""ramps: numbers that go up or down evenly with their index, and where such numbers are at most 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ramp:
    """start + the sum of step * index. steps: of each dimension; 0 where it has one element."""

    steps: tuple[int, ...]
    start: int

    @property
    def is_flat(self) -> bool:
        """Whether it is one number."""
        return not any(self.steps)

    def aligned(self, rank: int) -> Ramp:
        """With dimensions of one element in front, as a broadcast to a rank has it."""
        return Ramp((0,) * (rank - len(self.steps)) + self.steps, self.start)

    def times(self, factor: int) -> Ramp:
        """Each number times a factor."""
        return Ramp(tuple(step * factor for step in self.steps), self.start * factor)

    def plus(self, other: Ramp) -> Ramp:
        """The sum, broadcast."""
        rank = max(len(self.steps), len(other.steps))
        pairs = zip(self.aligned(rank).steps, other.aligned(rank).steps, strict=True)
        return Ramp(tuple(a + b for a, b in pairs), self.start + other.start)

    def plus_number(self, number: int) -> Ramp:
        """Each number and another one."""
        return Ramp(self.steps, self.start + number)


@dataclass(frozen=True)
class Region:
    """Where all of some ramps are at most 0; everywhere where there is none. rank: of the tensor."""

    rank: int
    bounds: frozenset[Ramp] = frozenset()

    @classmethod
    def of(cls, rank: int, *bounds: Ramp) -> Region:
        """Without bounds that hold everywhere."""
        aligned = (bound.aligned(rank) for bound in bounds)
        return cls(rank, frozenset(each for each in aligned if not (each.is_flat and each.start <= 0)))

    def mapped(self, rank: int, change: Callable[[Ramp], Ramp]) -> Region:
        """With another index."""
        return Region.of(rank, *map(change, self.bounds))

    def holds(self) -> bool | None:
        """Whether it is everywhere, or nowhere; None where it depends on the index, or nobody knows."""
        if not self.bounds:
            return True
        return False if any(each.is_flat for each in self.bounds) else None


Known = Ramp | Region | None
"""What is known of a value: None where that is nothing."""
