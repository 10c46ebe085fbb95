"""Calls: the table of a run's store that has every question to a language model, and what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mtmc.chat import POLICY, ChatReply, ChatRequest, ModelCall, messages_from_json, messages_to_json
from mtmc.store.database import Database

_COLUMNS = (
    *("id", "key", "trial_id", "node_id", "model", "purpose", "seed", "messages", "reply", "tokens_in", "tokens_out"),
    *("usd", "seconds", "truncated", "tries", "error", "spent", "verdict", "replayed"),
)


class CallTable(Database):
    """A database with the table of model calls."""

    def add_call(self, call: ModelCall, *others: ModelCall) -> int:
        """Record a call, its id left out, and others whose replies came with its own: all of them or none. The id that it is
        recorded under. A question that is recorded already keeps its."""
        names = ", ".join(_COLUMNS[1:])
        marks = ", ".join("?" * (len(_COLUMNS) - 1))
        statement = f"INSERT INTO model_calls ({names}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        with self._writing() as connection:
            for each in (call, *others):
                connection.execute(statement, self._row(each))
        [(number,)] = self._all("SELECT id FROM model_calls WHERE key = ?", call.key)
        return int(number)

    def _row(self, call: ModelCall) -> tuple[Any, ...]:
        reply = call.reply
        said: tuple[Any, ...] = (None,) * 7
        if reply is not None:
            counts = (reply.tokens_in, reply.tokens_out, reply.usd, reply.seconds, int(reply.truncated), reply.tries)
            said = (self.secrets.redact_reply(reply.text), *counts)
        request = call.request
        clean = [replace(each, content=self.secrets.redact_reply(each.content)) for each in request.messages]
        asked = (call.model, request.purpose, request.seed, messages_to_json(clean))
        facts = (call.key, call.trial_id, call.node_id, *asked, *said)
        rest = (self.secrets.redact(call.error), int(call.spent), call.verdict, int(call.replayed))
        return (*facts, *rest)

    def judge_call(self, call_id: int, verdict: str) -> None:
        """Record what became of a call's reply, see `ModelCall.verdict`."""
        self._write("UPDATE model_calls SET verdict = ? WHERE id = ?", self.secrets.redact(verdict), call_id)

    def call(self, key: str) -> ModelCall | None:
        """The recorded call with this content address, None where there is none."""
        found = self._calls("WHERE key = ?", key)
        return found[0] if found else None

    def model_calls(self, trial_id: int | None = None, texts: bool = True) -> tuple[ModelCall, ...]:
        """All recorded calls in the order in which they ended, or those on account of one trial.

        texts: whether with messages and replies, which may take much memory.
        """
        if trial_id is None:
            return self._calls("", texts=texts)
        return self._calls("WHERE trial_id = ?", trial_id, texts=texts)

    def coder_questions(self) -> dict[int, int]:
        """How many questions the coder asked in each trial, by trial id; those that were not asked for lack of budget, and
        a policy's, do not count."""
        if not self._has("model_calls"):
            return {}
        where = "WHERE spent = 0 AND (tries IS NULL OR tries > 0) AND purpose != ? GROUP BY trial_id"
        return dict(self._all(f"SELECT trial_id, count(*) FROM model_calls {where}", POLICY))

    def _calls(self, where: str, *parameters: Any, texts: bool = True) -> tuple[ModelCall, ...]:
        if not self._has("model_calls"):
            return ()  # a run from before there were models
        short = {"messages": "'[]'", "reply": "substr(reply, 1, 0)"}
        columns = ", ".join(name if texts else short.get(name, name) for name in _COLUMNS)
        rows = self._all(f"SELECT {columns} FROM model_calls {where} ORDER BY id", *parameters)
        return tuple(_call(dict(zip(_COLUMNS, row, strict=True))) for row in rows)


def _call(row: dict[str, Any]) -> ModelCall:
    reply = None
    if row["reply"] is not None:
        truncated = bool(row["truncated"])
        counts = (row["tokens_in"], row["tokens_out"], row["usd"], row["seconds"], truncated, row["tries"], row["id"])
        reply = ChatReply(row["reply"], *counts)
    return ModelCall(
        id=row["id"],
        trial_id=row["trial_id"],
        node_id=row["node_id"],
        key=row["key"],
        model=row["model"],
        request=ChatRequest(messages_from_json(row["messages"]), row["purpose"], row["seed"]),
        reply=reply,
        error=row["error"],
        spent=bool(row["spent"]),
        verdict=row["verdict"],
        replayed=bool(row["replayed"]),
    )
