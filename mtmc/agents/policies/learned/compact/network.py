"""network: the compact policy's network, in numpy. `mtmc.rl.train.compact_scorer` trains the same one in torch.

    s = clip((observation - mean) / spread)         a = clip((action - mean) / spread)
    h = relu(S s + A a + b)        g = relu(H h + c)
    logit = w g + k * heuristic's opinion           value = v relu(V s + d) + e

Features have names, and the network keeps those that it learned from: a feature that it does not know is left out, one that
it knows and that is not there is 0. `heuristic's opinion` is that feature of an action as it is; with w = 0 and k = 1,
before training, the policy is the heuristic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtmc.agents.policies.learned.features import HEURISTIC
from mtmc.agents.policies.learned.vectors import matrix
from mtmc.errors import RunError

Features = Mapping[str, float]
Floats = NDArray[np.float32]
FORMAT = "mtmc compact policy"
CLIP = 5.0
"""Standardized features are clipped to minus and plus this."""
AT_ONCE = 8
"""Actions whose products are made together, see `_product`."""
ARRAYS = (
    *("state_mean", "state_spread", "action_mean", "action_spread"),
    *("state_in", "action_in", "bias_in", "hidden", "bias_hidden", "out", "opinion"),
    *("value_in", "value_bias_in", "value_out", "value_bias"),
)
"""Names of the weights. A matrix is [outputs, inputs]."""


@dataclass(frozen=True, eq=False)
class Network:
    """The weights by name, see `ARRAYS`, float32. state_names, action_names: of the features, in the weights' order."""

    weights: Mapping[str, Floats]
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of trained weights."""
        fixed = ("mean", "spread")
        return sum(each.size for name, each in self.weights.items() if not name.endswith(fixed))

    def logits(self, observation: Features, actions: Sequence[Features]) -> Floats:
        """Of the actions on one version, [actions]."""
        w, rows = self.weights, matrix(actions, self.action_names)
        state = standardized(matrix([observation], self.state_names)[0], w["state_mean"], w["state_spread"])
        action = standardized(rows, w["action_mean"], w["action_spread"])
        hidden = np.maximum(_product(action, w["action_in"]) + (w["state_in"] @ state + w["bias_in"]), 0.0)
        deeper = np.maximum(_product(hidden, w["hidden"]) + w["bias_hidden"], 0.0)
        scored: Floats = deeper @ w["out"] + w["opinion"] * rows[:, self.action_names.index(HEURISTIC)]
        return scored

    def value(self, observation: Features) -> float:
        """What is still to be gained from a version, as the training's reward counts it."""
        w = self.weights
        state = standardized(matrix([observation], self.state_names)[0], w["state_mean"], w["state_spread"])
        hidden = np.maximum(w["value_in"] @ state + w["value_bias_in"], 0.0)
        return float(w["value_out"] @ hidden + w["value_bias"])


def _product(rows: Floats, matrix: Floats) -> Floats:
    """rows @ matrix.T, a few rows at a time: for more, numpy's library starts threads, which on a busy machine take 10 ms to
    meet again for 0.1 ms of work. rows: [rows, inputs]. matrix: [outputs, inputs]."""
    parts = [rows[at : at + AT_ONCE] @ matrix.T for at in range(0, len(rows), AT_ONCE)]
    return np.concatenate(parts) if parts else np.zeros((0, len(matrix)), np.float32)


def standardized(features: Floats, mean: Floats, spread: Floats) -> Floats:
    """Features with the training trees' mean 0 and spread 1, clipped."""
    scaled: Floats = np.clip((features - mean) / spread, -CLIP, CLIP)
    return scaled


def write_network(network: Network, path: Path, about: Mapping[str, Any]) -> None:
    """Write weights as .npz. about: plain data to keep with them. Raises: OSError where that cannot be done."""
    names = {"state_names": network.state_names, "action_names": network.action_names}
    facts = {"format": FORMAT, **names, **about}
    arrays: dict[str, Any] = {name: network.weights[name] for name in ARRAYS}
    with path.open("wb") as file:
        np.savez_compressed(file, about=np.asarray(json.dumps(facts, sort_keys=True)), **arrays)


def read_network(path: Path) -> Network:
    """Read weights. Raises: RunError where there are none, or they do not tell the names of their features."""
    if not path.is_file():
        raise RunError(
            f"there are no weights of the compact policy at {path}: train them with mtmc train policy=compact, "
            "or use policy=heuristic"
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            facts = json.loads(str(file["about"]))
            weights = {name: np.asarray(file[name], np.float32) for name in ARRAYS}
        states, actions = tuple(facts["state_names"]), tuple(facts["action_names"])
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{path} holds no weights of the compact policy ({error}): train them again") from error
    shapes = weights["state_in"].shape[1], weights["action_in"].shape[1]
    if shapes != (len(states), len(actions)) or HEURISTIC not in actions:
        raise RunError(
            f"the weights in {path} take {shapes[0]} and {shapes[1]} features, but name {len(states)} and {len(actions)}: "
            "train them again"
        )
    return Network(weights, states, actions)
