"""What a depth of evaluation checks: sets of shapes, distributions of inputs, weights."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.protocols import Depth
from mtmc.task import Task, Variant


@dataclass(frozen=True)
class PlannedCase:
    """One forward to check.

    serial: number of the model it is asked of: one for each set of shapes, and one more where weights are moved.
    distribution: of the inputs, see `mtmc.evaluate.reference.distributions`. moved: see `loading.construct`.
    """

    serial: int
    variant: Variant
    distribution: str
    moved: bool = False

    @property
    def where(self) -> str:
        """For messages."""
        weights = ", weights of zeros and ones moved" if self.moved else ""
        return f"{self.variant.label} shapes, {self.distribution} inputs{weights}"


@dataclass(frozen=True)
class Plan:
    """Cases to check, in order; those of one model are neighbours."""

    cases: tuple[PlannedCase, ...]

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


def plan(task: Task, depth: Depth, check_variants: int) -> Plan:
    """What a depth of evaluation checks.

    "screen": the small shapes from two distributions, `check_variants` held-out shapes as the task draws them, and at the
    small ones a model whose weights hide no work. "verify": all shapes from both, that model, and at the small shapes
    inputs of a wide range.
    """
    both = ("drawn", "shifted")
    if depth == "verify":
        groups = [(task.small, (*both, "wide"), False), *((variant, both, False) for variant in task.held_out)]
    else:
        held_out = task.held_out[:check_variants]
        groups = [(task.small, both, False), *((variant, both[:1], False) for variant in held_out)]
    groups.append((task.small, both[:1], True))
    return Plan(
        tuple(
            PlannedCase(serial, variant, name, moved)
            for serial, (variant, names, moved) in enumerate(groups)
            for name in names
        )
    )
