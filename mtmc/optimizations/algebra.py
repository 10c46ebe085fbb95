"""algebra: the same result with less work, by algebra that is exact up to rounding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import islice

from mtmc.action import Action, make_action
from mtmc.errors import CoderError
from mtmc.optimizations.groups import ALL_NEIGHBOURS, fused, groups_of
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.layout import channels_last, kept
from mtmc.optimizations.lower import lowered
from mtmc.optimizations.merging import joined, joined_up_to, saved_logit
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version
from mtmc.optimizations.views import with_views
from mtmc.protocols import Observation
from mtmc.rewrite.algebra import OF_WEIGHTS, RULES, Rewritten, apply_rules
from mtmc.rewrite.algebra.convolutions import CONVOLUTIONS, TRANSPOSED
from mtmc.rewrite.algebra.losses import product_of
from mtmc.rewrite.graph import IN_ORDER
from mtmc.rewrite.operators.products import PRODUCTS
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.packing import packed_stages
from mtmc.rewrite.plan import CyclicStages, Plan, Stage, in_order
from mtmc.rewrite.source import print_plan

PAGE = """\
# algebra

The same result with less work, by algebra that is exact up to rounding.

## What it does
Replaces ops by others that are equal for all (finite) inputs: the sum or mean over the features of a product becomes a
product with the summed operand; the sum of a log-softmax, as of smoothed labels, becomes that of its operand; the cross
entropy of a product becomes that of its rows, whose kernel writes no logit; a batch norm in evaluation goes into the
weights before it; fp32 attention with heads wider than 256 becomes two products and a softmax. A convolution of a map
that was enlarged by its nearest places becomes a transposed one of the map. The bias of a library convolution becomes
an addition that the kernel behind takes up: the library adds it in a pass over the result. A step of an LSTM or a GRU
becomes two products and elementwise work, which is one kernel. An Einstein sum of tensors that do not lie as matrices
do becomes a product of matrices between views, which kernels are joined with, as does a convolution of one tap in 16
bits; embeddings that are summed a row of indices at a time become a lookup and a reduction. Work on complex numbers
between real ones becomes work on pairs of real numbers, in which a Fourier transform of up to 512 numbers can be a
kernel. Several layers of one operand (queries, keys and values) become one product with their weights one behind the
other, kept as by `pack`; one whose halves meet in a gate becomes two, which are one kernel. A layer of layers, or of
enlarged maps side by side, is done on what those are of, with the product of the weights. Layers between two
transpositions become their weights times what lies there; what many read across its rows is copied in order first; so
is the operand of a depthwise convolution before others whose channels lie last, or that mix them at each place. A mask
that positions alone make becomes `is_causal`, or rows compared with columns; heads of keys that are written several
times are read for several heads of queries. An Einstein sum of several is sums of two, least work first, with what
decays between them in a product's kernel. Rows that end within a line get zeros behind them. One token's sums are
attention; a product of one row of each matrix is a sum; values weighted by a difference of two softmaxes are a
difference of attentions. A norm before a pool, a softmax or a mean becomes its statistics and steps that those take in;
bias and activation of a convolution before it are in both. A convolution takes a form that fills tensor cores: a
transposed one of stride 1 is turned around, narrow groups are dense amid zeros, a line is a plane, taps of few channels
are channels.

## When it pays
Whenever it is offered for a product: x @ w.T summed over 8192 features, 1024 x 8192, takes 1.4e11 flops as written, 268
MB of weights to read as a sum. A bias saves a pass over the convolution's result once the addition is fused. 8205 x
2949 times 2949 x 5921 in fp32 with whole lines: 3.9 ms by estimate, 18.9 without. Three channels and 105 taps
(KernelBench 60) take 1.26 ms of an H200, 9.98 by the library; 75, in four groups, 0.82 and 5.72. Algebra first: it asks
for library calls, and kernels are in its way.

## When it harms
- A norm folded into the weights of a small convolution: five short kernels over the weights for one over the result, at
  every call unless `pack` keeps what they make. Behind a Triton kernel of the convolution it costs nothing.
