"""softmax_weights: the softmax that a product's left operand is, and what its weights are multiplied by before that."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.operators.attention import NONE_LEFT


@dataclass(frozen=True)
class SoftmaxWeights:
    """A softmax. logits: what it is of. weights: its result. nodes: the names of what computes it.

    forgiving: whether a row of which all columns are masked gives 0. weighing: what multiplies its result by something else
    (scales of quantized values), copies and views of it, first to last: since that is linear, it may be done before the
    weights are divided by their sum.
    """

    logits: str
    weights: str
    nodes: tuple[str, ...]
    forgiving: bool
    weighing: tuple[Node, ...]


def softmax_of(body: Body, weights: str) -> SoftmaxWeights:
    """What computes a product's left operand. Raises: NotCovered where that is no softmax over its columns."""
    weights, weighing = _to_softmax(body, weights)
    nodes, result = list[str](), weights
    left = _map(body, weights, NONE_LEFT)
    if left is not None:
        nodes.append(weights)
        weights = left.reads()[0]
    quotient = _map(body, weights, "{0} / {1}")
    if quotient is None:
        raise NotCovered("weights that are no softmax")
    exps, total = (_known(body, name) for name in quotient.reads())
    shifted = _known(body, exps.reads()[0])
    if exps.operation != "tl.exp({0})" or shifted.operation != "{0} - {1}" or len(shifted.reads()) != 2:
        raise NotCovered("weights that are no softmax")
    logits, top = shifted.reads()[0], _known(body, shifted.reads()[1])
    if left is not None and left.reads()[1] != top.name:
        raise NotCovered("weights that are no softmax")
    of_row = [(total, ("sum",), exps.name), (top, ("max", "amax"), logits)]
    if any((node.kind, node.reads(), node.dims) != ("reduce", (read,), (len(node.shape) - 1,))
           or node.operation not in operations for node, operations, read in of_row):  # fmt: skip
        raise NotCovered("weights that are no softmax over the columns")
    nodes += [weights, exps.name, total.name, shifted.name, top.name]
    return SoftmaxWeights(logits, result, tuple(nodes), left is not None, tuple(reversed(weighing)))


def _to_softmax(body: Body, weights: str) -> tuple[str, list[Node]]:
    """The softmax behind factors, copies and views, and these, last to first."""
    weighing = list[Node]()
    while True:
        copy, scaled, node = _map(body, weights, "{0}"), _map(body, weights, "{0} * {1}"), body.node(weights)
        if node is not None and node.kind == "view":
            weighing.append(node)
            weights = node.reads()[0]
        elif copy is not None:  # dropout that drops nothing, too
            weighing.append(copy)
            weights = copy.reads()[0]
        elif scaled is not None:
            of_scores = [read for read in scaled.reads() if _is_of_product(body, read)]
            if len(of_scores) != 1:
                raise NotCovered("weights that are no softmax")
            weighing.append(scaled)
            weights = of_scores[0]
        else:
            return weights, weighing


def _is_of_product(body: Body, name: str) -> bool:
    node = body.node(name)
    return node is not None and (node.kind == "dot" or any(_is_of_product(body, read) for read in node.reads()))


def _known(body: Body, name: str) -> Node:
    node = body.node(name)
    if node is None:
        raise NotCovered("weights that come from outside")
    return node


def _map(body: Body, name: str, operation: str) -> Node | None:
    node = body.node(name)
    return node if node is not None and node.kind == "map" and node.operation == operation else None
