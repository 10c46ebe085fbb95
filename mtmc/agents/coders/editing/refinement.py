"""refinement: how a model is asked to make its own right version faster, and how it says that it knows of nothing more.

The question begins as that for the edit did, word for word, so that a provider that keeps prompts has most of it.
"""

from __future__ import annotations

from mtmc.agents.coders.editing.fences import fenced
from mtmc.agents.coders.editing.reply import without_reasoning
from mtmc.agents.facts.text import version_text
from mtmc.outcome import Outcome, speedup
from mtmc.protocols import EditRequest

SETTLED = "NOTHING FASTER"
"""The whole answer of a model that knows of nothing that would make its version faster."""

_ASK = f"""\
Make this version faster, with the optimization above still in it. You may change whatever of its kernels and launches \
makes it so. What it computes stays the same. SEARCH/REPLACE blocks apply to this version. If you know of nothing that \
would make it faster, answer with this line alone:
{SETTLED}"""


def refinement_text(request: EditRequest, source: str, outcome: Outcome) -> str:
    """The last part of the question. source, outcome: of the fastest right version so far."""
    return "\n\n".join(["# Version So Far\n" + standing_text(request, outcome), fenced(source), _ASK])


def standing_text(request: EditRequest, outcome: Outcome) -> str:
    """What was found of the version that is to be made faster: its speed beside the parent's, and what limits it."""
    gain = speedup(outcome, request.outcome)
    head = "The optimization has been made, and this version is right."
    if gain is not None:
        head += f" It is {gain:.3g} times as fast as the previous code."
    return f"{head}\n{version_text(outcome, request.hardware, request.task, request.run)}"


def is_settled(text: str) -> bool:
    """Whether a reply says `SETTLED` and nothing else, marks and case aside."""
    said = without_reasoning(text)[0]
    return " ".join(said.strip(" \t\n`*_\"'.").upper().split()) == SETTLED