- A result found to be constant is exact for finite inputs, but most likely a mistake in the reference: tell its author.
"""


class Algebra(Optimization):
    """Less work for the same result."""

    kind = "algebra"
    page = PAGE
    weight = 3.0
    changes = ("flops", "kernels", "bytes_moved")

    def legal(self, version: Version) -> Iterator[Move]:
        """One move for each kind of rule that fits torch calls of the version and gives what can be written.

        Where it brings in products there is one more, which makes kernels of these with what stands around them. Where its
        steps pay in a kernel alone, there is one that fuses all neighbours that gain by it.
        """
        for rules in RULES:
            yield from self._of(version, rules)

    def leading(self, version: Version) -> Iterator[Move]:
        """Rules that pay by the calls that they save, one kind after the other, without what might be fused besides."""
        for rules in OF_CALLS:
            yield from islice(self._of(version, rules), 1)

    def _of(self, version: Version, rules: str) -> Iterator[Move]:
        """The moves of one kind of rule."""
        found = apply_rules(version.graph, rules)
        plan = _rewritten(version, rules, found)
        if plan is not None:
            stages = [version.plan.stage_of(name) for name in sorted(found.ops)]
            more = f", and {len(found.sentences) - 1} more" if len(found.sentences) > 1 else ""
            sentence = f"rewrite by algebra: {found.sentences[0]}{more}"
            region = version.region(*stages)
            covered = rules not in OPENING or all(version.as_kernel(stage.ops, {}) is not None for stage in stages)
            opened = {} if covered else {"opened": True}
            after = replace(version, graph=found.graph)
            told = {"saved": _saved(version, plan)} if rules in OF_CALLS else {}
            if rules != OF_TILES:
                action = make_action(self.kind, region, sentence, rules=rules, **opened, **told)
                yield Move(action, partial(kept, after, plan))
            elif _is_known(found):
                words, turned = f"{sentence}, {BY_LIBRARY}", version.made(plan)
                yield Move(make_action(self.kind, region, words, rules=rules), partial(channels_last, turned))
            whole = _fuses_all(version, rules, found)
            further, saved = _joined(version, rules, found, plan, whole)
            if further is not None:
                words = f"{sentence}, {TILED if rules == OF_TILES else FUSED if whole else JOINED}"
                action = make_action(self.kind, region, words, rules=rules, joined=True, saved=saved, **opened)
                yield Move(action, partial(kept, after, further))

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Each kernel that is saved by joining is a fusion of two. What is fused besides comes before what rewrites alone,
        or fuses alone. So does what no kernel covers as it is written."""
        params = dict(action.params)
        more = (OPENED if "opened" in params else 0.0) + (WITH_ALL if "joined" in params else 0.0)
        more += FEWER_TAPS if params.get("rules") == "enlarged" else 0.0
        more += FULL_TILES if params.get("rules") == OF_TILES and "joined" in params else 0.0
        return saved_logit(action) + more


OF_CALLS = ("masks", "joined")
"""Kinds of rules that pay by the calls that they save."""
JOINED = "and fuse what it multiplies with what stands around that"
"""How a sentence goes on where products that algebra brings in become kernels at once."""
OF_PRODUCTS = "losses"
"""Rules whose steps pay in the kernel of the product that they are of."""
OF_CHANNELS = "channels"
"""Rules that copy an operand in another order, which is a kernel at once."""
OF_BOTH = (OF_CHANNELS, "distributed")
"""Rules that bring in products as well as work between these: first the products are joined, then their neighbours."""
OF_ROWS = ("logs", "passes", "scans", "biases", "statistics", "one_row", "enlarged", OF_PRODUCTS, *OF_BOTH)
FUSED = f"and {ALL_NEIGHBOURS}"
"""Kinds of rules whose steps pay in one kernel alone, where they save a pass over memory; and the same for these."""
OF_TILES = "filled"
"""Rules that pay in kernels alone, which are made of all that they bring in."""
TILED, BY_LIBRARY = "and make kernels of that", "channels last by the library"
OF_SUMS = ("einsums",)
"""Kinds of rules that may copy operands of products in another order."""
WITH_ALL = math.log(2.0)
"""For what is rewritten and fused at once."""
OPENING = ("cells", "einsums", "bags", "transforms")
"""Kinds of rules that may rewrite calls which no kernel covers as they are written."""
OPENED = math.log(3.0)
"""For what rewrites a call that is none of a kernel: until then it stands between its neighbours."""
FEWER_TAPS = math.log(3.0)
"""For convolutions with some 4 taps in place of 9: a kernel that enlarges their operand would be in the way."""
FULL_TILES = math.log(3.0)
"""For convolutions in a form that fills tensor cores: of 17 of KernelBench's the fastest is 1.2 to 13 times as fast as the
library, most of them by one kernel of theirs."""
NEVER_JOINED = ("attention", "joined", "padded")
"""Kinds of rules that take apart what is one kernel already, or lay out weights alone, which are kept between calls, or
operands, which the product's kernel would read as they were."""


