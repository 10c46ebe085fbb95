"""TrainSettings: what `mtmc train` takes besides a policy and an algorithm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mtmc.reward import STEP_DECAY
from mtmc.rl.bounds import above_zero, at_least, from_0_to_1
from mtmc.rl.environment import Rules
from mtmc.rl.rewards import RewardName
from mtmc.rl.train.pretraining import Pretraining

Space = Literal["legal", "all"]


@dataclass(frozen=True)
class TrainSettings:
    """How a policy is trained.

    data: folders of recorded trees. seed: of the weights and of all that is drawn. iterations: rollouts, each followed by
    the epochs of the algorithm; 0: none, only the pretraining. episodes: in a rollout. steps, reward, decay: of an episode,
    see `mtmc.rl.environment`. random_start_prob: share of the episodes that start at any right version, not at a root.
    pretraining: the supervised start. actions: "all" also offers, at each version, the actions of the tree's other versions,
    which fail.
    validate_every, checkpoint_every: epochs of the pretraining, and iterations. budget, seeds: of the replayed searches of a
    validation. validation_trees: how many of the validation trees are used; 0: all. minutes: wall time after which a
    checkpoint is written and the training stops; the same command goes on. null: no limit.
    """

    data: tuple[str, ...] = ()
    seed: int = 0
    iterations: int = 120
    episodes: int = 512
    steps: int = 10
    reward: RewardName = "progress"
    decay: float = STEP_DECAY
    random_start_prob: float = 0.5
    pretraining: Pretraining = field(default_factory=Pretraining)
    actions: Space = "legal"
    validate_every: int = 5
    checkpoint_every: int = 5
    budget: int = 24
    seeds: int = 2
    validation_trees: int = 0
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        at_least(self, iterations=0, episodes=1, steps=1, validate_every=1, checkpoint_every=1)
        at_least(self, budget=2, seeds=1, validation_trees=0)
        from_0_to_1(self, "random_start_prob")
        above_zero(self, "minutes")

    @property
    def rules(self) -> Rules:
        """Of an episode."""
        return Rules(self.reward, self.decay, self.steps)
