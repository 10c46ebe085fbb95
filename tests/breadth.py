"""How much of a wide table one run of the tests goes through: a share of it, or all with MTMC_WIDE=1 (`make test-all`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

WIDE = bool(os.environ.get("MTMC_WIDE"))

_Item = TypeVar("_Item")


def share(items: Sequence[_Item], one_in: int) -> list[_Item]:
    """Every item of that many, beginning with the first; all of them in a wide run."""
    return list(items) if WIDE else list(items[::one_in])
