"""ahead: what a coder will need of the root is found out in a thread while the root is evaluated."""

from __future__ import annotations

import logging
import threading

from mtmc.search.run_state import Run

_log = logging.getLogger(__name__)


def looking_ahead(run: Run, plan: str | None) -> threading.Thread:
    """The thread, at work: see `Coder.ahead`. What fails there is not told: it fails once more where it is asked for. plan:
    of the root."""
    parts = run.parts

    def look() -> None:
        try:
            if run.settings.budget.depth > 0:
                parts.coder.ahead(run.task, plan, parts.evaluator.hardware)
        except Exception as error:
            _log.debug("task %s: nothing is known beforehand: %s", run.task.name, error)

    thread = threading.Thread(target=look, name="mtmc-ahead", daemon=True)
    thread.start()
    return thread
