"""macro: policies (Macro Thinking). A policy gives the legal actions of a version their prior probabilities.

`uniform` and `heuristic` (see `mtmc.agents.heuristic`) ask nobody; `llm` asks the run's language model.
"""

from __future__ import annotations

from collections.abc import Callable

from mtmc.agents.heuristic import Heuristic, Uniform
from mtmc.agents.model_policy import ModelPolicy
from mtmc.protocols import Policy

__all__ = ["POLICIES", "Heuristic", "ModelPolicy", "Uniform"]

POLICIES: dict[str, Callable[..., Policy]] = {"heuristic": Heuristic, "uniform": Uniform, "llm": ModelPolicy}
"""Policies by name. To add one: a class with `prior` and a line here."""
