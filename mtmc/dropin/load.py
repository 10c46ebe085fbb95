"""load(): what a run has found as a module, in another process than the one that searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch

from mtmc.dropin.binding import recipe_of, saved_state, why_another
from mtmc.dropin.drop_in import refuse_module
from mtmc.dropin.loaded import load_source
from mtmc.dropin.optimized import attach, new_record
from mtmc.errors import RunError
from mtmc.export.no_gain import why_no_gain
from mtmc.search.folder import handed_out
from mtmc.store import STORE_NAME, Store, has_run
from mtmc.task import Task
from mtmc.task.reference import namespace
from mtmc.task.seeding import seed_torch


class _Kept(NamedTuple):
    """What a run tells. source: of the best version, as it is handed out. reason: why that is the root, else ""."""

    task: Task
    source: str
    reason: str


def load(run: Path | str, module: torch.nn.Module | None = None) -> Any:
    """The best version of a finished run as a module.

    module: the live module that was optimized, or one of the same architecture. What is returned is its drop-in, as of
    `mtmc.optimize`; it uses the module's own weights. Without a module it is the version itself: for a run of a live module
    with the weights that the run has kept, for one of a file with weights drawn as the file draws them. It takes and gives
    what the task's file does: tensors in a flat list.

    Raises: RunError if there is no such run, it has not ended, another version of mtmc made it, or it is of another module
        than the one that is given; TaskError if no drop-in can be made of that.
    """
    kept = _read(Path(run))
    if module is None:
        return _alone(kept, Path(run))
    refuse_module(module)
    recipe = recipe_of(kept.task, kept.source)
    other = why_another(kept.task, recipe, module)
    if other is not None:
        raise RunError(f"the run {run} is not of this {type(module).__name__} ({other}): give the module that it is of")
    record = new_record(module, reason=kept.reason or "there is no version of it")
    made = attach(module, record)
    if not kept.reason:
        record.add(made, recipe)
    return made


def _read(folder: Path) -> _Kept:
    runs = sorted(str(path.parent) for path in folder.glob(f"*/*/{STORE_NAME}"))
    if runs and not has_run(folder):
        raise RunError(f"{folder} holds the runs of several modules: load one of them with its module, {runs[0]} say")
    store = Store.read(folder)
    try:
        if not store.is_current():
            hint = "its versions do not say what they hold for; search the module again"
            raise RunError(f"the run {folder} was made by an older version of mtmc: {hint}")
        if store.finished() is None:
            raise RunError(f"the run {folder} has not ended: go on with it first, mtmc resume {folder}")
        tree = store.tree()
        return _Kept(store.task(), handed_out(tree.best, store.guards(), store.task().tolerance), why_no_gain(tree))
    finally:
        store.close()


def _alone(kept: _Kept, run: Path) -> torch.nn.Module:
    """The version itself, with the weights that the task has, else with those that its file would draw."""
    task = kept.task
    try:
        with torch.random.fork_rng(devices=[]):
            seed_torch(0)
            arguments = namespace(task.source, task.full, task.name)[task.full.init_inputs]()
            made: torch.nn.Module = load_source(kept.source).ModelNew(*arguments)
        if task.state is not None:
            made.load_state_dict(saved_state(task))
    except Exception as error:  # the task's file and the version are programs
        raise RunError(f"the best version of {run} cannot be loaded: {type(error).__name__}: {error}") from error
    return made
