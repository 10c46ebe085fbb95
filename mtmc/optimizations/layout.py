"""layout: the library's convolutions, and the kernels that read their results, on tensors that lie channels last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from mtmc.action import Action, Region, make_action
from mtmc.optimizations.groups import ALL_NEIGHBOURS, fused, groups_of
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.merging import saved_logit
from mtmc.optimizations.move import Move
from mtmc.optimizations.rounding import LEAST_CHANNELS
from mtmc.optimizations.starts import started
from mtmc.optimizations.version import Version
from mtmc.optimizations.views import with_views
from mtmc.protocols import Observation
from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.graph import Ref, is_one
from mtmc.rewrite.plan import Plan, Stage, merged_ops
from mtmc.rewrite.printing import print_stage
from mtmc.rewrite.templates import TEMPLATES
from mtmc.rewrite.templates.channels_last import FORMATS, full_shapes, is_channels_last
from mtmc.rewrite.templates.permuted_body import to_channels_last
from mtmc.rewrite.templates.positions import Windowed, analyse

PAGE = """\
# layout

Tensors lie channels last in memory (NHWC) where they are convolved, and where kernels go over the results.

## What it does
cuDNN's fast convolutions want channels next to each other: of a tensor that lies channels first it makes a copy in the
other order before, and of the result one after, in each call. Here the input is permuted once, by a kernel that reads
along the places and writes along the channels, however many read it; the weights, which are small, are permuted in each
call too. Results stay as they are, forward's too: the kernels behind a convolution loop over memory in its own order. A
reduction over the channels then reads neighbours, one over space keeps the channels side by side. What needs channels
first (a group norm, a view, a product) gets a copy. Kernels that convolve read a slice of channels as it lies; those of
fp32 numbers start so, since tensor cores take fp32 operands in that order alone.

## When it pays
Convolutions with some 8 channels or more, best several in a row. 3 x 3, 32 x 64 x 128 x 128 to 128 channels, fp32,
H100: 0.75 ms channels first, 0.45 on tensors that lie channels last, 0.15 to turn the input. Fuse the kernels behind
the convolution first, or at once (an action does both): torch calls take either order, but slowly. Where the layers
are small, `pack` afterwards: permuting weights is a short kernel each.

## When it harms
- One convolution between views, products or group norms: permuted before and back after, as the library does itself.
- Few channels, depthwise and grouped convolutions: the library has other kernels for them.
- Large weights on small images: they are permuted in each call, unless `pack` keeps them.
"""

_CONVOLUTIONS = frozenset(
    f"aten.{name}"
    for name in (
        "conv2d.default",
        "conv2d.padding",
        "conv3d.default",
        "conv3d.padding",
        "conv_transpose2d.input",
        "conv_transpose3d.input",
    )
)
_GROUPS_AT = 6
"""Where the number of groups stands among the arguments of all of them."""
HALVES = ("float16", "bfloat16")
TOO_EARLY = -1.5
"""For channels last before what stands behind the convolutions is fused: torch's calls take that order, but slowly."""
SENTENCE = "keep tensors channels last around {}convolutions"
CONVOLUTION = "convolution"
TEMPLATES_LAST = ("pointwise", "rowwise", "windows", CONVOLUTION)
"""Templates whose kernels can go over tensors that lie channels last."""


