"""From a live nn.Module with example inputs to a Task: its graph printed as a file, its weights as `Task.state`.

The class's own source would not do: the constructor's arguments are unknown. So the module is exported (torch.export,
non-strict), and the ATen graph is printed as a `Model` in KernelBench's format (`mtmc.task.live_source`). Every dimension
of the inputs is left open where the module allows, else the first one, else none: the open ones become module-level
integers, from which small and odd shapes are derived. An example size of 1 is never left open. At every set of shapes
that the task gets, printed and live module are run on the same inputs and have to agree.

A call is seen as a flat list of tensors: those in its positional arguments, then those in its keyword arguments, nested
tuples, lists and dicts in order (`flat_inputs`). Arguments that are no tensors are fixed at their example values. What
is returned is the flat list of the tensors of a result; `restore` puts it back into the structure it came from.

Refused, with the reason: modules that do not export, that draw random numbers (dropout in training mode), that change
a buffer or an input (batch norm in training mode), that switch autocast, and tensors that are sparse or complex.
"""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim, ExportedProgram, export

from mtmc.errors import TaskError
from mtmc.task.base import Task, Variant
from mtmc.task.capture import Capture, KnownShapes, Shapes, resolve
from mtmc.task.exporting import export_failure, library_folders, quiet_export
from mtmc.task.live_call import Call, bind_call, flatten, leaves, slotted
from mtmc.task.live_names import plain_name
from mtmc.task.live_source import PREFIX, PrintedModule, print_module
from mtmc.task.reference import flat_tensors, instantiate
from mtmc.task.shapes import derive_held_out, derive_small
from mtmc.task.trials import Live

_log = logging.getLogger(__name__)

_REGISTRIES = ("_parameters", "_buffers", "_modules")
_MODE_ARGUMENTS = ("train", "training")
_PROBABILITY_ARGUMENTS = ("dropout_p", "dropout", "p")


def build_capture(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor,
    example_kwargs: Mapping[str, Any],
    name: str | None,
    known: KnownShapes | None = None,
) -> Capture:
    """The capture of a live module; see `mtmc.task.capture_module`.

    Raises: TaskError if the module cannot be exported or printed, naming the op and the line where they are known.
    """
    args = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    call = bind_call(module, args, example_kwargs)
    title = type(module).__name__
    name = name or plain_name(title, "Module")
    program = export_module(module, call, name)
    _refuse_impure(program, name)
    printed = print_module(program, call.tensors, _input_names(call), title, name)
    source = printed.source
    state = {key: tensor.detach().to("cpu", copy=True).contiguous() for key, tensor in printed.tensors.items()}
    shapes = known(source, call, printed.tensors) if known is not None else None
    small, held_out = shapes or _shapes(module, call, source, name, state)
    with torch.no_grad():
        output = slotted(module(*call.args, **call.kwargs))
    task = Task(name, source, Variant("full"), small, held_out, _save(state))
    return Capture(task, call, _places(module, printed), output)


def _shapes(module: torch.nn.Module, call: Call, source: str, name: str, state: Mapping[str, torch.Tensor]) -> Shapes:
    """Small and held-out shapes at which the printed module is what the live one computes, as it has to be at the full ones.

    Raises: TaskError if it is not.
    """
    live = Live(state, lambda variant: _difference(module, call, source, variant, name, state) is None)
    reason = _difference(module, call, source, Variant("full"), name, state)
    if reason is not None:
        raise TaskError(
            f"module {name}: its printed graph is not what it computes ({reason}): give it as a task's file"
        )
    small = derive_small(source, name, live)
    return small, derive_held_out(source, small, name, live=live)


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


def _is_at(module: torch.nn.Module, path: str, tensor: torch.Tensor) -> bool:
    try:
        return _same_memory(resolve(module, path), tensor)
    except TaskError:
        return False


def _found(module: torch.nn.Module, tensor: torch.Tensor) -> str | None:
    """The path of a tensor that is none of a module's own attributes, but is in a list or mapping of one."""
    for prefix, owner in module.named_modules():
        for key, value in vars(owner).items():
            if key in _REGISTRIES:
                continue
            for path, leaf in leaves(value):
                if isinstance(leaf, torch.Tensor) and _same_memory(leaf, tensor):
                    inside = re.findall(r"\['?([^\]']*)'?\]", path)
                    return ".".join([*([prefix] if prefix else []), key, *inside])
    return None


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    place = (one.data_ptr(), one.shape, one.stride(), one.dtype, one.device)
    return bool(one.numel()) and place == (other.data_ptr(), other.shape, other.stride(), other.dtype, other.device)


class _Flat(torch.nn.Module):
    """The module as a function of a flat list of tensors, which is all that dynamic shapes need to know."""

    def __init__(self, module: torch.nn.Module, call: Call) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self._call = call

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        call = self._call.with_tensors(tensors)
        output = self.module(*call.args, **call.kwargs)
        size = next((leaf for _, leaf in leaves(output) if isinstance(leaf, torch.SymInt | torch.SymFloat)), None)
        if size is not None:
            raise TaskError("forward returns a size that depends on its inputs: return tensors only")
        return flatten(output)


