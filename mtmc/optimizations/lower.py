"""lower: a torch call becomes a Triton kernel of its own."""

from __future__ import annotations

from mtmc.action import Action
from mtmc.optimizations.version import Version, make_action
from mtmc.rewrite.plan import Plan

PAGE = """\
# lower

What it does: one PyTorch call becomes one Triton kernel that does the same. By itself it saves nothing: the same bytes
are read and written. It pays because a kernel that is ours can be fused, tiled and pipelined afterwards, and because some
calls are several kernels in eager mode (log_softmax and nll_loss, the norms of older versions).

When it pays: elementwise calls and reductions, always as a first step; fp32 matrix products, when `precision` follows.
When it harms: matrix products in fp16 and bf16, where the vendor's library is hard to beat; convolutions.
"""


class Lower:
    """A torch call becomes a Triton kernel."""

    kind = "lower"
    page = PAGE

    def legal(self, version: Version) -> list[Action]:
        """One action for each torch call that a family covers."""
        actions = []
        for stage in version.plan.stages:
            if not stage.is_torch or version.is_free(stage) or version.as_kernel(stage.ops, {}) is None:
                continue
            sentence = f"lower {stage.name} to a Triton kernel"
            actions.append(make_action(self.kind, version.region(stage), sentence))
        return actions

    def rewrite(self, version: Version, action: Action) -> Plan | None:
        """The plan with that call as a kernel."""
        stage = version.stage(action.region.name)
        kernel = version.as_kernel(stage.ops, {})
        return None if kernel is None else version.plan.with_stage(stage, kernel)
