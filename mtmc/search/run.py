"""search(), resume() and load(): a whole run from names to a result."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError, ModelDown, RunError
from mtmc.protocols import Coder, Evaluator, EvaluatorSettings, Policy, Strategy
from mtmc.search import components, folder
from mtmc.search.agent_settings import AgentSettings
from mtmc.search.budget import Budget
from mtmc.search.components import Kind
from mtmc.search.display import OnProgress, display
from mtmc.search.opening import Plan, begun, plan, reopened
from mtmc.search.replay import replay
from mtmc.search.result import SearchResult, result_of, write_outputs
from mtmc.search.run_state import Progress, Run, Watch, rebuild
from mtmc.search.steps import finish
from mtmc.search.verification import guards_of
from mtmc.store import Store
from mtmc.task import Task
from mtmc.tree import ROOT_ID, Tree

_log = logging.getLogger(__name__)


def search(
    task: Task | str | Path,
    *,
    strategy: str | Strategy = "mcts",
    policy: str | Policy = "heuristic",
    coder: str | Coder = "rewriter",
    evaluator: str | Evaluator | EvaluatorSettings = "lab",
    budget: int | Budget = 32,
    seed: int = 0,
    batch: int = 1,
    repairs: int = 2,
    model: str | ModelSettings = "",
    asynchronous: bool = False,
    agents: AgentSettings | None = None,
    out: Path | str | None = None,
    store: str = "",
    progress: OnProgress | Literal[False] | None = None,
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
    agents: what these are told besides and may do; None: `AgentSettings()`.
    out: the run's folder, which must be unused; None keeps the run in a temporary folder for as long as the result
        lives, see `SearchResult.save`.
    store: address of a PostgreSQL server that keeps the run's record, postgresql://USER@HOST/DATABASE; empty: a SQLite file
        in `out`.
    progress: called after the root, after each batch and at the end. None: a bar where stderr is a terminal, and in a
        notebook. False: nothing is shown.
    dumps: whether nodes/, the tree's dumps and the report are written into `out` at the end.

    The same seed and parts that are deterministic give the same tree, unless it is asynchronous.

    Raises: ConfigError, TaskError, RunError or EvaluatorError, each naming the bad value and the fix. Nothing is left
    on disk where the search could not start.
    """
    given: dict[Kind, Any] = {"strategy": strategy, "policy": policy, "coder": coder, "evaluator": evaluator}
    asked = plan(task, given, budget, seed, batch, repairs, model, asynchronous, out, agents, store)
    with display(progress, asked.task.name) as told:
        return grown(asked, out, Watch(told), dumps)


def resume(
    run_dir: Path | str,
    *,
    strategy: Strategy | None = None,
    policy: Policy | None = None,
    coder: Coder | None = None,
    evaluator: Evaluator | EvaluatorSettings | None = None,
    budget: int | Budget | None = None,
    model: ModelSettings | None = None,
    progress: OnProgress | Literal[False] | None = None,
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
    given: dict[Kind, Any] = {"strategy": strategy, "policy": policy, "coder": coder, "evaluator": evaluator}
    with reopened(Path(run_dir), given, budget, model) as run, display(progress, run.task.name) as told:
        return _drive(run, Watch(told), None, dumps)


def grown(asked: Plan, out: Path | str | None, watch: Watch, dumps: bool) -> SearchResult:
    """A whole search. out, dumps: see `search`."""
    if out is not None:
        with begun(asked, Path(out)) as run:
            return _drive(run, watch, None, dumps)
    temporary = tempfile.TemporaryDirectory(prefix="mtmc-")
    try:
        with begun(asked, Path(temporary.name)) as run:
            return _drive(run, watch, temporary, dumps=False)
    except BaseException:
        temporary.cleanup()
        raise


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
        return result_of(store, tree, search_statistics(store, tree, strategy), store.finished())
    finally:
        store.close()


def search_statistics(store: Store, tree: Tree, strategy: Strategy | None = None) -> Mapping[int, Mapping[str, float]]:
    """The search statistics of a run: those that it ended with, else as its strategy says when it is told all again; without
    any, and with a warning, where that cannot be had. strategy, raises: see `load`."""
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


def _drive(run: Run, watch: Watch, temporary: tempfile.TemporaryDirectory[str] | None, dumps: bool) -> SearchResult:
    """Let the state machine go, and hand back the result: of a run that was told to stop, as far as it has come."""
    from mtmc.search.graph import drive

    run.watch = Watch(best_keeper(run, watch.progress), watch.event, watch.stopping)
    try:
        drive(run)
    except ModelDown as down:
        if not run.store.has_root():
            raise
        cut_short(run, down)
    result = result_now(run, temporary)
    if dumps and run.finished is not None:
        write_outputs(result, run.store.folder)
    return result


def cut_short(run: Run, down: ModelDown) -> None:
    """End a search whose model does not answer. What is not recorded is not told: the trials in flight are for a resumed
    run."""
    rebuild(run)
    run.finished, run.cut_short = str(down), True
    finish(run)


def result_now(run: Run, temporary: tempfile.TemporaryDirectory[str] | None = None) -> SearchResult:
    """The result of a run that is open, as far as it has come."""
    return result_of(run.store, run.tree, run.parts.strategy.annotations(run.state), run.finished, temporary)


def best_keeper(run: Run, on_progress: OnProgress | None) -> OnProgress:
    """What keeps best.py up to date, and hands progress on."""
    written: int | None = None

    def keep_best(progress: Progress) -> None:
        nonlocal written
        if run.tree.best.id != written:
            guards = None if run.tree.best.id == ROOT_ID else guards_of(run)
            folder.write_best(run.store.folder, run.tree, guards, run.task.tolerance)
            written = run.tree.best.id
        if on_progress is not None:
            on_progress(progress)

    return keep_best
