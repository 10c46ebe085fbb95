"""One pool of each kind for all tests of the evaluator: starting one costs seconds, a job milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mtmc.evaluate.check.check import warm as warm_check
from mtmc.evaluate.compiling.build import warm as warm_build
from mtmc.evaluate.pool.worker import Pool, PoolSettings

ARGUMENTS = {"target_name": "sm_90", "multiprocessors": 132}
ENVIRONMENT = {"TRITON_DEFAULT_FP_FUSION": "1"}
JOBS = (Path(__file__).parent,)  # whose modules the workers import


@pytest.fixture(scope="session")
def build_pool() -> Iterator[Pool]:
    pool = Pool(PoolSettings(warm_build, ARGUMENTS, ENVIRONMENT, readable=JOBS))
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def check_pool() -> Iterator[Pool]:
    environment = {**ENVIRONMENT, "TRITON_INTERPRET": "1"}
    pool = Pool(PoolSettings(warm_check, ARGUMENTS, environment, profile="keeper", readable=JOBS))
    yield pool
    pool.close()
