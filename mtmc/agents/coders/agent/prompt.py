"""What an agent is told at the start, and after each turn. Later turns only add messages, so that what a provider has
cached of a conversation stays good.

The reply that the prompt asks for is the one that `calls.parse_call` reads: the examples are written by `render_call`.
"""

from __future__ import annotations

from collections.abc import Iterable

from mtmc.agents.coders.agent.calls import ToolCall, render_call
from mtmc.agents.coders.agent.reports import action_text, cut, diagnosis_text, numbered, outcome_text
from mtmc.agents.coders.agent.tools import TOOLS, Tool
from mtmc.agents.coders.cuda_page import cuda_parts
from mtmc.agents.coders.editing.fences import fenced
from mtmc.agents.coders.editing.refinement import standing_text
from mtmc.agents.coders.editing.task_text import task_text
from mtmc.agents.facts import text as facts
from mtmc.agents.facts.memory import memory_text
from mtmc.chat import Message
from mtmc.protocols import EditRequest

EXCERPT_LINES = 200
"""Lines of a region that are printed with their numbers at most."""

_RULES = """\
You make a GPU kernel faster, one optimization at a time. A version is one Python file with Triton kernels and a module
ModelNew that launches them. What holds of every version:
- ModelNew has the same __init__ as the reference's Model: same arguments, same parameters, made in the same order. Its
  forward takes and returns the same tensors.
- It is right for any shape: sizes come from the tensors, and loads and stores are masked at the edges.
- No precision is lost that the action does not ask for: sums are kept in fp32, and tl.dot of fp32 numbers gets
  input_precision="tf32x3" or "ieee".
- It imports only torch, triton and Python's math; it touches no file, process, network or environment.
- It does its work in each call: it changes no input and keeps no result for a later call.

You work in turns. Each turn you write what you think, briefly, and then call exactly one tool, in one block of this form:
the fence with its mark, the tool's name on a line, then the arguments (JSON, code or prose), then the closing fence.
If a file itself holds fences, use a longer fence around it. What stands after the block is not read. Where the tools are
offered to you as functions, call one function a turn in place of the block.

A good order: read the lineage and the playbook, write a draft, check it, fix what fails, profile it, improve it, say what
is wrong with it (critique), commit. If no edit for this action can be right and useful, give up with the reason.

The tools:
"""


def system_text(tools: Iterable[Tool] = tuple(TOOLS.values())) -> str:
    """The rules, and each tool with an example of its call."""
    pages = [f"{tool.name}: {tool.help}\n{render_call(ToolCall(tool.name, tool.example))}" for tool in tools]
    return _RULES + "\n\n".join(pages)


def first_messages(request: EditRequest, turns: int, tokens: int, language: str = "triton") -> tuple[Message, ...]:
    """How a conversation begins: the rules; then the action, the parent, and on a repair the failure.

    turns, tokens: what the agent may use up. language: of the kernels that it writes.
    """
    parts = [
        f"Task: {request.task.name}, on {request.hardware}. You have {turns} turns and {tokens:,} tokens in all.",
        task_text(request.task),
        f"Apply this action to version {len(request.history)} of the lineage (the parent):\n\n"
        f"{action_text(request.action)}\n{facts.action_text(request, request.action)}".rstrip(),
        f"The parent: {outcome_text(request.outcome)}\n{_facts(request)}\n\n{fenced(request.source)}",
        *(each for each in [memory_text(request, request.action.kind)] if each),
        f"The region, with line numbers:\n\n{_region(request)}",
    ]
    if request.feedback is not None and request.failed_source is not None:
        parts.append(
            f"An attempt has been made already and failed. It is your draft d1: fix it, or write another.\n"
            f"{diagnosis_text(request.feedback)}\n\n{fenced(request.failed_source)}"
        )
    if request.right_source is not None and request.right_outcome is not None:
        parts.append(
            f"{standing_text(request, request.right_outcome)}\n\n{fenced(request.right_source)}\n\n"
            "It is your draft d1. Make it faster, with the action still in it. If nothing would, give up with the reason."
        )
    if language == "cuda":
        parts += [
            "Kernels of this version are written in CUDA C++, which replaces what the rules say of Triton.",
            *cuda_parts(),
        ]
    parts.append("Begin.")
    return (Message("system", system_text()), Message("user", "\n\n".join(parts)))


def answer_message(text: str, turn: int, turns: int, tokens: int, limit: int) -> Message:
    """What a turn led to, and what is left. turn, tokens: used so far; turns, limit: that may be used."""
    left = turns - turn
    last = " This is the last turn." if left == 1 else ""
    return Message("user", f"{cut(text)}\n\n[{left} turns and {max(0, limit - tokens):,} tokens are left.{last}]")


def _facts(request: EditRequest) -> str:
    return facts.version_text(request.outcome, request.hardware, request.task, request.run)


def _region(request: EditRequest) -> str:
    region = request.action.region
    return numbered(request.source, region.first_line, min(region.last_line, region.first_line + EXCERPT_LINES - 1))
