"""An optimization kind of your own, in one file: small blocks for small kernels.

A kind says which actions are legal on a version, states each in a sentence, and edits the plan. This one only changes a
schedule, so `ScheduleChange` does the rest. Registering it is one line; in mtmc itself that line stands in
`mtmc/optimizations/__init__.py`.

    python examples/custom_optimization.py
"""

from __future__ import annotations

from mtmc.optimizations import KINDS
from mtmc.optimizations.schedule_change import Choice, ScheduleChange
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage
from mtmc.search import search

PAGE = """\
# trim

What it does: 128 elements and a single warp a program, so that a small kernel still has a program for every multiprocessor.

When it pays: results of less than about 100,000 elements. When it harms: large results, whose launch it makes longer.
"""


class Trim(ScheduleChange):
    """One warp a program."""

    kind = "trim"
    page = PAGE
    weight = 1.0  # how promising it is for the heuristic policy, before anything is known of the version

    def offer(self, version: Version, stage: Stage) -> list[tuple[Choice, str]]:
        """One choice for each elementwise kernel."""
        if stage.template != "pointwise":
            return []
        return [({"block": 128, "num_warps": 1}, f"trim the {stage.name} kernel to one warp a program")]


KINDS["trim"] = Trim()


def main() -> None:
    result = search("bias_gelu", budget=8)
    tried = [node for node in result.tree if node.action is not None and node.action.kind == "trim"]
    for node in tried:
        print(f"{node.action.sentence}: {result.tree.speedup(node.id):.2f}x")
    print(f"best: {result.best.speedup:.2f}x after {len(result.tree)} versions, {len(tried)} of them trimmed")


if __name__ == "__main__":
    main()
