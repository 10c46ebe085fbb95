"""The evaluator of a sweep: runs with the same settings share it, for its warm processes take seconds to start.

One is open at a time, since it may hold a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtmc.conf import SearchConfig


class SweepEvaluator:
    """What runs of this process are given. A launcher may run them in other processes: there each opens its own."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._settings: Any = None
        self._evaluator: Any = None

    def of(self, settings: Any) -> Any:
        """An evaluator for one run, which need not close it. settings: those of an evaluator; what cannot be shared, an
        evaluator that needs no opening or one that belongs to a task, comes back as it is.

        Raises: ConfigError or EvaluatorError where it cannot be opened.
        """
        from mtmc.evaluate import ReplaySettings
        from mtmc.evaluate.shared import Shared
        from mtmc.protocols import EvaluatorSettings
        from mtmc.search.components import describe

        alone = not isinstance(settings, EvaluatorSettings) or isinstance(settings, ReplaySettings)
        if alone or os.getpid() != self._process:
            return settings
        if self._evaluator is None or settings != self._settings:
            self.close()
            self._settings, self._evaluator = settings, settings.open()
        return Shared(self._evaluator, describe("evaluator", settings, settings))

    def close(self) -> None:
        """End the one that is open; `of` opens another. Idempotent."""
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None and os.getpid() == self._process:
            evaluator.close()


_open: SweepEvaluator | None = None


@contextmanager
def sweep_evaluator() -> Iterator[SweepEvaluator]:
    """One for the runs that start meanwhile, which find it by `evaluator_of`: Hydra hands nothing but a config to a run."""
    global _open
    _open = SweepEvaluator()
    try:
        yield _open
    finally:
        _open.close()
        _open = None


def evaluator_of(config: SearchConfig) -> Any:
    """The evaluator for a run of the sweep under way; None in a process of a launcher, where the run makes its own.

    Raises: as `SweepEvaluator.of`.
    """
    from mtmc.search.components import make

    return None if _open is None else _open.of(make("evaluator", config.evaluator.name, config.evaluator.settings))


def renew_evaluator() -> None:
    """After a run that failed: the next one gets an evaluator that is newly opened."""
    if _open is not None:
        _open.close()
