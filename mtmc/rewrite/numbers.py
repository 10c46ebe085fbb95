"""numbers: what forward makes of numbers alone, before and outside of a kernel: the kernel makes it itself.

Places along a dimension and masks of them are cheaper to compute than to read, and a call less.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.graph import CONSTANT, Graph, Op

MOST = 8
"""Ops that a kernel does anew."""


def made_of_numbers(graph: Graph, names: Sequence[str]) -> list[Op]:
    """The ops before some others that lead from numbers to what those read, in graph order; none where they are many.

    Constants of the text are left out.
    """
    needed = [graph.producer[ref] for name in names for ref in graph.by_name[name].refs() if ref in graph.producer]
    chain = set[str]()
    while needed:
        name = needed.pop()
        known = name in names or name in chain or graph.by_name[name].target == CONSTANT
        if known or name not in graph.of_numbers:
            continue
        if len(graph.by_name[name].outputs) > 1 or len(chain) == MOST:
            return []
        chain.add(name)
        needed += [graph.producer[ref] for ref in graph.by_name[name].refs()]
    return [op for op in graph.ops if op.name in chain] if chain else []
