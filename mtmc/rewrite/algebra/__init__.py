"""Algebra: a graph that gives the same up to rounding with less work. To add a kind of rule: a file here, a line in `RULES`.

identities.py  what changes nothing: reductions over one element, twice transposed, twice negated, the same thing twice
sums.py        the sum or mean over the results of a product, by way of a summed operand
pools.py       a pool of a pool; the mean of neighbouring features of a linear layer
norms.py       a batch norm in evaluation, in the weights of the layer before
attention.py   attention with wide heads as two products and a softmax
masks.py       attention under a mask that positions make, as attention that knows where it looks
of_positions.py  what integers and truths are that depend on sizes alone
ramps.py       numbers that go up or down evenly with their index
biases.py      the bias of a library convolution, added by the kernel behind it
cells.py       one step of an LSTM or a GRU as two products and elementwise work
bags.py        sums, means and maxima of embeddings, as a lookup and a reduction
einsums.py     an Einstein sum as a product of matrices between permutations
transforms.py  work on complex numbers, Fourier transforms among it, as work on pairs of real ones
transform_passes.py  what the library's transforms do in passes of their own, as ops that kernels take in
transform_calls.py  what torch's transforms are asked for
joined.py      several layers of one operand as one product
turned.py      layers between two transpositions, without these
ordered.py     what is read many times across its rows, copied in order before
losses.py      the cross entropy of a product, as that of its rows
one_tap.py     a convolution of one tap as a product of matrices
composed.py    a layer of layers, or of enlarged maps side by side, as layers of what those are of
pixels.py      a convolution of shuffled pixels, before the shuffle
enlarged.py    a convolution of an enlarged map, as a transposed one of the map
filled.py      convolutions in a form whose product fills the tiles of tensor cores
statistics.py  a norm of channels or groups, as its statistics and elementwise work
one_token.py   attention of one token, written as sums over products
one_row.py     a product of one row or column of each matrix, as a sum
distributed.py  values weighted by a sum of softmaxes, as a sum of such values
padded.py      products of rows that end within a line, of rows that end with one
paired.py      an Einstein sum of several tensors as sums of two at a time
parted.py      a layer whose halves meet again, as two layers
scans.py       what came before each element of a running sum or product
convolutions.py  what rules on convolutions read of their arguments
turns.py       ops that put dimensions in another order
constants.py   what is one number whatever the inputs are
edit.py        changing a graph
laid_out.py    how values lie in memory afterwards

Every rule states its proof. A rule looks at what was exported, so it holds for any shape at which the sizes agree that
agree wherever the reference was exported.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce

from mtmc.errors import CoderError
from mtmc.rewrite.algebra.attention import ATTENTION
from mtmc.rewrite.algebra.bags import BAGS
from mtmc.rewrite.algebra.biases import BIASES
from mtmc.rewrite.algebra.cells import CELLS
from mtmc.rewrite.algebra.channels import CHANNELS
from mtmc.rewrite.algebra.composed import COMPOSED
from mtmc.rewrite.algebra.constants import CONSTANTS
from mtmc.rewrite.algebra.distributed import DISTRIBUTED
from mtmc.rewrite.algebra.edit import Rule
from mtmc.rewrite.algebra.einsums import EINSUMS
from mtmc.rewrite.algebra.enlarged import ENLARGED
from mtmc.rewrite.algebra.filled import FILLED
from mtmc.rewrite.algebra.identities import IDENTITIES
from mtmc.rewrite.algebra.joined import JOINED
from mtmc.rewrite.algebra.logs import LOGS
from mtmc.rewrite.algebra.losses import LOSSES
from mtmc.rewrite.algebra.masks import MASKS
from mtmc.rewrite.algebra.norms import NORMS
from mtmc.rewrite.algebra.one_row import ONE_ROW
from mtmc.rewrite.algebra.one_tap import ONE_TAP
from mtmc.rewrite.algebra.one_token import ONE_TOKEN
from mtmc.rewrite.algebra.ordered import ORDERED
from mtmc.rewrite.algebra.padded import PADDED
from mtmc.rewrite.algebra.paired import PAIRED
from mtmc.rewrite.algebra.parted import PARTED
from mtmc.rewrite.algebra.pixels import PIXELS
from mtmc.rewrite.algebra.pools import POOLS
from mtmc.rewrite.algebra.scans import SCANS
from mtmc.rewrite.algebra.statistics import STATISTICS
from mtmc.rewrite.algebra.sums import SUMS
from mtmc.rewrite.algebra.transform_passes import PASSES
from mtmc.rewrite.algebra.transforms import TRANSFORMS
from mtmc.rewrite.algebra.turned import TURNED
from mtmc.rewrite.graph import Graph

RULES: dict[str, tuple[Rule, ...]] = {
    "identities": IDENTITIES,
    "sums": SUMS,
    "pools": POOLS,
    "norms": NORMS,
    "attention": ATTENTION,
    "masks": MASKS,
    "biases": BIASES,
    "constants": CONSTANTS,
    "cells": CELLS,
    "einsums": (*EINSUMS, *PAIRED),
    "bags": BAGS,
    "joined": JOINED,
    "transforms": TRANSFORMS,
    "logs": LOGS,
    "turned": TURNED,
    "ordered": ORDERED,
    "passes": PASSES,
    "losses": LOSSES,
    "channels": CHANNELS,
    "one_tap": ONE_TAP,
    "scans": SCANS,
    "pixels": PIXELS,
    "enlarged": ENLARGED,
    "distributed": DISTRIBUTED,
    "padded": PADDED,
    "parted": PARTED,
    "one_token": ONE_TOKEN,
    "one_row": ONE_ROW,
    "statistics": STATISTICS,
    "composed": COMPOSED,
    "filled": FILLED,
}
OF_WEIGHTS = ("joined", "channels", "pixels", "enlarged", "padded", "composed", "filled")
"""Kinds of rules after which what is made of weights alone is kept between calls (`pack`): else they save nothing."""
_MOST = 200
"""Times that rules are applied, one after the other."""


@dataclass(frozen=True)
class Rewritten:
    """What a kind of rule makes of a graph. sentences: what it found. ops: of the graph before, which it replaced."""

    graph: Graph
    sentences: tuple[str, ...]
    ops: frozenset[str]


@lru_cache(maxsize=256)
def apply_rules(graph: Graph, kind: str) -> Rewritten:
    """Apply one kind of rule until none fits; the same graph for the same graph. Raises: CoderError for no such kind."""
    if kind not in RULES:
        raise CoderError(f"there are no rules {kind!r}; there are {', '.join(RULES)}")
    first, sentences, touched = graph, [], set[str]()
    for _ in range(_MOST):
        found = next((hit for op in graph.ops for rule in RULES[kind] if (hit := rule(graph, op))), None)
        if found is None:
            break
        graph = found.graph
        sentences.append(found.sentence)
        touched |= set(found.ops)
    return Rewritten(graph, tuple(sentences), frozenset(touched & set(first.by_name)))


def after_rules(graph: Graph, kinds: tuple[str, ...]) -> Graph:
    """An exported graph after some kinds, in order. Raises: CoderError."""
    return reduce(lambda seen, kind: apply_rules(seen, kind).graph, kinds, graph)
