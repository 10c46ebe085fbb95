"""Booking: what requests to a language model may take and have taken, by the books of a run. Plain data, no network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from mtmc.outcome import Cost

RequestState = Literal["begun", "answered", "failed", "unknown", "refused", "replayed"]
"""Where a request stands: sent and not settled (also of a process that was killed); answered; failed in a way that no
provider bills; sent without an answer that can be read, so that it may be billed; not sent, for lack of budget; taken
from the record of another run."""


@dataclass(frozen=True)
class Rate:
    """List price of one token of a prompt and of a reply, in USD."""

    usd_in: float
    usd_out: float


@dataclass(frozen=True)
class Demand:
    """What one request asks for before it is sent.

    prompt_bytes: of its messages in UTF-8; messages: how many. max_tokens: of the reply. rate: None where the model has no
    known price. model: its name: each counts tokens in a way of its own.
    """

    prompt_bytes: int
    messages: int
    max_tokens: int
    rate: Rate | None = None
    model: str = ""


class Meter(Protocol):
    """Admits each request of one question before it is sent, and books what it took. Used by one thread.

    The defaults admit everything and book nothing.
    """

    def begin(self, demand: Demand) -> int:
        """Admit one request; the most tokens that its reply may have. It may wait for other requests to end.

        Raises: BudgetSpent where the run may spend no more, ModelError where a limit cannot be held.
        """
        return demand.max_tokens

    def settle(self, state: RequestState, cost: Cost) -> None:
        """Book what the request took: `cost` where it was "answered", nothing where it "failed", and where that is
        "unknown" the most that it may have taken."""
        return

    def pause(self, seconds: float) -> None:
        """Book a wait of so many seconds before the next try. Raises: BudgetSpent where it ends beyond a limit."""
        return

    def seconds_left(self) -> float:
        """What the request under way may still take by the run's limits, in seconds; infinity without one."""
        return math.inf


@dataclass(frozen=True)
class Booking:
    """What is booked of one request, or of several from another record.

    key: of its question. calls: requests. tokens: in and out. seconds: until it was settled, with the wait after it.
    prompt_bytes, tokens_in: of an answered one, which tell how the model counts tokens; else 0.
    """

    key: str
    state: RequestState
    calls: int = 1
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    prompt_bytes: int = 0
    tokens_in: int = 0
