"""From a live nn.Module with example inputs to a Task: its graph printed as a file, its weights as `Task.state`.

The class's own source would not do: the constructor's arguments are unknown. So the module is exported (torch.export,
non-strict), and the ATen graph is printed as a `Model` in KernelBench's format (`mtmc.task.live_source`). Every dimension
of the inputs is left open where the module allows, else the first one, else none: the open ones become module-level
integers, from which small and odd shapes are derived. An example size of 1 is never left open, and one that is too much
work to follow through forward is not either (`mtmc.task.live_following`). At every set of shapes
that the task gets, printed and live module are run on the same inputs and have to agree.

A call is seen as a flat list of tensors: those in its positional arguments, then those in its keyword arguments, nested
tuples, lists and dicts in order (`flat_inputs`). Arguments that are no tensors are fixed at their example values. What
is returned is the flat list of the tensors of a result; `restore` puts it back into the structure it came from.

A module that changes its inputs, its buffers or tensors that it keeps as plain attributes is printed so: the graph's
calls in place are printed as they are, and what forward binds anew is written into the old tensor. What decides by sizes
is printed as assertions on them (`mtmc.task.live_sizes`).

Refused, with the reason: modules that do not export, that draw random numbers (dropout in training mode), that keep
Python values or tensors of varying shapes from call to call, objects that hold tensors (caches of transformers), outputs
that are sizes, tensors that are sparse or complex, and modules that another compiler made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mtmc.errors import TaskError
from mtmc.task.base import MOST_STATE, Task, Variant
from mtmc.task.capture import Capture, KnownShapes, Shapes, resolve
from mtmc.task.exporting import export_failure, quiet_export
from mtmc.task.live_call import Call, bind_call, positional, slotted
from mtmc.task.live_export import (
    export_module,
    refuse_modules,
    refuse_objects,
    refuse_random,
    refuse_tensors,
    with_own_objects,
)
from mtmc.task.live_held import refuse_strangers, tensors_alive
from mtmc.task.live_names import plain_name
from mtmc.task.live_settled import settle
from mtmc.task.live_source import PREFIX, PrintedModule, print_module
from mtmc.task.live_state import same_values, unchanged
from mtmc.task.mold import Weights
from mtmc.task.reference import held, instantiate
from mtmc.task.saved_state import save_state
from mtmc.task.shapes import derive_held_out, derive_small
from mtmc.task.tensors import flat_tensors, leaves, same_memory
from mtmc.task.tensors import held as bytes_held
from mtmc.task.trials import Live

_NEAR, _ROUNDINGS = 1e-3, 8
"""Relative difference of equal results at most; or as many roundings of a short dtype, where layers choose other paths."""
_REGISTRIES = ("_parameters", "_buffers", "_modules")


def build_capture(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor,
    example_kwargs: Mapping[str, Any],
    name: str | None,
    known: KnownShapes | None = None,
    declaration: str = "",
) -> Capture:
    """The capture of a live module; see `mtmc.task.capture_module`.

    declaration: a line of the printed file that declares the tolerance, "" for none.
    Raises: TaskError if the module cannot be exported or printed, naming the op and the line where they are known.
    """
    refuse_modules(module)
    call = bind_call(module, positional(example_inputs), example_kwargs)
    title = type(module).__name__
    name = name or plain_name(title, "Module")
    refuse_tensors(module, call, name)
    device = call.tensors[0].device.type
    if torch.is_autocast_enabled(device):
        raise TaskError(f"module {name} is captured under torch.autocast({device!r}): leave that region first")
    for argument, value in call.arguments():
        refuse_objects(value, f"module {name}: argument {argument}")
    output = _result(module, call, name)
    alive = tensors_alive()
    program = export_module(module, with_own_objects(call), name)
    refuse_random(program, name)
    printed = print_module(program, call.tensors, _input_names(call), title, name)
    source = f"{printed.source.rstrip()}\n\n{declaration}\n" if declaration else printed.source
    _refuse_heavy(printed.tensors.values(), name)
    state = {key: tensor.detach().to("cpu", copy=True) for key, tensor in printed.tensors.items()}
    places = _places(module, printed)
    refuse_strangers({key: each for key, each in printed.tensors.items() if key not in places}, alive, name)
    del alive
    shapes = known(source, call, printed.tensors) if known is not None else None
    small, held_out = shapes or _shapes(_LiveModule(module, call, places, name), source, state)
    task = Task(name, source, Variant("full"), small, held_out, save_state(state))
    default = str(torch.get_default_dtype()).removeprefix("torch.")
    return Capture(task, call, places, slotted(output), _ties(module, places), default)


def _shapes(live: _LiveModule, source: str, state: Mapping[str, torch.Tensor]) -> Shapes:
    """Small and held-out shapes at which the printed module is what the live one computes, as it has to be at the full ones.

    Raises: TaskError if it is not.
    """
    weights = held(source, Variant("full"), live.name, state)
    reason = live.difference(source, Variant("full"), weights)
    if reason is not None:
        raise TaskError(
            f"module {live.name}: its printed graph is not what it computes ({reason}): give it as a task's file"
        )
    trials = Live(weights, lambda variant: live.difference(source, variant, weights) is None)
    small = derive_small(source, live.name, trials)
    return small, derive_held_out(source, small, live.name, live=trials)


def _result(module: torch.nn.Module, call: Call, name: str) -> Any:
    """What the example call gives. The module, the call's tensors and the random state stay as they are.

    What a module sets up in its first call (a table of positions, scaled weights) stays: see `mtmc.task.live_settled`.
    Raises: TaskError if the call fails, changes a parameter each time, or gives no tensor.
    """
    device = call.tensors[0].device
    made: list[tuple[Call, Any]] = []

    def run() -> None:
        own = with_own_objects(call.with_tensors([tensor.clone() for tensor in call.tensors]))
        args, kwargs = own.passed
        made.append((own, module(*args, **kwargs)))

    try:
        with quiet_export(), torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            if settle(module, run, name):  # what was called first was another module
                with unchanged(module, but_new=True):
                    run()
    except TaskError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(f"module {name} fails on its example inputs: {export_failure(error)}") from error
    own, output = made[-1]
    for argument, value in own.arguments():
        refuse_objects(value, f"module {name}: after the call, argument {argument}")
    _refuse_shared_changes(call.tensors, own.tensors, name)
    refuse_objects(output, f"module {name}: output")
    if not flat_tensors(output):
        raise TaskError(f"module {name} gives no tensor for its example inputs, so there is nothing to make faster")
    if not any(tensor.numel() for tensor in flat_tensors(output)):
        raise TaskError(
            f"module {name} gives no elements for its example inputs: one of their sizes is 0; give it inputs of some size"
        )
    if any(tensor.is_floating_point() and bool(tensor.isnan().any()) for tensor in flat_tensors(output)):
        raise TaskError(
            f"module {name} gives NaN for its example inputs, so no version could be compared: are all its weights set "
            "(torch.empty leaves what was in memory), and is no row of a mask all minus infinity?"
        )
    return output


def _refuse_shared_changes(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor], name: str) -> None:
    """Refuse a forward that changes an input whose memory is another's too: printed files take inputs of their own.

    Raises: TaskError.
    """
    memory = [tensor.untyped_storage().data_ptr() for tensor in before]
    for index, (was, now) in enumerate(zip(before, after, strict=True)):
        if memory.count(memory[index]) > 1 and not same_values(was, now):
            raise TaskError(
                f"module {name} changes tensor {index} of its example inputs, which shares memory with another one: "
                "give each its own memory"
            )


def _places(module: torch.nn.Module, printed: PrintedModule) -> dict[str, str]:
    """Where in the live module each tensor of the printed one is; see `Capture.places`."""
    places = {}
    for attribute, target in printed.targets.items():
        path = target.removeprefix(PREFIX)
        if target.startswith(PREFIX) and _is_at(module, path, printed.tensors[attribute]):
            places[attribute] = path
        elif (found := _found(module, printed.tensors[attribute])) is not None:
            places[attribute] = found
    return places


def _ties(module: torch.nn.Module, places: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Where else the module keeps the tensors of these places, as parameters or buffers; see `Capture.ties`."""
    first = {id(resolve(module, path)): (attribute, path) for attribute, path in places.items()}
    found = []
    for prefix, owner in module.named_modules():
        for name, tensor in (*owner._parameters.items(), *owner._buffers.items()):
            path = f"{prefix}.{name}" if prefix else name
            attribute, known = first.get(id(tensor), ("", path))
            if path != known:
                found.append((attribute, path))
    return tuple(found)


