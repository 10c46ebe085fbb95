"""Every op and form that the rewriter covers, lowered and fused, against torch in float64; in several ways in a wide run."""

from __future__ import annotations

import pytest

from tests.breadth import WIDE, share
from tests.rewrite.index_references import INDEXING
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import BROADCAST, ELEMENTWISE, PRODUCTS, ROWS, together
from tests.rewrite.spatial_references import CONVOLUTIONS, HALF, SCANS, WINDOWS

WAYS = {
    "elementwise": [["lower"], ["lower", "fuse"]],
    "broadcast": [["lower"], ["lower", "fuse"]],
    "rows": [
        ["fuse", "lower", "loop over"],
        ["lower", "fuse", "retile", "let the cache"],
        ["lower", "split"],
    ],
    "products": [
        ["fuse", "lower"],
        ["lower", "fuse", "split"],
        ["lower", "fuse", "tile", "precision", "columns first"],
    ],
    "windows": [["fuse", "lower"]],
    "convolutions": [["lower"], ["fuse", "lower", "tile", "reorder the sum"]],
    "half": [["fuse", "lower"]],
    "scans": [["fuse", "lower"], ["fuse", "lower", "tile"]],
    "indexing": [["fuse", "lower"], ["lower", "fuse"]],
}
GROUPS = {
    "elementwise": together(ELEMENTWISE),  # an export each would take half of the time
    "broadcast": BROADCAST,
    "rows": ROWS,
    "products": PRODUCTS,
    "windows": WINDOWS,
    "convolutions": CONVOLUTIONS,
    "scans": SCANS,
    "half": HALF,
    "indexing": INDEXING,
}
GROUPS = {group: dict(share([*cases.items()], 4)) for group, cases in GROUPS.items()}
CASES = [(group, name) for group, cases in GROUPS.items() for name in cases]


@pytest.fixture(scope="module")
def problems() -> dict[str, dict[str, str | None]]:
    """What went wrong with each case of each group: all run in one interpreting process."""
    cases = [
        {
            "name": f"{group}-{name}",
            "source": source,
            "ways": WAYS[group] if WIDE else WAYS[group][:1],
            "whole": group == "elementwise",
        }
        for group, sources in GROUPS.items()
        for name, source in sources.items()
    ]
    found = interpret(cases)
    return {group: {name: found[f"{group}-{name}"] for name in sources} for group, sources in GROUPS.items()}


@pytest.mark.parametrize(("group", "name"), CASES, ids=[f"{group}-{name}" for group, name in CASES])
def test_kernels_match_torch(problems: dict[str, dict[str, str | None]], group: str, name: str) -> None:
    assert problems[group][name] is None
