"""ranking: the question that `ModelPolicy` asks, and the reader of the answer. They stand together and change together.

An answer is lines of two kinds, in any order, with anything around them:

    RANKING: 4, P1, 2
    PROPOSAL P1 lines 12-30: keep the row in registers instead of reading it twice

Numbers are of the listed actions, from 1; P1, P2, ... are proposals of the same answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from mtmc.action import Action
from mtmc.agents.coders.editing.task_text import task_text
from mtmc.agents.facts.memory import memory_text
from mtmc.agents.facts.text import gain_text, version_text
from mtmc.chat import Message
from mtmc.errors import CoderError
from mtmc.protocols import Observation, Step

MAX_TEXT = 300
"""Characters of a proposal at most; what is longer is cut between two words."""

_MAX_LINE = 4000
"""Characters of a line that are read: patterns need time that grows with them."""
_RANKING = re.compile(r"\W*rankings?\b(?: ?\([^()]{0,40}\))?[*_\s]{0,4}[:=](.*)", re.IGNORECASE)
_PROPOSAL = re.compile(
    r"\W*proposal\W{0,5}(?P<label>P?\d{1,3}\b)?\W{0,5}(?:at )?lines?\W{0,3}(?P<first>\d{1,6})"
    r"(?:\s?(?:[-\u2013]|to|\.\.)\s?(?P<last>\d{1,6}))?\W{0,2}:(?P<text>.+)",
    re.IGNORECASE,
)
_BARE = frozenset("0123456789P ,;>[]\t")
"""All that stands in a line of bare numbers."""
_PIECES = re.compile(r"[,;>\[\]]+|(?<=\d)\s+(?=P?\d)")
_LABEL = re.compile(r"\W*(?:action|no\.?)?\W*(P?\d{1,6})\b", re.IGNORECASE)

_SYSTEM = (
    "You decide what is tried next on a GPU kernel that is being made faster. You rank optimizations by how much faster "
    "the kernel will be after them, and after what they open the way to; somebody else writes the code. You answer in "
    "the form that you are asked for."
)


@dataclass(frozen=True)
class Proposal:
    """An idea that is not on the list, about lines of the source (1-based, inclusive)."""

    text: str
    first_line: int
    last_line: int


@dataclass(frozen=True)
class Ranking:
    """What a reply says.

    order: best first; indices from 0 into the listed actions, then (from their number on) into `proposals`. All
    proposals are in it: those that the reply does not rank come last.
    notes: what of the reply was left out or cut.
    """

    order: tuple[int, ...]
    proposals: tuple[Proposal, ...] = ()
    notes: tuple[str, ...] = ()


def ranking_messages(
    observation: Observation, listed: Sequence[Action], proposals: int, steps: int
) -> tuple[Message, ...]:
    """The question. listed: the actions, numbered in this order. proposals: how many may be made. steps: how many of
    the last steps are told."""
    parts = [
        f"# Task\n{task_text(observation.task)}",
        f"# GPU\n{_gpu(observation.hardware)}",
        f"# Present version\n{_facts(observation)}\n```python\n{_numbered(observation.source)}\n```",
    ]
    if observation.history and steps:
        parts.append("# Steps so far, oldest first\n" + "\n".join(map(_told, observation.history[-steps:])))
    parts += [each for each in [memory_text(observation, None)] if each]
    numbered = "\n".join(_numbered_action(observation, number, action) for number, action in enumerate(listed, 1))
    parts += [f"# Actions\n{numbered}", f"# Answer\n{_form(proposals)}"]
    return Message("system", _SYSTEM), Message("user", "\n\n".join(parts))


class RankingForm:
    """The answer as JSON, for a provider that can be held to it; its text is what `parse_ranking` reads."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """See `mtmc.chat.Form.schema`."""
        text, number = {"type": "string"}, {"type": "integer"}
        proposal = {"name": text, "first_line": number, "last_line": number, "text": text}
        return _closed(
            {
                "ranking": {
                    "type": "array",
                    "items": text,
                    "description": "numbers of actions, and P1, P2, ..., best first",
                },
                "proposals": {"type": "array", "items": _closed(proposal), "description": "named P1, P2, ..."},
            }
        )

    def written(self, text: str) -> str:
        """See `mtmc.chat.Form.written`."""
        try:
            data = json.loads(text.rpartition("</think>")[2])
            rows = [_ranking_line(", ".join(str(label) for label in data["ranking"]))]
            for each in data["proposals"]:
                said = " ".join(str(each["text"]).split())
                rows.append(_proposal_line(str(each["name"]), f"{each['first_line']}-{each['last_line']}", said))
        except (ValueError, KeyError, TypeError, RecursionError):
            return text
        return "\n".join(rows)


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Schema of an object that has all of these and no others."""
    names = list(properties)
    return {"type": "object", "properties": dict(properties), "required": names, "additionalProperties": False}


