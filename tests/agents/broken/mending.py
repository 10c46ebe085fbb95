"""What becomes of broken kernels: each evaluated, repaired by the rule that fits, and evaluated again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mtmc.agents.coders.repair import Fixed, fix
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest, Evaluator
from tests.agents.broken import Broken

HARDWARE = "H100"
ROUNDS = 4
"""Repairs of one kernel, at most."""
_VERIFIED = 8
"""Versions that are verified at a time."""
Verdict = Literal["mended", "left alone", "not mended", "mended wrongly", "not broken"]


@dataclass(frozen=True)
class History:
    """One kernel's outcomes, from the broken version to the last, and the repairs between them."""

    row: Broken
    outcomes: tuple[Outcome, ...] = ()
    repairs: tuple[Fixed, ...] = ()

    @property
    def source(self) -> str:
        """The text as it is by now."""
        return self.repairs[-1].source if self.repairs else self.row.source

    @property
    def verdict(self) -> Verdict:
        """What was made of it. A repair is wrong where the version that it leads to is not right."""
        if self.outcomes[-1].ok:
            return "mended" if self.repairs else "not broken"
        if self.repairs:
            return "mended wrongly"
        return "left alone" if self.row.left_alone else "not mended"


def histories(rows: Sequence[Broken], evaluator: Evaluator) -> list[History]:
    """The history of each row, in their order; what is mended at the end has been verified.

    Raises: TaskError or EvaluatorError as the evaluator does; ValueError for a row that is none.
    """
    found = [History(row) for row in rows]
    open_ones = list(range(len(rows)))
    for _ in range(1 + ROUNDS):
        requests = [EvaluationRequest(found[at].row.task, found[at].source) for at in open_ones]
        for at, outcome in zip(open_ones, evaluator.evaluate(requests), strict=True):
            found[at] = replace(found[at], outcomes=(*found[at].outcomes, outcome))
        repaired = []
        for at in open_ones:
            diagnosis = found[at].outcomes[-1].diagnosis
            fixed = None if diagnosis is None else fix(found[at].source, diagnosis, HARDWARE)
            if fixed is not None and len(found[at].repairs) < ROUNDS:
                found[at] = replace(found[at], repairs=(*found[at].repairs, fixed))
                repaired.append(at)
        open_ones = repaired
        if not open_ones:
            break
    return _verified(found, evaluator)


def _verified(found: Sequence[History], evaluator: Evaluator) -> list[History]:
    """The histories, with a verification in place of the last outcome of what is mended."""
    after = list(found)
    right = [at for at, history in enumerate(found) if history.verdict == "mended"]
    for start in range(0, len(right), _VERIFIED):
        part = right[start : start + _VERIFIED]
        requests = [EvaluationRequest(found[at].row.task, found[at].source, depth="verify") for at in part]
        for at, outcome in zip(part, evaluator.evaluate(requests), strict=True):
            after[at] = replace(after[at], outcomes=(*after[at].outcomes[:-1], outcome))
    return after
