"""stream(): a search as an iterator of its events."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

from mtmc.search.events import Event, Finished
from mtmc.search.opening import KINDS, Plan, plan
from mtmc.search.run import grown, search
from mtmc.search.run_state import Watch
from mtmc.task import Task


def stream(task: Task | str | Path, **settings: Any) -> Iterator[Event]:
    """Grow a tree of kernel versions of `task`, event by event; the last is a `Finished` with the result.

    settings: those of `search`, but `progress`, which the events stand for. What is wrong with them is said at once; the
    search begins when the first event is asked for.

    The search waits while its next event is not taken, so that nothing is spent behind the back of who looks. Breaking off
    the loop ends it: the trials under way end, and the run in `out` can be resumed. Each trial's events are in order; those
    of trials at once are mixed.

    Raises: TypeError for a setting that is not there; ConfigError, TaskError, RunError or EvaluatorError as `search`.
    """
    if "progress" in settings:
        raise TypeError("stream() takes no progress: its events tell more")
    bound = inspect.signature(search).bind(task, **settings)
    bound.apply_defaults()
    given = dict(bound.arguments)
    given.pop("progress")
    dumps, out = given.pop("dumps"), given["out"]
    return _events(plan(given.pop("task"), {kind: given.pop(kind) for kind in KINDS}, **given), out, dumps)


def _events(asked: Plan, out: Path | str | None, dumps: bool) -> Iterator[Event]:
    """The events of a search in a thread of its own, which waits for each to be taken."""
    hand: Queue[Event | _End] = Queue(1)
    stopping = threading.Event()

    def work() -> None:
        error: BaseException | None = None
        try:
            result = grown(asked, out, Watch(event=hand.put, stopping=stopping), dumps)
            if result.finished is not None:
                hand.put(Finished(result.finished, result))
        except BaseException as raised:  # it is raised where the events are taken
            error = raised
        hand.put(_End(error))

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="search")
    thread.start()
    item: Event | _End | None = None
    try:
        while not isinstance(item := hand.get(), _End):
            yield item
    finally:
        stopping.set()
        while not isinstance(item, _End):  # nobody waits for a hand that takes no more
            item = hand.get()
        thread.join()
    if item.error is not None:
        raise item.error


class _End:
    """The search's thread has ended. error: what it raised."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