def ranking_to_text(ranking: Ranking, count: int) -> str:
    """A reply in the form that is asked for; `parse_ranking` is its inverse. count: of listed actions."""
    labels = [str(index + 1) if index < count else f"P{index - count + 1}" for index in ranking.order]
    proposals = [
        _proposal_line(f"P{number}", f"{each.first_line}-{each.last_line}", each.text)
        for number, each in enumerate(ranking.proposals, 1)
    ]
    return "\n".join([_ranking_line(", ".join(labels)), *proposals])


def parse_ranking(text: str, count: int, lines: int, proposals: int, truncated: bool = False) -> Ranking:
    """Read a reply. count: of listed actions. lines: of the source. proposals: how many are taken at most.

    The last line that ranks counts, so that one may think before it. Numbers that are not on the list, and proposals
    without lines of the source, are left out with a note.

    Raises: CoderError with the reason where nothing is ranked and nothing proposed.
    """
    spoken = text.rpartition("</think>")[2]
    rows = [row[:_MAX_LINE] for row in (_whole(spoken) if truncated else spoken).splitlines()]
    notes = ["the reply was cut off"] if truncated else []
    made = _proposals(rows, lines, proposals, notes)
    numbers = {label: count + index for index, label in enumerate(made)}
    order = _order(_ranking_row(rows, notes), count, numbers, notes)
    if not order and not made:
        raise CoderError(_nothing(text, notes))
    if not order:
        notes.append("nothing was ranked")
    rest = [index for index in numbers.values() if index not in order]
    return Ranking((*order, *rest), tuple(made.values()), tuple(notes))


def _form(proposals: int) -> str:
    text = (
        "Rank the actions: the numbers of those worth trying, best first, in one line:\n"
        f"{_ranking_line('<number>, <number>, ...')}\n"
    )
    if not proposals:
        return text + "No other text."
    form = _proposal_line("P1", "<first>-<last>", "<what to do, in one sentence>")
    return text + (
        f"If you know something better that is not on the list, propose it (at most {proposals}, one line each), and "
        f"rank it by its name (P1, P2, ...):\n{form}\n"
        "Lines are those of the present version that it is about. No other text."
    )


def _ranking_line(labels: str) -> str:
    return f"RANKING: {labels}"


def _proposal_line(label: str, lines: str, text: str) -> str:
    return f"PROPOSAL {label} lines {lines}: {text}"


def _ranking_row(rows: Sequence[str], notes: list[str]) -> str:
    """What the last line that ranks says (or the line after it), or a reply that is nothing but numbers."""
    said = ""
    for row, following in zip_longest(rows, rows[1:], fillvalue=""):
        match = _RANKING.match(row)
        if match:
            said = next((text for text in (match.group(1), following) if _has_number(text)), said)
    spoken = [row for row in rows if any(map(str.isalnum, row))]
    if not said and len(spoken) == 1 and _BARE.issuperset(spoken[0]):
        notes.append("the numbers stand alone")
        said = spoken[0]
    return said


def _has_number(text: str) -> bool:
    return any(map(str.isdigit, text))


