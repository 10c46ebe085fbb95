"""What a depth of evaluation checks: sets of shapes, distributions of inputs, weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mtmc.evaluate.reference.calls import CALLS, SCREENED_CALLS
from mtmc.protocols import Depth
from mtmc.task import Task, Variant

HARD = ("spiky", "sparse")
"""Distributions that show what is right for easy inputs only."""


@dataclass(frozen=True)
class PlannedCase:
    """One forward to check.

    serial: number of the model it is asked of: one for each set of shapes, and one more where weights are moved.
    distribution: of the inputs, see `mtmc.evaluate.reference.distributions`. moved: see `loading.construct`.
    otherwise: (distribution, moved) to fall back on, in order, for a reference that does not take such inputs or weights,
    or for which they tell nothing. None: the other cases of its model stand for it.
    """

    serial: int
    variant: Variant
    distribution: str
    moved: bool = False
    otherwise: tuple[tuple[str, bool], ...] = ()

    @property
    def attempts(self) -> tuple[PlannedCase, ...]:
        """The case itself, and what takes its place."""
        others = (replace(self, distribution=name, moved=moved) for name, moved in self.otherwise)
        return self, *others

    @property
    def where(self) -> str:
        """For messages."""
        weights = ", weights moved" if self.moved else ""
        return f"{self.variant.label} shapes, {self.distribution} inputs{weights}"


@dataclass(frozen=True)
class Plan:
    """Cases to check, in order; those of one model are neighbours. calls: in a row of each, where a reference changes
    something."""

    cases: tuple[PlannedCase, ...]
    calls: int = CALLS

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The sets of shapes, each once."""
        return tuple(dict.fromkeys(case.variant for case in self.cases))


@dataclass(frozen=True)
class Checked:
    """What a version showed that is right. error: the largest norm-wise one. cases: forwards that were compared.

    exact: whether all were compared with float64; a reference that does not run there has none.
    """

    error: float
    cases: int
    exact: bool

    @property
    def metrics(self) -> dict[str, float]:
        """As metrics of an outcome."""
        return {"error": self.error, "cases": float(self.cases), "float64_oracle": float(self.exact)}


def call_name(where: str, at: int, calls: int) -> str:
    """Which call a message is about: the only one of a case, or one of several in a row."""
    return where if calls == 1 else f"{where}, call {at + 1} of {calls} in a row"


def plan(task: Task, depth: Depth, check_variants: int, also: tuple[str, ...] = ()) -> Plan:
    """What a depth of evaluation checks.

    "screen": the small shapes as the task draws them; inputs that stand out and inputs of which few count, at the first of
    `check_variants` held-out shapes, or at the small ones where there are not enough; and at the small shapes a model whose
    weights hide no work, on inputs that are not centred. "verify": every shape from each of these, and the small ones from
    a wide range and from huge numbers. also: distributions that a screening asks for at the small shapes besides.
    """
    groups: list[tuple[Variant, tuple[str, ...], bool]]
    if depth == "verify":
        groups = [(task.small, ("drawn", "shifted", *HARD, "wide", "huge"), False)]
        groups += [(variant, ("drawn", "shifted", HARD[at % 2]), False) for at, variant in enumerate(task.held_out)]
    else:
        held_out = task.held_out[:check_variants]
        groups = [(task.small, ("drawn", *HARD[len(held_out) :], *also), False)]
        groups += [(variant, (HARD[at % 2],), False) for at, variant in enumerate(held_out)]
    groups.append((task.small, ("drawn", "shifted") if depth == "verify" else ("shifted",), True))
    return Plan(
        tuple(
            PlannedCase(serial, variant, name, moved, _otherwise(names, moved))
            for serial, (variant, names, moved) in enumerate(groups)
            for name in names
        ),
        CALLS if depth == "verify" else SCREENED_CALLS,
    )


def _otherwise(names: tuple[str, ...], moved: bool) -> tuple[tuple[str, bool], ...]:
    """What takes the place of a case of a model that is asked with these distributions."""
    if "drawn" in names:
        return ()
    return (("drawn", True), *((name, False) for name in names)) if moved else (("drawn", False),)
