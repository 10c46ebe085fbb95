"""expand: the strategy that grows trees to learn from, wide rather than high: every trial is drawn, none is repeated.

Three kinds of trials, drawn by their shares:

- *blind*: any right version, any of its actions that was not tried.
- *complete*: a version on the way to the best one so far: what else could have been done there. A tree in which only good
  actions were tried would teach that all actions are good, and a search replayed on it could not fail.
- the others follow what is known: versions by their value, actions by the policy's prior. They find the good lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mtmc.search.strategies.base import Edge, StrategyNode, TreeState, TreeStrategy
from mtmc.search.strategies.common import check_setting, derived_random
from mtmc.tree import ROOT_ID


@dataclass
class ExpandState(TreeState[StrategyNode]):
    """What was tried. eligible: ids of versions with actions that were not tried, in order of their coming. best: id of the
    version with the greatest value so far."""

    eligible: dict[int, None] = field(default_factory=dict)
    best: int = ROOT_ID


@dataclass(frozen=True)
class Expand(TreeStrategy[ExpandState]):
    """Settings of the expansion.

    blind, complete: shares of these trials. focus: of the trials that follow what is known: how many doublings of a
    version's chance a doubling of its speed is worth.
    """

    blind: float = 0.2
    complete: float = 0.4
    focus: float = 6.0
    state_type = ExpandState

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        for name in ("blind", "complete"):
            share = getattr(self, name)
            check_setting(0 <= share <= 1, name, share, "use a number from 0 to 1")
        both = self.blind + self.complete
        check_setting(both <= 1, "blind + complete", both, "use shares that sum to 1 at most")
        check_setting(self.focus >= 0, "focus", self.focus, "use 0 or more")

    def added(self, state: ExpandState, node: StrategyNode) -> None:
        """Something may be tried there."""
        if node.value > state.nodes[state.best].value:
            state.best = node.id
        if node.untried:
            state.eligible[node.id] = None

    def next_edge(self, state: ExpandState) -> Edge | None:
        """An edge that was not tried; None where no more are left. The seed decides every draw."""
        if not state.eligible:
            return None
        node, index = self._draw(state)
        if node.untried == [index]:
            del state.eligible[node.id]
        return node.id, index

    def _draw(self, state: ExpandState) -> tuple[StrategyNode, int]:
        """The next edge. There is at least one eligible version."""
        rng = derived_random(state.seed, "expand", state.asked)
        kind = rng.random()
        ids = list(state.eligible)
        if kind < self.blind:
            node = state.nodes[rng.choice(ids)]
            return node, rng.choice(sorted(node.untried))
        if kind < self.blind + self.complete:
            incomplete = [each for each in _line(state, state.best) if each in state.eligible]
            if incomplete:
                node = state.nodes[rng.choice(incomplete)]
                return node, rng.choice(sorted(node.untried))
        best = max(state.nodes[each].value for each in ids)
        # A version that was often gone on from gives way to others of its kind.
        weights = [
            math.pow(2.0, self.focus * (state.nodes[each].value - best)) / (1 + state.nodes[each].tried) for each in ids
        ]
        node = state.nodes[rng.choices(ids, weights)[0]]
        untried = sorted(node.untried)
        return node, rng.choices(untried, [node.priors[index] for index in untried])[0]


def _line(state: ExpandState, node_id: int) -> list[int]:
    """The versions from the root to `node_id`."""
    line = [node_id]
    while line[-1] != ROOT_ID:
        line.append(state.nodes[line[-1]].parent_id)
    return line[::-1]
