"""environment: recorded trees to learn in, after the paper's tree-structured environment.

A state is a recorded version, an action one of its legal ones, and only those whose end is recorded can be taken; no model
and no GPU is called. `Episodes` steps any number of episodes at once, for training. `TreeEnvironment` is the view of one of
them that has Gymnasium's interface, and is a `gymnasium.Env` where that is installed (the extra `rl`).

    environment = TreeEnvironment(forest_of(load_trees(folder, "train")))
    observation, info = environment.reset(seed=0)
    observation, reward, terminated, truncated, info = environment.step(int(observation["mask"].argmax()))

An observation is a dict: "observation" float32 [features], "mask" int8 [most actions] (1 for what can be taken), "actions"
float32 [most actions, features] (zeros for what cannot).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mtmc.errors import ConfigError
from mtmc.reward import STEP_DECAY
from mtmc.rl.forest import STOP_CHILD, Forest, Ints
from mtmc.rl.rewards import REWARDS, RewardName, progress

if TYPE_CHECKING:
    _Base = object
else:
    try:
        from gymnasium import Env as _Base
    except ImportError:
        _Base = object

OnFailure = Literal["stay", "end"]
Observed = dict[str, Any]

MASKED = -1.0
"""Reward of an action that is not legal, or whose end nobody knows: that of one that does not compile. The state stays.
 A policy that minds the mask never meets it."""
BOUND = 64.0
"""Features are clipped to minus and plus this, so that a space can state its bounds."""


@dataclass(frozen=True)
class Rules:
    """How an episode goes. reward: see `mtmc.rl.rewards`; less decay times the number of the step, from 1.

    It ends with `STOP` (reward 0), at a version from which nothing can be replayed, with a failure where `on_failure` is
    "end" ("stay" goes on from the version before, as searches do), and is cut off after `steps` steps.
    """

    reward: RewardName = "paper"
    decay: float = STEP_DECAY
    steps: int = 10
    on_failure: OnFailure = "stay"

    def __post_init__(self) -> None:
        """Raises: ConfigError for a reward that does not exist."""
        if self.reward not in REWARDS:
            raise ConfigError(f"there is no reward {self.reward!r}: use one of {', '.join(REWARDS)}")


class Episodes:
    """Episodes under way, all after the same number of steps. node: [episodes], where each stands. best_ms: [episodes],
    runtime of its best version so far. live: [episodes], False where it has ended. taken: steps so far."""

    def __init__(self, forest: Forest, starts: Ints, rules: Rules) -> None:
        """starts: right versions, one an episode."""
        self.forest, self.rules, self.taken = forest, rules, 0
        self.node = starts.copy()
        self.best_ms = forest.runtime_ms[starts]
        self.live = forest.choices[starts] > 0

    @property
    def root_ms(self) -> NDArray[np.float64]:
        """Runtime of each episode's root, [episodes]."""
        return self.forest.runtime_ms[self.forest.roots[self.forest.tree_of[self.node]]]

    def step(self, edges: Ints) -> NDArray[np.float64]:
        """Take a known edge in each live episode; returns the rewards. edges: [live], in the episodes' order."""
        forest, rules, live = self.forest, self.rules, np.flatnonzero(self.live)
        self.taken += 1
        node, best_ms = self.node[live], self.best_ms[live]
        stopped = forest.children[edges] == STOP_CHILD
        child = np.where(stopped, node, forest.children[edges])
        right = forest.ok[child]
        self.best_ms[live] = np.minimum(best_ms, np.where(right, forest.runtime_ms[child], np.inf))
        self.node[live] = np.where(right | (rules.on_failure == "end"), child, node)
        self.live[live] = ~stopped & (forest.choices[self.node[live]] > 0)
        if rules.reward == "progress":
            rewards = progress(best_ms, self.best_ms[live])
        else:
            rewards = forest.rewards[rules.reward][edges]
        return np.where(stopped, 0.0, rewards - rules.decay * self.taken)


