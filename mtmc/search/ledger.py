"""Ledger: what a run's requests to language models have taken, kept hard while many are under way at once.

The most that a request may take is held before it is sent, and what it took is booked afterwards:

    tokens held = bound of the prompt + tokens that the reply may have        dollars held = these at list price

A request for which too little is free waits while others hold something, and else its reply may be only as long as what
is left. So what is booked never exceeds a limit, whatever the requests under way turn out to take.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from mtmc.booking import Booking, Demand
from mtmc.chat import ChatReply, ModelCall
from mtmc.errors import BudgetSpent
from mtmc.search.budget import Budget, ModelSpent, Need, models_exhausted

LEAST_REPLY = 256
"""Tokens of a reply at the least: a question whose reply could have fewer is not asked."""

MESSAGE_TOKENS, REQUEST_TOKENS = 16, 128
"""What templates add at most to each message and to each conversation."""

TOKENS_PER_BYTE = 1.0
"""Of a prompt before the model has answered anything: a token has one byte at least."""
MARGIN, LEAST_PER_BYTE = 1.5, 0.5
"""Afterwards: so many times the most that any of its prompts had, and never less than that (code has 0.2 to 0.4)."""

WAKE_S = 0.05
"""How often a request that waits for others looks at the clock, in seconds."""


@dataclass(frozen=True, eq=False)
class Hold:
    """What is held of one request that is under way. began: on the ledger's clock, in seconds. model: that is asked."""

    need: Need
    max_tokens: int
    began: float
    model: str = ""


