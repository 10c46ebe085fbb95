"""A fake coder that asks a model for each of its edits, for tests of models in searches that need no torch."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.agents.coders.editing.unusable import Unusable
from mtmc.chat import ChatRequest, Message
from mtmc.fakes import FakeCoder
from mtmc.protocols import Edit, EditRequest


@dataclass(frozen=True)
class AskingFake(FakeCoder):
    """A fake coder whose edit is a model's: the reply "edit" makes the fake's own edit, any other is unusable.

    calls: questions for each edit, of which the last counts.
    """

    usd: float = 0.0
    refuses: float = 0.0
    calls: int = 1
    deterministic: bool = False

    @property
    def asks_model(self) -> bool:
        """It does."""
        return True

    def edit(self, request: EditRequest) -> Edit:
        """See `protocols.Coder.edit`."""
        assert request.context is not None
        for number in range(self.calls):
            messages = (Message("user", f"{request.source} {request.action.key} {request.failed_source} {number}"),)
            reply = request.context.complete(ChatRequest(messages, "edit", request.seed))
        if reply.text != "edit":
            request.context.judge(reply, "unusable: no code")
            raise Unusable("no code", f"the reply has no code: {reply.text[:200]}")
        return super().edit(request)
