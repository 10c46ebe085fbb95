"""policies: Macro Thinking. A policy gives the legal actions of a version their prior probabilities.

`uniform` and `heuristic` (see `heuristic.py`) ask nobody; `llm` asks the run's language model; `compact` is a small network
that learned from recorded trees (`learned/compact`), `lm` a language model with an adapter that did (`learned/lm`).
"""

from __future__ import annotations

from collections.abc import Callable

from mtmc.agents.policies.heuristic import Heuristic, Uniform
from mtmc.agents.policies.learned.compact.policy import Compact
from mtmc.agents.policies.learned.lm.policy import Lm
from mtmc.agents.policies.model import ModelPolicy
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
