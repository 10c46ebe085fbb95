"""From (task, variant, candidate source) to modules and inputs: the same seeded way for reference and candidate.

One text is executed and read back by Triton and `inspect`: `mtmc.syntax.canonical_text`, which the audit has read. Runs in
worker processes only.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mtmc.errors import TaskError
from mtmc.evaluate.loading.same_text import remember
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.syntax import canonical_text
from mtmc.task import Task, Variant
from mtmc.task.constants import apply_constants, integer_constants
from mtmc.task.seeding import seed_torch
from mtmc.task.tensors import map_tensors

if TYPE_CHECKING:
    pass

_log = logging.getLogger(__name__)

Made = TypeVar("Made")
INPUTS = 0x9E3779B97F4A7C15
"""Added to a seed where inputs are drawn, modulo 2^63."""


def candidate_text(source: str, constants: tuple[tuple[str, int], ...]) -> str:
    """A candidate's source at one variant's shapes, with every line where it was.

    Module-level integers that the task's file replaces are replaced where the candidate has them too (it may be a copy
    of the reference); a candidate need not have any, and one that ties two of them together keeps its own.
    Raises: SyntaxError as `canonical_text` does.
    """
    text = canonical_text(source)
    known = integer_constants(text)
    try:
        return apply_constants(text, [(name, value) for name, value in constants if name in known])
    except TaskError:
        return text


def load_module(source: str, path: Path) -> types.ModuleType:
    """Write a source's canonical text to `path` and execute it as a module named like the file.

    Nothing of this file's own settings reaches it: what an import of the text would refuse is refused here.
    Raises: whatever the source raises; SyntaxError as `canonical_text` does.
    """
    text = canonical_text(source)
    path.write_bytes(text.encode())
    remember(path, text)
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    # dataclasses and Triton look the module of a class or kernel up by its name.
    sys.modules[path.stem] = module
    try:
        exec(compile(text, str(path), "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[path.stem]  # or another file of that name would be taken for half of this one
        raise
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


def init_inputs(module: types.ModuleType, variant: Variant, seed: int, device: str = "cpu") -> list[Any]:
    """Constructor arguments of a variant, drawn with `seed`, on `device`. Raises: TaskError if the function fails."""
    return _call(module, variant.init_inputs, seed, device)


def draw_inputs(module: types.ModuleType, variant: Variant, seed: int, device: str = "cpu") -> list[Any]:
    """Fresh inputs of a variant, drawn with `seed`, on `device`. Raises: TaskError if the function fails.

    Other numbers than the weights that are drawn with the same seed: a row of inputs that is a row of weights makes a
    softmax of their product one number and nothing else, which says little of how exact it is.
    """
    return _call(module, variant.inputs, (seed + INPUTS) % 2**63, device)


def _call(module: types.ModuleType, function: str, seed: int, device: str) -> list[Any]:
    try:
        return list(to_device(_made_on(device, seed, getattr(module, function)), device))
    except Exception as error:
        raise TaskError(f"{function}() of the task failed: {type(error).__name__}: {error}") from error


def construct(
    module: types.ModuleType,
    class_name: str,
    arguments: list[Any],
    seed: int,
    state: bytes | None,
    device: str = "cpu",
    moved: bool = False,
) -> Any:
    """One module of class `class_name`, its weights drawn with `seed`, then replaced by `state` where there is one.

    Reference and candidate are made by this same call, so equal constructors give equal weights. As in KernelBench the
    module stays in the mode its constructor leaves it in.
    device: where it is made, by that device's own random numbers; what its constructor makes elsewhere is moved there.
    moved: move what the constructor sets to one value throughout, see `mtmc.evaluate.loading.degenerate`, and give what it
        draws heavy tails, see `mtmc.evaluate.loading.heavy_tails`.
    On fake tensors a constructor may read values, see `mtmc.evaluate.loading.fake`.
    Raises: whatever the constructor raises.
    """
    from mtmc.evaluate.loading.degenerate import move_degenerate, moving_initializers
    from mtmc.evaluate.loading.fake import constructed
    from mtmc.evaluate.loading.heavy_tails import HeavyTails, with_tails
    from mtmc.evaluate.loading.saved_state import saved_state

    def make() -> Any:
        with contextlib.ExitStack() as stack:
            if moved:
                stack.enter_context(moving_initializers(seed))
                stack.enter_context(HeavyTails(seed))
            return getattr(module, class_name)(*arguments)

    def make_real() -> Any:
        seed_torch(seed)
        return make()

    model = constructed(lambda: _made_on(device, seed, make), make_real, device)
    if state is not None:
        weights = saved_state(state, device)
        model.load_state_dict(with_tails(weights, seed) if moved else weights)
    if moved:
        move_degenerate(model, seed)
    return model if device == "cpu" else _move_model(model, device)


def construct_reference(
    module: types.ModuleType, task: Task, arguments: list[Any], seed: int, device: str = "cpu", moved: bool = False
) -> Any:
    """The task's own `Model`. Raises: TaskError if its constructor fails or refuses the task's state."""
    try:
        return construct(module, "Model", arguments, seed, task.state, device, moved)
    except Exception as error:
        raise TaskError(f"task {task.name}: Model(...) failed: {type(error).__name__}: {error}") from error


def to_device(value: Any, device: str) -> Any:
    """`value` with every tensor in its nested lists, tuples and dicts on `device`. "cpu": where they are."""
    return value if device == "cpu" else map_tensors(value, lambda tensor: tensor.to(device))


def _made_on(device: str, seed: int, make: Callable[[], Made]) -> Made:
    """What `make` makes, with `device` as torch's default device, and random numbers from `seed`.

    A function that insists on the CPU (NumPy, a generator of its own) fails under another default device: it is called
    again without. "cpu" leaves the default device as it is, so that fake and meta tensors come through here too.
    """
    import torch

    seed_torch(seed)
    if device == "cpu":
        return make()
    try:
        with torch.device(device):
            return make()
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError) or out_of_memory(error):
            raise
        failure = error
    _log.info("made on the CPU, as it fails on %s: %s: %s", device, type(failure).__name__, failure)
    seed_torch(seed)
    try:
        return make()
    except Exception:
        raise failure from None


def _move_model(model: Any, device: str) -> Any:
    """Parameters, buffers, and the plain tensors that modules keep as attributes."""
    import torch

    model = model.to(device)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                setattr(module, name, value.to(device))
    return model
