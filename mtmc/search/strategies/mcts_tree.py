"""The statistics of the tree search: nodes and edges, their scores, and what a trial's end does to them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from mtmc.search.strategies.base import StrategyNode
from mtmc.search.strategies.common import is_failure
from mtmc.search.strategies.value_range import RangedState, norm

Untried = Literal["own", "reduced", "zero", "predicted"]
"""What an edge is worth before it was tried, see `mcts`."""


class MctsEdge:
    """One legal action of one node, once it was tried.

    index: of the action. visits: values backed up through it; failures: how many of them were failures; total and best:
    sum and greatest of the others. in_flight: trials in flight on it or below. tries: trials spent on it, in flight or
    ended, whatever came of them. closed: nothing is left to try here or below.
    """

    __slots__ = ("best", "children", "closed", "failures", "in_flight", "index", "prior", "total", "tries", "visits")

    def __init__(self, index: int, prior: float) -> None:
        self.index = index
        self.prior = prior
        self.visits = 0
        self.failures = 0
        self.total = 0.0
        self.best = -math.inf
        self.in_flight = 0
        self.tries = 0
        self.children: tuple[MctsNode, ...] = ()
        self.closed = False


@dataclass(eq=False, slots=True)
class MctsNode(StrategyNode):
    """One version. `STOP` is none of its edges: it leads to this very version, whose value is backed up already.

    edges: of the actions that were tried. open_edges: how many edges are not closed, untried ones included.
    parent and action_index: the edge that made it, None and -1 for the root and before it is linked.
    """

    open_edges: int = 0
    edges: dict[int, MctsEdge] = field(default_factory=dict)
    parent: MctsNode | None = None
    action_index: int = -1

    def __post_init__(self) -> None:
        StrategyNode.__post_init__(self)
        self.open_edges = len(self.untried)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to try from here or below."""
        return self.open_edges == 0

    @property
    def visits(self) -> int:
        """sum N of its edges: values backed up through them, and trials in flight."""
        return sum(edge.visits + edge.in_flight for edge in self.edges.values())

    def try_edge(self, index: int, tries: int) -> list[MctsEdge]:
        """Spend `tries` tries on edge `index`; returns the edges from it up to the root's."""
        if index not in self.edges:
            self.edges[index] = MctsEdge(index, self.priors[index])
        self.edges[index].tries += tries
        return self.path_edges(index)

    def path_edges(self, index: int) -> list[MctsEdge]:
        """The edges from this node's edge `index`, which was tried, up to the root's."""
        edges: list[MctsEdge] = []
        node: MctsNode | None = self
        while node is not None and index >= 0:
            edges.append(node.edges[index])
            index, node = node.action_index, node.parent
        return edges


@dataclass
class MctsState(RangedState[MctsNode]):
    """Settings and statistics of the search. untried, reduction: see `mcts.Mcts`."""

    exploration: float = 1.0
    best_weight: float = 0.0
    expansions: int = 1
    widening: float = 1.0
    untried: Untried = "own"
    reduction: float = 0.0


def initial_value(state: MctsState, node: MctsNode, index: int) -> float:
    """Q(s,a) of an edge that has no value of its own yet, see `mcts`: 0 to 1, above 1 for one that is predicted to lead to
    more than the tree has."""
    if state.untried == "zero":
        return 0.0
    if state.untried == "predicted" and node.expected is not None:
        return max(0.0, norm(state, node.expected[index]))
    own = norm(state, node.value)
    if state.untried != "reduced":
        return own
    return max(0.0, own - state.reduction * math.sqrt(sum(edge.prior for edge in node.edges.values())))


def q_value(state: MctsState, node: MctsNode, edge: MctsEdge) -> float:
    """Q(s,a) of a tried edge: mixture of mean and best, see `mcts`.

    Failures and trials in flight count as the tree's least value; an edge without either is like an untried one.
    """
    count = edge.visits + edge.in_flight
    if count == 0:
        return initial_value(state, node, edge.index)
    losses = edge.failures + edge.in_flight
    mean = (edge.total + losses * state.low) / count
    best = edge.best if edge.best > -math.inf else state.low
    return norm(state, (1.0 - state.best_weight) * mean + state.best_weight * best)


def puct(q: float, prior: float, parent_visits: int, visits: int, exploration: float) -> float:
    """Q(s,a) + c P(a|s) sqrt(sum N) / (1 + N(s,a))."""
    return q + exploration * prior * math.sqrt(parent_visits) / (1 + visits)


def score(state: MctsState, node: MctsNode, index: int) -> float:
    """PUCT score of edge `index` of `node`; trials in flight count as visits."""
    edge = node.edges.get(index)
    if edge is None:
        return puct(initial_value(state, node, index), node.priors[index], node.visits, 0, state.exploration)
    visits = edge.visits + edge.in_flight
    return puct(q_value(state, node, edge), edge.prior, node.visits, visits, state.exploration)


def backup(edges: Iterable[MctsEdge], value: float) -> None:
    """Record one value in each of `edges`."""
    failed = is_failure(value)
    for edge in edges:
        edge.visits += 1
        if failed:
            edge.failures += 1
        else:
            edge.total += value
            edge.best = max(edge.best, value)


def settle(state: MctsState, node: MctsNode, index: int) -> None:
    """Close edge `index` of `node` if nothing is left to try there, and then the edges above it that it closes."""
    current: MctsNode | None = node
    while current is not None and index >= 0:
        edge = current.edges[index]
        used_up = edge.tries >= state.expansions and all(child.exhausted for child in edge.children)
        if edge.closed or not used_up or _awaits(state, current, index):
            return
        edge.closed = True
        current.open_edges -= 1
        if not current.exhausted:
            return
        index, current = current.action_index, current.parent


def _awaits(state: MctsState, node: MctsNode, index: int) -> bool:
    """Whether a trial of this very edge is in flight: its child may still open something."""
    return node.edges[index].in_flight > 0 and (node.id, index) in state.edges_in_flight