class Layout(Optimization):
    """Channels last around the library's convolutions."""

    kind = "layout"
    page = PAGE
    weight = 3.0
    changes = ("kernels", "bytes_moved")

    def legal(self, version: Version) -> Iterator[Move]:
        """One move for all of a version, where a convolution has enough channels and something would change; and one that
        fuses besides all neighbours that gain by it, which pay most by reading results as they lie."""
        alone = self._alone(version)
        if alone is None:
            return
        yield alone
        groups = groups_of(version)
        if groups:
            joined = replace(version, plan=with_views(version, fused(version, groups)))
            saved = len(version.working()) - len(joined.working())
            words = f"{_sentence(version)}, and {ALL_NEIGHBOURS}"
            action = make_action(self.kind, alone.action.region, words, joined=True, saved=max(1, saved))
            yield Move(action, partial(channels_last, joined))

    def leading(self, version: Version) -> Iterator[Move]:
        """The move for all of a version, where the wide convolutions are of 16 bits: of fp32 numbers the library takes TF32
        then, where it does not otherwise."""
        wide = [each for each in _convolutions(version) if is_wide(version, each)]
        if all(version.graph.values[_operand(version, each)].dtype in HALVES for each in wide):
            alone = self._alone(version)
            if alone is not None:
                yield alone

    def _alone(self, version: Version) -> Move | None:
        """Channels last in all of a version; None where nothing would change, or no convolution has enough channels."""
        if not any(is_wide(version, stage) for stage in _convolutions(version)):
            return None
        child = channels_last(version)
        changed = [stage for stage in version.plan.stages if stage not in child.stages]
        if not changed:
            return None
        region = Region.spanning("convolutions", [version.regions[each] for each in changed if each in version.regions])
        return Move(make_action(self.kind, region, _sentence(version)), lambda: child)

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Less while there is still something to fuse behind the convolutions, which pays whatever their layout; as much as
        that where it is fused besides."""
        if "joined" in dict(action.params):
            return saved_logit(action)
        early = any(other.kind == "fuse" and "conv" not in other.region.name for other in actions)
        return TOO_EARLY if early else 0.0


def _convolutions(version: Version) -> list[Stage]:
    return [stage for stage in version.plan.stages if _is_convolution(version, stage)]


def _sentence(version: Version) -> str:
    by_library = any(stage.is_torch for stage in _convolutions(version))
    return SENTENCE.format("the library's " if by_library else "")


def kept(version: Version, plan: Plan) -> Plan:
    """A child's plan, channels last like its parent's: what was fused or lowered anew takes tensors as they lie. Also where
    it has a kernel that convolves fp32 numbers, which tensor cores read with channels side by side.

    version: the parent, with the child's graph.
    """
    stages = (stage for stage in version.plan.stages if stage.is_torch or stage.template == CONVOLUTION)
    before = any(is_channels_last(stage) for stage in stages)
    child = replace(version, plan=plan)
    if before or any(_reads_side_by_side(child, stage) for stage in plan.stages):
        return channels_last(child)
    return plan


def _reads_side_by_side(version: Version, stage: Stage) -> bool:
    """Whether a kernel is an fp32 convolution that is best done channels last."""
    if stage.is_torch or is_channels_last(stage) or not _is_convolution(version, stage):
        return False
    return in_fp32(version, stage) and is_wide(version, stage)


def in_fp32(version: Version, stage: Stage) -> bool:
    """Whether a convolution is of fp32 numbers."""
    return version.graph.values[_operand(version, stage)].dtype == "float32"


def is_wide(version: Version, stage: Stage) -> bool:
    """Whether a convolution has channels enough, before and after it, for tensor cores to read them side by side."""
    return min(_channels(version, stage)) >= LEAST_CHANNELS and version.hardware.target.startswith("sm_")


def channels_last(version: Version) -> Plan:
    """The version's plan with tensors channels last around its convolutions."""
    stages, last = list[Stage](), set[str]()  # and the values that lie channels last
    convolved = _convolved(version)
    for stage in version.plan.stages:
        makes, reads = version.graph.flow(stage.ops)
        # What makes another convolution's operand of one reads the copy of that.
        turned = reads & convolved if makes & convolved else frozenset[str]()
        changed = stage
        if convolves(version, stage):
            changed = stage.scheduled({"layout": "channels_last"})
        elif not stage.is_torch:
            own = reads if stage.template == CONVOLUTION else frozenset[str]()
            changed, views = _channels_last_kernel(version, stage, last | turned | own), list[Stage]()
            if changed == stage:
                changed, views = _with_views_taken_in(version, stage, stages, last)
            stages = [each for each in stages if each not in views]
        if stage.is_torch and (is_channels_last(changed) or reads & last):
            last |= makes
        elif is_channels_last(changed):
            last |= set(print_stage(version.graph, changed, changed.name).last)
        stages.append(changed)
    return replace(version.plan, stages=tuple(stages))


def _convolved(version: Version) -> set[str]:
    """The operands of convolutions."""
    return {_operand(version, stage) for stage in version.plan.stages if _is_convolution(version, stage)}


