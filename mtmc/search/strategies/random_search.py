"""random: any untried action of any version, all versions alike. What every other strategy must beat."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtmc.search.strategies.base import Edge, StrategyNode, TreeState, TreeStrategy
from mtmc.search.strategies.common import derived_random


@dataclass
class RandomState(TreeState[StrategyNode]):
    """open: ids of the versions with an untried action, in no order that means anything."""

    open: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Random(TreeStrategy[RandomState]):
    """It has no settings: the seed decides."""

    state_type = RandomState

    def added(self, state: RandomState, node: StrategyNode) -> None:
        """Something may be tried there."""
        if node.untried:
            state.open.append(node.id)

    def next_edge(self, state: RandomState) -> Edge | None:
        """A version drawn from the open ones, then one of its untried actions, both uniformly."""
        if not state.open:
            return None
        chance = derived_random(state.seed, "random", state.asked)
        at = chance.randrange(len(state.open))
        node = state.nodes[state.open[at]]
        index = chance.choice(node.untried)
        if len(node.untried) == 1:
            state.open[at] = state.open[-1]
            state.open.pop()
        return node.id, index
