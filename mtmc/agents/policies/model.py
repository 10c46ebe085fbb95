"""Macro Thinking by a language model. It ranks the legal actions and may propose others in free text."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.action import Action
from mtmc.agents.policies.heuristic import Heuristic
from mtmc.agents.policies.ranking import Ranking, RankingForm, parse_ranking, ranking_messages
from mtmc.chat import POLICY, ChatRequest
from mtmc.errors import CoderError, ConfigError
from mtmc.freeform import freeform_action, is_freeform
from mtmc.protocols import AgentContext, Observation, Policy

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelPolicy(Policy):
    """The run's language model is shown a version and the numbered list of its legal actions, and ranks them.

    temperature: of the softmax over ranks (not the model's); above 0, larger is flatter. floor: share of the probability
    that all actions get alike, above 0 and below 1. proposals: actions in free text that it may add at most; 0 for a
    coder that takes none. steps: how many past steps it is told.

    One call for each version: `propose` and `prior` ask the same question, because only actions of the coder are listed
    in it, never those that were proposed; the second time the run has the reply already.

    Where no ranking comes (no reply, a spent budget, a reply that cannot be read) the prior is the heuristic's: this is
    logged, and the reply is judged "unusable: why".
    """

    temperature: float = 2.0
    floor: float = 0.1
    proposals: int = 2
    steps: int = 4

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        if not self.temperature > 0:
            raise ConfigError(f"policy.temperature cannot be {self.temperature}: use a number above 0")
        if not 0 < self.floor < 1:
            raise ConfigError(f"policy.floor cannot be {self.floor}: use a number above 0 and below 1")
        for name in ("proposals", "steps"):
            if getattr(self, name) < 0:
                raise ConfigError(f"policy.{name} cannot be {getattr(self, name)}: use 0 or more")

    @property
    def asks_model(self) -> bool:
        """It asks the run's language model: a search without one does not start."""
        return True

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """`ranked_prior` of the model's ranking and the heuristic. A single action is certain, and nothing is asked.

        Raises: ConfigError without a model, ModelError where it cannot be used at all.
        """
        expert = Heuristic().prior(observation, actions)
        if len(actions) == 1:
            return expert
        listed = _listed(actions)
        try:
            ranking = self._ask(observation, listed)
        except CoderError as error:
            log.warning("the model gave no ranking, the heuristic's prior is used: %s", error)
            return expert
        known = [action.key for action in (*listed, *_proposed(observation, ranking))]
        place = {action.key: index for index, action in enumerate(actions)}
        ranked = [place[known[index]] for index in ranking.order if known[index] in place]
        return ranked_prior(list(dict.fromkeys(ranked)), expert, self.temperature, self.floor)

    def propose(self, observation: Observation, actions: Sequence[Action]) -> list[Action]:
        """Actions of the kind "freeform" that the model would add to `actions`; none where it gave no usable reply.

        Raises: as `prior`.
        """
        if not self.proposals:
            return []
        try:
            return _proposed(observation, self._ask(observation, _listed(actions)))
        except CoderError as error:
            log.warning("the model proposed nothing: %s", error)
            return []

    def _ask(self, observation: Observation, listed: Sequence[Action]) -> Ranking:
        """Raises: CoderError where there is no reply, or none that can be read."""
        context = _context(observation)
        messages = ranking_messages(observation, listed, self.proposals, self.steps)
        reply = context.complete(ChatRequest(messages, POLICY, _seed(observation.source, listed), form=RankingForm()))
        lines = len(observation.source.splitlines())
        try:
            ranking = parse_ranking(reply.text, len(listed), lines, self.proposals, reply.truncated)
        except CoderError as error:
            context.judge(reply, f"unusable: {error}")
            raise
        if ranking.notes:
            log.info("read with care: %s", "; ".join(ranking.notes[:5]))
        context.judge(reply, "repaired" if ranking.notes else "usable")
        return ranking


def ranked_prior(ranked: Sequence[int], others: Sequence[float], temperature: float, floor: float) -> list[float]:
    """Probabilities from a ranking of some of n actions.

    ranked: indices of k actions, best first, each once. others: for every action what somebody else thinks of it, above 0.

        w(i) = exp(-r / temperature)                                          at rank r = 0 ... k-1
        w(i) = exp(-k / temperature) * others(i) / sum of others, not ranked     not ranked
        p(i) = floor / n + (1 - floor) * w(i) / sum of w

    So all that are not ranked share the weight of one action at rank k. Each is at least floor / n, the sum is 1.
    """
    count = len(others)
    ranks = {index: rank for rank, index in enumerate(ranked)}
    rest = sum(other for index, other in enumerate(others) if index not in ranks)
    last = math.exp(-len(ranks) / temperature)
    weights = [
        math.exp(-ranks[index] / temperature) if index in ranks else last * other / rest
        for index, other in enumerate(others)
    ]
    total = sum(weights)
    return [floor / count + (1 - floor) * weight / total for weight in weights]


def _context(observation: Observation) -> AgentContext:
    if observation.context is None:
        raise ConfigError(
            "policy llm has nobody to ask: give the search a model (model.name=...) or use policy=heuristic"
        )
    return observation.context


def _listed(actions: Sequence[Action]) -> list[Action]:
    """The coder's own actions: the same list before and after proposals were added to it."""
    return [action for action in actions if not is_freeform(action)]


def _proposed(observation: Observation, ranking: Ranking) -> list[Action]:
    """In the order of `ranking.proposals`."""
    return [
        freeform_action(observation.source, each.text, each.first_line, each.last_line) for each in ranking.proposals
    ]


def _seed(source: str, listed: Sequence[Action]) -> int:
    """Follows from the question alone, 0 to 2^31 - 1."""
    text = "\0".join([source, *(action.key for action in listed)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
