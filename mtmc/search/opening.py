"""Opening: from what is asked of a search to a run that is ready to go on, begun or opened again, and closed at the end."""

from __future__ import annotations

import math
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError, RunError
from mtmc.protocols import Coder, Policy
from mtmc.search import components, folder
from mtmc.search.agent_settings import AgentSettings
from mtmc.search.budget import Budget
from mtmc.search.components import Kind
from mtmc.search.legal import check_gain
from mtmc.search.models import Models, models_of
from mtmc.search.run_state import Parts, Run, Settings, rebuild
from mtmc.store import LOCK_NAME, ROOT_TRIAL, SCHEMA_VERSION, Attempt, Store, check_unused
from mtmc.store.postgres import checked_url
from mtmc.task import Task, load_task
from mtmc.tree import Tree

KINDS: tuple[Kind, ...] = ("strategy", "policy", "coder", "evaluator")
_VERSIONED = ("mtmc", "torch", "triton", "langgraph")


@dataclass(frozen=True)
class Plan:
    """A search that may begin: nothing of it is on disk yet.

    given: the parts as they were given, names or objects; made: the parts themselves. store: see
    `mtmc.search.search`.
    """

    task: Task
    given: Mapping[Kind, Any]
    made: Mapping[Kind, Any]
    settings: Settings
    store: str = ""


def plan(
    task: Task | str | Path,
    given: Mapping[Kind, Any],
    budget: int | Budget,
    seed: int,
    batch: int,
    repairs: int,
    model: str | ModelSettings,
    asynchronous: bool,
    out: Path | str | None,
    agents: AgentSettings | None = None,
    store: str = "",
) -> Plan:
    """What is asked of `mtmc.search.search`, checked. Raises: ConfigError, TaskError or RunError."""
    asked = model if isinstance(model, ModelSettings) else ModelSettings(name=model)
    settings = Settings(_budget(budget), seed, batch, repairs, asked, asynchronous, agents or AgentSettings())
    if out is not None:
        check_unused(Path(out))
    if store:
        if out is None:
            raise ConfigError("store needs the run's folder, which names the record: set out")
        checked_url(store)
    loaded = load_task(task)
    made: dict[Kind, Any] = {kind: components.resolve(kind, given[kind]) for kind in KINDS}
    _check(made["policy"], made["coder"], asked)
    check_gain(settings.agents, made["strategy"])
    settings.agents.knowledge_text()
    models_of(asked, settings.agents.models)
    return Plan(loaded, given, made, settings, store)


@contextmanager
def begun(asked: Plan, directory: Path) -> Iterator[Run]:
    """A new run in `directory`. Where the search cannot start, nothing of it is left there."""
    given, made, settings = asked.given, asked.made, asked.settings
    described: dict[str, Any] = {kind: components.describe(kind, given[kind], made[kind]) for kind in KINDS}
    knowledge = settings.agents.knowledge_text()
    with _opened(made, given) as parts:
        facts = {"deterministic": parts.coder.deterministic, "hardware": parts.evaluator.hardware}
        resolved = {"task": asked.task.name, **described, **facts, **asdict(settings), "versions": versions()}
        root = _root(parts.coder, asked.task)
        new = not directory.exists()
        store = Store.create(directory, asked.task, resolved, root, asked.store)
        try:
            if knowledge:
                store.keep_knowledge(knowledge)
            store.log("start", 0.0, schema=SCHEMA_VERSION, versions=resolved["versions"])
            folder.write_config(directory, store.settings())
            with _running(store, asked.task, parts, settings) as run:
                yield run
        except BaseException:
            with suppress(RunError):  # a store that cannot be read keeps the run that it has
                started = store.has_root()
                store.close()
                if not started:
                    store.backend.drop()
                    _remove(directory, new)
            raise
        finally:
            store.close()


