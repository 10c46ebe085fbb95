"""Budget: what a search may spend, and the plain rules that keep it hard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from mtmc.errors import ConfigError

MODEL_LIMITS = ("usd", "tokens", "calls", "model_seconds")


@dataclass(frozen=True)
class Budget:
    """What a search may spend. It ends when the first of these is reached.

    evaluations: versions evaluated, the root and every round of repair included; never one more.
    wall_seconds: since the start, summed over resumes; looked at before each batch and each repair, and it ends questions
        to a model that are under way. An evaluation that is under way still ends. None: no limit.
    depth: actions between the root and a version; deeper versions are not made.
    usd, tokens, calls, model_seconds: what language models may take, summed over resumes: dollars, tokens in and out,
        requests (each try of a question is one), seconds of waiting. The most that a request may take is reserved before it
        is sent, and a reply may be only as long as what is left: no limit is exceeded. A question for which too little is
        left is not asked, and the search ends after the batch in flight. None: no limit.
    stagnation: end when so many questions in a row, of a coder to its model, have led to no evaluation. None: never.
    roofline: end as soon as the best version reaches this fraction of the roofline (its outcome's metric "roofline"),
        above 0, at most 1, and no baseline that was known at the root is faster. None: never.
    """

    evaluations: int = 32
    wall_seconds: float | None = None
    depth: int = 8
    roofline: float | None = None
    usd: float | None = None
    tokens: int | None = None
    calls: int | None = 1000
    model_seconds: float | None = None
    stagnation: int | None = 32

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the limit, its value and what it may be."""
        for name in ("evaluations", "depth"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"budget.{name} cannot be {value!r}: use a whole number")
        if self.evaluations < 1:
            hint = "use 1 or more; the root's own evaluation takes one"
            raise ConfigError(f"budget.evaluations cannot be {self.evaluations}: {hint}")
        if self.depth < 0:
            raise ConfigError(f"budget.depth cannot be {self.depth}: use 0 or more")
        if self.wall_seconds is not None and not self.wall_seconds > 0:
            raise ConfigError(f"budget.wall_seconds cannot be {self.wall_seconds}: use a number above 0, or none")
        if self.roofline is not None and not 0 < self.roofline <= 1:
            raise ConfigError(f"budget.roofline cannot be {self.roofline}: use a fraction above 0, at most 1, or none")
        for name in MODEL_LIMITS:
            limit = getattr(self, name)
            if limit is not None and not limit >= 0:
                raise ConfigError(f"budget.{name} cannot be {limit}: use 0 or more, or none")
        if self.stagnation is not None and self.stagnation < 1:
            raise ConfigError(f"budget.stagnation cannot be {self.stagnation}: use 1 or more, or none")

    def covers(self, other: Budget) -> bool:
        """Whether each limit is at least the other's: what a search with this one has found stands for the other's."""
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return all(own is None or (limit is not None and own >= limit) for own, limit in pairs)


@dataclass(frozen=True)
class ModelSpent:
    """What language models have taken so far, as the fields of `Budget` of the same names count it."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    model_seconds: float = 0.0


@dataclass(frozen=True)
class Need:
    """The least that a question needs which was refused: tokens of its prompt and of a short reply, and their price; or
    seconds of a wait before it is asked again."""

    tokens: int
    usd: float
    seconds: float = 0.0


@dataclass(frozen=True)
class Spent:
    """What a run has spent so far. roofline: fraction that its best version reaches, None where that is not known, or a
    baseline is faster.
    needs: of questions that were refused."""

    evaluations: int
    seconds: float
    roofline: float | None = None
    models: ModelSpent = field(default_factory=ModelSpent)
    needs: tuple[Need, ...] = ()


def evaluations_spent(evaluations: int) -> str:
    """Why a search ends whose evaluations are spent, in words."""
    return f"{evaluations} evaluations are spent"


def exhausted(budget: Budget, spent: Spent) -> str | None:
    """Why the search ends now, in words; None while it may go on."""
    if budget.roofline is not None and spent.roofline is not None and spent.roofline >= budget.roofline:
        return f"the best version reaches {spent.roofline:.2f} of the roofline, {budget.roofline:.2f} was asked"
    if spent.evaluations >= budget.evaluations:
        return evaluations_spent(budget.evaluations)
    if budget.wall_seconds is not None and spent.seconds >= budget.wall_seconds:
        return f"{budget.wall_seconds:g} seconds are spent"
    waits = max((need.seconds for need in spent.needs), default=0.0)
    if budget.wall_seconds is not None and waits > 0 and spent.seconds + waits > budget.wall_seconds:
        return (
            f"the model is to be asked again in {waits:g} seconds, beyond budget.wall_seconds={budget.wall_seconds:g}"
        )
    return models_exhausted(budget, spent.models, spent.needs)


def models_exhausted(budget: Budget, spent: ModelSpent, needs: Sequence[Need] = ()) -> str | None:
    """Why no language model may be asked any more, in words; None while one may.

    needs: of questions; one that does not fit into what is left is a reason too.
    """
    for name in MODEL_LIMITS:
        limit, used = getattr(budget, name), getattr(spent, name)
        if limit is not None and used >= limit:
            return f"{used:g} of budget.{name}={limit:g} are spent"
    for need in needs:
        for name, part in (("usd", "usd"), ("tokens", "tokens"), ("model_seconds", "seconds")):
            limit, used, needed = getattr(budget, name), getattr(spent, name), getattr(need, part)
            if limit is not None and used + needed > limit:
                return f"{used:g} of budget.{name}={limit:g} are spent, and the next question may need {needed:g}"
    return None


def batch_size(budget: Budget, spent: Spent, batch: int) -> int:
    """How many trials may start now: each needs one evaluation at least."""
    return max(0, min(batch, budget.evaluations - spent.evaluations))


def allowances(budget: Budget, spent: Spent, trials: int, more: int) -> list[int]:
    """How many evaluations each of `trials` trials may use, in trial order: 1 and up to `more` (for repairs, say).

    They are given out before the batch starts, earlier trials first, so that the budget holds whatever the trials'
    timing, and equal runs give equal trees. The sum never exceeds what is left.
    """
    spare = budget.evaluations - spent.evaluations - trials
    given: list[int] = []
    for _ in range(trials):
        extra = max(0, min(more, spare))
        spare -= extra
        given.append(1 + extra)
    return given
