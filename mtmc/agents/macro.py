"""macro: policies (Macro Thinking). A policy gives the legal actions of a version their prior probabilities.

`uniform` and `heuristic` (see `mtmc.agents.heuristic`) ask nobody; `llm` asks the run's language model; `compact` is a
small network that learned from recorded trees (`mtmc.agents.learned.compact`), `lm` a language model with an adapter
that did (`mtmc.agents.learned.lm`).
"""

from __future__ import annotations

from collections.abc import Callable

from mtmc.agents.heuristic import Heuristic, Uniform
from mtmc.agents.learned.compact.policy import Compact
from mtmc.agents.learned.lm.policy import Lm
from mtmc.agents.model_policy import ModelPolicy
from mtmc.protocols import Policy

__all__ = ["POLICIES", "Compact", "Heuristic", "Lm", "ModelPolicy", "Uniform"]

POLICIES: dict[str, Callable[..., Policy]] = {
    "heuristic": Heuristic,
    "uniform": Uniform,
    "llm": ModelPolicy,
    "compact": Compact,
    "lm": Lm,
}
"""Policies by name. To add one: a class with `prior` and a line here."""