def _order(row: str, count: int, proposed: Mapping[str, int], notes: list[str]) -> list[int]:
    order: list[int] = []
    for piece in _PIECES.split(re.sub(r"\([^()]*\)", " ", row)):
        match = _LABEL.match(piece)
        if match is None:
            if any(map(str.isalnum, piece)):
                notes.append(f"no number in {piece.strip()[:40]!r}")
            continue
        label = match.group(1).upper()
        index = proposed.get(label, -1) if label.startswith("P") else int(label) - 1
        if index < 0 or (index >= count and not label.startswith("P")):
            notes.append(f"{label} is not on the list")
        elif index in order:
            notes.append(f"{label} is ranked twice")
        else:
            order.append(index)
    return order


def _proposals(rows: Sequence[str], lines: int, most: int, notes: list[str]) -> dict[str, Proposal]:
    """By label, in the order of the reply."""
    made: dict[str, Proposal] = {}
    for row in rows:
        match = _PROPOSAL.match(row)
        if match is None:
            continue
        label = "P" + (match["label"] or str(len(made) + 1)).upper().lstrip("P")
        text = "".join(filter(str.isprintable, match["text"])).strip(" *")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if label in made or len(made) >= most:
            notes.append(f"the proposal {label} is one too many")
        elif not 1 <= first <= last <= lines:
            notes.append(f"the proposal {label} is about lines {first}-{last} of {lines}")
        elif not any(map(str.isalnum, text)) or text.startswith("<"):
            notes.append(f"the proposal {label} says nothing")
        else:
            made[label] = Proposal(_short(text, label, notes), first, last)
    return made


def _short(text: str, label: str, notes: list[str]) -> str:
    if len(text) <= MAX_TEXT:
        return text
    notes.append(f"the proposal {label} was cut at {MAX_TEXT} characters")
    return text[:MAX_TEXT].rpartition(" ")[0] or text[:MAX_TEXT]


def _whole(text: str) -> str:
    """A reply that was cut off, without what may be half: the last number of a ranking, or else the last line."""
    before, newline, last = text.rpartition("\n")
    return before + newline + last.rpartition(",")[0] if _RANKING.match(last[:_MAX_LINE]) else before


def _nothing(text: str, notes: Sequence[str]) -> str:
    if not text.strip():
        return "the reply is empty"
    return f"no line {_ranking_line('...')} with numbers of the list" + (f" ({notes[0]})" if notes else "")


def _gpu(name: str) -> str:
    from mtmc.hardware import hardware

    gpu = hardware(name)
    return (
        f"{gpu.name}: {gpu.sms} SMs, {gpu.dram_gbs:g} GB/s of DRAM, {gpu.shared_per_block // 1024} KiB of shared memory "
        f"a block; TFLOPS: fp32 {gpu.fp32_tflops:g}, TF32 {gpu.tf32_tflops:g}, fp16 and bf16 {gpu.fp16_tflops:g}"
    )


def _facts(observation: Observation) -> str:
    """What is known of the version. No seconds of the evaluation are in it: a replay needs the same question again."""
    speedup = observation.history[-1].speedup if observation.history else None
    facts = [] if speedup is None else [f"It is {speedup:.2f}x as fast as the root."]
    facts.append(version_text(observation.outcome, observation.hardware, observation.task, observation.run))
    has = "has a plan: rules carry out" if observation.plan is not None else "has no plan: a model carries out"
    facts.append(f"It {has} the listed actions.")
    return "\n".join(facts)


def _numbered_action(observation: Observation, number: int, action: Action) -> str:
    """An action of the list, with what it may pay at most where that is known."""
    return f"{number}. {action.sentence}{gain_text(observation, action)}"


def _told(step: Step) -> str:
    came = step.outcome.status if step.speedup is None else f"{step.speedup:.2f}x of the root"
    return f"- {step.action.sentence}: {came}"


def _numbered(source: str) -> str:
    return "\n".join(f"{number:>4} {line}" for number, line in enumerate(source.splitlines(), 1))
