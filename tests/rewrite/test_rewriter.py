"""Every op and form that the rewriter covers, lowered and fused in several ways, against torch in float64."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rewrite.references import BROADCAST, ELEMENTWISE, PRODUCTS, ROWS

ROOT = Path(__file__).parents[2]
WAYS = {
    "elementwise": [["lower"], ["lower", "fuse"]],
    "broadcast": [["lower"], ["lower", "fuse"]],
    "rows": [
        ["lower"],
        ["fuse", "lower"],
        ["fuse", "lower", "walk over"],
        ["lower", "fuse", "retile"],
        ["lower", "split"],
    ],
    "products": [
        ["lower"],
        ["fuse", "lower"],
        ["lower", "fuse", "split"],
        ["lower", "fuse", "tile", "precision", "columns first"],
    ],
}
GROUPS = {"elementwise": ELEMENTWISE, "broadcast": BROADCAST, "rows": ROWS, "products": PRODUCTS}
CASES = [(group, name) for group, cases in GROUPS.items() for name in cases]


@pytest.fixture(scope="module")
def problems() -> dict[str, dict[str, str | None]]:
    """What went wrong with each case of each group: all run in one interpreting process."""
    cases = [
        {"name": f"{group}-{name}", "source": source, "ways": WAYS[group]}
        for group, sources in GROUPS.items()
        for name, source in sources.items()
    ]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpreted.py"))],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    return {group: {name: found[f"{group}-{name}"] for name in sources} for group, sources in GROUPS.items()}


@pytest.mark.parametrize(("group", "name"), CASES, ids=[f"{group}-{name}" for group, name in CASES])
def test_kernels_match_torch(problems: dict[str, dict[str, str | None]], group: str, name: str) -> None:
    assert problems[group][name] is None
