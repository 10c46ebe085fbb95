"""algebra: the same result with less work, by algebra that is exact up to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from mtmc.action import make_action
from mtmc.errors import CoderError
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.layout import kept
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version
from mtmc.rewrite.algebra import OF_WEIGHTS, RULES, Rewritten, apply_rules
from mtmc.rewrite.plan import Plan, Stage, in_order
from mtmc.rewrite.source import print_plan

PAGE = """\
# algebra

The same result with less work, by algebra that is exact up to rounding.

## What it does
Replaces ops of the reference by others that are equal for all (finite) inputs: the sum or mean over the features of a
product becomes a product with the summed operand (M K multiply-adds instead of M N K); the sum of a log-softmax, as
of smoothed labels, becomes that of its operand, and needs no second pass over the row; a pool of a pool becomes one
pool; a batch norm in evaluation goes into the weights before it; what changes nothing (the maximum of one element,
dropout that drops nothing, the same call twice) goes; fp32 attention with heads wider than 256 becomes two products
and a softmax, since one kernel would work out its scores several times. The bias of a library convolution becomes an
addition that the kernel behind it takes up: the library adds it in a pass over the whole result. A step of an LSTM or
a GRU becomes two products and elementwise work, which is one kernel. An Einstein sum of tensors that do not lie as
matrices do becomes a product of matrices between views, which kernels are joined with; embeddings that are summed a
row of indices at a time become a lookup and a reduction. Work on complex numbers between real ones becomes work on
pairs of real numbers, in which a Fourier transform of up to 512 numbers can be a kernel: one product with a matrix of
cosines that the kernel makes. Several layers of one operand (queries, keys and values, whatever their widths) become
one product with their weights one behind the other, which are kept as by `pack`. Other weights are summed or scaled
in each call, so a version is right for any weights.

## When it pays
Whenever it is offered for a product: x @ w.T summed over 8192 features of 8192 inputs, 1024 rows, takes 1.4e11 flops
as written, and 268 MB of weights to read as a sum. Identities save a launch and a pass each, and bring neighbours
together that `fuse` can join. A bias saves a pass over the convolution's result once the addition is fused (32 x 64 x
513 x 513, fp32: 4.3 GB). Algebra first: it asks for library calls, and kernels that stand already are in its way.

## When it harms
- A norm folded into the weights of a small convolution: five short kernels over the weights for one over the result, at
  every call unless `pack` keeps what they make.
  Where the convolution is a Triton kernel, fusing the norm behind it costs nothing at all.
- A result found to be constant is exact for finite inputs, but most likely a mistake in the reference: tell its author.
"""


class Algebra(Optimization):
    """Less work for the same result."""

    kind = "algebra"
    page = PAGE
    weight = 3.0
    changes = ("flops", "kernels", "bytes_moved")

    def legal(self, version: Version) -> Iterator[Move]:
        """One move for each kind of rule that fits torch calls of the version and gives what can be written."""
        for rules in RULES:
            found = apply_rules(version.graph, rules)
            plan = _rewritten(version, rules, found)
            if plan is None:
                continue
            stages = [version.plan.stage_of(name) for name in sorted(found.ops)]
            more = f", and {len(found.sentences) - 1} more" if len(found.sentences) > 1 else ""
            sentence = f"rewrite by algebra: {found.sentences[0]}{more}"
            action = make_action(self.kind, version.region(*stages), sentence, rules=rules)
            yield Move(action, partial(kept, replace(version, graph=found.graph), plan))


def _rewritten(version: Version, rules: str, found: Rewritten) -> Plan | None:
    """The child's plan, None where there is nothing to do, a kernel in the way, or a number that cannot be written."""
    old = version.plan
    if not found.sentences or not all(old.stage_of(name).is_torch for name in found.ops):
        return None
    kept = [stage for stage in old.stages if set(stage.ops) & set(found.graph.by_name)]
    if any(not set(stage.ops) <= set(found.graph.by_name) for stage in kept):
        return None
    covered = {name for stage in kept for name in stage.ops}
    new = [Stage((op.name,)) for op in found.graph.ops if op.name not in covered]
    stages, packed = tuple(in_order(found.graph, [*kept, *new])), old.packed or rules in OF_WEIGHTS
    plan = replace(old, stages=stages, algebra=(*old.algebra, rules), packed=packed)
    try:
        print_plan(version.task, found.graph, plan)
    except CoderError:
        return None
    return plan