def _channels_last_kernel(version: Version, stage: Stage, last: set[str]) -> Stage:
    """The kernel over memory in channels-last order, if it reads a tensor that lies so and can be written so."""
    own = version.body(stage)
    here = stage.template in TEMPLATES_LAST and version.graph.flow(stage.ops)[1] & last
    if own is None or is_channels_last(stage) or not here:
        return stage
    try:
        graph, body = to_channels_last(version.graph, own)
    except NotCovered:
        return stage
    # rows and columns are others then, so their blocks are chosen anew
    blocks = TEMPLATES[stage.template].default(graph, body) if stage.template in ("rowwise", "windows") else {}
    if stage.template == CONVOLUTION:
        blocks = TEMPLATES[CONVOLUTION].default(graph, body) | {"precision": stage.setting("precision")}
    plain = stage.scheduled({**blocks, "layout": "channels_last"})
    ways = (started(version.graph, own, plain, version.hardware), plain) if stage.template == CONVOLUTION else (plain,)
    changed = next((way for way in ways if version.prints(way)), None)
    if changed is None or not set(print_stage(version.graph, changed, changed.name).last) & last:
        return stage
    return changed


def _with_views_taken_in(
    version: Version, stage: Stage, before: Sequence[Stage], last: set[str]
) -> tuple[Stage, list[Stage]]:
    """The kernel over memory in channels-last order together with the views of such tensors that it alone reads, if that can
    be, and these views: channels in groups, seen by a call of torch, would be copied."""
    graph = version.graph
    makes, reads = graph.flow(stage.ops)
    views = [
        each
        for each in before
        if version.is_free(each)
        and not graph.flow(each.ops)[1].isdisjoint(last)
        and not graph.flow(each.ops)[0].isdisjoint(reads - makes)
        and all(reader in stage.ops for out in graph.leaving(each.ops) for reader in graph.readers(out))
        and graph.results().isdisjoint(graph.flow(each.ops)[0])
    ]
    if not views or is_channels_last(stage):
        return stage, []
    larger = version.as_kernel(merged_ops(graph, (*views, stage)), {stage.template: dict(stage.schedule)})
    if larger is None or larger.template != stage.template:
        return stage, []
    changed = _channels_last_kernel(version, larger, last)
    return (stage, []) if changed == larger else (changed, views)


def _is_convolution(version: Version, stage: Stage) -> bool:
    """Whether a stage is a convolution that may have its channels last, by the library or a kernel."""
    if stage.is_torch:
        return convolves(version, stage)
    body = version.body(stage) if stage.template == CONVOLUTION else None
    if body is None or len(full_shapes(version.graph, body)[0]) not in FORMATS:
        return False
    return is_one(analyse(version.graph, body).window.groups)


def convolves(version: Version, stage: Stage) -> bool:
    """Whether a stage is a convolution by the library that its fast kernels do."""
    if not stage.is_torch:
        return False
    op = version.graph.by_name[stage.ops[0]]
    if op.target not in _CONVOLUTIONS or not version.graph.values[op.outputs[0]].is_float:
        return False
    groups = op.args[_GROUPS_AT] if len(op.args) > _GROUPS_AT else op.kwargs.get("groups", 1)
    batched = isinstance(op.args[0], Ref) and len(version.graph.values[op.args[0].name].shape) in FORMATS
    return groups == 1 and batched and len(version.graph.values[op.outputs[0]].shape) in FORMATS


def _channels(version: Version, stage: Stage) -> tuple[int, int]:
    """Channels of a convolution's operand and of its result, at the full shapes."""
    if stage.is_torch:
        result = version.graph.values[version.graph.by_name[stage.ops[0]].outputs[0]].shape
    else:
        result = _analysed(version, stage).node.shape
    return version.graph.values[_operand(version, stage)].shape[1][0], result[1][0]


def _operand(version: Version, stage: Stage) -> str:
    """What a convolution takes its windows of."""
    return version.graph.by_name[stage.ops[0]].refs()[0] if stage.is_torch else _analysed(version, stage).source


def _analysed(version: Version, stage: Stage) -> Windowed:
    body = version.body(stage)
    assert body is not None
    return analyse(version.graph, body)
