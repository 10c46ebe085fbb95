"""What the documents' snippets and the examples share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mtmc.agents.coders import CODERS
from mtmc.agents.policies import POLICIES
from mtmc.evaluate import EVALUATORS
from mtmc.optimizations import KINDS
from mtmc.rewrite.operators.elementwise import POINTWISE
from mtmc.search.strategies import STRATEGIES

REGISTRIES: tuple[dict[Any, Any], ...] = (CODERS, EVALUATORS, KINDS, POINTWISE, POLICIES, STRATEGIES)


@pytest.fixture
def kept_registries() -> Iterator[None]:
    """What a snippet adds to a registry is taken back at the end."""
    before = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, kept in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(kept)
