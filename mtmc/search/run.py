"""search(), resume() and load(): a whole run from names to a result."""

from __future__ import annotations

import logging
import math
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError, ModelDown, RunError
from mtmc.protocols import Coder, Evaluator, EvaluatorSettings, Policy, Strategy
from mtmc.search import components, folder
from mtmc.search.budget import Budget
from mtmc.search.components import Kind
from mtmc.search.models import Models
from mtmc.search.replay import replay
from mtmc.search.result import SearchResult, result_of, write_outputs
from mtmc.search.run_state import Parts, Progress, Run, Settings, rebuild
from mtmc.search.steps import finish
from mtmc.search.verification import guards_of
from mtmc.store import LOCK_NAME, ROOT_TRIAL, SCHEMA_VERSION, STORE_NAME, Attempt, Store, check_unused
from mtmc.task import Task, load_task
from mtmc.tree import ROOT_ID, Tree

_log = logging.getLogger(__name__)

OnProgress = Callable[[Progress], None]

_KINDS: tuple[Kind, ...] = ("strategy", "policy", "coder", "evaluator")
_VERSIONED = ("mtmc", "torch", "triton", "langgraph")


def search(
    task: Task | str | Path,
    *,
    strategy: str | Strategy = "mcts",
    policy: str | Policy = "compact",
    coder: str | Coder = "rewriter",
    evaluator: str | Evaluator | EvaluatorSettings = "lab",
    budget: int | Budget = 32,
    seed: int = 0,
    batch: int = 1,
    repairs: int = 2,
    model: str | ModelSettings = "",
    asynchronous: bool = False,
    out: Path | str | None = None,
    progress: OnProgress | None = None,
    dumps: bool = True,
) -> SearchResult:
    """Grow a tree of kernel versions of `task` and hand back the best.

    task: a Task, or anything that `mtmc.task.load_task` takes.
    strategy, policy, coder, evaluator: a name or an object, for the evaluator also its settings (`LabSettings(...)`);
        what is opened here is closed at the end.
    budget: evaluations, or a whole `Budget`.
    batch: trials at once; the coder and the evaluator are then called from that many threads.
    asynchronous: begin a new trial as soon as one ends, and not when all of a batch have: nothing waits for the slowest.
        Which ends first is then the machine's affair, so that two runs with one seed may differ.
    repairs: rounds of repair of one trial at most.
    model: the language model of a coder or policy that asks one, by litellm's name or with all its settings.
    out: the run's folder, which must be unused; None keeps the run in a temporary folder for as long as the result
        lives, see `SearchResult.save`.
    progress: called after the root, after each batch and at the end.
    dumps: whether nodes/, the tree's dumps and the report are written into `out` at the end.

    The same seed and parts that are deterministic give the same tree, unless it is asynchronous.

    Raises: ConfigError, TaskError, RunError or EvaluatorError, each naming the bad value and the fix. Nothing is left
    on disk where the search could not start.
    """
    asked = model if isinstance(model, ModelSettings) else ModelSettings(name=model)
    settings = Settings(_budget(budget), seed, batch, repairs, asked, asynchronous)
    if out is not None:
        check_unused(Path(out))
    loaded = load_task(task)
    given: dict[Kind, Any] = {"strategy": strategy, "policy": policy, "coder": coder, "evaluator": evaluator}
    made: dict[Kind, Any] = {kind: components.resolve(kind, given[kind]) for kind in _KINDS}
    _check(made["policy"], made["coder"], asked)
    described: dict[str, Any] = {kind: components.describe(kind, given[kind], made[kind]) for kind in _KINDS}
    with _opened(made, given) as parts:
        facts = {"deterministic": parts.coder.deterministic, "hardware": parts.evaluator.hardware}
        resolved = {"task": loaded.name, **described, **facts, **asdict(settings), "versions": versions()}
        root = _root(parts.coder, loaded)
        temporary = tempfile.TemporaryDirectory(prefix="mtmc-") if out is None else None
        directory = Path(temporary.name if temporary else out or "")
        new = not directory.exists()
        store = Store.create(directory, loaded, resolved, root)
        try:
            store.log("start", 0.0, schema=SCHEMA_VERSION, versions=resolved["versions"])
            folder.write_config(directory, store.settings())
            with _running(store, loaded, parts, settings) as run:
                return _drive(run, progress, temporary, dumps and out is not None)
        except BaseException:
            started = store.has_root()
            store.close()
            if not started:
                _remove(directory, new)
            raise
        finally:
            store.close()


