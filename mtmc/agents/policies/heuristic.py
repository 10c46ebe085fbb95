"""Policies that ask nobody: `Uniform` knows nothing, `Heuristic` is what an expert would try first, from the actions and the
roofline position. Both are pure functions of the observation; neither loads torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.action import STOP_KIND, Action
from mtmc.agents.policies.mixing import check_experience, experienced
from mtmc.errors import ConfigError
from mtmc.protocols import Observation, Policy

_KIND_WEIGHT = {
    "simplify": 3.0,
    "fuse": 3.0,
    "lower": 1.0,
    "precision": 2.5,
    "tile": 1.2,
    "pipeline": 1.0,
    "reorder": 0.3,
    "vectorize": 0.5,
    "split": 0.4,
    "persist": 0.3,
    "descriptors": 0.5,
    "layout": 3.0,
    "capture": 0.3,
    STOP_KIND: 0.2,
}
"""How promising a kind is before anything is known of the version; logits are natural logarithms of these."""

_NEAR_ROOF = 0.85
"""Fraction of the roofline from which on stopping is the best thing to do."""

_WELL_FILLED = 0.8
"""Part of the places for programs that have one, all waves together, below which the last tiles are worth sharing."""

_TOO_EARLY = -1.5
"""For channels last before what stands behind the convolutions is fused: torch's calls take that order, but slowly."""

_LAUNCH_MS, _LAUNCHING = 3.5e-3, 0.2
"""What a launch costs, and the part of a runtime made of it from which on one CUDA graph, which halves that, is worth
trying."""


@dataclass(frozen=True)
class Uniform(Policy):
    """Every legal action is as likely as any other."""

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """1 / n each."""
        return [1.0 / len(actions)] * len(actions)


@dataclass(frozen=True)
class Heuristic(Policy):
    """What an expert would try first.

    Fusion while there is something to fuse; three TF32 products for an fp32 product; channels last around the library's
    convolutions once what stands behind them is fused; then tiles that fill the chip, then pipelining; splitting only where
    there are too few programs, sharing the last tiles where they leave the chip half empty; a CUDA graph where launches
    are a good part of the time; stop near the roofline.

    temperature: of the softmax over the logits; 1 as they are, larger is flatter. experience: how much it counts what an
    action has gained on other versions of the run, 0 for nothing, see `mixing.experienced`.
    """

    temperature: float = 1.0
    experience: float = 4.0

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigError(
                f"temperature is {self.temperature}; it must be above 0 (1 leaves the priors as they are)"
            )
        check_experience("heuristic", self.experience)

    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        """Softmax of the actions' logits; actions of one kind on one region share that kind's weight."""
        counts: dict[tuple[str, str], int] = {}
        for action in actions:
            group = (action.kind, action.region.name)
            counts[group] = counts.get(group, 0) + 1
        known = experienced(observation, actions, self.experience)
        early = _is_early(actions)
        logits = [
            (_logit(observation, action, early) - math.log(counts[(action.kind, action.region.name)]) + more)
            / self.temperature
            for action, more in zip(actions, known, strict=True)
        ]
        top = max(logits)
        weights = [math.exp(logit - top) for logit in logits]
        total = sum(weights)
        return [weight / total for weight in weights]


def _is_early(actions: Sequence[Action]) -> bool:
    """Whether there is still something to fuse behind the library's convolutions, which pays whatever their layout."""
    return any(action.kind == "fuse" and "conv" not in action.region.name for action in actions)


def _logit(observation: Observation, action: Action, early: bool) -> float:
    logit = math.log(_KIND_WEIGHT.get(action.kind, 0.5))
    metrics = observation.outcome.metrics
    if action.kind == "layout" and early:
        return logit + _TOO_EARLY
    if action.kind == STOP_KIND:
        return logit + (3.0 if metrics.get("roofline", 0.0) >= _NEAR_ROOF else 0.0)
    if any(step.action.key == action.key for step in observation.history):
        logit -= 2.0  # going back and forth between two settings gains nothing
    if "saved" in dict(action.params):  # kernels that a fusion of whole groups saves: each is a fusion of two
        logit += math.log(int(action.param("saved")))
    if action.kind == "capture":
        launching = int(dict(action.params)["launches"]) * _LAUNCH_MS
        return logit + (3.0 if launching >= _LAUNCHING * (observation.outcome.runtime_ms or math.inf) else -2.0)
    return logit + _fit(action, metrics.get("programs"))


def _fit(action: Action, programs: float | None) -> float:
    """How well an action's numbers suit what is known of good kernels (natural logarithm of a factor)."""
    params = dict(action.params)
    if action.kind == "precision":
        return {"tf32": 1.5, "tf32x3": 1.0}.get(str(params.get("precision")), -3.0)
    if action.kind == "tile" and "block_k" in params:  # a product's, not those of rows or attention
        return _TILE_FIT.get(tuple(int(params[name]) for name in ("block_m", "block_n", "block_k")), -1.0)
    if action.kind == "pipeline":
        return {2: -1.0, 3: 0.7, 4: 0.5, 5: -0.7}.get(int(params["num_stages"]), 0.0)
    if action.kind == "split":
        few = programs is not None and programs < 264
        return 2.0 if few else -1.5
    if action.kind == "persist" and programs and int(params["stream_k"]):
        waves = programs / int(params["stream_k"])
        return 1.5 if waves / math.ceil(waves) < _WELL_FILLED else -1.0
    if action.kind == "vectorize" and "num_warps" in params:
        return {4: 0.3, 8: 0.3}.get(int(params["num_warps"]), -0.5)
    return 0.0


_TILE_FIT: dict[tuple[int, ...], float] = {
    (128, 128, 32): 1.2,
    (128, 64, 32): 1.2,
    (64, 128, 32): 0.6,
    (128, 256, 32): 0.3,
    (256, 128, 32): 0.3,
    (64, 64, 64): 0.3,
    (128, 128, 64): 0.2,
}
"""Tiles of a product that did well on H100-class GPUs (see results/), as logit."""
