"""What every test begins with: a logger of mtmc as the import leaves it. The command line sets it up for its process."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _fresh_logger() -> Iterator[None]:
    logger = logging.getLogger("mtmc")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers
