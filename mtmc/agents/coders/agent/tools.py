"""The agent's tools (after AVO, arXiv 2603.24517): lineage, knowledge base, drafts, execution feedback, critique, commit.

A tool is a function of the session and the call's body that gives the next session and what to tell the model. It does
nothing else, but that `check` asks the context for an evaluation. `TOOLS` is the table that the prompt prints and `perform`
looks up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtmc.agents.coders.agent import reports
from mtmc.agents.coders.agent.calls import ToolCall
from mtmc.agents.coders.agent.session import End, Refused, Session, checked, version, with_change, with_draft
from mtmc.agents.coders.cuda_page import cuda_parts
from mtmc.agents.coders.editing.fences import fenced
from mtmc.agents.coders.editing.reply import parse_reply
from mtmc.agents.coders.editing.unusable import Unusable
from mtmc.agents.facts.text import version_text
from mtmc.errors import MtmcError
from mtmc.outcome import kernel_metrics
from mtmc.protocols import AgentContext
from mtmc.source.inline_words import NotPlain
from mtmc.source.load_inline import translated
from mtmc.syntax import parse
from mtmc.tree import source_hash

_MARKED = re.compile(r"^[ \t]*(`{3,}|~{3,}|<{5,})", re.MULTILINE)
"""A line that begins a code block or a SEARCH/REPLACE block."""


@dataclass(frozen=True)
class Result:
    """What a call led to. text: for the model. refused: in a few words, why the tool did nothing; "" where it did."""

    session: Session
    text: str
    refused: str = ""


Answer = tuple[Session, str]


@dataclass(frozen=True)
class Tool:
    """One tool. help: for the prompt. example: a body. act: what it does. Raises: Refused with the reason."""

    name: str
    help: str
    example: str
    act: Callable[[Session, ToolCall, AgentContext], Answer]


def perform(session: Session, call: ToolCall, context: AgentContext) -> Result:
    """What a call does, or why it does nothing. call: its name is one of `TOOLS`.

    Raises: what the context raises for means that are missing; never for a bad draft or a bad argument.
    """
    try:
        after, text = TOOLS[call.name].act(session, call, context)
    except (Refused, Unusable) as error:
        why = error.why if isinstance(error, Unusable) else f"{call.name} refused"
        return Result(session, f"{call.name} refused: {error}", why)
    return Result(after, reports.cut(text))


def _lineage(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    wanted = _arguments(call, version=(int, str)).get("version")
    if wanted is None:
        return session, reports.lineage_text(session)
    label, source = version(session, wanted)
    return session, f"{label}:\n{source}"


def _playbook(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    from mtmc.agents.coders import playbook

    kind = _arguments(call, kind=(str,)).get("kind")
    names = tuple(playbook.kinds())
    if kind is None:
        return session, f"pages: {', '.join(names)}, hardware, cuda"
    if kind == "cuda":
        return session, "\n\n".join(cuda_parts())
    if kind == "hardware":
        try:
            return session, playbook.hardware_page(session.request.hardware)
        except MtmcError as error:
            raise Refused(str(error)) from error
    if kind not in names:
        raise Refused(f"there is no page {kind[:40]!r}: there are {', '.join(names)}, hardware, cuda")
    page = playbook.page(kind)
    if not page.before:
        return session, page.text.strip()
    return session, f"{page.text.strip()}\n\nBefore:\n{fenced(page.before)}\n\nAfter:\n{fenced(page.after)}"


def _diff(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    found = _arguments(call, **{"from": (int, str), "to": (int, str)})
    before, after = version(session, found.get("from", "parent")), version(session, found.get("to", "draft"))
    return session, reports.diff_text(before, after) or f"{before[0]} and {after[0]} are equal"


def _draft(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    if not call.body.strip():
        raise Refused("the block holds no code: put the whole file or SEARCH/REPLACE blocks below the tool's name")
    found = parse_reply(_as_reply(call), session.base, truncated=not call.whole)
    try:
        source = translated(found.source)
    except NotPlain as error:
        raise Refused(f"{error}; make kernels with RawKernel of mtmc.cuda, and launch them in forward") from error
    after = with_draft(session, source)
    change = reports.change_text(session.request.source, source)
    notes = "".join(f"\nnote: {note}" for note in found.notes)
    return after, f"{_present(after)} is set, {change} against the parent. {_standing(after)}{notes}"


def _back(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    name = _arguments(call, to=(int, str)).get("to")
    if name is None:
        raise Refused('say which version: {"to": "d1"}')
    label, source = version(session, name)
    if label == "version 0" and session.request.history:
        raise Refused("version 0 is the reference, which defines no ModelNew: take a later version")
    if source == session.request.source:
        return replace(session, present=0), "there is no draft now: the next one starts from the parent"
    after = with_draft(session, source)
    return after, f"{_present(after)} is the present draft, {label} again. {_standing(after)}"


def _check(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    outcome = context.evaluate(session.draft.source)
    after = checked(session, outcome)
    if outcome is None:
        hint = f"go back to d{after.last_ok}, which passed, and commit it" if after.last_ok else "none has passed"
        return after, f"This trial has no evaluation left, d{session.present} is not checked: {hint}."
    text = reports.outcome_text(outcome, session.request.outcome, "the parent's")
    return after, f"{_present(after)}: {text}"


def _profile(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    outcome = session.draft.outcome
    if outcome is None:
        raise Refused(f"d{session.present} is not checked yet, so nothing is known of it: check it first")
    if not outcome.ok:
        failed = f"d{session.present} failed: {reports.outcome_text(outcome)}"
        return session, f"{reports.profile_text(session, outcome)}\n{failed}"
    if not kernel_metrics(outcome.metrics):
        outcome = context.profile(session.draft.source, outcome) or outcome
        session = with_change(session, replace(session.draft, outcome=outcome))
    request = session.request
    facts = version_text(outcome, request.hardware, request.task, request.run)
    return session, f"{reports.profile_text(session, outcome)}\n\n{_present(session)}: {facts}"


def _fix(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    diagnosis = session.draft.diagnosis
    if diagnosis is None:
        raise Refused(f"nothing is known to be wrong with d{session.present}: check it first")
    from mtmc.agents.coders.repair import fix

    try:
        fixed = fix(session.draft.source, diagnosis, session.request.hardware)
    except MtmcError as error:
        raise Refused(f"the rules cannot be used: {error}") from error
    if fixed is None:
        return session, f"No rule fixes this ({diagnosis.kind} in {diagnosis.stage}): change the draft yourself."
    after = with_draft(session, fixed.source)
    return after, f"{_present(after)} is d{session.present} fixed: {fixed.what}. {_standing(after)}"


def _critique(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    if not re.search(r"\w", call.body):
        raise Refused("the critique is empty: say what could be wrong with the draft, or slower than you think")
    after = with_change(session, replace(session.draft, critique=call.body))
    return after, f"The critique of d{session.present} is recorded. {_standing(after)}"


def _commit(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    draft = session.draft
    if draft.outcome is None:
        raise Refused(f"d{session.present} has not been checked: only a draft whose check is ok can be committed")
    if not draft.ok:
        raise Refused(f"the check of d{session.present} failed: {reports.outcome_text(draft.outcome)}")
    if session.request.right_source is not None and source_hash(draft.source) == source_hash(
        session.request.right_source
    ):
        raise Refused(f"d{session.present} is the version that is to be made faster: change it, or give up")
    if any(source_hash(step.source) == source_hash(draft.source) for step in session.request.history):
        raise Refused(f"d{session.present} is an earlier version of the lineage again: change it, or give up")
    if not draft.critique:
        raise Refused(f"d{session.present} has no critique: say first what could be wrong with it or slower")
    return replace(session, end=End("commit", draft.source)), f"{_present(session)} is committed."


def _give_up(session: Session, call: ToolCall, context: AgentContext) -> Answer:
    if not re.search(r"\w", call.body):
        raise Refused("say why there is no good edit, below the tool's name")
    return replace(session, end=End("give_up", call.body)), "Given up."


def _arguments(call: ToolCall, **allowed: tuple[type, ...]) -> Mapping[str, Any]:
    """The body as a JSON object with some of the allowed names. Raises: Refused naming what is wrong."""
    text = re.sub(r"\A\s*```\w*\n(.*?)\n?```\s*\Z", r"\1", call.body, flags=re.DOTALL)
    if not text.strip():
        return {}
    form = f"the arguments of {call.name} are a JSON object with {' and '.join(allowed)}"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{form}, this is none: {text.strip()[:80]!r} ({error})") from error
    if not isinstance(found, dict):
        raise Refused(f"{form}, not {type(found).__name__}")
    for name, value in found.items():
        if name not in allowed:
            raise Refused(f"{form}, not {name!r}")
        if not isinstance(value, allowed[name]) or isinstance(value, bool):
            raise Refused(f"{name} cannot be {value!r}: give {' or '.join(each.__name__ for each in allowed[name])}")
    return found


def _as_reply(call: ToolCall) -> str:
    """A draft's body as a reply that `parse_reply` reads: bare code gets the fence that it has in a reply."""
    body = call.body
    if _MARKED.search(body) and not _is_python(body):
        return body
    block = fenced(body)
    return block if call.whole else block.rpartition("\n")[0]


