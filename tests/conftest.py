"""What every test begins with, and what all tests of a process share.

Each begins with a logger of mtmc as the import leaves it (the command line sets it up for its process). All share the warm
processes of the lab with its usual settings: the two take seven seconds of CPU to start, and a test a fraction of one.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mtmc.errors import EvaluatorError
from mtmc.evaluate import lab
from mtmc.evaluate.pool.collection import freeze, loading
from mtmc.evaluate.pool.settings import PoolSettings
from mtmc.evaluate.pool.worker import Pool
from tests.breadth import WIDE
from tests.postgres_server import Server, missing
from tests.quick import left_out, listed

# Before torch is loaded, here and in the processes that tests start: pytest-xdist keeps all cores busy, and the threads
# of torch would spin on them while they wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

JOBS = (Path(__file__).parent / "evaluate",)
"""Folder whose modules the workers may import: jobs that tests give them."""


LONG = (
    "tests/zoo/test_zoo.py",
    "tests/whole/test_optimize.py",
    "tests/dropin/test_again.py",
    "tests/evaluate/test_measure.py",
    "tests/evaluate/test_spots_shared.py",
    "tests/agents/test_search_with_models.py",
)
"""Files that take longest, or long and stand at the end: they begin first, or a worker would be left alone with one."""


class LentPool(Pool):
    """A pool with limits of its own, whose warm process is another pool's: it outlives this one and takes others' jobs."""

    def __init__(self, owner: Pool, settings: PoolSettings) -> None:
        vars(self).update(vars(owner))
        self._owner, self._settings, self._closed = owner, settings, False

    def close(self) -> None:
        self._closed = True

    def _running_server(self) -> Any:
        if self._closed:
            raise EvaluatorError("this evaluator is closed; open a new one to evaluate more")
        return self._owner._running_server()

    def _discard(self, server: Any) -> None:
        self._owner._discard(server)


class WarmPools:
    """Pools with the settings of the usual lab, one of each for all tests of this process. A job has its lab's limits."""

    def __init__(self) -> None:
        self._pools: list[tuple[PoolSettings, Pool]] = []

    def lend(self, settings: PoolSettings) -> Any:
        """A pool with those settings: lent where they are the usual ones but for workers and limits, else its own."""
        if not self._is_usual(settings):
            return Pool(settings)
        usual = PoolSettings(settings.warm)
        wanted = replace(settings, workers=2, readable=JOBS, timeout_s=usual.timeout_s, memory_mib=usual.memory_mib)
        pool = next((pool for known, pool in self._pools if known == wanted), None)
        if pool is None:
            pool = Pool(wanted)
            self._pools.append((wanted, pool))
        return LentPool(pool, replace(settings, readable=JOBS))

    def close(self) -> None:
        for _, pool in self._pools:
            pool.close()

    @staticmethod
    def _is_usual(settings: PoolSettings) -> bool:
        usual = PoolSettings(
            settings.warm,
            {"target_name": "sm_90", "multiprocessors": 132},
            settings.environment,
            settings.workers,
            settings.timeout_s,
            settings.memory_mib,
            settings.profile,
            patience=settings.patience,
        )
        return settings == usual


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What all tests import is loaded without the garbage collector, and out of its sight in them and in their forks.

    It would go through these million objects again and again, which took half of the collection.
    """
    with loading():
        return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first: workers take them in this order. What takes long is left to `make test-all`, or to who names it."""
    if not WIDE and not any(".py" in argument for argument in config.args):
        out = left_out([item.nodeid for item in items], listed())
        config.hook.pytest_deselected(items=[item for at, item in enumerate(items) if at in out])
        items[:] = [item for at, item in enumerate(items) if at not in out]
    items.sort(key=lambda item: LONG.index(name) if (name := item.nodeid.partition("::")[0]) in LONG else len(LONG))


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """What earlier files have loaded besides, as in a worker: calibrating collects often, and would go through all of it."""
    freeze()


def pytest_unconfigure() -> None:
    """Or what triton has made would never be taken down, and it would complain of that."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def warm_pools() -> Iterator[WarmPools]:
    """Labs that are opened in this process are lent their pools."""
    pools = WarmPools()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab, "Pool", pools.lend)
        yield pools
    pools.close()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither find nor leave anything in the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTMC_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _fresh_logger() -> Iterator[None]:
    logger = logging.getLogger("mtmc")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server; skips where there is none."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    server = Server()
    yield server
    server.close()
