"""policy: the policy `lm` of a search: a language model scores the sentences of the legal actions.

torch and transformers are loaded at the first prior, not before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mtmc.action import Action
from mtmc.agents.policies.heuristic import Heuristic
from mtmc.agents.policies.learned.lm.base import PACKAGED, check_base, device_of, load_base, needed
from mtmc.agents.policies.learned.lm.prompt import PromptSettings
from mtmc.agents.policies.learned.lm.tokens import Texts
from mtmc.agents.policies.mixing import check_mixing, mixed_prior, statistics_logits
from mtmc.protocols import Observation, Policy

ADAPTER = Path(__file__).parent / "adapter"
"""The one that comes with mtmc; its model card lies beside its weights."""
NONE = "none"
AT_ONCE = 16
"""Versions that the model reads together: their prompts take memory."""
Asked = tuple[Observation, Sequence[Action]]
"""A version and the actions that are weighed."""


@dataclass(frozen=True)
class Lm(Policy):
    """Macro Thinking by a small language model (TWOSOME): how likely is each action's sentence, given the version.

    adapter: a folder that `mtmc train policy=lm` wrote; empty: the one that comes with mtmc; none: the base as it is.
    base: the base model, see `mtmc.agents.policies.learned.lm.base`; empty: the one that the adapter was trained on.
    temperature: of the softmax; 1 as trained, larger is flatter. heuristic: share of the heuristic's prior in the mixture,
    0 to 1. floor: share that is spread evenly, so that no legal action has prior zero. action_statistics: how much
    it counts what an action has gained on other versions of the run. See `mtmc.agents.policies.mixing`.
    device: auto (a GPU where there is one), cpu, cuda or cuda:1.
    """

    adapter: str = ""
    base: str = ""
    temperature: float = 1.0
    heuristic: float = 0.0
    floor: float = 0.05
    action_statistics: float = 4.0
    device: str = "auto"

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        check_mixing("lm", self.temperature, self.heuristic, self.floor, self.action_statistics)

    def check(self) -> None:
        """Whether it can be used at all, before a search begins; the model is not loaded for it.

        Raises: ModelError where a package or the base is missing, RunError where there is no such adapter.
        """
        from mtmc.agents.policies.learned.lm.adapter import read_about

        needed(("transformers", "peft"))
        check_base(self.base or (PACKAGED if self.adapter == NONE else read_about(_folder(self.adapter)).base))

    @property
    def reads_text(self) -> bool:
        """Whether its prompts show the text of versions. Raises: RunError where there is no such adapter."""
        from mtmc.agents.policies.learned.lm.adapter import read_about

        return self.adapter == NONE or read_about(_folder(self.adapter)).prompt.code > 0

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """The model's and the heuristic's probabilities, mixed.

        Raises: as `check`; RunError for an adapter that does not fit its base.
        """
        return self.priors([(observation, actions)])[0]

    def priors(self, asked: Sequence[Asked]) -> list[list[float]]:
        """`prior` of several versions, which the model reads together: on a GPU several times as fast."""
        reader, heuristic, found = _reader(self.adapter, self.base, self.device), Heuristic(action_statistics=0.0), []
        for (seen, actions), scores in zip(asked, reader.scores(asked), strict=True):
            more = statistics_logits(seen, actions, self.action_statistics)
            expert = heuristic.prior(seen, actions)
            weight = reader.about.heuristic_weight
            logits = [score + weight * math.log(each) for score, each in zip(scores, expert, strict=True)]
            found.append(mixed_prior(logits, expert, self.temperature, self.heuristic, self.floor, more))
        return found


@dataclass(frozen=True, eq=False)
class Reader:
    """A loaded model with all that scoring needs. model: with the adapter, or the base alone."""

    model: Any
    texts: Texts
    about: Any

    def scores(self, asked: Sequence[Asked]) -> list[list[float]]:
        """For each version a score for each of its actions, normalized and scaled as the adapter was trained.

        Raises: ModelError as `Texts.answer`.
        """
        import torch

        from mtmc.agents.policies.learned.lm.packing import pack
        from mtmc.agents.policies.learned.lm.scoring import answer_scores

        found: list[list[float]] = []
        for first in range(0, len(asked), AT_ONCE):
            some = asked[first : first + AT_ONCE]
            packs = [pack(self.texts.prompt(seen), list(map(self.texts.answer, actions))) for seen, actions in some]
            with torch.inference_mode():
                scores = iter(answer_scores(self.model, packs).scores.tolist())
            for _, actions in some:
                lengths = [self.texts.length(action, self.about.normalize) for action in actions]
                found.append([self.about.scale * next(scores) / length for length in lengths])
        return found


def _folder(adapter: str) -> Path:
    return Path(adapter).expanduser() if adapter else ADAPTER


@lru_cache(maxsize=2)
def _reader(adapter: str, base: str, device: str) -> Reader:
    from mtmc.agents.policies.learned.lm.adapter import About, read_adapter
    from mtmc.agents.policies.learned.lm.scoring import check_model

    if adapter == NONE:
        loaded = load_base(base or PACKAGED)
        check_model(loaded.model)
        model, about = loaded.model, About(loaded.name, loaded.mark, PromptSettings())
    else:
        loaded, model, about = read_adapter(_folder(adapter), base)
    return Reader(model.to(device_of(device)), Texts(loaded.tokenizer, about.prompt), about)
