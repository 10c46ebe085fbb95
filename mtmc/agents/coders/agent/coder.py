"""The coder `agent`: an edit is made by a model that uses tools in a loop, after AVO (arXiv 2603.24517).

Unlike `llm`, which asks for one reply, it may read the lineage and the playbook, check and profile drafts and fix them
before it commits one. What it commits has passed its check. The loop is in `mtmc.agents.coders.agent`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.agents.coders.cuda_page import check_language
from mtmc.agents.coders.model import AskingCoder
from mtmc.errors import ConfigError, ModelError
from mtmc.protocols import Edit, EditRequest


@dataclass(frozen=True)
class AgentCoder(AskingCoder):
    """A model in a loop with tools.

    turns: replies of one edit at most. tokens: of one edit, in and out, of all its replies together; it ends after the
    reply that reaches them. A turn sends the whole conversation again, so 16 turns need some 60,000.
    language: that it writes kernels in: "triton" or "cuda" (CUDA C++).
    """

    turns: int = 16
    tokens: int = 60_000
    language: str = "triton"

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting and its value."""
        check_language(self.language)
        for name, value in (("turns", self.turns), ("tokens", self.tokens)):
            if value < 1:
                raise ConfigError(f"coder.{name} cannot be {value}: use 1 or more")

    def edit(self, request: EditRequest) -> Edit:
        """A source that has passed its check, with the cost of all turns.

        Raises: CoderError where the agent gives up or uses up its turns or tokens before a draft has passed;
        BudgetSpent; ModelError where the search has no model.
        """
        from mtmc.agents.coders.agent.loop import Limits, run

        if request.context is None:
            raise ModelError("coder=agent needs a language model: set model.name, for example openai/gpt-5-mini")
        return run(request, request.context, Limits(self.turns, self.tokens, self.language))
