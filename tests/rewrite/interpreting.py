"""Start `interpreted.py` in a process of its own and hand back what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def interpret(cases: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Case name -> null or what went wrong; all cases run in one interpreting process."""
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
    found: dict[str, str | None] = json.loads(done.stdout)
    return found
