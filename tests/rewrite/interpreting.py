"""Start `interpreted.py` in a process of its own and hand back what it found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interpreter import interpreted


def interpret(cases: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Case name -> null or what went wrong; all cases run in one interpreting process."""
    program = Path(__file__).with_name("interpreted.py")
    found: dict[str, str | None] = json.loads(interpreted(program, given=json.dumps(cases)))
    return found


def interpret_ways(sources: Mapping[str, str], ways: Sequence[Sequence[str]]) -> dict[str, str | None]:
    """The same of references by name, each in all of these ways, see `interpreted.py`."""
    return interpret([{"name": name, "source": source, "ways": ways} for name, source in sources.items()])