def _is_python(text: str) -> bool:
    """Whether a text is a file as it stands, with whatever fences in its strings."""
    try:
        parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _present(session: Session) -> str:
    return f"d{session.present}"


def _standing(session: Session) -> str:
    """What the present draft still needs before it can be committed."""
    draft = session.draft
    found = "It is not checked" if draft.outcome is None else f"Its check: {draft.outcome.status}"
    return f"{found}, it has {'a' if draft.critique else 'no'} critique."


_ALL = (
    Tool(
        "lineage",
        "The steps from the root to the parent with their speedups, and your drafts. With a version, its source: a number, "
        '"parent", "draft", or a draft such as "d1".',
        '{"version": 0}',
        _lineage,
    ),
    Tool(
        "playbook",
        'The page about a kind of optimization, or with "hardware" about the GPU. Without a kind, the names of the pages.',
        '{"kind": "hardware"}',
        _playbook,
    ),
    Tool("diff", "Unified diff of two versions or drafts.", '{"from": "parent", "to": "draft"}', _diff),
    Tool(
        "draft",
        "Sets the draft: a whole file, or SEARCH/REPLACE blocks against the present draft (the parent, as long as there is "
        "none). Code stands below the tool's name as it is, nothing escaped.",
        "<<<<<<< SEARCH\n    BLOCK = 64\n=======\n    BLOCK = 128\n>>>>>>> REPLACE",
        _draft,
    ),
    Tool("back", "Makes an earlier draft or version the present draft.", '{"to": "d1"}', _back),
    Tool(
        "check",
        "Compiles the draft, compares its results with the reference and finds its runtime. Costs one of a few "
        "evaluations; you are told when none is left.",
        "",
        _check,
    ),
    Tool(
        "profile",
        "What limits the checked draft, its kernels one by one where they can be profiled, and its metrics beside the "
        "parent's. Costs no evaluation.",
        "",
        _profile,
    ),
    Tool("fix", "Fixes the draft's failure by a rule, where there is one for its diagnosis.", "", _fix),
    Tool(
        "critique",
        "Records what could be wrong with the present draft, or slower than you think. Needed before a commit.",
        "The mask of the last block is not tested where the width is no multiple of the block.",
        _critique,
    ),
    Tool("commit", "Ends with the present draft. Only where its check is ok and it has a critique.", "", _commit),
    Tool(
        "give_up",
        "Ends without an edit, with the reason.",
        "The region is one library call that runs near the roofline.",
        _give_up,
    ),
)

TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in _ALL}
"""Tools by name, in the order in which the prompt explains them."""