def _is_at(module: torch.nn.Module, path: str, tensor: torch.Tensor) -> bool:
    try:
        return same_memory(resolve(module, path), tensor)
    except TaskError:
        return False


def _found(module: torch.nn.Module, tensor: torch.Tensor) -> str | None:
    """The path of a tensor that is none of a module's own attributes, but is in a list or mapping of one."""
    for prefix, owner in module.named_modules():
        for key, value in vars(owner).items():
            if key in _REGISTRIES:
                continue
            for path, leaf in leaves(value):
                if isinstance(leaf, torch.Tensor) and same_memory(leaf, tensor):
                    inside = re.findall(r"\['?([^\]']*)'?\]", path)
                    return ".".join([*([prefix] if prefix else []), key, *inside])
    return None


@dataclass(frozen=True)
class _LiveModule:
    """A live module beside what was printed of it. places: see `Capture`."""

    module: torch.nn.Module
    call: Call
    places: Mapping[str, str]
    name: str

    def difference(self, source: str, variant: Variant, state: Weights) -> str | None:
        """How the printed module differs from the live one at a set of shapes, on the live one's device, or None.

        Results, and what both leave in the inputs and in the module.
        """
        device = self.call.tensors[0].device
        try:
            with quiet_export(), torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
                printed, inputs = instantiate(source, variant, self.name, state)
                inputs = [tensor.to(like.device) for tensor, like in zip(inputs, self.call.tensors, strict=True)]
                own = [tensor.clone() for tensor in inputs]
                results = flat_tensors(printed.to(device)(*inputs))
                with unchanged(self.module):
                    call = with_own_objects(self.call.with_tensors(own))
                    args, kwargs = call.passed
                    expected = flat_tensors(self.module(*args, **kwargs))
                    kept = {key: resolve(self.module, path) for key, path in self.places.items()}
                    reason = _first_difference("output", results, expected) or _first_difference("input", inputs, own)
                    buffers = [(key, kept[key]) for key, _ in printed.named_buffers() if key in kept]
                    return reason or _first_difference(
                        "buffer", [getattr(printed, key) for key, _ in buffers], [value for _, value in buffers]
                    )
        except Exception as error:
            return export_failure(error)


