"""mcts: Monte Carlo tree search with the policy's priors (PUCT), settings and the four calls of a strategy.

An edge is one legal action of one node. A trial expands one edge; where the tree goes on below it, selection descends.

    score(s,a) = Q(s,a) + c P(a|s) sqrt(sum_b N(s,b)) / (1 + N(s,a))
    Q(s,a)     = norm((1 - w) mean + w best)              of the values backed up through (s,a)
    norm(v)    = (v - low) / (high - low)                 low, high: of the values of the tree's right versions

Values are log2 speedups and Q lies in 0 to 1, so nothing depends on how long the kernel runs. A failed version counts
as `low`: were it counted at the reward's floor, one failure would squeeze all differences between right versions into
a corner of 0 to 1. An untried edge has the norm of its own node's value: an action is expected to change nothing. A
trial in flight counts as one visit that failed (virtual loss), which keeps the trials of a batch apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtmc.errors import RunError
from mtmc.protocols import Strategy, Trial
from mtmc.search.strategies.common import check_setting
from mtmc.search.strategies.mcts_tree import MctsNode, MctsState, Stop, backup, note_value, q_value, score, settle
from mtmc.search.strategies.mcts_walk import select
from mtmc.tree import ROOT_ID


@dataclass(frozen=True)
class Mcts(Strategy):
    """Settings of the tree search.

    exploration: c of the formula above, above 0.
    best_weight: w of the formula above, 0 (mean only) to 1 (best only). A search wants its best version, not its mean.
    expansions: k, how many children one edge may get from a coder that is not deterministic. A deterministic coder's
        edges get one.
    widening: alpha of progressive widening: such an edge may have had floor((1 + N(s,a)) ** alpha) tries, k at most.
    """

    exploration: float = 1.25
    best_weight: float = 0.5
    expansions: int = 3
    widening: float = 0.5

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        check_setting(self.exploration > 0, "mcts.exploration", self.exploration, "use a number above 0")
        check_setting(0 <= self.best_weight <= 1, "mcts.best_weight", self.best_weight, "use a number from 0 to 1")
        check_setting(self.expansions >= 1, "mcts.expansions", self.expansions, "use 1 or more")
        check_setting(0 < self.widening <= 1, "mcts.widening", self.widening, "use a number above 0, at most 1")

    def start(self, seed: int, deterministic: bool = True) -> MctsState:
        """The state before the root is known. Nothing is drawn: ties go to the greater prior, then the first action."""
        return MctsState(
            exploration=self.exploration,
            best_weight=self.best_weight,
            expansions=1 if deterministic else self.expansions,
            widening=self.widening,
        )

    def add_node(
        self,
        state: MctsState,
        node_id: int,
        parent_id: int,
        priors: Sequence[float],
        value: float,
        stop_index: int | None = None,
    ) -> MctsState:
        """Make a node known, see `protocols.Strategy.add_node`. It joins the tree when its trial is told."""
        if node_id not in state.nodes:
            state.nodes[node_id] = MctsNode.make(node_id, priors, value, stop_index)
            note_value(state, value)
        return state

    def ask(self, state: MctsState, n: int) -> tuple[list[Trial], MctsState]:
        """Up to `n` trials, each on the best open edge given the ones before it; fewer where no more are open."""
        if ROOT_ID not in state.nodes:
            raise RunError("mcts was asked before its root was known: call add_node for the root first")
        trials: list[Trial] = []
        while len(trials) < n:
            found = select(state)
            if found is None:
                break
            if isinstance(found, Stop):
                self._stop(state, found.node)
                continue
            node, index = found
            for edge in node.try_edge(index, 1):
                edge.flying += 1
            trials.append(state.flights.start(node.id, index))
        return trials, state

    def _stop(self, state: MctsState, node: MctsNode) -> None:
        """`STOP` was the best edge: its result is this very version, known without a trial; the edge is closed."""
        assert node.stop_index is not None
        backup(node.try_edge(node.stop_index, state.expansions), node.value)
        settle(state, node, node.stop_index)

    def tell(self, state: MctsState, trial_id: int, child_id: int | None, value: float) -> MctsState:
        """The end of a trial. A new node is linked and its value backed up; anything else only uses the edge up."""
        trial = state.flights.land(trial_id)
        if trial is None:
            return state
        node = state.nodes[trial.node_id]
        path = node.path_edges(trial.action_index)
        for edge in path:
            edge.flying -= 1
        if child_id is not None and child_id != ROOT_ID and state.nodes[child_id].parent is None:
            child = state.nodes[child_id]
            child.parent, child.action_index = node, trial.action_index
            node.edges[trial.action_index].children += (child,)
            note_value(state, value)
            backup(path, value)
        settle(state, node, trial.action_index)
        return state

    def annotations(self, state: MctsState) -> Mapping[int, Mapping[str, float]]:
        """Per node: `visits` (1 and those below), `value`, `prior` of the edge that led to it, and, but for the root,
        that edge's `q` and `score` as they stand now."""
        notes: dict[int, dict[str, float]] = {}
        for node_id, node in sorted(state.nodes.items()):
            below = sum(edge.visits for edge in node.edges.values())
            note = {"visits": 1.0 + below, "value": node.value, "prior": 1.0}
            if node.parent is not None:
                edge = node.parent.edges[node.action_index]
                note["prior"] = edge.prior
                note["q"] = q_value(state, node.parent, edge)
                note["score"] = score(state, node.parent, node.action_index)
            notes[node_id] = note
        return notes
