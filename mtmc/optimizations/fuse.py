"""fuse: two neighbouring stages become one kernel."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from mtmc.action import Action, Region, make_action
from mtmc.optimizations.groups import ALL_NEIGHBOURS, Group, flow_of, fused, groups_of, settings_of
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.layout import kept
from mtmc.optimizations.merging import Merged, merged, neighbours, saved_logit, value_bytes
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version, also
from mtmc.optimizations.views import with_views
from mtmc.protocols import Observation
from mtmc.rewrite.flow import Flow
from mtmc.rewrite.graph import CONSTANT, Graph, Shape
from mtmc.rewrite.isomorphism import structural_hash
from mtmc.rewrite.operators.attention import ATTENTION
from mtmc.rewrite.operators.products import PRODUCTS
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.plan import Plan, Stage, merged_ops
from mtmc.source.calls import Call
from mtmc.source.sites import Sites

PAGE = """\
# fuse

Two kernels, of which one reads what the other writes, become one. Torch calls are lowered on the way.

## What it does
The value between them stays in registers: it is not written to memory and not read again, and one launch is saved.
What that is worth can be told beforehand: twice the bytes of the value between, over the bandwidth that streams
reach (0.87 of the peak). 16384 x 4096 fp32 numbers are 268 MB, so 0.18 ms on an H100.

Small stages over the same shape that need nothing of each other go side by side in one kernel, which saves the launch,
and so do elementwise stages of any size and shape that read parts of one value, or do the same with one tensor of the
module: queries and keys that are rotated, heads that are laid out anew. A program then belongs to one of them. Products
of one left operand with matrices of one shape share its tiles: the two of a gated MLP become one kernel with what takes
both. A norm before layers with few rows (16 of 4096), or with so small weights that memory is the limit (128 to 8), is
worked out by each program for its rows. What only moves elements (slices, joins, pads, lookups) costs nothing in a
kernel and ends no fusion: attention reads a cache in pages through its table of blocks, and keys behind a sequence's
length not at all. Nor do a few neighbours of each element (pools, depthwise convolutions), a sum of a few elements, or
the sum over all rows of what each row's softmax gave: a divergence over a vocabulary is one kernel. Grouped products
(`torch._grouped_mm`) take what follows, as others do. Two products with a scale, a mask and a softmax between them are
attention at once, with or without what makes the mask. Rows that others broadcast (decays that are
normalized) are worked out by the kernel of those; heads that are normed, then stand token by token, are one kernel.

## When it pays
Nearly always where memory is the limit: elementwise after anything, elementwise before a product, a reduction after
what makes its rows. Library calls against one fused kernel, fp32, H100: gelu(x + bias) 0.402 ms to 0.184; nine
elementwise calls 1.889 to 0.270; RMS norm of six calls 0.733 to 0.183; softmax then gelu 0.412 to 0.185; mean, max
and argmax of the same rows 0.298 to 0.099.

## When it harms
- A product and a reduction over its columns: one program must see all columns of a row, so few programs are left.
  Linear then max over 2048 rows went from 0.688 ms to 1.196 when it was fused, and to 0.662 only after `tile` and
  `pipeline`.