def resume(
    run_dir: Path | str,
    *,
    strategy: Strategy | None = None,
    policy: Policy | None = None,
    coder: Coder | None = None,
    evaluator: Evaluator | EvaluatorSettings | None = None,
    budget: int | Budget | None = None,
    model: ModelSettings | None = None,
    progress: OnProgress | None = None,
    dumps: bool = True,
) -> SearchResult:
    """Go on with a run that was ended before its time, or that has a greater budget now.

    The tree is the one that the uninterrupted run would have grown (of an asynchronous one, had the trials in flight ended
    in the same order); no edit and no evaluation that was recorded is made
    again. strategy, policy, coder, evaluator: needed only where the run was made with an object of a class that is in
    no registry. budget: a new one (an integer changes the evaluations only); its depth cannot change. model: new
    settings of the language model, where it is served elsewhere now, say.

    Raises: RunError if there is no such run, another process has it open, a newer or an older version made it, or its
    strategy does not ask for the recorded trials; ConfigError for a budget that cannot be.
    """
    directory = Path(run_dir)
    store = Store.open(directory)
    try:
        recorded = store.settings()
        settings = _settings(recorded, budget, model)
        given: dict[Kind, Any] = {"strategy": strategy, "policy": policy, "coder": coder, "evaluator": evaluator}
        made = {kind: components.remake(kind, recorded[kind], given[kind]) for kind in _KINDS}
        task = store.task()
        with _opened(made, given) as parts, _running(store, task, parts, settings) as run:
            if settings != _settings(recorded, None, None):
                store.change_settings({**recorded, **asdict(settings)})
            store.log("resume", run.seconds, budget=asdict(settings.budget), versions=versions())
            folder.write_config(directory, store.settings())
            return _drive(run, progress, None, dumps)
    finally:
        store.close()


def load(run_dir: Path | str, *, strategy: Strategy | None = None) -> SearchResult:
    """The result of a run as far as it has come, without going on; another process may be at work on it.

    strategy: for the search statistics of a run that has not ended, where it was made with an object of a class that is in
        no registry. Without it, and where the run's own strategy cannot be had or asks for other trials by now, the
        statistics are left out, with a warning.

    Raises: RunError if there is no such run, it has no root yet, a newer version made it, or the strategy that is given
        does not ask for the recorded trials.
    """
    store = Store.read(Path(run_dir))
    try:
        tree = store.tree()
        if len(tree) == 0:
            raise RunError(f"the run {store.folder} has no root yet: resume it first")
        return result_of(store, tree, _annotations(store, tree, strategy), store.finished())
    finally:
        store.close()


def _annotations(store: Store, tree: Tree, strategy: Strategy | None) -> Mapping[int, Mapping[str, float]]:
    """The search statistics of a run: those that it ended with, else as its strategy says when it is told all again."""
    known = store.annotations() if store.finished() is not None and strategy is None else None
    if known is not None:
        return known
    recorded = store.settings()
    try:
        part = components.remake("strategy", recorded["strategy"], strategy)
        replayed = replay(store, part, tree, recorded["seed"], recorded["deterministic"])
    except (ConfigError, RunError) as error:
        if strategy is not None:
            raise
        _log.warning("the search statistics are left out: %s", error)
        return {}
    found: Mapping[int, Mapping[str, float]] = part.annotations(replayed.state)
    return found


def versions() -> dict[str, str]:
    """Versions of what a run stands on, without importing any of it; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _drive(
    run: Run, on_progress: OnProgress | None, temporary: tempfile.TemporaryDirectory[str] | None, dumps: bool
) -> SearchResult:
    """Let the state machine go, keep best.py up to date, and hand back the result."""
    from mtmc.search.graph import drive

    directory = run.store.folder
    written = None

    def keep_best(progress: Progress) -> None:
        nonlocal written
        if run.tree.best.id != written:
            guards = None if run.tree.best.id == ROOT_ID else guards_of(run)
            folder.write_best(directory, run.tree, guards, run.task.tolerance)
            written = run.tree.best.id
        if on_progress is not None:
            on_progress(progress)

    run.on_progress = keep_best
    try:
        drive(run)
    except ModelDown as down:
        if not run.store.has_root():
            raise
        rebuild(run)  # what is not recorded is not told: the trials in flight are for a resumed run
        run.finished, run.cut_short = str(down), True
        finish(run)
    notes = run.parts.strategy.annotations(run.state)
    result = result_of(run.store, run.tree, notes, run.finished, temporary)
    if dumps:
        write_outputs(result, directory)
    return result


@contextmanager
def _running(store: Store, task: Task, parts: Parts, settings: Settings) -> Iterator[Run]:
    """The run where its store stands, with the models it may ask."""
    run: Run

    def wall_left() -> float:
        limit = settings.budget.wall_seconds
        return math.inf if limit is None else limit - run.seconds

    models = Models(settings.model, store, settings.budget, wall_left=wall_left)
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
        new, recorded["seed"], recorded["batch"], recorded["repairs"], asked, recorded.get("asynchronous", False)
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
    for name in (STORE_NAME, f"{STORE_NAME}-wal", f"{STORE_NAME}-shm", "config.yaml", LOCK_NAME):
        (directory / name).unlink(missing_ok=True)
