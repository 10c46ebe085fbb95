"""lower: a torch call becomes a Triton kernel of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from mtmc.action import Action, make_action
from mtmc.errors import CoderError
from mtmc.optimizations.groups import fused, groups_of
from mtmc.optimizations.join import Join
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.layout import CONVOLUTION, convolves, in_fp32, is_wide, kept
from mtmc.optimizations.move import Move
from mtmc.optimizations.pack import Pack
from mtmc.optimizations.version import Version, also
from mtmc.optimizations.views import with_views
from mtmc.protocols import Observation
from mtmc.rewrite.joins import is_in_place
from mtmc.rewrite.plan import Plan, Stage
from mtmc.source.sites import Sites

PAGE = """\
# lower

One PyTorch call becomes one Triton kernel that does the same.

## What it does
By itself it saves nothing where the call is one good kernel: the same bytes are read and written. It gains where
eager mode takes several kernels for one call, and it makes a kernel that can be fused, tiled and pipelined
afterwards.

## When it pays
Calls that are several kernels or several passes. Library against one kernel, fp32, H100: logsumexp 0.625 ms to 0.099
(seven kernels to one), cross entropy 0.670 to 0.397, layer norm 0.267 to 0.184, softmax over the last dimension 0.231
to 0.183. Softmax over the first dimension takes the library 19.953 ms where the last one takes 0.229; no kernel of
ours was timed there. Max pools: the library's notes places as well. Products of a batch of which several have one
right operand, norms and softmaxes of a view: the library copies that first. Elementwise calls: alone they gain
nothing, lower them in order to fuse them.

## When it harms
- fp16 and bf16 products: 4096 cubed in fp16 takes the library 0.182 ms, our best Triton tile 0.259.
- fp32 products, until they are tiled and pipelined: a batched product went from 1.397 ms to 1.958, then to 1.307.
- Few long rows: sums of 64 rows of 2097152 went from 0.194 ms to 0.461; `split` helps there.
- Group norm gained nothing (0.205 ms to 0.206).
- Convolutions: the library's are hard to beat. Lower one for what it can be fused with, or where it is grouped, has few
  channels, or is transposed with a stride (the kernel here goes only over taps that meet an element). Several of fp32
  gain by what they hand to each other: channels last, rounded to TF32 where it is made, joined in place. One action
  does all of that. A DenseNet's block in training: 3.6 ms of an H200 by estimate, 4.6 with the library's.
"""


SEVERAL_PASSES = (
    "max_pool",
    "avg_pool",
    "adaptive_",
    "softmax",
    "log_softmax",
    "logsumexp",
    "cross_entropy",
    "cum",
    "logcumsum",
)
"""How the names of calls begin that take the library two to seven times as long as reading and writing once: it looks for
places too, goes over rows several times, or takes several kernels. The max pool of an Inception module was not lowered in 21
evaluations, which lowered its convolutions one by one."""
PUT_IN_ORDER = ("aten.layer_norm.default", "aten.softmax.int", "aten.log_softmax.int")
"""Calls that copy an operand that is not in order before they go over its rows (ATen's `layer_norm` and `host_softmax`)."""
FIRST = 1.0
WITH_ALL = math.log(3.0)
"""For convolutions with all around them: what is done besides is of kinds that weigh three times as much."""


class Lower(Optimization):
    """A torch call becomes a Triton kernel."""

    kind = "lower"
    page = PAGE
    weight = 1.0
    changes = ("device_ms",)

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """More for what the library does in several passes, or of operands that it copies first, and for all convolutions as
        much as for each of their forms."""
        forms = dict(action.params).get("forms")
        if forms is not None:
            return math.log(float(forms)) + (WITH_ALL if "joined" in dict(action.params) else 0.0)
        several = action.region.name.startswith(SEVERAL_PASSES) or "copied" in dict(action.params)
        return FIRST if several else 0.0

    def legal(self, version: Version) -> Iterator[Move]:
        """One move for each torch call that a template covers, and those like it; one for all convolutions of
        many channels, and one for these with all that pays around them."""
        once = version.kept()
        calls = [stage for stage in version.working() if stage.is_torch and stage not in once]
        calls = [stage for stage in calls if not is_in_place(stage)]  # kernels have done most of it
        convolutions: list[tuple[Stage, ...]] = []
        for stage, others in version.isomorphic(calls):
            kernel = version.as_kernel(stage.ops, {})
            if kernel is None:
                continue
            if kernel.template == CONVOLUTION and convolves(version, stage) and is_wide(version, stage):
                convolutions.append((stage, *others))
            sentence = f"lower {stage.title} to a Triton kernel{also(others)}"
            copied = {"copied": True} if _is_copied(version, stage) else {}
            action = make_action(self.kind, version.region(stage), sentence, **copied)
            yield Move(action, partial(lowered, version, (stage, *others)))
        if len(convolutions) > 1:
            stages = [stage for alike in convolutions for stage in alike]
            sentence = f"lower all {len(stages)} convolutions of many channels to Triton kernels"
            action = make_action(self.kind, version.span(stages), sentence, forms=len(convolutions))
            yield Move(action, partial(lowered, version, stages))
            if not version.plan.packed and all(in_fp32(version, stage) for stage in stages):
                words = f"{sentence}, fuse what is around them, keep their filters, and join their results in place"
                action = make_action(self.kind, version.span(stages), words, forms=len(convolutions), joined=True)
                yield Move(action, partial(_with_all, version, stages))

    def sites(self, sites: Sites) -> Iterator[Action]:
        """Each call of torch's."""
        for call in sites.calls:
            if call.is_torch:
                yield make_action(self.kind, call.region, f"lower {call.name} to a Triton kernel")


def _is_copied(version: Version, stage: Stage) -> bool:
    """Whether the library copies an operand before it begins: a right one that several products of a batch have is repeated,
    rows that lie across are put in order."""
    graph, op = version.graph, version.graph.by_name[stage.ops[0]]
    tensors = [graph.values[ref] for ref in op.refs() if ref in graph.values]
    if op.target in PUT_IN_ORDER:
        return bool(tensors) and not tensors[0].contiguous
    if op.target != "aten.matmul.default" or len(tensors) != 2:
        return False
    left, right = (math.prod(size[0] for size in tensor.shape[:-2]) for tensor in tensors)
    return len(tensors[1].shape) > 2 and left > right


def lowered(version: Version, calls: Sequence[Stage]) -> Plan:
    """The plan with these calls as kernels, but for one whose numbers cannot be expressed where it stands."""
    plan = version.plan
    for stage in calls:
        kernel = version.as_kernel(stage.ops, {})
        plan = plan if kernel is None else plan.with_stage(stage, kernel)
    return kept(version, with_views(version, plan))


def _with_all(version: Version, convolutions: Sequence[Stage]) -> Plan | None:
    """The plan with convolutions as kernels, and what takes the library several passes; all neighbours are fused that gain
    by it, filters are kept between calls, and results joined in place. None where that cannot be written."""
    passes = [stage for stage in version.plan.stages if stage.is_torch and stage.name.startswith(SEVERAL_PASSES)]
    now = replace(version, plan=lowered(version, [*convolutions, *passes]))
    plan = kept(now, with_views(now, fused(now, groups_of(now))))
    try:
        for kind in (Pack(), Join()):
            now = version.made(plan)
            moves = list(kind.legal(now))  # the last one is for all
            plan = (moves[-1].child if moves else None) or plan
    except CoderError:
        return None
    return plan
