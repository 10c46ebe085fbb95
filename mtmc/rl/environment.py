"""environment: recorded trees as an environment to learn in, after the paper's tree-structured one.

A state is a recorded version, an action one of its legal ones, and only those whose end is recorded can be taken; no model
and no GPU is called. `TreeEnvironment` has Gymnasium's interface, and is a `gymnasium.Env` where that is installed (the
extra `rl`).

    environment = TreeEnvironment([tree_arrays(tree) for tree in load_trees(folder, "train")])
    observation, info = environment.reset(seed=0)
    observation, reward, terminated, truncated, info = environment.step(int(observation["mask"].argmax()))

An observation is a dict: "observation" float32 [features], "actions" float32 [most actions, features] (zeros beyond the
legal ones), "mask" int8 [most actions] (1 for what can be taken).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mtmc.agents.policies.learned.features import ACTION_NAMES, OBSERVATION_NAMES
from mtmc.errors import ConfigError
from mtmc.reward import STEP_DECAY
from mtmc.rl.arrays import STOP_CHILD, TreeArrays
from mtmc.rl.rewards import REWARDS, RewardName

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
"""What an action is worth that is not legal, or whose end nobody knows: as much as one that does not compile. The state
stays. A policy that minds the mask never meets it."""
BOUND = 64.0
"""Features are clipped to minus and plus this, so that a space can state its bounds."""


class TreeEnvironment(_Base):
    """One episode is a way down one tree, from its root.

    It ends with `STOP`, at a version from which nothing can be replayed, with a failure where `on_failure` is "end", and is
    cut off after `steps` steps.
    """

    metadata: Mapping[str, Any] = {"render_modes": []}
    render_mode: str | None = None

    def __init__(
        self,
        trees: Sequence[TreeArrays],
        reward: RewardName = "paper",
        decay: float = STEP_DECAY,
        steps: int = 10,
        on_failure: OnFailure = "stay",
        most_actions: int | None = None,
    ) -> None:
        """reward, decay: see `mtmc.rl.rewards`. on_failure: "stay" goes on from the version before, as searches do.
        most_actions: length of the action dimension; by default that of the widest version.

        Raises: ConfigError for no trees, a reward that does not exist, or fewer actions than a version has.
        """
        widest = max((tree.most_actions for tree in trees), default=0)
        if not trees or not widest:
            raise ConfigError(
                "an environment needs at least one tree with legal actions: record some with mtmc collect"
            )
        if reward not in REWARDS:
            raise ConfigError(f"there is no reward {reward!r}: use one of {', '.join(REWARDS)}")
        if most_actions is not None and most_actions < widest:
            raise ConfigError(f"most_actions cannot be {most_actions}: a version has {widest}")
        self._trees = list(trees)
        self._reward: RewardName = reward
        self._decay, self._steps, self._stays = decay, steps, on_failure == "stay"
        self._width = most_actions or widest
        self._rng = np.random.default_rng(0)
        self._tree, self._node, self._step, self._best_ms = self._trees[0], 0, 0, 0.0
        self.observation_space, self.action_space = _spaces(self._width)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """Start at the root of a tree that is drawn, or of number options["tree"]."""
        if _Base is not object:
            super().reset(seed=seed)  # type: ignore[misc]
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        number = (options or {}).get("tree")
        self._tree = self._trees[int(self._rng.integers(len(self._trees))) if number is None else number]
        self._node, self._step = 0, 0
        self._best_ms = float(self._tree.runtime_ms[0])
        return self._observed(), self._info(masked=False)

    def step(self, action: int) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        """Take a legal action by its position. See `MASKED` for any other."""
        tree, self._step = self._tree, self._step + 1
        first, last = int(tree.start[self._node]), int(tree.start[self._node + 1])
        edge = first + int(action)
        cut_off = self._step >= self._steps
        if not first <= edge < last or not tree.mask[edge]:
            return self._observed(), MASKED - self._decay * self._step, False, cut_off, self._info(masked=True)
        child = int(tree.children[edge])
        if child == STOP_CHILD:
            return self._observed(), 0.0, True, False, self._info(masked=False)
        reward = self._worth(edge, child) - self._decay * self._step
        ended = not tree.ok[child] and not self._stays
        if tree.ok[child] or ended:
            self._node = child
        if tree.ok[child]:
            self._best_ms = min(self._best_ms, float(tree.runtime_ms[child]))
        at, end = tree.start[self._node], tree.start[self._node + 1]
        ended = ended or not tree.mask[at:end].any()
        return self._observed(), reward, ended, cut_off and not ended, self._info(masked=False)

    def close(self) -> None:
        """Nothing to end."""

    def _worth(self, edge: int, child: int) -> float:
        """The reward of a step but for its decay."""
        if self._reward == "progress":
            runtime = self._tree.runtime_ms[child]
            return max(0.0, float(np.log2(self._best_ms / runtime))) if self._tree.ok[child] else 0.0
        return float(self._tree.rewards[self._reward][edge])

    def _observed(self) -> Observed:
        tree, node = self._tree, self._node
        first, last = tree.start[node], tree.start[node + 1]
        actions = np.zeros((self._width, len(ACTION_NAMES)), np.float32)
        mask = np.zeros(self._width, np.int8)
        actions[: last - first] = np.clip(tree.actions[first:last], -BOUND, BOUND)
        mask[: last - first] = tree.mask[first:last]
        return {"observation": np.clip(tree.observations[node], -BOUND, BOUND), "actions": actions, "mask": mask}

    def _info(self, masked: bool) -> dict[str, Any]:
        """tree: name of the task. node: where the episode stands. speedup: of that version, and best_speedup: of the best
        so far, over the root. masked: whether the action could not be taken."""
        tree = self._tree
        root = float(tree.runtime_ms[0])
        speedup = root / float(tree.runtime_ms[self._node]) if tree.ok[self._node] else 0.0
        best = root / self._best_ms
        return {"tree": tree.tree.name, "node": self._node, "speedup": speedup, "best_speedup": best, "masked": masked}


def _spaces(width: int) -> tuple[Any, Any]:
    """The spaces, or (None, None) where Gymnasium is not installed."""
    try:
        from gymnasium import spaces
    except ImportError:
        return None, None
    observation = {
        "observation": spaces.Box(-BOUND, BOUND, (len(OBSERVATION_NAMES),), np.float32),
        "actions": spaces.Box(-BOUND, BOUND, (width, len(ACTION_NAMES)), np.float32),
        "mask": spaces.MultiBinary(width),
    }
    return spaces.Dict(observation), spaces.Discrete(width)
