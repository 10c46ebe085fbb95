"""Contexts: what a policy or a coder may use on account of a node or a trial, see `protocols.AgentContext`."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtmc.chat import ChatReply, ChatRequest, ModelSettings
from mtmc.outcome import Cost, Outcome
from mtmc.search.evaluation import screened
from mtmc.search.models import Routes
from mtmc.search.profiling import profiled
from mtmc.search.routing import route, variants
from mtmc.search.run_state import Run, TrialRun
from mtmc.tree import KernelNode


@dataclass(frozen=True)
class NodeContext:
    """For a policy that looks at a node: models, and no evaluation."""

    run: Run
    node: KernelNode

    def complete(self, request: ChatRequest) -> ChatReply:
        """See `AgentContext.complete`."""
        return self.run.models.complete(request, self.node.trial_id, self.node.id)

    def judge(self, reply: ChatReply, verdict: str) -> None:
        """See `AgentContext.judge`."""
        self.run.models.judge(reply, verdict)

    def evaluate(self, source: str) -> Outcome | None:
        """A policy's node has no evaluation to spend."""
        return None

    def profile(self, source: str, outcome: Outcome) -> Outcome | None:
        """Nor is anything profiled for it but the node itself."""
        return None


@dataclass(frozen=True)
class TrialContext:
    """For one call of a coder at work on a trial: models, and the evaluations that the trial may use."""

    run: Run
    trial_run: TrialRun
    replies: list[ChatReply] = field(default_factory=list)

    def complete(self, request: ChatRequest) -> ChatReply:
        """See `AgentContext.complete`."""
        run, trial_run = self.run, self.trial_run
        number = len(trial_run.attempts)

        def took(settings: ModelSettings) -> None:
            trial_run.routes.setdefault(number, settings)

        routes = Routes(variants(run, trial_run), lambda: route(run, trial_run, request), took)
        reply = run.models.complete(request, trial_run.row.trial.id, trial_run.parent.id, routes)
        self.replies.append(reply)
        return reply

    @property
    def cost(self) -> Cost:
        """What the replies have cost, also those that led to nothing."""
        return sum((reply.cost for reply in self.replies), Cost())

    def judge(self, reply: ChatReply, verdict: str) -> None:
        """See `AgentContext.judge`."""
        self.run.models.judge(reply, verdict)

    def evaluate(self, source: str) -> Outcome | None:
        """See `AgentContext.evaluate`."""
        return screened(self.run, self.trial_run, source)

    def profile(self, source: str, outcome: Outcome) -> Outcome | None:
        """See `AgentContext.profile`."""
        return profiled(self.run, source, outcome, self.trial_run.batch)
