"""Models: a run's questions to its language model. Each is asked once, recorded, and paid from the run's budget."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.booking import Booking, Meter
from mtmc.chat import ChatReply, ChatRequest, ModelCall, ModelSettings, request_key
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


def models_of(base: ModelSettings, others: Mapping[str, Mapping[str, Any]]) -> dict[str, ModelSettings]:
    """The settings of each model, by role; "" is the run's own. others: what differs, with the name at the least.

    Prices that are set for the run's own model are not another's. Raises: ConfigError as `ModelSettings`.
    """
    plain = replace(base, usd_per_million_in=None, usd_per_million_out=None)
    return {"": base, **{role: replace(plain, **changes) for role, changes in others.items()}}


@dataclass(frozen=True)
class Routes:
    """By which model a question is asked. variants: by which it may have been asked before. pick: chooses now. took: told of
    the one by which it was, where that is on record."""

    variants: Sequence[ModelSettings]
    pick: Callable[[], ModelSettings]
    took: Callable[[ModelSettings], None]


class Models:
    """The models of one run, paid from one account. From any thread.

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
        others: Mapping[str, Mapping[str, Any]] | None = None,
        wall_left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """ask: in place of the clients, for tests. others: further models by role, see `models_of`. wall_left: seconds until
        the run's own limit of time.

        Raises: RunError if there is no run to replay.
        """
        self.settings = settings
        self._store = store
        self._budget = budget
        self.known = models_of(settings, others or {})
        for each in self.known.values():
            store.protect(each.secrets)
        bookings, calls = store.bookings(), store.model_calls(texts=False)
        self._ledger = Ledger(budget, spent_on(calls, bookings), wall_left=wall_left)
        asked = {call.key: call.model for call in calls}
        only = settings.name if len(self.known) == 1 else ""
        for booking in bookings:  # one that was answered to a process that was killed then stands for no question
            self._ledger.learn(booking, asked.get(booking.key, only))
        self._needs = [Need(each.tokens, each.usd, each.seconds) for each in bookings if each.state == "refused"]
        self._record = Store.read(Path(settings.replay)) if settings.replay else None
        self._given = ask
        self._clients: dict[str, Client] = {}  # by their settings
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._breakers = {each.name: breaker.Breaker(each.name, each.patience_s) for each in self.known.values()}
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

    def complete(self, request: ChatRequest, trial_id: int, node_id: int, routes: Routes | None = None) -> ChatReply:
        """See `protocols.AgentContext.complete`. trial_id, node_id: on whose account it is recorded. routes: by which model;
        None: the run's own."""
        variants = (self.settings,) if routes is None else tuple(routes.variants)
        with self._busy.alone_with(request_key(request, self.settings)):
            keys = {request_key(request, each): each for each in variants}
            for key, settings in keys.items():
                known = self._store.call(key)
                if known is not None:
                    if routes is not None:
                        routes.took(settings)
                    return _said(known)
            for key, settings in keys.items():
                recorded = None if self._record is None else self._record.call(key)
                if recorded is not None:
                    if routes is not None:
                        routes.took(settings)
                    return self._replay(ModelCall(-1, trial_id, node_id, key, settings.name, request, None), recorded)
            self._check_replay()
            settings = self.settings if routes is None else routes.pick()
            key = request_key(request, settings)
            unknown = [each for each in request.also if self._store.call(_key_of(request, each, settings)) is None]
            request = replace(request, also=tuple(unknown))
            return self._ask(ModelCall(-1, trial_id, node_id, key, settings.name, request, None), settings)

    def judge(self, reply: ChatReply, verdict: str) -> None:
        """See `protocols.AgentContext.judge`."""
        self._store.judge_call(reply.id, verdict)

    def close(self) -> None:
        """Let go of the client and the record. Idempotent."""
        self._closing.set()
        for client in list(self._clients.values()):
            client.close()
        if self._record is not None:
            self._record.close()

    def _check_replay(self) -> None:
        """Raises: ModelError where a run is replayed: it has no reply to a question that is looked for."""
        if self._record is not None:
            raise ModelError(
                f"the run {self.settings.replay} has no reply to this question: replay it with the settings and the "
                "version of mtmc that made it, or leave model.replay out to ask a model"
            )

    def _replay(self, call: ModelCall, recorded: ModelCall) -> ChatReply:
        assert self._record is not None
        bookings = self._record.bookings(call.key)
        booked = total(call.key, bookings)
        if not bookings and recorded.reply is not None:
            booked = booking_of(call.key, recorded.reply)
        self._store.book(booked)
        self._ledger.charge(booked, call.model)
        for refused in (each for each in bookings if each.state == "refused"):
            self._refuse(refused)
        told = replace(call, reply=recorded.reply, error=recorded.error, spent=recorded.spent, replayed=True)
        return _said(replace(told, id=self._store.add_call(told)))

    def _ask(self, call: ModelCall, settings: ModelSettings) -> ChatReply:
        ask = self._asker(settings)
        meter = QuestionMeter(call.key, settings, self._budget, self._ledger, self._refuse, self._store)
        try:
            reply = self._answer(ask, call.request, meter, self._breakers[settings.name])
        except CoderError as error:
            self._store.add_call(replace(call, error=str(error), spent=isinstance(error, BudgetSpent)))
            raise
        finally:
            meter.drop()
        others = [
            replace(
                call,
                key=_key_of(call.request, seed, settings),
                request=replace(call.request, seed=seed, also=()),
                reply=other,
            )
            for seed, other in zip(call.request.also, reply.others, strict=False)
        ]
        text = self._store.secrets.redact_reply(reply.text)  # as a resumed run would read it
        reply = replace(reply, text=text, others=())
        return replace(reply, id=self._store.add_call(replace(call, reply=reply), *others))

    def _answer(self, ask: Ask, request: ChatRequest, meter: QuestionMeter, breaker_: breaker.Breaker) -> ChatReply:
        """The reply, asked for until it comes, the question is at fault, or there is no model any more.

        Raises: as `complete`; ModelDown where the model answers nothing, which is recorded nowhere: the trial stays in
        flight, and a resumed run asks again.
        """
        while True:
            breaker_.check()
            breaker_.asked()
            try:
                reply = ask(request, meter)
            except NoReply as error:
                if not error.may_pass:
                    raise
                if not breaker_.may_ask_again():
                    self._probe(ask, meter, breaker_)
                    raise
                _log.warning("%s; the question is asked again in %g s", error, breaker.PAUSE_S)
                meter.pause(breaker.PAUSE_S)
                self._closing.wait(breaker.PAUSE_S)
                continue
            breaker_.answered()
            return reply

    def _probe(self, ask: Ask, meter: QuestionMeter, breaker_: breaker.Breaker) -> None:
        """Ask the short question. Raises: ModelDown where it is not answered either; to be refused is an answer."""
        try:
            ask(breaker.PROBE, meter)
        except NoReply as error:
            if error.may_pass:
                raise breaker_.open(error) from None
        breaker_.answered()

    def _refuse(self, refused: Booking) -> None:
        """Record that a question was refused, and what it needed at the least."""
        self._store.book(refused)
        self._needs.append(Need(refused.tokens, refused.usd, refused.seconds))

    def _asker(self, settings: ModelSettings) -> Ask:
        if self._given is not None:
            return self._given
        if not settings.name:
            raise ModelError("no model is named: set model.name=PROVIDER/MODEL, and model.api_base for a local server")
        with self._guard:
            client = self._clients.get(_hashable(settings))
            if client is None:
                from mtmc.agents.llm import Client

                client = self._clients[_hashable(settings)] = Client(settings)
            return client.send


def _hashable(settings: ModelSettings) -> str:
    """Identity of settings: their extra arguments may hold anything."""
    return repr(settings)


def _key_of(request: ChatRequest, seed: int, settings: ModelSettings) -> str:
    """Key of the same question with another seed."""
    return request_key(replace(request, seed=seed), settings)


def _said(call: ModelCall) -> ChatReply:
    """The recorded reply. Raises: what was raised when there was none."""
    if call.reply is None:
        raise BudgetSpent(call.error) if call.spent else CoderError(call.error)
    return replace(call.reply, id=call.id)
