"""candidates: several replies to the question for one edit, of which the first that may be right is taken.

Each reply is looked at as it comes: whether it gives a file, and whether the audit lets it go on. So no more is asked for
than is needed, but where the provider gives several replies to one request: the prompt is then paid once. The next candidate
is wanted when the last was evaluated and failed; the same questions are asked again, whose replies the record has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mtmc.chat import ChatReply, ChatRequest
from mtmc.errors import CoderError
from mtmc.outcome import Cost
from mtmc.protocols import AgentContext, Edit, EditRequest, NoCandidate

if TYPE_CHECKING:
    from mtmc.agents.coders.editing.unusable import Unusable

STRIDE = 1_000_003
"""Between the seeds of two candidates."""


@dataclass(frozen=True)
class NoneUsable:
    """What the candidates came to that gave no file. problem: the last one's."""

    replies: tuple[ChatReply, ...]
    problem: Unusable
    cost: Cost


@dataclass
class _Seen:
    """What has been looked at. cost: since the candidate before the one that is wanted."""

    cost: Cost = field(default_factory=Cost)
    passed: list[str] = field(default_factory=list)
    held_up: list[tuple[ChatReply, str]] = field(default_factory=list)
    unusable: list[ChatReply] = field(default_factory=list)

    def spent(self, passed_over: int) -> Cost:
        """What was not paid when the candidate before the one that is wanted was looked for."""
        return self.cost if len(self.passed) >= passed_over else Cost()


def seeds_of(request: EditRequest) -> tuple[int, ...]:
    """The seed of each candidate's question, the request's own first."""
    return tuple((request.seed + at * STRIDE) % 2**63 for at in range(request.candidates))


def candidate(
    request: EditRequest, context: AgentContext, question: ChatRequest, read: Callable[[EditRequest, ChatReply], str]
) -> Edit | NoneUsable:
    """The candidate that is wanted, or what the replies came to where none gives a file.

    The first one is the first that passes the audit; where none does, the first that gives a file, which a rule may repair.
    read: the file that a reply gives; it raises Unusable. question: the first candidate's.

    Raises: NoCandidate where a further one is wanted and there is none; what `AgentContext.complete` raises.
    """
    found, problem = _looked_through(request, context, question, read)
    if isinstance(found, Edit):
        return found
    if request.passed_over:
        message = f"there is no candidate besides the {request.passed_over} that failed"
        raise NoCandidate(message, found.spent(request.passed_over))
    if found.held_up:
        reply, source = found.held_up[0]
        context.judge(reply, "usable")
        return Edit(source, None, found.cost)
    assert problem is not None
    return NoneUsable(tuple(found.unusable), problem, found.cost)


def _looked_through(
    request: EditRequest, context: AgentContext, question: ChatRequest, read: Callable[[EditRequest, ChatReply], str]
) -> tuple[Edit | _Seen, Unusable | None]:
    from mtmc.agents.coders.editing.reply import is_same
    from mtmc.agents.coders.editing.unusable import Unusable
    from mtmc.evaluate.audit.audit import audit

    seen, problem, seeds = _Seen(), None, seeds_of(request)
    for at, seed in enumerate(seeds):
        try:
            reply = context.complete(replace(question, seed=seed, also=seeds[at + 1 :]))
        except CoderError as error:
            if request.passed_over:
                raise NoCandidate(str(error), seen.spent(request.passed_over)) from error
            if not seen.held_up:
                raise
            break
        seen.cost += reply.cost
        try:
            source = read(request, reply)
        except Unusable as error:
            problem = error
            context.judge(reply, f"unusable: {error.why}")
            seen.unusable.append(reply)
            continue
        refused = audit(source, request.task.source)
        if refused is not None and refused.diagnosis is not None:
            context.judge(reply, f"unusable: {refused.diagnosis.kind}")
            seen.held_up.append((reply, source))
            continue
        context.judge(reply, "usable")
        if any(is_same(source, other) for other in seen.passed):
            continue
        seen.passed.append(source)
        if len(seen.passed) > request.passed_over:
            return Edit(source, None, seen.cost), None
        seen.cost = Cost()
    return seen, problem
