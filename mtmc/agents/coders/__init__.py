"""coders: Micro Coding. A coder turns (parent source, action, feedback) into a child source, and says what is legal.

`rewriter` has rules and asks nobody. `llm` asks a language model for each edit, `auto` only where no rule fits, and
`agent` lets it work with tools until an edit has passed its check.
"""

from __future__ import annotations

from collections.abc import Callable

from mtmc.agents.coders.agent.coder import AgentCoder
from mtmc.agents.coders.auto import AutoCoder
from mtmc.agents.coders.model import ModelCoder
from mtmc.agents.coders.rewriter import Rewriter
from mtmc.protocols import Coder

CODERS: dict[str, Callable[..., Coder]] = {
    "agent": AgentCoder,
    "auto": AutoCoder,
    "llm": ModelCoder,
    "rewriter": Rewriter,
}
"""Coders by name. To add one: a class with the methods of `Coder` and a line here."""
