"""fuse: two neighbouring stages become one kernel."""

from __future__ import annotations

from itertools import pairwise

from mtmc.action import Action
from mtmc.optimizations.resources import PRODUCTS as MULTIPLY
from mtmc.optimizations.version import Version, make_action
from mtmc.rewrite.plan import Plan, Setting, Stage, feeds, fusible, merged_ops
from mtmc.rewrite.products import PRODUCTS

PAGE = """\
# fuse

Two kernels, of which one reads what the other writes, become one. Torch calls are lowered on the way.

## What it does
The value between them stays in registers: it is not written to memory and not read again, and one launch is saved.
What that is worth can be told beforehand: twice the bytes of the value between, over the bandwidth that streams reach
(0.87 of the peak). 16384 x 4096 fp32 numbers are 268 MB, so 0.18 ms on an H100.

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


class Fuse:
    """Two stages become one kernel."""

    kind = "fuse"
    page = PAGE

    def legal(self, version: Version) -> list[Action]:
        """One action for each pair of neighbours that one family covers together."""
        working = [stage for stage in version.plan.stages if not version.is_free(stage)]
        actions = []
        for first in working:
            for second in working:
                if first != second and self._in_order(version, first, second) and self._merged(version, first, second):
                    region = version.region(first, second)
                    sentence = f"fuse {first.name} and {second.name}"
                    actions.append(make_action(self.kind, region, sentence, first=first.name, second=second.name))
        return [*actions, *self._threes(version, working)]

    def _threes(self, version: Version, working: list[Stage]) -> list[Action]:
        """Products with something between them that neither can take alone: attention's."""
        products = [stage for stage in working if any(version.graph.by_name[op].target in PRODUCTS for op in stage.ops)]
        actions = []
        for first in products:
            for middle in (stage for stage in working if feeds(version.graph, first, stage)):
                for second in (stage for stage in products if feeds(version.graph, middle, stage)):
                    three = (first, middle, second)
                    if len(set(three)) < 3 or self._merged(version, *three) is None:
                        continue
                    names = dict(zip(("first", "middle", "second"), (stage.name for stage in three), strict=True))
                    sentence = f"fuse {first.name}, {middle.name} and {second.name}"
                    actions.append(make_action(self.kind, version.region(*three), sentence, **names))
        return actions

    def rewrite(self, version: Version, action: Action) -> Plan | None:
        """The plan with both as one stage; settings of either are kept where the fused kernel has them."""
        names = [value for _, value in sorted(action.params)]  # first, middle, second
        merged = self._merged(version, *(version.stage(str(name)) for name in names))
        return None if merged is None else version.plan.with_merged(version.graph, merged[0], merged[1])

    def _in_order(self, version: Version, first: Stage, second: Stage) -> bool:
        """Whether this is the order in which the plan has them: a pair is offered once."""
        return version.plan.stages.index(first) < version.plan.stages.index(second)

    def _merged(self, version: Version, *stages: Stage) -> tuple[list[Stage], Stage] | None:
        """The stages that are fused (each feeds the next) and the kernel they become."""
        free = [stage for stage in version.plan.stages if version.is_free(stage)]
        parts: list[Stage] = []
        for first, second in pairwise(stages):
            found = fusible(version.graph, version.plan, first, second, free)
            if found is None:
                return None
            parts += [stage for stage in found if stage not in parts]
        settings: dict[str, Setting] = {}
        for stage in (*reversed(stages), *(stage for stage in stages if stage.family in MULTIPLY)):
            settings |= dict(stage.schedule)
        merged = version.as_kernel(merged_ops(version.graph, parts), settings)
        return None if merged is None else (parts, merged)