class Ledger:
    """Books of one run. From any thread."""

    def __init__(
        self,
        budget: Budget,
        spent: ModelSpent,
        *,
        wall_left: Callable[[], float] = lambda: math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """spent: before this process. wall_left: seconds until the run's own limit of time. clock: in seconds."""
        self._budget = budget
        self._spent = spent
        self._wall_left = wall_left
        self._clock = clock
        self._holds: set[Hold] = set()
        self._per_byte: dict[str, float] = {}  # by model
        self._changed = threading.Condition()

    @property
    def spent(self) -> ModelSpent:
        """What all requests so far have taken; those under way count as calls only."""
        return self._spent

    def begin(self, demand: Demand) -> Hold:
        """Hold what one more request may take, as soon as it is free.

        Raises: BudgetSpent where it is not, and will not be when the requests under way have taken nothing at all.
        """
        with self._changed:
            while True:
                self._check_time()
                self._check(models_exhausted(self._budget, self._spent))
                prompt = self._bound(demand)
                least = min(LEAST_REPLY, demand.max_tokens)
                self._check(models_exhausted(self._budget, self._spent, [self._need(demand, prompt, least)]))
                free = self._free(demand, prompt)
                if free >= demand.max_tokens or not self._holds:
                    max_tokens = max(free, least)  # the check leaves so many, but for a rounding of dollars
                    hold = Hold(self._need(demand, prompt, max_tokens), max_tokens, self._clock(), demand.model)
                    self._holds.add(hold)
                    self._spent = replace(self._spent, calls=self._spent.calls + 1)
                    return hold
                self._changed.wait(WAKE_S)

    def least(self, demand: Demand) -> Need:
        """What a request needs at the least."""
        return self._need(demand, self._bound(demand), min(LEAST_REPLY, demand.max_tokens))

    def settle(self, hold: Hold, booked: Booking) -> None:
        """Let go of what was held, and book what the request took: see `Booking`, its calls are booked already."""
        with self._changed:
            self._holds.discard(hold)
            self._spent = with_booking(self._spent, replace(booked, calls=0))
            self.learn(booked, hold.model)
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Book a wait before it begins. Raises: BudgetSpent where it would end beyond a limit of time."""
        with self._changed:
            self._check_time()
            if seconds >= self._seconds_left():
                raise BudgetSpent(f"a wait of {seconds:.1f} s would end after the run's limit of time")
            self._spent = replace(self._spent, model_seconds=self._spent.model_seconds + seconds)

    def seconds_left(self) -> float:
        """What each request under way may still take by the limits of time, when all of them go on as now."""
        with self._changed:
            return self._seconds_left()

    def charge(self, booked: Booking, model: str = "") -> None:
        """What comes from a record: it counts as it did then, and is never refused."""
        with self._changed:
            self._spent = with_booking(self._spent, booked)
            self.learn(booked, model)

    def learn(self, booked: Booking, model: str = "") -> None:
        """Take from an answered request how a model counts tokens."""
        if booked.prompt_bytes > 0 and booked.tokens_in > 0:
            self._per_byte[model] = max(self._per_byte.get(model, 0.0), booked.tokens_in / booked.prompt_bytes)

    def now(self) -> float:
        """Seconds on the ledger's clock."""
        return self._clock()

    def _check(self, reason: str | None) -> None:
        if reason is not None:
            raise BudgetSpent(f"no model may be asked any more: {reason}")

    def _check_time(self) -> None:
        if self._wall_left() <= 0:
            raise BudgetSpent(
                f"no model may be asked any more: budget.wall_seconds={self._budget.wall_seconds} is over"
            )
        if self._seconds_left() <= 0:
            limit = self._budget.model_seconds
            raise BudgetSpent(f"no model may be asked any more: budget.model_seconds={limit} is spent or under way")

    def _seconds_left(self) -> float:
        limit = self._budget.model_seconds
        if limit is None:
            return self._wall_left()
        now = self._clock()
        under_way = sum(now - hold.began for hold in self._holds)
        left = limit - self._spent.model_seconds - under_way
        return min(left / max(1, len(self._holds)), self._wall_left())

    def _bound(self, demand: Demand) -> int:
        """The most tokens that a prompt can have, by what its own model has reported."""
        per_byte = TOKENS_PER_BYTE
        if demand.model in self._per_byte:
            per_byte = min(TOKENS_PER_BYTE, max(LEAST_PER_BYTE, MARGIN * self._per_byte[demand.model]))
        return math.ceil(per_byte * demand.prompt_bytes) + MESSAGE_TOKENS * demand.messages + REQUEST_TOKENS

    def _need(self, demand: Demand, prompt: int, reply: int) -> Need:
        rate = demand.rate
        return Need(prompt + reply, 0.0 if rate is None else prompt * rate.usd_in + reply * rate.usd_out)

    def _free(self, demand: Demand, prompt: int) -> int:
        """Tokens that a reply may have by what is neither spent nor held, at most those that are asked for."""
        free = demand.max_tokens
        tokens, usd = self._budget.tokens, self._budget.usd
        if tokens is not None:
            held = sum(hold.need.tokens for hold in self._holds)
            free = min(free, tokens - self._spent.tokens - held - prompt)
        if usd is not None and demand.rate is not None:
            held_usd = sum(hold.need.usd for hold in self._holds)
            left = usd - self._spent.usd - held_usd - prompt * demand.rate.usd_in
            if left < 0:
                return 0
            if demand.rate.usd_out > 0:
                free = min(free, math.floor(left / demand.rate.usd_out))
        return max(0, free)


def with_booking(spent: ModelSpent, booked: Booking) -> ModelSpent:
    """What is spent with one booking more; one that was refused took nothing."""
    if booked.state == "refused":
        return spent
    return ModelSpent(
        spent.usd + booked.usd,
        spent.tokens + booked.tokens,
        spent.calls + booked.calls,
        spent.model_seconds + booked.seconds,
    )


def booking_of(key: str, reply: ChatReply) -> Booking:
    """A reply of a record that has no bookings, of an older version say. A model without a price adds no dollars."""
    tokens = reply.tokens_in + reply.tokens_out
    return Booking(key, "replayed", 1 if reply.tries else 0, tokens, reply.usd or 0.0, reply.seconds)


def spent_on(calls: Iterable[ModelCall], bookings: Iterable[Booking]) -> ModelSpent:
    """What a run has spent on models: its bookings, and the recorded calls that have none.

    Of these, one that failed counts as a call, one that was not asked does not.
    """
    spent, booked = ModelSpent(), set[str]()
    for booking in bookings:
        spent = with_booking(spent, booking)
        booked.add(booking.key)
    for call in calls:
        if call.key in booked:
            continue
        if call.reply is not None:
            spent = with_booking(spent, booking_of(call.key, call.reply))
        elif not call.spent:
            spent = replace(spent, calls=spent.calls + 1)
    return spent
