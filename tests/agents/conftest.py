"""What tests of agents share: one lab for all that evaluate, because its workers take seconds to load torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mtmc.evaluate import LabSettings
from mtmc.evaluate.lab import LabEvaluator


@pytest.fixture(scope="session")
def lab() -> Iterator[LabEvaluator]:
    """With the settings that a search has by itself: for an H100."""
    with LabSettings().open() as evaluator:
        yield evaluator
