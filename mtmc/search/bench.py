"""Benches: what a policy or a coder may use on account of a node or a trial, see `protocols.Workbench`."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtmc.chat import ChatReply, ChatRequest
from mtmc.outcome import Cost, Outcome
from mtmc.search.context import Flight, Run
from mtmc.search.evaluation import outcome_of
from mtmc.tree import KernelNode, source_hash


@dataclass(frozen=True)
class NodeBench:
    """For a policy that looks at a node: models, and no evaluation."""

    run: Run
    node: KernelNode

    def complete(self, request: ChatRequest) -> ChatReply:
        """See `Workbench.complete`."""
        return self.run.models.complete(request, self.node.trial_id, self.node.id)

    def judge(self, reply: ChatReply, verdict: str) -> None:
        """See `Workbench.judge`."""
        self.run.models.judge(reply, verdict)

    def evaluate(self, source: str) -> Outcome | None:
        """A policy's node has no evaluation to spend."""
        return None


@dataclass(frozen=True)
class TrialBench:
    """For one call of a coder at work on a trial: models, and the evaluations that the trial may use."""

    run: Run
    flight: Flight
    replies: list[ChatReply] = field(default_factory=list)

    def complete(self, request: ChatRequest) -> ChatReply:
        """See `Workbench.complete`."""
        reply = self.run.models.complete(request, self.flight.row.trial.id, self.flight.parent.id)
        self.replies.append(reply)
        return reply

    @property
    def cost(self) -> Cost:
        """What the replies have cost, also those that led to nothing."""
        return sum((reply.cost for reply in self.replies), Cost())

    def judge(self, reply: ChatReply, verdict: str) -> None:
        """See `Workbench.judge`."""
        self.run.models.judge(reply, verdict)

    def evaluate(self, source: str) -> Outcome | None:
        """See `Workbench.evaluate`."""
        run, flight, hash_ = self.run, self.flight, source_hash(source)
        if run.store.outcome(hash_, "screen") is None and len(flight.fresh) >= flight.row.allowance:
            return None
        batch, outcome = outcome_of(run, source, "screen", run.batch_id)
        if batch == run.batch_id and hash_ not in flight.fresh:
            flight.fresh.append(hash_)
        return outcome
