"""Binding: what a run keeps of a capture besides its task, so that another process binds a version to a live module."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace

import torch

from mtmc.dropin.recipe import Recipe
from mtmc.errors import RunError, TaskError
from mtmc.task import Capture, Task, resolve
from mtmc.task.saved_state import read_state

_log = logging.getLogger(__name__)


def bound(capture: Capture) -> Task:
    """The task of a capture with its binding, for a search.

    Arguments and results that cannot be pickled leave it without: then the run's versions can be loaded by themselves only.
    """
    recipe = Recipe.of(capture, "")
    kept = ("call", "places", "output", "ties", "default_dtype")
    facts = {name: getattr(recipe, name) for name in kept}
    try:
        return replace(capture.task, binding=pickle.dumps(facts))
    except Exception as error:  # whatever an object's own pickling raises
        _log.info("a run of %s keeps nothing of its call: %s: %s", capture.task.name, type(error).__name__, error)
        return capture.task


def recipe_of(task: Task, source: str) -> Recipe:
    """The recipe of one version of a task that `bound` has made.

    Raises: RunError if the task has no binding, or it cannot be read here.
    """
    if task.binding is None:
        why = "it was searched as a file" if task.state is None else "its call could not be kept"
        raise RunError(f"task {task.name} is not bound to a live module ({why}): load its run without a module")
    try:
        facts = pickle.loads(task.binding)
    except Exception as error:  # classes that are not there, or are others by now
        told = f"{type(error).__name__}: {error}"
        raise RunError(
            f"the call of {task.name} cannot be read here ({told}): import what it is made of first"
        ) from error
    constants = {name: value for name, value in saved_state(task).items() if name not in facts["places"]}
    return Recipe(source=source, task=replace(task, state=None, binding=None), constants=constants, **facts)


def why_another(task: Task, recipe: Recipe, module: torch.nn.Module) -> str | None:
    """How the tensors of a module are others than those of the captured one, by shape and dtype; None where they are not."""
    state = saved_state(task)
    for attribute, path in recipe.places.items():
        try:
            own = resolve(module, path)
        except TaskError as error:
            return str(error)
        kept = state[attribute]
        if own.shape != kept.shape or own.dtype != kept.dtype:
            has = f"{tuple(own.shape)} {own.dtype}"
            return f"its {path} is {has} instead of {tuple(kept.shape)} {kept.dtype}"
    return None


def saved_state(task: Task) -> dict[str, torch.Tensor]:
    """The tensors that came with a task, by their names in the printed `Model`; on the CPU."""
    return {} if task.state is None else read_state(task.state)
