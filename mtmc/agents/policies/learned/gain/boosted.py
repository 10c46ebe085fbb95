"""boosted: an ensemble of boosted regression trees, in numpy, and its file. `mtmc.rl.gain.fit` grows it.

    mean(x)   = mean over the members m of (base_m + sum over the trees t of m of leaf_t(x))
    spread(x) = max(0, base + sum over the trees t of the spread's member of leaf_t(x)) * sqrt(pi / 2)

The spread's member learned how far off predictions are for tasks that were not learned from, |y - mean(x)|; the standard
deviation of a normal distribution is sqrt(pi / 2) times its mean deviation.

A tree of depth D has 2^D - 1 inner nodes, in the order of a heap: from node i a sample goes on to 2 i + 2 where its feature
is above the threshold, else to 2 i + 1. A node that splits nothing has the threshold +inf.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtmc.errors import RunError

Floats = NDArray[np.float32]
FORMAT = "mtmc predicted gain"
NORMAL = math.sqrt(math.pi / 2)
ARRAYS = ("feature", "threshold", "leaf", "member", "base")


@dataclass(frozen=True, eq=False)
class Boosted:
    """Members of boosted trees; the last one is the spread's.

    feature: [trees, inner nodes], which feature is compared, int16. threshold: the same shape, float32. leaf: [trees, 2^D],
    float32, what a leaf adds. member: [trees], whose tree it is. base: [members], where each begins. state_names,
    action_names: of the features, those of the version first.
    """

    feature: NDArray[np.int16]
    threshold: Floats
    leaf: Floats
    member: NDArray[np.int16]
    base: Floats
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]

    @property
    def trees(self) -> int:
        """How many trees it has in all."""
        return len(self.feature)

    def members(self, rows: Floats) -> Floats:
        """What each member says, [rows, members]. rows: features in the order of the names, [rows, features]."""
        depth = int(self.leaf.shape[1]).bit_length() - 1
        every = np.arange(self.trees)
        at = np.zeros((len(rows), self.trees), np.intp)
        sample = np.arange(len(rows))[:, None]
        for _ in range(depth):
            above = rows[sample, self.feature[every, at]] > self.threshold[every, at]
            at = 2 * at + 1 + above
        added = self.leaf[every, at - self.feature.shape[1]]
        starts = np.searchsorted(self.member, np.arange(len(self.base)))
        found: Floats = np.add.reduceat(added, starts, axis=1) + self.base
        return found

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean and spread (a standard deviation) of each row, [rows] both."""
        said = self.members(rows)
        mean: Floats = said[:, :-1].mean(axis=1)
        spread: Floats = (np.maximum(said[:, -1], 0.0) * NORMAL).astype(np.float32)
        return mean, spread


def write_boosted(model: Boosted, path: Path, about: Mapping[str, Any]) -> None:
    """Write a model as .npz. about: plain data to keep with it. Raises: OSError where that cannot be done."""
    names = {"state_names": model.state_names, "action_names": model.action_names}
    facts = {"format": FORMAT, **names, **about}
    arrays: dict[str, Any] = {name: getattr(model, name) for name in ARRAYS}
    with path.open("wb") as file:
        np.savez_compressed(file, about=np.asarray(json.dumps(facts, sort_keys=True)), **arrays)


def read_boosted(path: Path) -> Boosted:
    """Read a model. Raises: RunError where there is none, or its arrays do not fit each other."""
    if not path.is_file():
        raise RunError(f"there is no model of gains at {path}: train one with mtmc train gain=boosted, or use trained")
    try:
        with np.load(path, allow_pickle=False) as file:
            facts = json.loads(str(file["about"]))
            if facts["format"] != FORMAT:
                raise ValueError(f"its format is {facts['format']!r}")
            arrays = {name: file[name] for name in ARRAYS}
        model = Boosted(**arrays, state_names=tuple(facts["state_names"]), action_names=tuple(facts["action_names"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} holds no model of gains ({error}): train it again") from error
    problem = _problem(model)
    if problem:
        raise RunError(f"the model of gains in {path} {problem}: train it again")
    return model


def _problem(model: Boosted) -> str:
    """What does not fit in a model that was read, "" for nothing."""
    trees, inner = model.feature.shape if model.feature.ndim == 2 else (0, 0)
    if not trees or model.threshold.shape != (trees, inner) or model.leaf.shape != (trees, inner + 1):
        return "has arrays of shapes that make no trees"
    if inner & (inner + 1):
        return f"has trees of {inner} inner nodes"
    known = len(model.state_names) + len(model.action_names)
    if model.feature.min() < 0 or model.feature.max() >= known:
        return f"compares feature {int(model.feature.max())}, but names {known}"
    wanted = np.arange(len(model.base))
    if len(model.base) < 2 or not np.array_equal(np.unique(model.member), wanted) or np.any(np.diff(model.member) < 0):
        return f"has trees of other members than its {len(model.base)}"
    if not (np.isfinite(model.leaf).all() and np.isfinite(model.base).all()) or np.isnan(model.threshold).any():
        return "has leaves or thresholds that are no numbers"
    return ""
