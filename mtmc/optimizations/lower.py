"""lower: a torch call becomes a Triton kernel of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from mtmc.action import Action, make_action
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.layout import kept
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version, also
from mtmc.optimizations.views import with_views
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
ours was timed there. Elementwise calls: alone they gain nothing, lower them in order to fuse them.

## When it harms
- fp16 and bf16 products: 4096 cubed in fp16 takes the library 0.182 ms, our best Triton tile 0.259.
- fp32 products, until they are tiled and pipelined: a batched product went from 1.397 ms to 1.958, then to 1.307.
- Few long rows: sums of 64 rows of 2097152 went from 0.194 ms to 0.461; `split` helps there.
- Group norm gained nothing (0.205 ms to 0.206).
- Convolutions: the library's are hard to beat. Lower one for what it can be fused with, or where it is grouped, has few
  channels, or is transposed with a stride (the kernel here goes only over taps that meet an element).
"""


class Lower(Optimization):
    """A torch call becomes a Triton kernel."""

    kind = "lower"
    page = PAGE
    weight = 1.0
    changes = ("device_ms",)

    def legal(self, version: Version) -> Iterator[Move]:
        """One move for each torch call that a template covers, and those like it."""
        calls = [stage for stage in version.plan.stages if stage.is_torch and not version.is_free(stage)]
        calls = [stage for stage in calls if not is_in_place(stage)]  # kernels have done most of it
        for stage, others in version.isomorphic(calls):
            if version.as_kernel(stage.ops, {}) is None:
                continue
            sentence = f"lower {stage.title} to a Triton kernel{also(others)}"
            action = make_action(self.kind, version.region(stage), sentence)
            yield Move(action, partial(_lowered, version, (stage, *others)))

    def sites(self, sites: Sites) -> Iterator[Action]:
        """Each call of torch's."""
        for call in sites.calls:
            if call.is_torch:
                yield make_action(self.kind, call.region, f"lower {call.name} to a Triton kernel")


def _lowered(version: Version, calls: Sequence[Stage]) -> Plan:
    """The plan with these calls as kernels, but for one whose numbers cannot be expressed where it stands."""
    plan = version.plan
    for stage in calls:
        kernel = version.as_kernel(stage.ops, {})
        plan = plan if kernel is None else plan.with_stage(stage, kernel)
    return kept(version, with_views(version, plan))
