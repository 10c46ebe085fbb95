"""mcts: Monte Carlo tree search with the policy's priors (PUCT), its settings and its rules.

An edge is one legal action of one node. A trial expands one edge; where the tree goes on below it, selection descends.

    score(s,a) = Q(s,a) + c P(a|s) sqrt(sum_b N(s,b)) / (1 + N(s,a))
    Q(s,a)     = norm((1 - w) mean + w best)              of the values backed up through (s,a)
    norm(v)    = (v - low) / (high - low)                 low, high: of the values of the tree's right versions

Values are log2 speedups and Q lies in 0 to 1, so nothing depends on how long the kernel runs. A failed version counts
as `low`: were it counted at the reward's floor, one failure would squeeze all differences between right versions into
a corner of 0 to 1. A trial in flight counts as one visit that failed (virtual loss), which keeps those at once apart.

An untried edge has, by the setting `untried`,

    own        norm(value(s)): an action is expected to change nothing
    reduced    norm(value(s)) - r sqrt(sum of P over the tried edges of s), at least 0 (first play urgency, as KataGo has
               it: Wu 2019, arXiv 1902.10565): the more of the priors was tried, the less is expected of what is left
    zero       0, the least value of the tree: only its prior speaks for it (as in AlphaZero, Silver et al. 2017)
    predicted  norm(what the policy expects of it), at least 0; own where the policy does not say

`STOP` is known without a trial: it is this very version, whose value was backed up when it was made. An edge that leads to
a version which another edge led to before is credited with that version's value, and its own path with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from mtmc.protocols import Trial
from mtmc.search.strategies.base import Edge, TreeStrategy
from mtmc.search.strategies.common import check_setting
from mtmc.search.strategies.mcts_selection import select
from mtmc.search.strategies.mcts_tree import MctsNode, MctsState, Untried, backup, q_value, score, settle
from mtmc.search.strategies.value_range import note_value


@dataclass(frozen=True)
class Mcts(TreeStrategy[MctsState]):
    """Settings of the tree search.

    exploration: c of the formula above, above 0.
    best_weight: w of the formula above, 0 (mean only) to 1 (best only). A search wants its best version, not its mean.
    expansions: k, how many children one edge may get from a coder that is not deterministic. A deterministic coder's
        edges get one.
    widening: alpha of progressive widening: such an edge may have had floor((1 + N(s,a)) ** alpha) tries, k at most.
    untried: what an edge is worth before it was tried, see above. reduction: r there, 0 or more.
    """

    exploration: float = 1.25
    best_weight: float = 0.5
    expansions: int = 3
    widening: float = 0.5
    untried: Untried = "own"
    reduction: float = 0.2
    state_type = MctsState
    node_type = MctsNode

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        check_setting(self.exploration > 0, "mcts.exploration", self.exploration, "use a number above 0")
        check_setting(0 <= self.best_weight <= 1, "mcts.best_weight", self.best_weight, "use a number from 0 to 1")
        check_setting(self.expansions >= 1, "mcts.expansions", self.expansions, "use 1 or more")
        check_setting(0 < self.widening <= 1, "mcts.widening", self.widening, "use a number above 0, at most 1")
        known = get_args(Untried)
        check_setting(self.untried in known, "mcts.untried", self.untried, f"use one of {', '.join(known)}")
        check_setting(self.reduction >= 0, "mcts.reduction", self.reduction, "use 0 or more")

    @property
    def by_expected(self) -> bool:
        """With `untried` predicted."""
        return self.untried == "predicted"

    def start(self, seed: int, deterministic: bool = True) -> MctsState:
        """The state before the root is known. The seed decides between actions of equal priors, and nothing else."""
        return MctsState(
            seed,
            deterministic,
            exploration=self.exploration,
            best_weight=self.best_weight,
            expansions=1 if deterministic else self.expansions,
            widening=self.widening,
            untried=self.untried,
            reduction=self.reduction,
        )

    def added(self, state: MctsState, node: MctsNode) -> None:
        """It joins the tree when its trial is told; its value counts at once."""
        note_value(state, node.value)

    def next_edge(self, state: MctsState) -> Edge | None:
        """The best open edge given the trials in flight; None where no more are open."""
        found = select(state)
        if found is None:
            return None
        node, index = found
        for edge in node.try_edge(index, 1):
            edge.in_flight += 1
        return node.id, index

    def ended(self, state: MctsState, trial: Trial, child_id: int | None, new: bool) -> None:
        """The value of the version it led to is backed up, and a new one linked. Where there is none the edge is used up."""
        node = state.nodes[trial.node_id]
        path = node.path_edges(trial.action_index)
        for edge in path:
            edge.in_flight -= 1
        if child_id is not None:
            child = state.nodes[child_id]
            if new:
                child.parent, child.action_index = node, trial.action_index
                node.edges[trial.action_index].children += (child,)
            backup(path, child.value)
        settle(state, node, trial.action_index)

    def visits(self, state: MctsState, node: MctsNode) -> float:
        """1 and those of its edges, trials in flight left out."""
        return 1.0 + sum(edge.visits for edge in node.edges.values())

    def note(self, state: MctsState, node: MctsNode) -> dict[str, float]:
        """As for any strategy; and, but for the root, `q` and `score` of the edge that led to it, as they stand now."""
        note = super().note(state, node)
        if node.parent is not None:
            note["q"] = q_value(state, node.parent, node.parent.edges[node.action_index])
            note["score"] = score(state, node.parent, node.action_index)
        return note