class TreeEnvironment(_Base):
    """`Episodes` of one episode, from the root of a tree."""

    metadata: Mapping[str, Any] = {"render_modes": []}
    render_mode: str | None = None

    def __init__(self, forest: Forest, rules: Rules | None = None, most_actions: int | None = None) -> None:
        """rules: by default those of `Rules`. most_actions: length of the action dimension; by default that of the widest
        version.

        Raises: ConfigError for fewer actions than a version has, or where no version has any.
        """
        widest = forest.most_actions
        if not widest:
            raise ConfigError("no version of these trees has legal actions: record some with mtmc collect")
        if most_actions is not None and most_actions < widest:
            raise ConfigError(f"most_actions cannot be {most_actions}: a version has {widest}")
        self._forest, self._rules, self._width = forest, rules or Rules(), most_actions or widest
        self._rng = np.random.default_rng(0)
        self._episode = Episodes(forest, forest.roots[:1], self._rules)
        self.observation_space, self.action_space = _spaces(forest, self._width)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Start at the root of a tree that is drawn, or of number options["tree"]."""
        if _Base is not object:
            super().reset(seed=seed)  # type: ignore[misc]
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        roots, number = self._forest.roots, (options or {}).get("tree")
        root = roots[int(self._rng.integers(len(roots))) if number is None else number]
        self._episode = Episodes(self._forest, np.asarray([root]), self._rules)
        return self._observed(), self._info(masked=False)

    def step(self, action: int) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        """Take a legal action by its position. See `MASKED` for any other, and once the episode has ended."""
        forest, episode = self._forest, self._episode
        first, last = forest.start[episode.node[0] : episode.node[0] + 2]
        edge = first + int(action)
        masked = not (episode.live[0] and first <= edge < last and forest.known[edge])
        if masked:
            episode.taken += 1
            reward = MASKED - self._rules.decay * episode.taken
        else:
            reward = float(episode.step(np.asarray([edge]))[0])
        live = bool(episode.live[0])
        return self._observed(), reward, not live, live and episode.taken >= self._rules.steps, self._info(masked)

    def close(self) -> None:
        """Nothing to end."""

    def _observed(self) -> Observed:
        forest, node = self._forest, self._episode.node
        batch = forest.batch(node)
        places = batch.edges - forest.start[node]
        actions = np.zeros((self._width, forest.actions.shape[1]), np.float32)
        mask = np.zeros(self._width, np.int8)
        actions[places] = np.clip(batch.actions, -BOUND, BOUND)
        mask[places] = 1
        return {"observation": np.clip(batch.observations[0], -BOUND, BOUND), "actions": actions, "mask": mask}

    def _info(self, masked: bool) -> dict[str, Any]:
        """tree: name of the task. node: where the episode stands. speedup: of that version, and best_speedup: of the best
        so far, over the root. masked: whether the action could not be taken."""
        forest, node, root_ms = self._forest, int(self._episode.node[0]), float(self._episode.root_ms[0])
        tree = int(forest.tree_of[node])
        return {
            "tree": forest.trees[tree].name,
            "node": node - int(forest.roots[tree]),
            "speedup": root_ms / float(forest.runtime_ms[node]) if forest.ok[node] else 0.0,
            "best_speedup": root_ms / float(self._episode.best_ms[0]),
            "masked": masked,
        }


def _spaces(forest: Forest, width: int) -> tuple[Any, Any]:
    """The spaces, or (None, None) where Gymnasium is not installed."""
    try:
        from gymnasium import spaces
    except ImportError:
        return None, None
    observation = {
        "observation": spaces.Box(-BOUND, BOUND, forest.observations.shape[1:], np.float32),
        "actions": spaces.Box(-BOUND, BOUND, (width, forest.actions.shape[1]), np.float32),
        "mask": spaces.MultiBinary(width),
    }
    return spaces.Dict(observation), spaces.Discrete(width)
