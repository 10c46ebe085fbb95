"""trim: an optimization kind of one file: small elementwise kernels with one warp a program."""

from __future__ import annotations

from mtmc.optimizations.schedule_change import Choice, ScheduleChange
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage


class Trim(ScheduleChange):
    """One warp a program."""

    kind = "trim"
    page = "# trim\n\nOne warp a program.\n"
    weight = 2.0

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        if stage.template != "pointwise":
            return []
        return [({"block": 128, "num_warps": 1}, f"trim the {stage.name} kernel to one warp a program")]
