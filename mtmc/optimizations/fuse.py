"""fuse: two neighbouring stages become one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mtmc.action import Action
from mtmc.optimizations.resources import PRODUCTS as MULTIPLY
from mtmc.optimizations.version import Version, make_action
from mtmc.rewrite.flow import Flow
from mtmc.rewrite.graph import CONSTANT, Shape
from mtmc.rewrite.plan import Plan, Setting, Stage, feeds, merged_ops
from mtmc.rewrite.products import PRODUCTS

PAGE = """\
# fuse

Two kernels, of which one reads what the other writes, become one. Torch calls are lowered on the way.

## What it does
The value between them stays in registers: it is not written to memory and not read again, and one launch is saved.
What that is worth can be told beforehand: twice the bytes of the value between, over the bandwidth that streams reach
(0.87 of the peak). 16384 x 4096 fp32 numbers are 268 MB, so 0.18 ms on an H100.

Small stages over the same shape that need nothing of each other go side by side in one kernel, which saves the launch.

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
SIDE_BY_SIDE = ("pointwise", "rowwise")
"""Families whose kernels go over several values of the same shape at once."""


class Fuse:
    """Two stages become one kernel."""

    kind = "fuse"
    page = PAGE

    def legal(self, version: Version) -> list[Action]:
        """One action for each pair of neighbours that one family covers together, and for small ones side by side."""
        flow = flow_of(version)
        working = [stage for stage in version.plan.stages if not version.is_free(stage)]
        actions = []
        for first, second in flow.pairs():
            if self._merged(version, flow, first, second):
                region = version.region(first, second)
                sentence = f"fuse {first.name} and {second.name}"
                actions.append(make_action(self.kind, region, sentence, first=first.name, second=second.name))
        return [*actions, *self._threes(version, flow, working), *self._side_by_side(version, flow, working)]

    def _side_by_side(self, version: Version, flow: Flow, working: list[Stage]) -> list[Action]:
        """Small stages over the same shape of which none needs another: one launch instead of two."""
        actions = []
        small = [(stage, shape) for stage in working if (shape := _small(version, stage)) is not None]
        for at, (first, shape) in enumerate(small):
            for second, other in small[at + 1 :]:
                if shape != other or not flow.independent(first, second) or flow.together(first, second):
                    continue
                if self._joined(version, flow, first, second) is None:
                    continue
                sentence = f"fuse {first.name} and {second.name} side by side"
                region = version.region(first, second)
                names = {"first": first.name, "second": second.name}
                actions.append(make_action(self.kind, region, sentence, **names, apart=True))
                break  # the next one like it; the others can follow
        return actions

    def _joined(self, version: Version, flow: Flow, *stages: Stage) -> tuple[list[Stage], Stage] | None:
        """Stages that nothing flows between, and the kernel they become."""
        if not flow.independent(stages[0], stages[1]):
            return None
        merged = version.as_kernel(merged_ops(version.graph, stages), _settings(stages))
        return None if merged is None or merged.family not in SIDE_BY_SIDE else ([*stages], merged)

    def _threes(self, version: Version, flow: Flow, working: list[Stage]) -> list[Action]:
        """Products with something between them that neither can take alone: attention's."""
        products = [stage for stage in working if any(version.graph.by_name[op].target in PRODUCTS for op in stage.ops)]
        actions = []
        for first in products:
            for middle in (stage for stage in working if feeds(version.graph, first, stage)):
                for second in (stage for stage in products if feeds(version.graph, middle, stage)):
                    three = (first, middle, second)
                    if len(set(three)) < 3 or self._merged(version, flow, *three) is None:
                        continue
                    names = dict(zip(("first", "middle", "second"), (stage.name for stage in three), strict=True))
                    sentence = f"fuse {first.name}, {middle.name} and {second.name}"
                    actions.append(make_action(self.kind, version.region(*three), sentence, **names))
        return actions

    def rewrite(self, version: Version, action: Action) -> Plan | None:
        """The plan with both as one stage; settings of either are kept where the fused kernel has them."""
        params = dict(action.params)
        named = [version.stage(str(params[key])) for key in ("first", "middle", "second") if key in params]
        find = self._joined if params.get("apart") else self._merged
        merged = find(version, flow_of(version), *named)
        return None if merged is None else version.plan.with_merged(version.graph, merged[0], merged[1])

    def _merged(self, version: Version, flow: Flow, *stages: Stage) -> tuple[list[Stage], Stage] | None:
        """The stages that are fused (each feeds the next) and the kernel they become."""
        parts: list[Stage] = []
        for first, second in pairwise(stages):
            found = flow.together(first, second)
            if found is None:
                return None
            parts += [stage for stage in found if stage not in parts]
        merged = version.as_kernel(merged_ops(version.graph, parts), _settings(stages))
        return None if merged is None else (parts, merged)


def flow_of(version: Version) -> Flow:
    """What flows between a version's stages."""
    return Flow(version.graph, version.plan, [stage for stage in version.plan.stages if version.is_free(stage)])


def _settings(stages: Sequence[Stage]) -> dict[str, Setting]:
    """The settings of all stages; those of an earlier one count more, those of a product most."""
    settings: dict[str, Setting] = {}
    for stage in (*reversed(stages), *(stage for stage in stages if stage.family in MULTIPLY)):
        settings |= dict(stage.schedule)
    return settings


def _small(version: Version, stage: Stage) -> Shape | None:
    """The shape of a stage's first result, where a launch takes longer than the bytes of all it reads and writes."""
    graph = version.graph
    if not stage.is_torch and stage.family not in SIDE_BY_SIDE:
        return None
    ops = [graph.by_name[name] for name in stage.ops]
    values = {name for op in ops for name in (*op.refs(), *op.outputs) if name in graph.values}
    if not values or sum(graph.values[name].numel() for name in values) > SMALL or ops[-1].target == CONSTANT:
        return None
    result = graph.values.get(ops[-1].outputs[0])
    return None if result is None else result.shape
