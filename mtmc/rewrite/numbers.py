"""numbers: what forward makes of numbers alone, before and outside of a kernel: the kernel makes it itself.

Places along a dimension and masks of them are cheaper to compute than to read, and a call less.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtmc.rewrite.graph import CONSTANT, Graph, Op

MOST = 8
"""Ops that a kernel does anew."""


def made_of_numbers(graph: Graph, names: Sequence[str]) -> list[Op]:
    """The ops before some others that lead from numbers to what those read, in graph order; none where they are many."""
    found: dict[str, bool] = {}

    def of_numbers(name: str) -> bool:
        if name not in found:
            op = graph.by_name[name]
            makers = [graph.producer.get(ref) for ref in op.refs()]
            made = op.target != CONSTANT and len(op.outputs) == 1 and None not in makers
            found[name] = made and all(of_numbers(maker) for maker in makers if maker is not None)
        return found[name]

    wanted = [graph.producer[ref] for name in names for ref in graph.by_name[name].refs() if ref in graph.producer]
    needed, chain = [name for name in wanted if name not in names and of_numbers(name)], set[str]()
    while needed:
        name = needed.pop()
        if name not in chain and name not in names:
            chain.add(name)
            needed += [graph.producer[ref] for ref in graph.by_name[name].refs()]
    ops = [op for op in graph.ops if op.name in chain]
    return ops if len(ops) <= MOST else []
