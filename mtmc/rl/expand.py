"""expand: the strategy that grows trees to learn from, wide rather than high: every trial is drawn, none is repeated.

Three kinds of trials, drawn by their shares:

- *blind*: any right version, any of its actions that was not tried.
- *complete*: a version on the way to the best one so far: what else could have been done there. A tree in which only good
  actions were tried would teach that all actions are good, and a search replayed on it could not fail.
- the others follow what is known: versions by their value, actions by the policy's prior. They find the good lines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtmc.errors import RunError
from mtmc.protocols import Strategy, Trial
from mtmc.search.strategies.common import Flights, check_setting, derived_random
from mtmc.tree import ROOT_ID


@dataclass
class _Node:
    parent_id: int
    value: float
    priors: tuple[float, ...]
    open: list[int]
    """Actions that were not tried."""
    prior: float = 1.0
    tried: int = 0


@dataclass
class ExpandState:
    """What was tried. eligible: ids of versions with actions that were not tried, in order of their coming. best: id of the
    version with the greatest value so far."""

    seed: int
    nodes: dict[int, _Node] = field(default_factory=dict)
    eligible: dict[int, None] = field(default_factory=dict)
    linked: set[int] = field(default_factory=lambda: {ROOT_ID})
    best: int = ROOT_ID
    flights: Flights = field(default_factory=Flights)


@dataclass(frozen=True)
class Expand(Strategy):
    """Settings of the expansion.

    blind, complete: shares of these trials. focus: of the trials that follow what is known: how many doublings of a
    version's chance a doubling of its speed is worth.
    """

    blind: float = 0.2
    complete: float = 0.4
    focus: float = 6.0

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        for name in ("blind", "complete"):
            share = getattr(self, name)
            check_setting(0 <= share <= 1, name, share, "use a number from 0 to 1")
        both = self.blind + self.complete
        check_setting(both <= 1, "blind + complete", both, "use shares that sum to 1 at most")
        check_setting(self.focus >= 0, "focus", self.focus, "use 0 or more")

    def start(self, seed: int, deterministic: bool = True) -> ExpandState:
        """The state before the root is known. `seed` decides every draw."""
        return ExpandState(seed)

    def add_node(
        self,
        state: ExpandState,
        node_id: int,
        parent_id: int,
        priors: Sequence[float],
        value: float,
        stop_index: int | None = None,
    ) -> ExpandState:
        """Make a node known, see `protocols.Strategy.add_node`."""
        if node_id not in state.nodes:
            actions = [index for index in range(len(priors)) if index != stop_index]
            state.nodes[node_id] = _Node(parent_id, value, tuple(priors), actions)
            if value > state.nodes[state.best].value:
                state.best = node_id
            if actions:
                state.eligible[node_id] = None
        return state

    def ask(self, state: ExpandState, n: int) -> tuple[list[Trial], ExpandState]:
        """Up to `n` edges that were not tried; fewer where no more are left."""
        if ROOT_ID not in state.nodes:
            raise RunError("expand was asked before its root was known: call add_node for the root first")
        trials: list[Trial] = []
        while len(trials) < n and state.eligible:
            node_id, index = self._draw(state)
            node = state.nodes[node_id]
            node.open.remove(index)
            node.tried += 1
            if not node.open:
                del state.eligible[node_id]
            trials.append(state.flights.start(node_id, index))
        return trials, state

    def _draw(self, state: ExpandState) -> tuple[int, int]:
        """The next edge. There is at least one eligible version."""
        rng = derived_random(state.seed, "expand", state.flights.asked)
        kind = rng.random()
        ids = list(state.eligible)
        if kind < self.blind:
            node_id = rng.choice(ids)
            return node_id, rng.choice(state.nodes[node_id].open)
        if kind < self.blind + self.complete:
            incomplete = [each for each in _line(state, state.best) if each in state.eligible]
            if incomplete:
                node_id = rng.choice(incomplete)
                return node_id, rng.choice(state.nodes[node_id].open)
        best = max(state.nodes[each].value for each in ids)
        # A version that was often gone on from gives way to others of its kind.
        weights = [
            math.pow(2.0, self.focus * (state.nodes[each].value - best)) / (1 + state.nodes[each].tried) for each in ids
        ]
        node_id = rng.choices(ids, weights)[0]
        node = state.nodes[node_id]
        return node_id, rng.choices(node.open, [node.priors[index] for index in node.open])[0]

    def tell(self, state: ExpandState, trial_id: int, child_id: int | None, value: float) -> ExpandState:
        """The end of a trial; its edge was closed when it was asked."""
        trial = state.flights.land(trial_id)
        if trial is not None and child_id is not None and child_id not in state.linked:
            state.linked.add(child_id)
            state.nodes[child_id].prior = state.nodes[trial.node_id].priors[trial.action_index]
        return state

    def annotations(self, state: ExpandState) -> Mapping[int, Mapping[str, float]]:
        """Per node: `visits` (trials from it), `value`, `prior` of the action that led to it."""
        return {
            node_id: {"visits": float(node.tried), "value": node.value, "prior": node.prior}
            for node_id, node in sorted(state.nodes.items())
        }


def _line(state: ExpandState, node_id: int) -> list[int]:
    """The versions from the root to `node_id`."""
    line = [node_id]
    while line[-1] != ROOT_ID:
        line.append(state.nodes[line[-1]].parent_id)
    return line[::-1]
