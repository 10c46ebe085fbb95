"""softmax_weights: the softmax that a product's left operand is, and what its weights are multiplied by before that.

One more logit of each row, which takes weight and has no value (a sink), is joined to the others before the softmax and cut
off behind it: the sum of exponentials begins with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.index_maps import Sliced
from mtmc.rewrite.operators.attention import NONE_LEFT


@dataclass(frozen=True)
class SoftmaxWeights:
    """A softmax. logits: what it is of. weights: its result. nodes: the names of what computes it.

    forgiving: whether a row of which all columns are masked gives 0. weighing: what multiplies its result by something else
    (scales of quantized values), copies and views of it, first to last: since that is linear, it may be done before the
    weights are divided by their sum. sink: the logits joined behind the others, whose weights are cut off; "" for none.
    """

    logits: str
    weights: str
    nodes: tuple[str, ...]
    forgiving: bool
    weighing: tuple[Node, ...]
    sink: str = ""


def softmax_of(body: Body, weights: str) -> SoftmaxWeights:
    """What computes a product's left operand. Raises: NotCovered where that is no softmax over its columns."""
    weights, weighing = _to_softmax(body, weights)
    nodes, result = list[str](), weights
    cut = _cut(body, weights)
    if cut is not None:
        weights, copies = _to_softmax(body, cut.reads()[0])
        if any(copy.operation != "{0}" for copy in copies):
            raise NotCovered("weights of which some are left out, after work on them")
        nodes += [cut.name, *(copy.name for copy in copies)]
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
    sink = ""
    if cut is not None:
        joined = _known(body, logits)
        if joined.operation != "join" or joined.dims != (len(joined.shape) - 1,) or len(joined.reads()) != 2:
            raise NotCovered("weights of which some are left out")
        nodes.append(joined.name)
        logits, sink = joined.reads()
    return SoftmaxWeights(logits, result, tuple(nodes), left is not None, tuple(reversed(weighing)), sink)


def _cut(body: Body, weights: str) -> Node | None:
    """The node that leaves out the last weights of each row, None where none does."""
    node = body.node(weights)
    if node is None or not isinstance(node.index, Sliced) or node.index.dim != len(node.shape) - 1:
        return None
    return node if not any(node.index.start) and all(step == 1 for step in node.index.step) else None


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
