"""open_sizes: which sizes may be others at a module's next call, and which are its own for as long as it lives.

A size is a module's own if it was the same at every exported variant, or if the shapes of its parameters and buffers and the
numbers on it give it: the width of a layer, a number of heads, what a head has. All others follow from the inputs, and
kernels take them as ordinary arguments, so that another length of a sequence is not another kernel.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement, product

from mtmc.rewrite.graph import Graph, Size

_FACTORS = (1, 2, 3, 4, 8)
"""By which a product or quotient may be larger or smaller: queries, keys and values in one; half of a head."""
_MOST_JOINED = 16
"""Sizes up to which sums of two are looked at: 120 of them."""


def is_open(graph: Graph, size: Size) -> bool:
    """Whether a size may change from one call of a module to the next; () stands for 1."""
    return len(set(size)) > 1 and size not in _given(graph.own_sizes)


@lru_cache(maxsize=64)
def _given(own: frozenset[Size]) -> frozenset[Size]:
    """These, products, quotients and sums of two (what is joined), and some multiples and parts of all that."""
    found = set[Size]()
    joined = combinations_with_replacement(own, 2) if len(own) <= _MOST_JOINED else ()
    sums = {tuple(map(sum, zip(*pair, strict=True))) for pair in joined}
    for left, right in product(own | sums, own | {()}):
        pairs = tuple(zip(left, right or (1,) * len(left), strict=True))
        found.add(tuple(a * b for a, b in pairs))
        if all(a % b == 0 for a, b in pairs):
            found.add(tuple(a // b for a, b in pairs))
    for size, factor in product(tuple(found), _FACTORS):
        found.add(tuple(value * factor for value in size))
        if all(value % factor == 0 for value in size):
            found.add(tuple(value // factor for value in size))
    return frozenset(found)
