"""pipeline: how many slices of the operands are on their way while one is computed on."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage

PAGE = """\
# pipeline

What it does: the loop over the inner dimension of a product loads slices ahead of time into shared memory (asynchronous
copies), so that the tensor cores do not wait for memory. `num_stages` copies of one slice of both operands are held.

When it pays: products with a long inner dimension; 3 or 4 stages on most GPUs.
When it harms: each stage costs shared memory, so fewer programs fit on a multiprocessor; with a short inner dimension the
stages are never filled.
"""

STAGES = (2, 3, 4, 5)


def _offer(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    if stage.family != "matmul":
        return []
    return [
        ({"num_stages": count}, f"apply a pipeline of {count} stages to the {stage.name} kernel") for count in STAGES
    ]


Pipeline = Settings("pipeline", PAGE, _offer)
