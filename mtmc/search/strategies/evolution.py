"""evolution: islands of versions that breed apart, with a migrant now and then.

The island model (Tanese 1989; FunSearch and AlphaEvolve evolve programs so). Islands take turns. The parent is the winner
of a tournament among the island's best versions, an action drawn from the policy's prior is the mutation, and the child
lives on its parent's island. A version without an untried action makes room for the next best.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from mtmc.protocols import Trial
from mtmc.search.strategies.base import Edge, StrategyNode, TreeState, TreeStrategy
from mtmc.search.strategies.common import check_setting, derived_random
from mtmc.tree import ROOT_ID

Member = tuple[float, int]
"""(minus the value, node id): sorted, the best come first and of equals the older."""


@dataclass
class EvolutionState(TreeState[StrategyNode]):
    """islands: the versions of each, best first. homes: island of each trial in flight. told: trials that have ended."""

    islands: list[list[Member]] = field(default_factory=list)
    homes: dict[int, int] = field(default_factory=dict)
    told: int = 0


@dataclass(frozen=True)
class Evolution(TreeStrategy[EvolutionState]):
    """Settings of the evolution.

    islands: how many. population: versions of an island that may be parents, its best. tournament: how many of them are
    drawn for each trial; the best of those is the parent. migration: after so many trials the best version of each island
    also lives on the next one.
    """

    islands: int = 2
    population: int = 4
    tournament: int = 3
    migration: int = 8
    state_type = EvolutionState

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting below 1."""
        for name in ("islands", "population", "tournament", "migration"):
            check_setting(getattr(self, name) >= 1, f"evolution.{name}", getattr(self, name), "use 1 or more")

    def added(self, state: EvolutionState, node: StrategyNode) -> None:
        """The root is the first version of every island."""
        if node.id == ROOT_ID:
            state.islands = [[(-node.value, node.id)] for _ in range(self.islands)]

    def next_edge(self, state: EvolutionState) -> Edge | None:
        """The next island's turn, or that of the next one which has a version to go on from."""
        for turn in range(self.islands):
            home = (state.asked + turn) % self.islands
            members = _open_members(state, state.islands[home], self.population)
            if members:
                state.homes[state.asked] = home
                return self._mutation(state, members)
        return None

    def _mutation(self, state: EvolutionState, members: list[Member]) -> Edge:
        """A parent and one of its untried actions, as the seed draws them."""
        chance = derived_random(state.seed, "evolution", state.asked)
        _, parent_id = min(chance.choice(members) for _ in range(self.tournament))
        parent = state.nodes[parent_id]
        [index] = chance.choices(parent.untried, [parent.priors[each] for each in parent.untried])
        return parent_id, index

    def ended(self, state: EvolutionState, trial: Trial, child_id: int | None, new: bool) -> None:
        """A new version joins its parent's island; when it is time, the best of each island visit the next one."""
        home = state.homes.pop(trial.id)
        if child_id is not None and new:
            _join(state, home, child_id)
        state.told += 1
        if state.told % self.migration == 0:
            best = [_open_members(state, island, 1) for island in state.islands]
            for number, members in enumerate(best):
                for _, node_id in members:
                    _join(state, (number + 1) % self.islands, node_id)


def _open_members(state: EvolutionState, island: list[Member], count: int) -> list[Member]:
    """The best `count` versions of an island with an untried action; those without one among them leave it."""
    found: list[Member] = []
    while len(found) < count and len(found) < len(island):
        member = island[len(found)]
        if state.nodes[member[1]].untried:
            found.append(member)
        else:
            del island[len(found)]
    return found


def _join(state: EvolutionState, number: int, node_id: int) -> None:
    """Make a version one of an island's, once; one without actions has no place there."""
    node, island = state.nodes[node_id], state.islands[number]
    member = (-node.value, node_id)
    at = bisect.bisect_left(island, member)
    if node.untried and island[at : at + 1] != [member]:
        island.insert(at, member)
