"""The agent's loop: think -> act -> think ... -> end (LangGraph). The steps are plain functions from progress to progress.

After AVO (arXiv 2603.24517): the variation operator consults, drafts, checks, criticizes and commits, within a budget of
its own. The state is small and kept nowhere: a run that is taken up again gets the same replies and outcomes from its
records, and so walks the same way.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict

from mtmc.agents.coders.agent.calls import parse_call
from mtmc.agents.coders.agent.functions import AgentFunctions
from mtmc.agents.coders.agent.prompt import answer_message, first_messages
from mtmc.agents.coders.agent.reports import cut, diagnosis_text
from mtmc.agents.coders.agent.session import Session, opened
from mtmc.agents.coders.agent.tools import TOOLS, perform
from mtmc.agents.coders.editing.reply import without_reasoning
from mtmc.agents.coders.editing.unusable import Unusable
from mtmc.chat import ChatReply, ChatRequest, Message
from mtmc.errors import BudgetSpent, CoderError
from mtmc.outcome import Cost
from mtmc.protocols import AgentContext, Edit, EditRequest

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

PURPOSE = "agent"
"""Of all questions that an agent asks, see `ChatRequest`."""

REPLY_CUT = 64_000
"""Characters of a reply that stay in the conversation."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What one edit may use. turns: replies. tokens: in and out, of all replies together. language: of its kernels."""

    turns: int
    tokens: int
    language: str = "triton"


@dataclass(frozen=True)
class Progress:
    """Where an edit stands. messages: the conversation so far. reply: the last one, until it is acted on.

    turns, tokens, cost: used so far. over: why the loop has ended, "" while it goes on.
    """

    session: Session
    messages: tuple[Message, ...]
    turns: int = 0
    tokens: int = 0
    cost: Cost = field(default_factory=Cost)
    reply: ChatReply | None = None
    over: str = ""


def begin(request: EditRequest, limits: Limits) -> Progress:
    """The start: on a repair the failed source is the first draft."""
    return Progress(opened(request), first_messages(request, limits.turns, limits.tokens, limits.language))


def think(progress: Progress, context: AgentContext) -> Progress:
    """Ask the model for its next turn. Where no reply comes, the loop ends if there is a draft that passed.

    Raises: BudgetSpent, ModelError; CoderError where no reply comes and no draft has passed.
    """
    question = ChatRequest(progress.messages, PURPOSE, progress.session.request.seed, functions=AgentFunctions())
    try:
        reply = context.complete(question)
    except BudgetSpent:
        raise
    except CoderError as error:
        if not progress.session.last_ok:
            raise
        return replace(progress, over=f"no reply came: {error}")
    return replace(
        progress,
        turns=progress.turns + 1,
        tokens=progress.tokens + reply.tokens_in + reply.tokens_out,
        cost=progress.cost + reply.cost,
        reply=reply,
    )


def act(progress: Progress, context: AgentContext, limits: Limits) -> Progress:
    """Do what the reply calls for, judge it, and answer; end where it commits, gives up, or something is used up.

    A reply that holds no call is answered with what is wrong with it, and was a turn. Raises: what the context raises.
    """
    reply = progress.reply
    assert reply is not None
    session, answer, wrong = _done(progress.session, reply, context)
    context.judge(reply, f"unusable: {wrong}" if wrong else "usable")
    said = cut(without_reasoning(reply.text)[0], REPLY_CUT)
    # Providers refuse a turn without text.
    said = said if said.strip() else "(nothing)"
    told = answer_message(answer, progress.turns, limits.turns, progress.tokens, limits.tokens)
    after = replace(
        progress, session=session, messages=(*progress.messages, Message("assistant", said), told), reply=None
    )
    return replace(after, over=_over(after, limits))


def result(progress: Progress) -> Edit:
    """The edit that a loop which is over has come to: what was committed, or the last draft that passed.

    Raises: CoderError with the reason where there is none.
    """
    session, end = progress.session, progress.session.end
    if end is not None and end.how == "commit":
        return Edit(end.text, None, progress.cost)
    if end is not None:
        raise CoderError(f"the agent gave up: {end.text}")
    if session.last_ok:
        _log.info("%s: the agent's draft d%d, which passed, is taken", progress.over, session.last_ok)
        return Edit(session.drafts[session.last_ok - 1].source, None, progress.cost)
    failed = [draft.diagnosis for draft in session.drafts if draft.diagnosis is not None]
    last = f"; the last failure: {diagnosis_text(failed[-1])}" if failed else ""
    raise CoderError(f"{progress.over} before any draft passed{last}")


class State(TypedDict):
    """State of the graph."""

    progress: Progress


def graph(context: AgentContext, limits: Limits) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The machine of one edit. It keeps no checkpoints."""
    from langgraph.graph import END, START, StateGraph

    def onward(following: str) -> Any:
        return lambda state: END if state["progress"].over else following

    builder = StateGraph(State)
    builder.add_node("think", lambda state: {"progress": think(state["progress"], context)})
    builder.add_node("act", lambda state: {"progress": act(state["progress"], context, limits)})
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", onward("act"), ["act", END])
    builder.add_conditional_edges("act", onward("think"), ["think", END])
    return builder.compile(checkpointer=False)


def run(request: EditRequest, context: AgentContext, limits: Limits) -> Edit:
    """One edit from beginning to end. Raises: CoderError with the reason; BudgetSpent; ModelError."""
    start: State = {"progress": begin(request, limits)}
    # LangGraph counts each node that runs, and stops at 25 unless told otherwise.
    end = graph(context, limits).invoke(start, {"recursion_limit": 2 * limits.turns + 2})
    return result(end["progress"])


def _done(session: Session, reply: ChatReply, context: AgentContext) -> tuple[Session, str, str]:
    """The session after a reply, what to answer, and why the reply was of no use ("" where it was)."""
    try:
        parsed = parse_call(reply.text, tuple(TOOLS), reply.truncated)
    except Unusable as error:
        return session, f"Not understood: {error}.", error.why
    found = perform(session, parsed.call, context)
    more = f"\n({parsed.ignored} more calls in this reply were not done: one call a turn.)" if parsed.ignored else ""
    return found.session, found.text + more, found.refused


def _over(progress: Progress, limits: Limits) -> str:
    session = progress.session
    if session.end is not None:
        return session.end.how
    if session.exhausted and not session.last_ok:
        return "the trial's evaluations were used up"
    if progress.turns >= limits.turns:
        return f"the agent's {limits.turns} turns were used up"
    if progress.tokens >= limits.tokens:
        return f"the agent's {limits.tokens:,} tokens were used up ({progress.tokens:,})"
    return ""
