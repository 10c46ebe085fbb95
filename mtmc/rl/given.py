"""given: the tasks that trees are grown of, generated or those of a suite."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from mtmc.errors import TaskError
from mtmc.rl.generator import distinct
from mtmc.rl.settings import CollectSettings

_log = logging.getLogger(__name__)


class Given(Protocol):
    """A task before it is loaded. index: of its tree's own draws. name: a folder may have it. trusted: whether its shapes
    are known to run, see `mtmc.task.task_from_source`."""

    @property
    def index(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def trusted(self) -> bool: ...


@dataclass(frozen=True)
class OfSuite:
    """A suite's problem: "decoder/swiglu_mlp" is named decoder_swiglu_mlp. index: its place in the suite, from 0."""

    index: int
    name: str
    text: str
    trusted: bool


def given_tasks(settings: CollectSettings) -> Iterator[Given]:
    """The tasks from number `settings.first` on: generated ones have no end, those of a suite do.

    Raises: ConfigError for a path or a licence that the suite cannot be opened with.
    """
    return of_suite(settings) if settings.suite else distinct(settings.seed, settings.first)


def of_suite(settings: CollectSettings) -> Iterator[OfSuite]:
    """A suite's problems, without those that are no task: they are logged with the reason. Raises: as `given_tasks`."""
    from mtmc.bench.suites import open_suite

    suite = open_suite(settings.suite, settings.path, settings.licence == "ack")
    for index, problem in enumerate(suite.problems()):
        if index < settings.first:
            continue
        try:
            yield OfSuite(index, problem.id.replace("/", "_"), suite.source(problem), suite.trusted(problem))
        except TaskError as error:
            _log.warning("%s is left out: %s", problem.id, error)
