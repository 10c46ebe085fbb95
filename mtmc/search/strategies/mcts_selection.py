"""Selection of the tree search: from the root down the best scores to an edge that may be tried."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mtmc.search.strategies.mcts_tree import MctsEdge, MctsNode, MctsState, initial_value, puct, q_value
from mtmc.search.strategies.value_range import norm
from mtmc.tree import ROOT_ID

Option = MctsNode | tuple[MctsNode, int]
"""A child to descend to, or the edge (node, action index) to try."""


def select(state: MctsState) -> tuple[MctsNode, int] | None:
    """The edge to try next, or None where every open edge waits for a trial in flight or nothing is left.

    Down the best scores; where a branch offers nothing because of trials in flight, back up and on to the next best.
    """
    path = [options(state, state.nodes[ROOT_ID])]
    while path:
        option = next(path[-1], None)
        if option is None:
            path.pop()
        elif isinstance(option, MctsNode):
            path.append(options(state, option))
        else:
            return option
    return None


def options(state: MctsState, node: MctsNode) -> Iterator[Option]:
    """What may be done at a node, best score first; of equals the greater prior, then what was tried first."""
    for _, _, _, index in sorted(ranked(state, node)):
        edge = node.edges.get(index)
        if edge is None:
            yield node, index
        else:
            if may_try(state, edge):
                yield node, index
            yield from open_children(state, edge)


def ranked(state: MctsState, node: MctsNode) -> list[tuple[float, float, int, int]]:
    """(minus the score, minus the prior, place in the order of trying, action index) of the open edges of a node that
    selection may come to.

    The same scores as `mcts_tree.score`, with what the edges share computed once: this is where a search's time goes.
    Untried edges may always be tried, so the best of them stands for all: the likeliest, for they differ in nothing but
    their priors, unless there is a prediction for each.
    """
    scale = state.exploration * math.sqrt(node.visits)
    result = [
        (-q_value(state, node, edge) - scale * edge.prior / (1 + edge.visits + edge.in_flight), -edge.prior, at, index)
        for at, (index, edge) in enumerate(node.edges.items())
        if not edge.closed
    ]
    if node.untried:
        predicted = state.untried == "predicted" and node.expected is not None
        for at, index in enumerate(node.untried if predicted else node.untried[:1], len(node.edges)):
            prior = node.priors[index]
            result.append((-initial_value(state, node, index) - scale * prior, -prior, at, index))
    return result


def may_try(state: MctsState, edge: MctsEdge) -> bool:
    """Whether one more trial of this edge is due: progressive widening, and at once where no child leads on."""
    if edge.tries >= state.expansions:
        return False
    if all(child.exhausted for child in edge.children):
        return True
    return edge.tries < math.floor((1 + edge.visits) ** state.widening)


def open_children(state: MctsState, edge: MctsEdge) -> list[MctsNode]:
    """The children of an edge that lead on, best first: PUCT among siblings that are equally likely."""
    children = [child for child in edge.children if not child.exhausted]
    if len(children) < 2:
        return children
    prior = 1.0 / len(children)
    total = sum(_visits(child) for child in children)

    def rank(child: MctsNode) -> tuple[float, int]:
        visits = _visits(child)
        return -puct(_best_below(state, child), prior, total, visits, state.exploration), child.id

    return sorted(children, key=rank)


def _visits(node: MctsNode) -> int:
    return 1 + node.visits


def _best_below(state: MctsState, node: MctsNode) -> float:
    return norm(state, max([node.value, *(edge.best for edge in node.edges.values())]))
