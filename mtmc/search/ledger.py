"""Ledger: what a run's questions to language models have taken, kept hard while many are under way at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from mtmc.chat import ChatReply, ModelCall
from mtmc.errors import BudgetSpent
from mtmc.search.budget import Budget, ModelSpent, models_exhausted


class Ledger:
    """Books of one run. From any thread."""

    def __init__(self, budget: Budget, spent: ModelSpent) -> None:
        """spent: before this process."""
        self._budget = budget
        self._spent = spent
        self._guard = threading.Lock()

    @property
    def spent(self) -> ModelSpent:
        """What all questions so far have taken; those under way count as calls only."""
        return self._spent

    def begin(self) -> None:
        """One more question. Raises: BudgetSpent where a limit is reached."""
        with self._guard:
            reason = models_exhausted(self._budget, self._spent)
            if reason is not None:
                raise BudgetSpent(f"no model may be asked any more: {reason}")
            self._spent = replace(self._spent, calls=self._spent.calls + 1)

    def settle(self, reply: ChatReply) -> None:
        """What a question that has begun has taken."""
        with self._guard:
            self._spent = with_reply(self._spent, reply, calls=0)

    def charge(self, reply: ChatReply) -> None:
        """A reply from a record: it counts as it did then, and is never refused."""
        with self._guard:
            self._spent = with_reply(self._spent, reply, calls=1)


def with_reply(spent: ModelSpent, reply: ChatReply, calls: int) -> ModelSpent:
    """What is spent with one reply more. A model without a price adds no dollars."""
    return ModelSpent(
        spent.usd + (reply.usd or 0.0),
        spent.tokens + reply.tokens_in + reply.tokens_out,
        spent.calls + calls,
        spent.model_seconds + reply.seconds,
    )


def spent_on(calls: Iterable[ModelCall]) -> ModelSpent:
    """What recorded calls have taken. One that failed counts as a call, one that was not asked does not."""
    spent = ModelSpent()
    for call in calls:
        if call.reply is not None:
            spent = with_reply(spent, call.reply, calls=1)
        elif not call.spent:
            spent = replace(spent, calls=spent.calls + 1)
    return spent
