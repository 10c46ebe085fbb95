"""slow_baselines: what takes minutes to be compared with is measured in a thread while the search goes on.

Nothing in a search hangs on it: questions and priors see what was known at the root, so that a search that is resumed
asks as one that was never interrupted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from mtmc.errors import MtmcError
from mtmc.outcome import Outcome
from mtmc.protocols import Evaluator
from mtmc.task import Task

POLL_S = 0.05

_log = logging.getLogger(__name__)


class SlowBaselines:
    """The slow baselines of a task, begun at once. names: which they are."""

    def __init__(self, evaluator: Evaluator, task: Task, names: tuple[str, ...]) -> None:
        self.names = names
        self._found: dict[str, Outcome] | None = None
        self._ended = threading.Event()
        # As a daemon: a process that ends does not wait for it.
        threading.Thread(target=self._measure, args=(evaluator, task), name="mtmc-slow-baselines", daemon=True).start()

    def wait(self, enough: Callable[[], bool]) -> dict[str, Outcome] | None:
        """What was found; None where `enough` says so first, or where it failed, with a warning."""
        while not self._ended.wait(POLL_S):
            if enough():
                return None
        return self._found

    def _measure(self, evaluator: Evaluator, task: Task) -> None:
        try:
            self._found = evaluator.slow_baselines(task)
        except MtmcError as error:
            _log.warning("%s was not measured: %s", ", ".join(self.names), error)
        except RuntimeError as error:  # the evaluator was closed under it
            _log.debug("%s was not measured: %r", ", ".join(self.names), error)
        finally:
            self._ended.set()


def missing(baselines: Mapping[str, Outcome]) -> tuple[str, ...]:
    """Names of those that are still to be measured."""
    return tuple(name for name, outcome in baselines.items() if outcome.status == "not_run")
