"""model: what each legal action of a version is expected to gain, and how sure that is; milliseconds, without torch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from mtmc.action import STOP_KIND, Action
from mtmc.agents.policies.learned.edits import Children, children_of
from mtmc.agents.policies.learned.gain.boosted import Boosted, read_boosted
from mtmc.agents.policies.learned.gain.facts import gain_features
from mtmc.agents.policies.learned.graphs import GraphFacts
from mtmc.agents.policies.learned.vectors import matrix
from mtmc.errors import TaskError
from mtmc.protocols import Observation
from mtmc.rewrite.plan import plan_from_json

WEIGHTS = Path(__file__).parent / "weights.npz"
"""Those that come with mtmc; their model card stands beside them."""
TRAINED = "trained"
"""Name of these."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Expected:
    """What an action is expected to gain: log2 of the parent's over the child's runtime. spread: standard deviation of that
    for a task that was not learned from."""

    gain: float
    spread: float


NOTHING = Expected(0.0, 0.0)
"""Of `STOP`; and of an action of which nobody knows what it makes, as where a version is worth its own value."""


def load_gains(name: str) -> Boosted:
    """A model of gains, read once: `TRAINED`, or the path of a file. Raises: RunError as `read_boosted`."""
    return _read(WEIGHTS if name == TRAINED else Path(name).expanduser())


def expected(
    model: Boosted,
    observation: Observation,
    actions: Sequence[Action],
    graph: GraphFacts | None = None,
    children: Children | None = None,
) -> list[Expected] | None:
    """What each of the legal actions is expected to gain, same order; None of a version that has no plan of the rewriter's,
    or whose task does not export: what a model writes on its own is nothing that was learned from.

    graph, children: of a recorded tree; by default those of the live task.
    """
    if not _readable(observation.plan):
        return None
    children = children or children_of(observation)
    known = [at for at, action in enumerate(actions) if action.kind != STOP_KIND and children(action) is not None]
    found = [NOTHING] * len(actions)
    if not known:
        return found
    try:
        state, rows = gain_features(observation, actions, graph, children, known)
    except TaskError as error:
        _log.info("no gains are expected on task %s: %s", observation.task.name, error)
        return None
    mean, spread = model.predict(features_of(state, rows, model.state_names, model.action_names))
    for at, centre, width in zip(known, mean.tolist(), spread.tolist(), strict=True):
        found[at] = Expected(centre, width)
    return found


def _readable(plan: str | None) -> bool:
    """Whether it is a plan of the rewriter's: that of another coder may have any form."""
    try:
        return plan is not None and bool(plan_from_json(plan).stages)
    except (ValueError, KeyError, TypeError):
        return False


def features_of(
    state: dict[str, float],
    rows: Sequence[dict[str, float]],
    state_names: Sequence[str],
    action_names: Sequence[str],
) -> np.ndarray:
    """Features as a model takes them, [rows, features]: those of the version first, then those of each action."""
    of_version = np.broadcast_to(matrix([state], state_names), (len(rows), len(state_names)))
    return np.concatenate([of_version, matrix(rows, action_names)], axis=1)


@lru_cache(maxsize=8)
def _read(path: Path) -> Boosted:
    return read_boosted(path)