- Work before a product is done again for every tile of columns.
- A fused kernel that holds too much spills registers: look at `spills` in the metrics.
After a large product the gain is small: a GELU in the product's kernel saves 2% of 0.691 ms. There `precision`,
`tile` and `pipeline` are worth more.
"""

SMALL = 2**20
"""Elements that a stage reads and writes at most to be small: 4 MB, a good microsecond."""
LONGEST = 4
"""Calls in a row that a version without a plan is offered as one fusion, besides the whole row."""
WHOLE = 8
"""Calls of the longest row that is offered as one fusion."""
HORIZONTAL = ("pointwise", "rowwise")
"""Templates whose kernels go over several values of the same shape at once."""


class Fuse(Optimization):
    """Neighbouring stages become one."""

    kind = "fuse"
    page = PAGE
    weight = 3.0
    changes = ("kernels", "bytes_moved")

    def legal(self, version: Version) -> Iterator[Move]:
        """Moves for the largest groups, for neighbours that one template covers together, for small ones side by side; none
        that would do at each call what is kept, and read no less.

        Neighbours that are alike, as in the layers of a network, have one move, which fuses them everywhere.
        """
        flow, once = flow_of(version), version.kept()
        found: dict[Hashable, list[tuple[tuple[Stage, ...], Merged]]] = {}
        for stages in neighbours(version, flow):
            if not _is_kept_for(version, stages, once) and (pair := merged(version, flow, *stages)) is not None:
                found.setdefault(structural_hash(version.graph, pair[1]), []).append((stages, pair))
        yield from self._groups(version)
        for alike in found.values():
            yield self._near(version, alike)
        yield from self._side_by_side(version, flow)

    def _near(self, version: Version, alike: Sequence[tuple[tuple[Stage, ...], Merged]]) -> Move:
        """The move for some neighbours, and others like them."""
        (stages, kernel), *others = alike
        names = [stage.name for stage in stages]
        apart = _apart_from(stages, [each for each, _ in others])
        params: dict[str, str | int] = {"first": names[0], "second": names[-1]}
        region, what = version.region(*stages), f"{', '.join(names[:-1])} and {names[-1]}"
        if len(names) > 2:
            params["saved"] = (len(names) - 1) * (1 + len(apart))
        if len(names) == 3:
            params["middle"] = names[1]
        elif len(names) > 3:
            params["between"] = len(names) - 2
            region = version.span(stages)
            what = f"{names[0]} and {names[-1]} with the {len(names) - 2} calls between them"
        action = make_action(self.kind, region, f"fuse {what}{also(apart)}", **params)
        return Move(action, partial(_everywhere, version, kernel, [each for each, _ in others]))

    def _groups(self, version: Version) -> Iterator[Move]:
        """All groups at once, and those of three stages or more."""
        groups = groups_of(version)
        yield from self._all_groups(version, groups)
        for alike in _isomorphic(version, groups):
            first, *others = alike
            if len(first.stages) > 2 and (len(groups) == 1 or len(alike) < len(groups)):
                names = f"{first.stages[0].name} to {first.stages[-1].name}"
                sentence = f"fuse the {len(first.stages)} calls from {names}{also(others)}"
                numbers = {"groups": 1, "saved": (len(first.stages) - 1) * len(alike)}
                action = make_action(self.kind, version.span(first.stages), sentence, **numbers)
                yield Move(action, partial(_fused, version, alike))

    def _all_groups(self, version: Version, groups: Sequence[Group]) -> Iterator[Move]:
        """All groups at once, where there are several."""
        if len(groups) > 1:
            saved = sum(len(group.stages) - 1 for group in groups)
            stages = [stage for group in groups for stage in group.stages]
            sentence = f"{ALL_NEIGHBOURS}, {len(groups)} kernels instead of {saved + len(groups)}"
            action = make_action(self.kind, version.span(stages), sentence, groups=len(groups), saved=saved)
            yield Move(action, partial(_fused, version, groups))

    def leading(self, version: Version) -> Iterator[Move]:
        """All groups at once."""
        return self._all_groups(version, groups_of(version))

    def _side_by_side(self, version: Version, flow: Flow) -> Iterator[Move]:
        """Small stages of which none needs another, and larger ones that read parts of one value: one launch for two."""
        once = version.kept()
        working = [stage for stage in version.working() if stage not in once]
        level = [(stage, shape) for stage in working if (shape := _shape(version, stage)) is not None]
        for at, (first, shape) in enumerate(level):
            for second, other in level[at + 1 :]:
                if not flow.independent(first, second) or not self._pays(version, (first, shape), (second, other)):
                    continue
                if flow.together(first, second):
                    continue
                kernel = version.as_kernel(
                    merged_ops(version.graph, (first, second)), settings_of(version, (first, second))
                )
                if kernel is None or kernel.template not in HORIZONTAL:
                    continue
                sentence = f"fuse {first.name} and {second.name} horizontally"
                names = {"first": first.name, "second": second.name}
                action = make_action(self.kind, version.region(first, second), sentence, **names, horizontal=True)
                plan = version.plan.with_merged(version.graph, (first, second), kernel)
                yield Move(action, partial(_beside, version, plan))
                break  # the next one like it; the others can follow

    def _pays(self, version: Version, one: tuple[Stage, Shape], other: tuple[Stage, Shape]) -> bool:
        """Whether the launch is most of what one of two stages takes, or both read what lies in the cache for the other."""
        if one[1] == other[1] and all(_small(version, stage) for stage, _ in (one, other)):
            return True
        shared = _sources(version, one[0]) & _sources(version, other[0])
        if not shared or (
            shared <= version.graph.parameters.keys() and not _isomorphic_pair(version, one[0], other[0])
        ):
            return False
        return not _leads_to(version, one[0]) & _leads_to(version, other[0])

    def sites(self, sites: Sites) -> Iterator[Action]:
        """Two to `LONGEST` calls in a row, short ones first, and each row as a whole."""
        for count in range(2, LONGEST + 1):
            for row in sites.rows():
                for start in range(len(row) - count + 1):
                    yield self._calls(row[start : start + count])
        for row in sites.rows():
            if LONGEST < len(row) <= WHOLE:
                yield self._calls(row)

    def _calls(self, calls: Sequence[Call]) -> Action:
        names = [call.name for call in calls]
        words = f"{', '.join(names[:-1])} and {names[-1]}"
        return make_action(self.kind, Region.spanning(words, (call.region for call in calls)), f"fuse {words}")

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """Each kernel that a fusion of whole groups saves is a fusion of two."""
        return saved_logit(action)


def _is_kept_for(version: Version, stages: Sequence[Stage], once: Collection[Stage]) -> bool:
    """Whether all neighbours are kept from one call to the next, or those that are make nothing larger than what they read,
    joined or turned weights, for a call of the library. A kernel that unpacks weights reads less than what is kept of them;
    one that joins them itself needs no memory for them."""
    kept = [stage for stage in stages if stage in once]
    if len(kept) == len(stages):
        return True
    by_library = all(stage.is_torch for stage in stages if stage not in kept)
    return bool(kept) and by_library and not any(_unpacks(version.graph, stage) for stage in kept)


def _unpacks(graph: Graph, stage: Stage) -> bool:
    """Whether what a stage makes for others takes more memory than what it reads."""
    makes, reads = graph.flow(stage.ops)
    return value_bytes(graph, graph.leaving(stage.ops)) > value_bytes(graph, reads - makes)


def _everywhere(version: Version, first: Merged, others: Sequence[tuple[Stage, ...]]) -> Plan:
    """The plan with the first fused, and with those other neighbours that are still there, fused."""
    done = replace(version, plan=version.plan.with_merged(version.graph, *first))
    for stages in others:
        if not set(stages) <= set(done.plan.stages):
            continue
        again = merged(done, flow_of(done), *stages)  # what was fused meanwhile may stand between them
        if again is not None:
            done = replace(done, plan=done.plan.with_merged(done.graph, *again))
    return kept(version, with_views(version, done.plan))


def _beside(version: Version, plan: Plan) -> Plan:
    return kept(version, with_views(version, plan))


def _fused(version: Version, groups: Sequence[Group]) -> Plan:
    return kept(version, with_views(version, fused(version, groups)))


def _apart_from(first: tuple[Stage, ...], others: Sequence[tuple[Stage, ...]]) -> list[tuple[Stage, ...]]:
    """The others that share no stage with the first nor with each other."""
    taken, found = set(first), []
    for stages in others:
        if not taken & set(stages):
            taken |= set(stages)
            found.append(stages)
    return found


def _isomorphic(version: Version, groups: Sequence[Group]) -> list[list[Group]]:
    """Groups that become kernels of one form together."""
    of = {group.merged: group for group in groups}
    return [[of[stage] for stage in (first, *others)] for first, others in version.isomorphic(list(of))]


def _shape(version: Version, stage: Stage) -> Shape | None:
    """The shape of the first result of a stage that may stand beside another in one launch; None of another stage."""
    if (version.template(stage) if stage.is_torch else stage.template) not in HORIZONTAL:
        return None
    last = version.graph.by_name[stage.ops[-1]]
    result = version.graph.values.get(last.outputs[0])
    return None if last.target == CONSTANT or result is None else result.shape


def _small(version: Version, stage: Stage) -> bool:
    """Whether a launch takes longer than the bytes of all that a stage reads and writes."""
    graph = version.graph
    ops = [graph.by_name[name] for name in stage.ops]
    values = {name for op in ops for name in (*op.refs(), *op.outputs) if name in graph.values}
    return bool(values) and sum(graph.values[name].numel() for name in values) <= SMALL


def _isomorphic_pair(version: Version, one: Stage, other: Stage) -> bool:
    """Whether two stages do the same with other values: what queries and keys are rotated by is then a tensor of the module,
    and a weight that different stages read is no reason to join them."""
    return structural_hash(version.graph, one) == structural_hash(version.graph, other)


def _leads_to(version: Version, stage: Stage) -> set[str]:
    """The ops that hang on a stage, up to products and the library's attention: what these meet in is fused with both."""
    graph, found = version.graph, set[str]()
    todo = [value for name in stage.ops for value in graph.by_name[name].outputs]
    while todo:
        for name in graph.readers(todo.pop()):
            op = graph.by_name[name]
            if name not in found and op.target not in PRODUCTS and op.target not in ATTENTION:
                found.add(name)
                todo += op.outputs
    return found


def _sources(version: Version, stage: Stage) -> set[str]:
    """What a stage reads, or what that is a view of."""
    graph, found = version.graph, set[str]()
    todo = [ref for name in stage.ops for ref in graph.by_name[name].refs() if graph.producer.get(ref) not in stage.ops]
    while todo:
        value = todo.pop()
        maker = graph.by_name.get(graph.producer.get(value, ""))
        if maker is not None and maker.target in FREE:
            todo += maker.refs()
        else:
            found.add(value)
    return found