def _joined(version: Version, rules: str, found: Rewritten, plan: Plan, whole: bool) -> tuple[Plan | None, int]:
    """The child's plan in which the products that are new in it are kernels that have taken in what stands around them, or
    all neighbours are fused that gain by it, and how many stages fewer it has; (None, 0) where nothing is joined."""
    graph = found.graph
    added = [op for op in graph.ops if op.name not in version.graph.by_name]
    if rules == OF_TILES:
        return _tiled(version.made(plan), {op.name for op in added}), 1
    once = {name for stage in packed_stages(graph, plan) for name in stage.ops} if plan.packed else set[str]()
    new = [op.name for op in added if op.target in PRODUCTS and op.name not in once]
    if not (new or whole) or rules in NEVER_JOINED:
        return None, 0
    start = version.made(plan)
    if rules == OF_PRODUCTS:
        products = ((product_of(graph, op.args[0]), op.name) for op in added if op.args)
        ends = [(product.name, last) for product, last in products if product is not None]
        start = replace(start, plan=joined_up_to(start, ends))
    if rules in OF_BOTH:
        start = replace(start, plan=joined(start, new))
    done = fused(start, groups_of(start)) if whole else joined(start, new)
    if rules == OF_CHANNELS:
        done = _copying(start, done)
    done = with_views(start, done)
    saved = len(replace(start, plan=plan).working()) - len(replace(start, plan=done).working())
    return (done, saved) if saved > 0 else (None, 0)


def _is_known(found: Rewritten) -> bool:
    """Whether all convolutions lie for the library as the graph says: where taps are channels they lie otherwise."""
    convolutions = [op for op in found.graph.ops if op.target in (*CONVOLUTIONS, *TRANSPOSED)]
    return all(found.graph.values[op.args[0].name].contiguous for op in convolutions)


def _tiled(start: Version, added: Set[str]) -> Plan | None:
    """The plan with convolutions as kernels, with copies of their operands, and all neighbours fused that gain by it; None
    where one is no kernel. added: the ops that algebra has brought in."""
    once = start.kept()
    calls = [stage for stage in start.working() if stage.is_torch and stage not in once and added & set(stage.ops)]
    if not calls or any(start.as_kernel(stage.ops, {}) is None for stage in calls):
        return None
    now = replace(start, plan=lowered(start, calls))
    return with_views(now, fused(now, groups_of(now)))


def _fuses_all(version: Version, rules: str, found: Rewritten) -> bool:
    """Whether steps of a kind pay in a kernel alone, or what they copy in another order is written so by what makes it."""
    added = (op for op in found.graph.ops if op.name not in version.graph.by_name)
    return rules in OF_ROWS or (rules in OF_SUMS and any(op.target == IN_ORDER for op in added))


def _copying(start: Version, plan: Plan) -> Plan:
    """The plan with its copies as kernels, but for those of what is kept between calls."""
    once = packed_stages(start.graph, plan)
    for stage in plan.stages:
        copies = stage.is_torch and start.graph.by_name[stage.ops[0]].target == IN_ORDER
        if copies and stage not in once:
            kernel = start.as_kernel(stage.ops, {})
            plan = plan if kernel is None else plan.with_stage(stage, kernel)
    return plan


def _saved(version: Version, plan: Plan) -> int:
    """How many calls and kernels fewer a child has at each call of forward, one at least."""
    child = version.made(plan)
    before, after = (len(set(each.working()) - each.kept()) for each in (version, child))
    return max(1, before - after)


def _left_of(after: Version, stage: Stage) -> list[Stage]:
    """What is left of a stage: all of it, or a kernel of those of its ops that something still reads; where that is none,
    torch calls of them. after: with the child's graph."""
    ops = tuple(name for name in stage.ops if name in after.graph.by_name)
    if len(ops) == len(stage.ops):
        return [stage]
    works = any(after.graph.by_name[name].target not in FREE for name in ops)
    kernel = after.as_kernel(ops, {}) if len(ops) > 1 and works else None
    return [Stage((name,)) for name in ops] if kernel is None else [kernel]


def _rewritten(version: Version, rules: str, found: Rewritten) -> Plan | None:
    """The child's plan, None where there is nothing to do, a kernel in the way, or a number that cannot be written.

    A kernel is in the way, too, where calls that become one stood on both sides of it: it would wait for itself."""
    old = version.plan
    if not found.sentences or not all(old.stage_of(name).is_torch for name in found.ops):
        return None
    after = replace(version, graph=found.graph)
    kept = [left for stage in old.stages for left in _left_of(after, stage)]
    covered = {name for stage in kept for name in stage.ops}
    new = [Stage((op.name,)) for op in found.graph.ops if op.name not in covered]
    try:
        stages, packed = tuple(in_order(found.graph, [*kept, *new])), old.packed or rules in OF_WEIGHTS
    except CyclicStages:
        return None
    plan = replace(old, stages=stages, algebra=(*old.algebra, rules), packed=packed)
    try:
        print_plan(version.task, found.graph, plan)
    except CoderError:
        return None
    return plan
