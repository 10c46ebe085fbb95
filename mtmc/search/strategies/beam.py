"""beam: the best versions of each depth and no others, level by level.

Beam search (Lowerre 1976): the likeliest actions of the versions in the beam are tried, and the best new versions that
come of them are the next beam. Where a level leads nowhere, the best versions of the whole tree with an untried action are
the next beam, so that a budget is used up (as in beam-stack search, Zhou and Hansen 2005).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mtmc.protocols import Trial
from mtmc.search.strategies.base import Edge, StrategyNode, TreeState, TreeStrategy
from mtmc.search.strategies.common import check_setting
from mtmc.tree import ROOT_ID


@dataclass
class BeamState(TreeState[StrategyNode]):
    """beam: ids of the versions that are gone on from, best first. made: ids of the new versions that came of them.
    tries: trials begun from each version of the beam at this level."""

    beam: list[int] = field(default_factory=lambda: [ROOT_ID])
    made: list[int] = field(default_factory=list)
    tries: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Beam(TreeStrategy[BeamState]):
    """Settings of the beam.

    width: versions in the beam. branch: actions tried from each of them at one level.
    """

    width: int = 2
    branch: int = 3
    state_type = BeamState

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting below 1."""
        check_setting(self.width >= 1, "beam.width", self.width, "use 1 or more")
        check_setting(self.branch >= 1, "beam.branch", self.branch, "use 1 or more")

    def next_edge(self, state: BeamState) -> Edge | None:
        """The likeliest untried action of the version that had the fewest tries; None while a level is in flight."""
        edge = self._within(state)
        if edge is None and not state.in_flight:
            state.beam = self._best(state, state.made) or self._best(state, state.nodes)
            state.made.clear()
            state.tries.clear()
            edge = self._within(state)
        return edge

    def ended(self, state: BeamState, trial: Trial, child_id: int | None, new: bool) -> None:
        """A new version may be of the next beam."""
        if child_id is not None and new:
            state.made.append(child_id)

    def _within(self, state: BeamState) -> Edge | None:
        due = [each for each in state.beam if state.tries[each] < self.branch and state.nodes[each].untried]
        if not due:
            return None
        node_id = min(due, key=lambda each: state.tries[each])
        state.tries[node_id] += 1
        return node_id, state.nodes[node_id].untried[0]

    def _best(self, state: BeamState, ids: Iterable[int]) -> list[int]:
        """The best of some versions with untried actions, of equals the older."""
        open_ids = [each for each in ids if state.nodes[each].untried]
        return sorted(open_ids, key=lambda each: (-state.nodes[each].value, each))[: self.width]
