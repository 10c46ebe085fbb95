"""Session: the run that one call of a graph has open, from the first step that needs it until the call ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError, RunError
from mtmc.search import steps
from mtmc.search.agent_settings import AgentSettings
from mtmc.search.budget import Budget
from mtmc.search.components import Kind
from mtmc.search.flight import ThreadedFlight
from mtmc.search.opening import KINDS, begun, plan, reopened
from mtmc.search.run import best_keeper
from mtmc.search.run_state import Run
from mtmc.store import Batch, has_run
from mtmc.task import load_task


@dataclass(frozen=True)
class Recipe:
    """How a graph searches. given: the parts, names or objects. interrupts: what it asks before. The rest: as
    `mtmc.search.search` takes it."""

    given: Mapping[Kind, Any]
    budget: int | Budget
    seed: int
    batch: int
    repairs: int
    model: str | ModelSettings
    asynchronous: bool
    dumps: bool
    interrupts: frozenset[str]
    agents: AgentSettings | None = None
    store: str = ""


class Session:
    """Opens a run where it stands, begins and awaits its trials, and closes it. For one thread at a time."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._stack = ExitStack()
        self._run: Run | None = None
        self._flight: ThreadedFlight | None = None
        self._chosen: list[Batch] = []

    def run(self, state: Mapping[str, Any]) -> Run:
        """The run of a graph's state, opened where that is not done. state: with `task` and `out`.

        Raises: what `mtmc.search.search` and `mtmc.search.resume` raise; RunError for a folder with a run of another task.
        """
        if self._run is None:
            self._run = self._stack.enter_context(self._opened(state))
            self.keep_best = best_keeper(self._run, None)
        return self._run

    @property
    def current(self) -> Run:
        """The run that is open."""
        assert self._run is not None
        return self._run

    def choose(self, run: Run) -> list[Batch]:
        """The batches that begin next, also those that were chosen and have not begun."""
        self._chosen += steps.select(run)
        return self._chosen

    def fly(self, run: Run, work: Callable[[int], None]) -> list[int]:
        """Begin what was chosen (of a run that was opened since: what a killed process has left), and wait until a batch has
        ended; ids of those that have, none where nothing is in flight. work: what a trial's thread does."""
        if self._flight is None:
            self._flight = ThreadedFlight(run.settings.batch, work)
            self._stack.callback(self._flight.close)
        if not run.in_flight:
            self._chosen = steps.left(run)
        chosen, self._chosen = self._chosen, []
        for batch in chosen:
            self._flight.start(batch)
        return self._flight.wait() if run.in_flight else []

    def land(self) -> None:
        """Wait for the trials that have begun, and begin no more."""
        if self._flight is not None:
            self._flight.close()

    def close(self) -> None:
        """Let go of the run. The next step that needs it opens it again, from its store. Idempotent."""
        self._run, self._flight, self._chosen = None, None, []
        self._stack.close()

    def _opened(self, state: Mapping[str, Any]) -> Any:
        recipe = self.recipe
        for name in ("task", "out"):
            if not state.get(name):
                raise ConfigError(f'{name} is missing: give the graph {{"task": NAME, "out": FOLDER}}')
        out = Path(state["out"])
        if not has_run(out):
            settings = (recipe.budget, recipe.seed, recipe.batch, recipe.repairs, recipe.model, recipe.asynchronous)
            return begun(plan(state["task"], recipe.given, *settings, out, recipe.agents, recipe.store), out)
        _check_task(out, state["task"])
        objects = {kind: None if isinstance(recipe.given[kind], str) else recipe.given[kind] for kind in KINDS}
        model = recipe.model if isinstance(recipe.model, ModelSettings) else None
        return reopened(out, objects, recipe.budget, model)


def _check_task(out: Path, asked: str) -> None:
    from mtmc.store import Store

    store = Store.read(out)
    try:
        known = store.task()
    finally:
        store.close()
    if load_task(asked).source != known.source:
        raise RunError(f"the folder {out} has a run of another task ({known.name}): choose another folder")
