"""policy: the compact policy of a search: features -> a small network -> priors, in milliseconds and without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mtmc.action import Action
from mtmc.agents.policies.heuristic import Heuristic
from mtmc.agents.policies.learned.compact.network import Network, read_network
from mtmc.agents.policies.learned.features import action_features, observation_features
from mtmc.agents.policies.mixing import check_mixing, mixed_prior, statistics_logits
from mtmc.protocols import Observation, Policy

WEIGHTS = Path(__file__).parent / "weights.npz"
"""Those that come with mtmc; their model card stands beside them."""


@dataclass(frozen=True)
class Compact(Policy):
    """Macro Thinking by a trained network.

    weights: a file that `mtmc train policy=compact` wrote; empty: those that come with mtmc. temperature: of the softmax; 1
    as trained, larger is flatter. heuristic: share of the heuristic's prior in the mixture, 0 to 1. floor: share that is
    spread evenly, so that no legal action has prior zero. action_statistics: how much it counts what an action
    has gained on other versions of the run. See `mtmc.agents.policies.mixing`.
    """

    weights: str = ""
    temperature: float = 1.0
    heuristic: float = 0.0
    floor: float = 0.05
    action_statistics: float = 4.0

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range, RunError where there are no weights that fit."""
        check_mixing("compact", self.temperature, self.heuristic, self.floor, self.action_statistics)
        self.network()

    def network(self) -> Network:
        """The weights, read once. Raises: RunError as `read_network`."""
        return _network(Path(self.weights).expanduser() if self.weights else WEIGHTS)

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """The network's and the heuristic's probabilities, mixed. Raises: TaskError where the task does not export."""
        logits = self.network().logits(observation_features(observation), action_features(observation, actions))
        opinions = Heuristic(action_statistics=0.0).prior(observation, actions)
        more = statistics_logits(observation, actions, self.action_statistics)
        return mixed_prior(logits.tolist(), opinions, self.temperature, self.heuristic, self.floor, more)


@lru_cache(maxsize=8)
def _network(path: Path) -> Network:
    return read_network(path)