def export_module(module: torch.nn.Module, call: Call, name: str) -> ExportedProgram:
    """Export a module with as many open dimensions of its inputs as it allows.

    Raises: TaskError with the op and the line that cannot be exported.
    """
    tensors = call.tensors
    for tensor in (*tensors, *module.parameters(), *module.buffers()):
        if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_meta:
            kind = "on the meta device" if tensor.is_meta else f"{tensor.layout}, {tensor.dtype}"
            raise TaskError(f"module {name} has a tensor that is {kind}: use dense real tensors that hold data")
    # One tensor passed twice would be traced as one input, and the graph be wrong for two.
    tensors = [t.clone() if any(t is other for other in tensors[:i]) else t for i, t in enumerate(tensors)]
    every = tuple(dict.fromkeys(range(tensor.dim()), Dim.AUTO) for tensor in tensors)
    first = tuple({0: Dim.AUTO} if tensor.dim() else {} for tensor in tensors)
    failure: Exception | None = None
    for open_dimensions in (every, first, None):
        shapes = None if open_dimensions is None else {"tensors": open_dimensions}
        try:
            with quiet_export(), torch.no_grad():
                return export(_Flat(module, call), tuple(tensors), dynamic_shapes=shapes, strict=False)
        except TaskError as error:
            raise TaskError(f"module {name}: {error}") from error
        except Exception as error:
            failure = error
            _log.debug("module %s does not export with %s open: %s", name, open_dimensions, error)
    assert failure is not None
    raise TaskError(
        f"module {name} cannot be exported: {export_failure(failure)}; torch.export has to trace forward without the "
        "tensors' values: use tensor operations (torch.where) there, and no .item(), .numpy() or value-dependent if"
    ) from failure


def _refuse_impure(program: ExportedProgram, name: str) -> None:
    """Refuse what a file's `Model` cannot be: a module that changes itself or its inputs, or draws random numbers."""
    for node in program.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and _draws(node, node.target):
            raise TaskError(
                f"module {name} draws random numbers ({node.target}{_stack_line(node)}): call its eval() first, or "
                "take the random part out of forward"
            )
    try:
        with quiet_export():
            signature = program.run_decompositions({}).graph_signature
    except Exception as error:
        raise TaskError(f"module {name} cannot be made functional: {export_failure(error)}") from error
    changed = [*signature.buffers_to_mutate.values(), *getattr(signature, "parameters_to_mutate", {}).values()]
    if changed:
        names = ", ".join(key.removeprefix("module.") for key in changed)
        raise TaskError(f"module {name} changes its {names} at every call: call its eval() first (batch norm needs it)")
    if signature.user_inputs_to_mutate:
        raise TaskError(f"module {name} changes its inputs in place: make a new tensor instead")


def _draws(node: torch.fx.Node, op: torch._ops.OpOverload) -> bool:
    """Whether an op draws random numbers: it can, and its arguments say neither "not training" nor probability 0."""
    if torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    names = [argument.name for argument in op._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if any(name in given and not given[name] for name in _MODE_ARGUMENTS):
        return False
    probabilities = [given.get(name, 0.0) for name in _PROBABILITY_ARGUMENTS if name in names]
    return not probabilities or any(probabilities)


def _stack_line(node: torch.fx.Node) -> str:
    """Where in the user's files a node comes from, as " at FILE, line N", "" where that is not known."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(library_folders())]
    return f" at {os.path.basename(own[-1][0])}, line {own[-1][1]}" if own else ""


def _difference(
    module: torch.nn.Module, call: Call, source: str, variant: Variant, name: str, state: Mapping[str, torch.Tensor]
) -> str | None:
    """How the printed module differs from the live one at a set of shapes, on the live one's device, or None."""
    device = call.tensors[0].device
    try:
        with quiet_export(), torch.no_grad():
            printed, inputs = instantiate(source, variant, name, state)
            inputs = [tensor.to(device) for tensor in inputs]
            found = flat_tensors(printed.to(device)(*inputs))
            live = call.with_tensors(inputs)
            expected = flatten(module(*live.args, **live.kwargs))
    except Exception as error:
        return export_failure(error)
    if len(found) != len(expected):
        return f"{len(found)} outputs instead of {len(expected)}"
    for index, (got, want) in enumerate(zip(found, expected, strict=True)):
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"output {index} is {tuple(got.shape)} {got.dtype} instead of {tuple(want.shape)} {want.dtype}"
        scale = want.double().abs().nan_to_num(0.0, 0.0).max().item() if want.numel() else 0.0
        if not torch.allclose(got.double(), want.double(), rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
            return f"output {index} has other values"
    return None


def _input_names(call: Call) -> list[str]:
    """A name for each tensor of a call: its argument's, with a number where an argument holds several."""
    names = []
    for argument, value in call.arguments():
        count = len(flatten(value))
        names += [argument] if count == 1 else [f"{argument}_{index}" for index in range(count)]
    return names


def _save(state: Mapping[str, torch.Tensor]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getvalue()
