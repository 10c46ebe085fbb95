"""scorer: the compact network in torch, as the training wants it (`mtmc.rl.scorer.Scorer`)."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from mtmc.agents.policies.learned.compact.network import ARRAYS, CLIP, Floats, Network, write_network
from mtmc.errors import ConfigError, RunError
from mtmc.rl.forest import Batch, Forest
from mtmc.rl.scorer import Scorer, Scores
from mtmc.rl.train.card import CARD

FILE = "weights.npz"
_LEAST_SPREAD = 1e-3
"""A feature that never changes is left at 0."""


@dataclass(frozen=True)
class CompactSettings:
    """The network. hidden: width of its two layers. value_hidden: width of the value's layer."""

    hidden: int = 128
    value_hidden: int = 64

    def __post_init__(self) -> None:
        """Raises: ConfigError for a width that cannot be."""
        for name in ("hidden", "value_hidden"):
            if not 1 <= getattr(self, name) <= 512:
                raise ConfigError(f"policy.{name} cannot be {getattr(self, name)}: use 1 to 512")

    def open(self, forest: Forest, seed: int) -> CompactScorer:
        """A network that is the heuristic before it is trained, see `mtmc.rl.scorer.ScorerSettings`."""
        generator = torch.Generator().manual_seed(seed)
        return CompactScorer(_Net(_initial(self, forest, generator)), forest.state_names, forest.action_names)


class _Net(nn.Module):
    """`mtmc.agents.policies.learned.compact.network.Network` with gradients."""

    def __init__(self, arrays: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        for name in ARRAYS:
            if name.endswith(("mean", "spread")):
                self.register_buffer(name, arrays[name])
            else:
                self.register_parameter(name, nn.Parameter(arrays[name]))

    def forward(self, batch: Batch) -> Scores:
        w: dict[str, Any] = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        observations, actions = torch.from_numpy(batch.observations), torch.from_numpy(batch.actions)
        state = ((observations - w["state_mean"]) / w["state_spread"]).clamp(-CLIP, CLIP)
        action = ((actions - w["action_mean"]) / w["action_spread"]).clamp(-CLIP, CLIP)
        by_state = state @ w["state_in"].T + w["bias_in"]
        hidden = (action @ w["action_in"].T + by_state[torch.from_numpy(batch.state_of)]).relu()
        deeper = (hidden @ w["hidden"].T + w["bias_hidden"]).relu()
        logits = deeper @ w["out"] + w["opinion"] * torch.from_numpy(batch.opinions)
        values = (state @ w["value_in"].T + w["value_bias_in"]).relu() @ w["value_out"] + w["value_bias"]
        return Scores(logits, values)


class CompactScorer(Scorer):
    """See `mtmc.rl.scorer.Scorer`. The reference is a copy of the network as it was when it was to be kept."""

    device = torch.device("cpu")
    states_at_once = 0
    anchored = True
    threads = 1
    """Its matrices are so small that more threads cost more than they gain, 50 times as much on a busy machine."""

    def __init__(self, net: _Net, state_names: tuple[str, ...], action_names: tuple[str, ...]) -> None:
        self._net, self._state_names, self._action_names = net, state_names, action_names
        self._reference: _Net | None = None

    @property
    def network(self) -> Network:
        """The network as it is now, in numpy."""
        found: dict[str, Floats] = {
            name: tensor.detach().numpy().astype(np.float32) for name, tensor in self._net.state_dict().items()
        }
        return Network(found, self._state_names, self._action_names)

    def score(self, batch: Batch) -> Scores:
        """See `Scorer`."""
        scores: Scores = self._net(batch)
        return scores

    def reference(self, batch: Batch) -> torch.Tensor:
        """See `Scorer`; the network itself where none was kept."""
        with torch.no_grad():
            scores: Scores = (self._reference or self._net)(batch)
        return scores.logits

    def keep_reference(self) -> None:
        """See `Scorer`."""
        self._reference = copy.deepcopy(self._net).requires_grad_(False)

    def groups(self, lr: float) -> list[dict[str, Any]]:
        """See `Scorer`."""
        return [{"params": list(self._net.parameters()), "lr": lr}]

    def state_dict(self) -> dict[str, Any]:
        """See `Scorer`."""
        reference = None if self._reference is None else copy.deepcopy(self._reference.state_dict())
        names = [*self._state_names, *self._action_names]
        return {"net": copy.deepcopy(self._net.state_dict()), "reference": reference, "names": names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Scorer`. Raises: RunError for the state of a network with other features."""
        if state.get("names") != [*self._state_names, *self._action_names]:
            raise RunError("this training began with other features than there are now: choose another out=")
        self._net.load_state_dict(state["net"])
        self._reference = None
        if state["reference"] is not None:
            self.keep_reference()
            assert self._reference is not None
            self._reference.load_state_dict(state["reference"])

    def export(self, folder: Path, card: str) -> list[Path]:
        """See `Scorer`. Raises: OSError where a file cannot be written."""
        network = self.network
        write_network(network, folder / FILE, {"weights": network.size})
        more = f"\nA network of {network.size} weights over {len(self._state_names)} features of a version and "
        more += f"{len(self._action_names)} of each action.\n"
        (folder / CARD).write_text(card + more, encoding="utf-8")
        return [folder / FILE, folder / CARD]


def _initial(settings: CompactSettings, forest: Forest, generator: torch.Generator) -> dict[str, torch.Tensor]:
    states, actions = len(forest.state_names), len(forest.action_names)
    hidden, value = settings.hidden, settings.value_hidden

    def drawn(outputs: int, inputs: int, whole: int) -> torch.Tensor:
        return torch.randn(outputs, inputs, generator=generator) * math.sqrt(2.0 / whole)

    seen = forest.observations[forest.ok]
    return {
        **_scaling("state", seen),
        **_scaling("action", forest.actions),
        "state_in": drawn(hidden, states, states + actions) * _changing(seen),
        "action_in": drawn(hidden, actions, states + actions) * _changing(forest.actions),
        "bias_in": torch.zeros(hidden),
        "hidden": drawn(hidden, hidden, hidden),
        "bias_hidden": torch.zeros(hidden),
        "out": torch.zeros(hidden),
        "opinion": torch.ones(()),
        "value_in": drawn(value, states, states) * _changing(seen),
        "value_bias_in": torch.zeros(value),
        "value_out": torch.zeros(value),
        "value_bias": torch.zeros(()),
    }


def _changing(features: Floats) -> torch.Tensor:
    """1 for each feature that changes in the training data, 0 for the others: nothing can be learned of what they do, so
    their weights are 0 (and stay so: they are standardized to 0)."""
    return torch.from_numpy(features.std(axis=0, dtype=np.float64) >= _LEAST_SPREAD).float()


def _scaling(name: str, features: Floats) -> dict[str, torch.Tensor]:
    spread = features.std(axis=0, dtype=np.float64)
    spread = np.where(spread < _LEAST_SPREAD, 1.0, spread)
    mean = features.mean(axis=0, dtype=np.float64)
    return {f"{name}_mean": torch.from_numpy(mean).float(), f"{name}_spread": torch.from_numpy(spread).float()}
