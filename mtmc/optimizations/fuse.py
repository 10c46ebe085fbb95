"""fuse: two neighbouring stages become one kernel."""

from __future__ import annotations

from mtmc.action import Action
from mtmc.optimizations.version import Version, make_action
from mtmc.rewrite.plan import Plan, Stage, fusible, merged_ops

PAGE = """\
# fuse

What it does: a kernel and the one that reads its result become one; the value between them stays in registers instead of
being written to memory and read again, and one launch is saved. Torch calls are lowered on the way.

When it pays: nearly always where memory is the limit: elementwise after anything, elementwise before a product, a
reduction after what makes its rows. A product followed by a reduction over its columns ("fuse linear and max") saves
writing the whole product.
When it harms: when the fused kernel needs so many registers that they spill, when work before a product is repeated for
every tile of columns, and when reducing a product leaves too few programs to fill the chip.
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
        return actions

    def rewrite(self, version: Version, action: Action) -> Plan | None:
        """The plan with both as one stage; settings of either are kept where the fused kernel has them."""
        first, second = version.stage(str(action.param("first"))), version.stage(str(action.param("second")))
        merged = self._merged(version, first, second)
        return None if merged is None else version.plan.with_merged(version.graph, merged[0], merged[1])

    def _in_order(self, version: Version, first: Stage, second: Stage) -> bool:
        """Whether this is the order in which the plan has them: a pair is offered once."""
        return version.plan.stages.index(first) < version.plan.stages.index(second)

    def _merged(self, version: Version, first: Stage, second: Stage) -> tuple[list[Stage], Stage] | None:
        """The stages that are fused and the kernel they become."""
        free = [stage for stage in version.plan.stages if version.is_free(stage)]
        parts = fusible(version.graph, version.plan, first, second, free)
        if parts is None:
            return None
        settings = {**dict(second.schedule), **dict(first.schedule)}
        if second.family == "matmul":
            settings = {**dict(first.schedule), **dict(second.schedule)}
        merged = version.as_kernel(merged_ops(version.graph, parts), settings)
        return None if merged is None else (parts, merged)
