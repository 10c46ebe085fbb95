"""attention_window: which columns a row of attention can see, where masks say so: a program looks at no others.

What masks say is read in `attention_masks`. What one leaves out must be -inf when the softmax is taken, so that its weight
is 0 whatever the other scores are.
"""

from __future__ import annotations

import re

from mtmc.rewrite.body import Body, Count, Node, Number
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.operators.attention import CAUSAL, MASKED, SCALED_BY_WIDTH
from mtmc.rewrite.templates.attention_masks import MaskReader, Window, is_infinite
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct


def window_of(graph: Graph, body: Body, found: SoftmaxProduct, names: tuple[str, str] = ("batch", "rows")) -> Window:
    """The columns that a row can see; an empty window where masks do not tell.

    names: of the variables with the number of a matrix among all of the batch, and of a row in it.
    """
    if found.reshaped:
        return Window()  # places are counted in the product's dimensions
    reader = MaskReader(graph, body, found, *names)
    made, window = _made(found), Window()
    for node in reversed([node for node in found.between if node.name in made]):
        window &= reader.left(node)
        if not _keeps(body, node, made):
            break  # of what was left out before, this makes something else
    return window


def _made(found: SoftmaxProduct) -> set[str]:
    """The scores and what is made of them before the softmax."""
    made = {found.scores.name}
    for node in found.between:
        made |= {node.name} if made & set(node.reads()) else set()
    return made


def _keeps(body: Body, node: Node, made: set[str]) -> bool:
    """Whether scores that are -inf are so after a step, whatever the others are (or NaN, where they are so for torch)."""
    first, *others = node.operands
    if node.operation == "tl.where({0}, {1}, {2})":
        return str(first) not in made and all(str(each) in made or is_infinite(body, each) for each in others)
    if node.operation in ("{0} * {1}", "{0} / {1}"):
        return isinstance(others[0], Count) or (isinstance(others[0], Number) and others[0].value > 0)
    if node.operation == "{0} - {1}":
        return str(others[0]) not in made
    return node.operation in ("{0}", "{0} + {1}", CAUSAL, MASKED, SCALED_BY_WIDTH) or bool(
        _ROUNDED.match(node.operation)
    )


def is_all(graph: Graph, body: Body, found: SoftmaxProduct) -> bool:
    """Whether masks say nothing else than what rows and columns are apart: inside of it no score is changed but by what
    `factor` folds."""
    if found.reshaped:
        return False
    _, scaling = found.factor()
    made, reader = _made(found), MaskReader(graph, body, found, "batch", "rows")
    for node in found.between:
        if node.name not in made:
            continue  # makes a mask
        masks = node.operation == MASKED and reader.says_all(node.operands[1], reader.home)
        if not masks and node.operation != CAUSAL and node.name not in scaling:
            return False
    return True


_ROUNDED = re.compile(r"\{0\}\.to\(tl\.\w+\)(\.to\(tl\.float32\))?$")
