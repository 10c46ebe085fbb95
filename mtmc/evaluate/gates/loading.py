"""From (task, variant, candidate source) to modules and inputs: the same seeded way for reference and candidate.

Texts are written to real files before they are executed, because Triton and `inspect` read them back. Runs in worker
processes only.
"""

from __future__ import annotations

import io
import sys
import types
from pathlib import Path
from typing import Any

from mtmc.errors import TaskError
from mtmc.task import Task, Variant
from mtmc.task.constants import apply_constants, integer_constants


def candidate_text(source: str, constants: tuple[tuple[str, int], ...]) -> str:
    """A candidate's source at one variant's shapes, with every line where it was.

    Module-level integers that the task's file replaces are replaced where the candidate has them too (it may be a copy
    of the reference); a candidate need not have any, and one that ties two of them together keeps its own.
    """
    known = integer_constants(source)
    try:
        return apply_constants(source, [(name, value) for name, value in constants if name in known])
    except TaskError:
        return source


def load_module(source: str, path: Path) -> types.ModuleType:
    """Write a source to `path` and execute it as a module named like the file. Raises: whatever the source raises."""
    path.write_text(source)
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    # dataclasses and Triton look the module of a class or kernel up by its name.
    sys.modules[path.stem] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def load_reference(task: Task, variant: Variant, folder: Path) -> types.ModuleType:
    """The task's module at one variant's shapes. Raises: TaskError if it cannot be executed or lacks a function."""
    text = apply_constants(task.source, variant.constants)
    try:
        module = load_module(text, folder / "mtmc_reference.py")
    except Exception as error:
        raise TaskError(f"task {task.name}: the file does not run: {type(error).__name__}: {error}") from error
    for name in ("Model", variant.inputs, variant.init_inputs):
        if not hasattr(module, name):
            raise TaskError(f"task {task.name}: the file defines no {name}; add it at the top level")
    return module


def init_inputs(module: types.ModuleType, variant: Variant, seed: int) -> list[Any]:
    """Constructor arguments of a variant, drawn with `seed`. Raises: TaskError if the function fails."""
    return _call(module, variant.init_inputs, seed)


def draw_inputs(module: types.ModuleType, variant: Variant, seed: int) -> list[Any]:
    """Fresh inputs of a variant, drawn with `seed`. Raises: TaskError if the function fails."""
    return _call(module, variant.inputs, seed)


def _call(module: types.ModuleType, function: str, seed: int) -> list[Any]:
    import torch

    torch.manual_seed(seed)
    try:
        return list(getattr(module, function)())
    except Exception as error:
        raise TaskError(f"{function}() of the task failed: {type(error).__name__}: {error}") from error


def construct(module: types.ModuleType, class_name: str, arguments: list[Any], seed: int, state: bytes | None) -> Any:
    """One module of class `class_name`, its weights drawn with `seed`, then replaced by `state` where there is one.

    Reference and candidate are made by this same call, so equal constructors give equal weights. As in KernelBench the
    module stays in the mode its constructor leaves it in. Raises: whatever the constructor raises.
    """
    import torch

    torch.manual_seed(seed)
    model = getattr(module, class_name)(*arguments)
    if state is not None:
        model.load_state_dict(torch.load(io.BytesIO(state), map_location="cpu", weights_only=True))
    return model


def construct_reference(module: types.ModuleType, task: Task, arguments: list[Any], seed: int) -> Any:
    """The task's own `Model`. Raises: TaskError if its constructor fails or refuses the task's state."""
    try:
        return construct(module, "Model", arguments, seed, task.state)
    except Exception as error:
        raise TaskError(f"task {task.name}: Model(...) failed: {type(error).__name__}: {error}") from error
