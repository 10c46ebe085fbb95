"""best_first: the most promising action of the whole tree, whichever version it starts from.

    score(s,a) = v + w P(a|s)          v: value(s), or what the policy expects of (s,a) where it says so

Best-first search (Pearl, Heuristics, 1984) with the policy as its heuristic. Values are log2 speedups, so an action that
is sure to be the right one promises to double the speed w times. Nothing is drawn and nothing backed up: a failure costs
its own trial and no more.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from mtmc.search.strategies.base import Edge, StrategyNode, TreeState, TreeStrategy
from mtmc.search.strategies.common import check_setting


@dataclass
class BestFirstState(TreeState[StrategyNode]):
    """frontier: a heap with the best untried action of each open version, as (minus its score, node id, action index)."""

    frontier: list[tuple[float, int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class BestFirst(TreeStrategy[BestFirstState]):
    """Settings of the search.

    prior_weight: w of the formula above, 0 or more. 0 goes through all actions of the fastest version in their order.
    """

    prior_weight: float = 2.0
    state_type = BestFirstState

    def __post_init__(self) -> None:
        """Raises: ConfigError for a weight below 0."""
        check_setting(self.prior_weight >= 0, "best_first.prior_weight", self.prior_weight, "use 0 or more")

    @property
    def by_expected(self) -> bool:
        """It does."""
        return True

    def score(self, node: StrategyNode, index: int) -> float:
        """What action `index` of a version promises, see the formula above."""
        value = node.value if node.expected is None else node.expected[index]
        return value + self.prior_weight * node.priors[index]

    def added(self, state: BestFirstState, node: StrategyNode) -> None:
        """Its best action joins the frontier."""
        self._offer(state, node, node.untried)

    def next_edge(self, state: BestFirstState) -> Edge | None:
        """The head of the frontier; the next best action of its version takes its place."""
        if not state.frontier:
            return None
        _, node_id, index = heapq.heappop(state.frontier)
        node = state.nodes[node_id]
        self._offer(state, node, [each for each in node.untried if each != index])
        return node_id, index

    def _offer(self, state: BestFirstState, node: StrategyNode, untried: list[int]) -> None:
        if untried:
            best = max(untried, key=lambda index: self.score(node, index))
            heapq.heappush(state.frontier, (-self.score(node, best), node.id, best))
