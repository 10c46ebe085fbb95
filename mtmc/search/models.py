"""Models: a run's questions to its language model. Each is asked once, recorded, and paid from the run's budget."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.chat import Booking, ChatReply, ChatRequest, Meter, ModelCall, ModelSettings, request_key
from mtmc.errors import BudgetSpent, CoderError, ModelError, NoReply
from mtmc.search import breaker
from mtmc.search.budget import Budget, ModelSpent, Need
from mtmc.search.keyed_locks import KeyedLocks
from mtmc.search.ledger import Ledger, booking_of, spent_on
from mtmc.search.meter import QuestionMeter
from mtmc.store import Store
from mtmc.store.model_requests import total

if TYPE_CHECKING:
    from mtmc.agents.llm import Client

_log = logging.getLogger(__name__)
Ask = Callable[[ChatRequest, Meter], ChatReply]


class Models:
    """The model of one run. From any thread.

    The same question gets the same reply, from the run's own record, or from the record of the run that is replayed;
    only what is in neither is asked.
    """

    def __init__(
        self,
        settings: ModelSettings,
        store: Store,
        budget: Budget,
        ask: Ask | None = None,
        *,
        wall_left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """ask: in place of the client of `settings`, for tests. wall_left: seconds until the run's own limit of time.

        Raises: RunError if there is no run to replay.
        """
        self.settings = settings
        self._store = store
        self._budget = budget
        store.protect(settings.secrets)
        bookings = store.bookings()
        self._ledger = Ledger(budget, spent_on(store.model_calls(texts=False), bookings), wall_left=wall_left)
        for each in bookings:
            self._ledger.learn(each)
        self._needs = [Need(each.tokens, each.usd, each.seconds) for each in bookings if each.state == "refused"]
        self._record = Store.read(Path(settings.replay)) if settings.replay else None
        self._given = ask
        self._client: Client | None = None
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._breaker = breaker.Breaker(settings.name, settings.patience_s)
        self._busy = KeyedLocks()

    @property
    def spent(self) -> ModelSpent:
        """What all questions of this run have taken so far, summed over resumes."""
        return self._ledger.spent

    @property
    def needs(self) -> tuple[Need, ...]:
        """The least that each question needs which was refused for lack of budget, also before a resume."""
        return tuple(self._needs)

    @property
    def versions(self) -> Mapping[str, str]:
        """What the replayed run stood on, as its questions say; empty where none is replayed."""
        found: Mapping[str, str] = {} if self._record is None else self._record.settings().get("versions", {})
        return found

    @property
    def knowledge(self) -> str:
        """What the replayed run's questions tell of other runs; "" for nothing."""
        return "" if self._record is None else self._record.knowledge()

    def complete(self, request: ChatRequest, trial_id: int, node_id: int) -> ChatReply:
        """See `protocols.AgentContext.complete`. trial_id, node_id: on whose account it is recorded."""
        key = request_key(request, self.settings)
        with self._busy.alone_with(key):
            known = self._store.call(key)
            if known is not None:
                return _said(known)
            call = ModelCall(-1, trial_id, node_id, key, self.settings.name, request, None)
            recorded = self._recorded(key)
            if recorded is not None:
                return self._replay(call, recorded)
            return self._ask(call)

    def judge(self, reply: ChatReply, verdict: str) -> None:
        """See `protocols.AgentContext.judge`."""
        self._store.judge_call(reply.id, verdict)

    def close(self) -> None:
        """Let go of the client and the record. Idempotent."""
        self._closing.set()
        if self._client is not None:
            self._client.close()
        if self._record is not None:
            self._record.close()

    def _recorded(self, key: str) -> ModelCall | None:
        if self._record is None:
            return None
        found = self._record.call(key)
        if found is None:
            raise ModelError(
                f"the run {self.settings.replay} has no reply to this question: replay it with the settings and the "
                "version of mtmc that made it, or leave model.replay out to ask a model"
            )
        return found

    def _replay(self, call: ModelCall, recorded: ModelCall) -> ChatReply:
        assert self._record is not None
        bookings = self._record.bookings(call.key)
        booked = total(call.key, bookings)
        if not bookings and recorded.reply is not None:
            booked = booking_of(call.key, recorded.reply)
        self._store.book(booked)
        self._ledger.charge(booked)
        for refused in (each for each in bookings if each.state == "refused"):
            self._refuse(refused)
        told = replace(call, reply=recorded.reply, error=recorded.error, spent=recorded.spent, replayed=True)
        return _said(replace(told, id=self._store.add_call(told)))

    def _ask(self, call: ModelCall) -> ChatReply:
        ask = self._asker()
        meter = QuestionMeter(call.key, self.settings, self._budget, self._ledger, self._refuse, self._store)
        try:
            reply = self._answer(ask, call.request, meter)
        except CoderError as error:
            self._store.add_call(replace(call, error=str(error), spent=isinstance(error, BudgetSpent)))
            raise
        finally:
            meter.drop()
        reply = replace(reply, text=self._store.secrets.redact_reply(reply.text))  # as a resumed run would read it
        return replace(reply, id=self._store.add_call(replace(call, reply=reply)))

    def _answer(self, ask: Ask, request: ChatRequest, meter: QuestionMeter) -> ChatReply:
        """The reply, asked for until it comes, the question is at fault, or there is no model any more.

        Raises: as `complete`; ModelDown where the model answers nothing, which is recorded nowhere: the trial stays in
        flight, and a resumed run asks again.
        """
        while True:
            self._breaker.check()
            self._breaker.asked()
            try:
                reply = ask(request, meter)
            except NoReply as error:
                if not error.may_pass:
                    raise
                if not self._breaker.may_ask_again():
                    self._probe(ask, meter)
                    raise
                _log.warning("%s; the question is asked again in %g s", error, breaker.PAUSE_S)
                meter.pause(breaker.PAUSE_S)
                self._closing.wait(breaker.PAUSE_S)
                continue
            self._breaker.answered()
            return reply

    def _probe(self, ask: Ask, meter: QuestionMeter) -> None:
        """Ask the short question. Raises: ModelDown where it is not answered either; to be refused is an answer."""
        try:
            ask(breaker.PROBE, meter)
        except NoReply as error:
            if error.may_pass:
                raise self._breaker.open(error) from None
        self._breaker.answered()

    def _refuse(self, refused: Booking) -> None:
        """Record that a question was refused, and what it needed at the least."""
        self._store.book(refused)
        self._needs.append(Need(refused.tokens, refused.usd, refused.seconds))

    def _asker(self) -> Ask:
        if self._given is not None:
            return self._given
        if not self.settings.name:
            raise ModelError("no model is named: set model.name=PROVIDER/MODEL, and model.api_base for a local server")
        with self._guard:
            if self._client is None:
                from mtmc.agents.llm import Client

                self._client = Client(self.settings)
            return self._client.send


def _said(call: ModelCall) -> ChatReply:
    """The recorded reply. Raises: what was raised when there was none."""
    if call.reply is None:
        raise BudgetSpent(call.error) if call.spent else CoderError(call.error)
    return replace(call.reply, id=call.id)