@contextmanager
def reopened(
    directory: Path,
    given: Mapping[Kind, Any],
    budget: int | Budget | None = None,
    model: ModelSettings | None = None,
) -> Iterator[Run]:
    """A run that is there, where its store stands. given: parts that replace the recorded ones, None for each that does not.

    Raises: as `mtmc.search.resume`.
    """
    store = Store.open(directory)
    try:
        recorded = store.settings()
        settings = _settings(recorded, budget, model)
        made = {kind: components.remake(kind, recorded[kind], given[kind]) for kind in KINDS}
        check_gain(settings.agents, made["strategy"])
        task = store.task()
        with _opened(made, given) as parts, _running(store, task, parts, settings) as run:
            if settings != _settings(recorded, None, None):
                store.change_settings({**recorded, **asdict(settings)})
            store.log("resume", run.seconds, budget=asdict(settings.budget), versions=versions())
            folder.write_config(directory, store.settings())
            yield run
    finally:
        store.close()


def versions() -> dict[str, str]:
    """Versions of what a run stands on, without importing any of it; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@contextmanager
def _running(store: Store, task: Task, parts: Parts, settings: Settings) -> Iterator[Run]:
    """The run where its store stands, with the models it may ask."""
    run: Run

    def wall_left() -> float:
        limit = settings.budget.wall_seconds
        return math.inf if limit is None else limit - run.seconds

    others = settings.agents.models
    models = Models(settings.model, store, settings.budget, others=others, wall_left=wall_left)
    try:
        run = Run(store, task, parts, settings, models, Tree(task.name), None)
        rebuild(run)
        yield run
    finally:
        models.close()


def _check(policy: Policy, coder: Coder, model: ModelSettings) -> None:
    """Raises: ConfigError where a part asks a language model, and none is named; what a part's own `check` raises."""
    policy.check()
    coder.check()
    asking = [kind for kind, asks in (("policy", policy.asks_model), ("coder", coder.asks_model)) if asks]
    if asking and not model.name:
        hint = "set model.name=PROVIDER/MODEL (and model.api_base for a local server)"
        raise ConfigError(
            f"the {' and the '.join(asking)} of this search ask a language model, and none is named: {hint}"
        )


def _root(coder: Coder, task: Task) -> Attempt:
    """The root's source, before anything is on disk: a task that cannot be exported ends here."""
    started = time.perf_counter()
    edit = coder.root(task)
    cost = replace(edit.cost, seconds=time.perf_counter() - started)
    return Attempt(ROOT_TRIAL, 0, edit.source, edit.plan, cost)


def _budget(budget: int | Budget) -> Budget:
    return budget if isinstance(budget, Budget) else Budget(evaluations=budget)


def recorded_budget(recorded: Mapping[str, Any]) -> Budget:
    """The budget of a run's recorded settings; a run of a version that knew no stagnation never ends for it."""
    return Budget(**{"stagnation": None, **recorded["budget"]})


def _settings(recorded: Mapping[str, Any], budget: int | Budget | None, model: ModelSettings | None) -> Settings:
    """The recorded settings, with another budget or model where one is given."""
    old = recorded_budget(recorded)
    if budget is None:
        new = old
    elif isinstance(budget, Budget):
        new = budget
    else:
        new = replace(old, evaluations=budget)
    if new.depth != old.depth:
        hint = f"its versions at depth {old.depth} have no actions; start a new run"
        raise ConfigError(f"budget.depth cannot be {new.depth} for a run that has {old.depth}: {hint}")
    asked = ModelSettings(**recorded.get("model", {})) if model is None else model
    return Settings(
        new,
        recorded["seed"],
        recorded["batch"],
        recorded["repairs"],
        asked,
        recorded.get("asynchronous", False),
        AgentSettings(**recorded.get("agents", {})),
    )


@contextmanager
def _opened(parts: Mapping[Kind, Any], given: Mapping[Kind, Any]) -> Iterator[Parts]:
    """The four parts at work. An evaluator that is made or opened here is closed here."""
    evaluator = components.opened(parts["evaluator"])
    try:
        yield Parts(parts["strategy"], parts["policy"], parts["coder"], evaluator)
    finally:
        if evaluator is not given["evaluator"]:
            evaluator.close()


def _remove(directory: Path, new: bool) -> None:
    """Take back what a search has written that could not start."""
    if new:
        shutil.rmtree(directory, ignore_errors=True)
        return
    for name in ("config.yaml", LOCK_NAME):
        (directory / name).unlink(missing_ok=True)
