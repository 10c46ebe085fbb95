"""The pools that tests of the evaluator give jobs to are those of the usual lab, which all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mtmc.evaluate.lab import LabEvaluator, LabSettings
from mtmc.evaluate.pool.worker import Pool


@pytest.fixture(scope="session")
def usual_lab(warm_pools: object) -> Iterator[LabEvaluator]:
    with LabSettings().open() as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def build_pool(usual_lab: LabEvaluator) -> Pool:
    return usual_lab._build


@pytest.fixture(scope="session")
def check_pool(usual_lab: LabEvaluator) -> Pool:
    return usual_lab._check