def _first_difference(what: str, found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str | None:
    if len(found) != len(expected):
        return f"{len(found)} {what}s instead of {len(expected)}"
    for index, (got, want) in enumerate(zip(found, expected, strict=True)):
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{what} {index} is {tuple(got.shape)} {got.dtype} instead of {tuple(want.shape)} {want.dtype}"
        # Mostly they are equal, and large ones dear to compare.
        if not torch.equal(got, want) and not _near(got, want):
            return f"{what} {index} has other values"
    return None


def _near(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether values are the same but for rounding; NaN is the same as NaN."""
    scale = want.double().abs().nan_to_num(0.0, 0.0, 0.0).max().item() if want.numel() else 0.0
    near = max(_NEAR, _ROUNDINGS * torch.finfo(want.dtype).eps) if want.is_floating_point() else _NEAR
    return torch.allclose(got.double(), want.double(), rtol=near, atol=near * scale, equal_nan=True)


def _input_names(call: Call) -> list[str]:
    """A name for each tensor of a call: its argument's, with a number where an argument holds several."""
    names = []
    for argument, value in call.arguments():
        count = len(flat_tensors(value))
        names += [argument] if count == 1 else [f"{argument}_{index}" for index in range(count)]
    return names


def _refuse_heavy(tensors: Iterable[torch.Tensor], name: str) -> None:
    """Raises: TaskError for weights that a run cannot keep."""
    size = bytes_held(list(tensors))
    if size > MOST_STATE:
        raise TaskError(
            f"module {name}: its weights take {size / 1e6:,.0f} MB, and a run keeps {MOST_STATE / 1e6:,.0f} MB at most: "
            "hand over a part of it, or all of it with whole=True"
        )
