"""QuestionMeter: admits the requests of one question and books them, in the ledger and in the run's store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mtmc.booking import Booking, Demand, Meter, RequestState
from mtmc.chat import ModelSettings
from mtmc.errors import BudgetSpent, ModelError
from mtmc.outcome import Cost
from mtmc.search.budget import Budget
from mtmc.search.ledger import Hold, Ledger
from mtmc.store import Store


class QuestionMeter(Meter):
    """See `chat.Meter`. Each request is in the store, at the most that it may take, before it is sent."""

    def __init__(
        self,
        key: str,
        settings: ModelSettings,
        budget: Budget,
        ledger: Ledger,
        refuse: Callable[[Booking], None],
        store: Store,
    ) -> None:
        """key: of the question. refuse: told of a request that is not admitted, with what it needed at the least."""
        self._key = key
        self._settings = settings
        self._budget = budget
        self._ledger = ledger
        self._refuse = refuse
        self._store = store
        self._request: tuple[int, Hold, Demand] | None = None
        self._last: tuple[int, Booking] | None = None

    def begin(self, demand: Demand) -> int:
        """See `Meter.begin`. A refusal is recorded with what was needed at the least."""
        if demand.rate is None and self._budget.usd is not None:
            raise ModelError(
                f"budget.usd cannot be held: the model {self._settings.name} has no known price; set "
                "model.usd_per_million_in and model.usd_per_million_out (0 for a server of your own), or set budget.tokens "
                "or budget.calls instead, and budget.usd=null"
            )
        try:
            hold = self._ledger.begin(demand)
        except BudgetSpent:
            need = self._ledger.least(demand)
            self._refuse(Booking(self._key, "refused", 0, need.tokens, need.usd))
            raise
        seconds = min(self._settings.timeout_s, max(0.0, self._ledger.seconds_left()))
        reserved = Booking(self._key, "begun", 1, hold.need.tokens, hold.need.usd, seconds)
        try:
            self._request = (self._store.book(reserved), hold, demand)
        except BaseException:
            self._ledger.settle(
                hold, Booking(self._key, "failed", 1)
            )  # it is not sent, and others wait for what it holds
            raise
        return hold.max_tokens

    def settle(self, state: RequestState, cost: Cost) -> None:
        """See `Meter.settle`."""
        assert self._request is not None
        number, hold, demand = self._request
        tokens, usd, tokens_in, prompt_bytes = 0, 0.0, 0, 0
        if state == "unknown":
            tokens, usd = hold.need.tokens, hold.need.usd
        elif state == "answered":
            tokens, usd = cost.tokens_in + cost.tokens_out, cost.usd
            tokens_in, prompt_bytes = cost.tokens_in, demand.prompt_bytes
        seconds = self._ledger.now() - hold.began
        booked = Booking(self._key, state, 1, tokens, usd, seconds, prompt_bytes, tokens_in)
        self._store.rebook(number, booked)
        self._ledger.settle(hold, booked)
        self._request, self._last = None, (number, booked)

    def pause(self, seconds: float) -> None:
        """See `Meter.pause`: the wait is booked with the request before it. A refusal is recorded, it ends the search."""
        assert self._last is not None
        try:
            self._ledger.pause(seconds)
        except BudgetSpent:
            self._refuse(Booking(self._key, "refused", 0, seconds=seconds))
            raise
        number, booked = self._last
        self._store.rebook(number, replace(booked, seconds=booked.seconds + seconds))

    def seconds_left(self) -> float:
        """See `Meter.seconds_left`."""
        return self._ledger.seconds_left()

    def drop(self) -> None:
        """Let go of a request that nobody settles, of a client that was closed say: what was reserved stands, as it
        stands in the store. Idempotent."""
        if self._request is not None:
            _, hold, _ = self._request
            self._request = None
            self._ledger.settle(hold, Booking(self._key, "unknown", 1, hold.need.tokens, hold.need.usd))
