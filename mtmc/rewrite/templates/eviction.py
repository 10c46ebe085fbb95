"""eviction: how kernels ask the L2 cache to treat what they read once."""

from __future__ import annotations

from mtmc.rewrite.plan import Stage

POLICY = "eviction_policy"
"""The setting. Its values are Triton's own words."""
LIKE_ALL_ELSE, KEPT, FORGOTTEN = "evict_normal", "evict_last", "evict_first"


def policy_of(stage: Stage) -> str:
    """What a kernel's loads say of it; "" where they say nothing."""
    found = str(dict(stage.schedule).get(POLICY, LIKE_ALL_ELSE))
    return "" if found == LIKE_ALL_ELSE else found
