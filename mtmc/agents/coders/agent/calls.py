"""How an agent calls a tool: text, because small local models know no provider's tool calls.

One fenced block a turn. Its first line names the tool; what follows, up to the closing fence, is the tool's body: JSON, a
whole file or prose, as it is, nothing escaped. A body that holds fences itself stands between longer ones.

    ```tool
    lineage
    {"version": 2}
    ```

`render_call` writes such a block and `parse_call` reads it; the prompt's examples are written by `render_call`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mtmc.agents.coders.editing.fences import fence_for
from mtmc.agents.coders.editing.reply import without_reasoning
from mtmc.agents.coders.editing.unusable import Unusable

MARK = "tool"
"""What stands behind the opening fence."""

_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^`]*?)[ \t]*$")
_NAME = re.compile(r"^\W*([A-Za-z_]+)[ \t]*(?:\([ \t]*\))?[ \t]*:?[ \t]*(\{.*)?$", re.DOTALL)
_CLOSING_INDENT = 3
"""Spaces that a closing fence may stand in from its opening one (CommonMark 4.5): one in a docstring stands further in."""


@dataclass(frozen=True)
class ToolCall:
    """One call. body: what follows the name, without blank lines around it. whole: False where the reply
    was cut off before the closing fence."""

    name: str
    body: str = ""
    whole: bool = True


@dataclass(frozen=True)
class Parsed:
    """A reply: its call, the prose around it, and how many calls more it held, which count for nothing."""

    call: ToolCall
    prose: str
    ignored: int


def render_call(call: ToolCall) -> str:
    """The block that `parse_call` reads as `call`."""
    fence = fence_for(call.body)
    return "\n".join([f"{fence}{MARK}", call.name, *([call.body] if call.body else []), fence])


def parse_call(text: str, names: Collection[str], truncated: bool = False) -> Parsed:
    """The first tool call of a reply.

    A block with another mark counts if its first line or its mark is the name of a tool. A block that is never closed
    goes to the end of the text.

    names: of the tools. truncated: the reply was cut off. Raises: Unusable saying what is wrong and what is right.
    """
    text, unfinished = without_reasoning(text.replace("\r\n", "\n"))
    blocks = list(_blocks(text))
    marked = [block for block in blocks if block.mark == MARK] or [block for block in blocks if block.tool(names)]
    if not marked:
        raise _missing(text, bool(blocks), truncated or unfinished)
    first = marked[0]
    name, body = _name(first, names)
    if truncated and not first.closed and name != "draft":
        message = f"the reply was cut off in the middle of the call of {name}: write less in one turn"
        raise Unusable("truncated", message)
    prose = "\n".join([*text.split("\n")[: first.start], *text.split("\n")[first.end :]]).strip()
    return Parsed(ToolCall(name, body, first.closed or not truncated), prose, len(marked) - 1)


@dataclass(frozen=True)
class _Block:
    """A fenced block. mark, rest: of its first line's info text. start, end: its lines, fences included, end excluded."""

    mark: str
    rest: str
    lines: tuple[str, ...]
    start: int
    end: int
    closed: bool

    def tool(self, names: Collection[str]) -> bool:
        """Whether a block with another mark is a call all the same."""
        first = next((line.strip() for line in self.lines if line.strip()), "")
        return self.mark in names or first in names


def _blocks(text: str) -> Iterator[_Block]:
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening is None:
            at += 1
            continue
        indent, fence, info = opening.groups()
        mark, _, rest = info.partition(" ")
        end, closed = _closing(lines, at + 1, fence, len(indent))
        body = tuple(_dedented(line, len(indent)) for line in lines[at + 1 : end])
        following = end + 1 if closed else end
        yield _Block(mark.lower(), rest.strip(), body, at, following, closed)
        at = following


def _closing(lines: list[str], start: int, fence: str, indent: int) -> tuple[int, bool]:
    """The line of the closing fence and True; or where the block ends without one, and False.

    A fence with a mark inside the block opens a block of its own, as models do that put code in a call. Another tool
    call never does: it ends one that was not closed.
    """
    depth = 0
    for at in range(start, len(lines)):
        found = _FENCE.match(lines[at])
        if found is None or found[2][0] != fence[0] or len(found[2]) < len(fence):
            continue
        if len(found[1]) > indent + _CLOSING_INDENT:
            continue
        if found[3].split(" ")[0].lower() == MARK:
            return at, False
        if found[3]:
            depth += 1
        elif depth:
            depth -= 1
        else:
            return at, True
    return len(lines), False


def _dedented(line: str, indent: int) -> str:
    lead = len(line) - len(line.lstrip(" \t"))
    return line[min(indent, lead) :]


def _name(block: _Block, names: Collection[str]) -> tuple[str, str]:
    """The tool's name, which may stand behind the mark, and the body."""
    if block.mark in names:
        return block.mark, "\n".join([block.rest, *block.lines]).strip("\n")
    lines = [block.rest, *block.lines] if block.rest else list(block.lines)
    while lines and not lines[0].strip():
        lines.pop(0)
    if not lines:
        raise Unusable("no tool", f"the block names no tool: its first line must be one of {', '.join(names)}")
    found = _NAME.match(lines[0].strip())
    name = found[1].lower() if found else ""
    if found is None or name not in names:
        message = f"there is no tool {lines[0].strip()[:60]!r}: the tools are {', '.join(names)}"
        raise Unusable("unknown tool", message)
    return name, "\n".join([*([found[2]] if found[2] else []), *lines[1:]]).strip("\n")


def _missing(text: str, code: bool, cut_off: bool) -> Unusable:
    """Why a reply without a call has none."""
    if cut_off:
        return Unusable("truncated", "the reply was cut off before it called a tool: write less in one turn")
    if not text.strip():
        return Unusable("empty", "the reply is empty: every turn calls one tool")
    form = f"```{MARK} and then, on a line, the name of a tool"
    if code:
        return Unusable("no call", f"a code block alone is no call: begin it with {form}, such as draft")
    return Unusable("no call", f"the reply calls no tool: every turn ends with one block that begins with {form}")
