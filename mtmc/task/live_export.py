"""Exporting a live module: as a function of a flat list of tensors, with as many open dimensions as it allows."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import Dim, ExportedProgram, export
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from mtmc.errors import TaskError
from mtmc.task.exporting import export_failure, library_folders, quiet_export
from mtmc.task.live_call import Call
from mtmc.task.live_following import Budget, Following, TooMuchWork
from mtmc.task.live_objects import own_objects
from mtmc.task.live_state import Held, plain_tensors_as_buffers, write_into_the_old
from mtmc.task.tensors import flat_tensors, leaves

_log = logging.getLogger(__name__)

_MODE_ARGUMENTS = ("train", "training")
_PROBABILITY_ARGUMENTS = ("dropout_p", "dropout", "p")
_TRIED = 4
"""Sizes that are closed by turns where not all can be open."""
_DEEP = 4
"""How far inside of an object tensors are looked for."""


class _Flat(torch.nn.Module):
    """The module as a function of a flat list of tensors, which is all that dynamic shapes need to know."""

    def __init__(self, module: torch.nn.Module, call: Call, budget: Budget) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self._call = call
        self._budget = budget

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        call = self._call.with_tensors(tensors)
        before = Held.by(self.module)
        args, kwargs = call.passed
        with Following(tensors, self._call.tensors, self._budget) as following:
            output = self.module(*args, **kwargs)
        following.check()  # A forward may have caught what stopped it.
        write_into_the_old(before)
        for path, leaf in leaves(output):
            if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool) and not leaf.node.expr.is_number:
                raise TaskError(
                    f"forward returns a size that depends on its inputs (output{path}): return tensors only"
                )
        refuse_objects(output, "output")
        return flat_tensors(output)


def export_module(module: torch.nn.Module, call: Call, name: str) -> ExportedProgram:
    """Export a module with as many open dimensions of its inputs as it allows. The module stays as it is.

    Raises: TaskError with the op and the line that cannot be exported.
    """
    tensors = call.tensors
    # One tensor passed twice would be traced as one input, and the graph be wrong for two.
    tensors = [t.clone() if any(t is other for other in tensors[:i]) else t for i, t in enumerate(tensors)]
    budget = Budget()
    try:
        return _exported(module, call, tensors, frozenset(), budget)
    except TaskError as error:
        raise TaskError(f"module {name}: {error}") from error
    except TooMuchWork as error:
        _log.debug("module %s is not exported with all sizes open: %s", name, error)
        return _with_less_open(module, call, tensors, error.sizes, budget, name)
    except Exception as error:
        _log.debug("module %s does not export with all sizes open: %s", name, error)
    program = _closed(module, call, tensors, name)  # Where not even this goes, no choice of open sizes helps.
    sizes = _later_sizes(tensors)
    for closed in [*({size} for size in sizes[:_TRIED]), sizes]:
        try:
            return _exported(module, call, tensors, frozenset(closed), budget)
        except Exception as error:
            _log.debug("module %s does not export with all but %s open: %s", name, closed, error)
    return program


def _with_less_open(
    module: torch.nn.Module,
    call: Call,
    tensors: Sequence[torch.Tensor],
    costly: frozenset[int],
    budget: Budget,
    name: str,
) -> ExportedProgram:
    """An export with the costly sizes closed, else with all but the first dimensions closed, else with all.

    Raises: TaskError if the module does not export.
    """
    every = frozenset(_later_sizes(tensors))
    for closed in dict.fromkeys((costly or every, every)):
        try:
            program = _exported(module, call, tensors, closed, budget)
        except Exception as error:
            _log.debug("module %s is not exported with all but %s open: %s", name, sorted(closed), error)
            continue
        told = ", ".join(map(str, sorted(closed)))
        _log.warning("module %s: the sizes %s are fixed: too much work to follow them through forward", name, told)
        return program
    _log.warning("module %s: all sizes are fixed: too much work to follow them through forward", name)
    return _closed(module, call, tensors, name)


def _later_sizes(tensors: Sequence[torch.Tensor]) -> list[int]:
    """The sizes of all dimensions but the first, the largest first."""
    return sorted({size for tensor in tensors for size in tensor.shape[1:] if size > 1}, reverse=True)


def _closed(module: torch.nn.Module, call: Call, tensors: Sequence[torch.Tensor], name: str) -> ExportedProgram:
    """An export with all sizes fixed. Raises: TaskError with the op and the line that cannot be exported."""
    try:
        return _exported(module, call, tensors, None, Budget())
    except Exception as error:
        raise TaskError(
            f"module {name} cannot be exported: {export_failure(error)}; torch.export has to trace forward without the "
            "tensors' values: use tensor operations (torch.where) there, and no .item(), .numpy() or value-dependent if"
        ) from error


def _exported(
    module: torch.nn.Module,
    call: Call,
    tensors: Sequence[torch.Tensor],
    closed: frozenset[int] | None,
    budget: Budget,
) -> ExportedProgram:
    """An export with the sizes of the inputs open; of the later dimensions but those in `closed`. None: all are closed.

    Raises: TooMuchWork where that is over the budget; whatever torch.export raises.
    """
    dims = tuple(
        {
            dim: Dim.AUTO
            for dim, size in enumerate(tensor.shape)
            if closed is not None and (not dim or size not in closed)
        }
        for tensor in tensors
    )
    with quiet_export(), torch.no_grad(), _exportable(module), plain_tensors_as_buffers(module), _plain_flags():
        program = export(_Flat(module, call, budget), tuple(tensors), dynamic_shapes={"tensors": dims}, strict=False)
        # Only the functional form says which casts autocast makes.
        return program.run_decompositions({}) if _switches_autocast(program) else program


@contextmanager
def _plain_flags() -> Iterator[None]:
    """Let attention take `is_causal=length > 1` where the length is open, which torch.export refuses."""
    functional = torch.nn.functional
    original = functional.scaled_dot_product_attention

    def attention(*args: Any, **kwargs: Any) -> torch.Tensor:
        flags = {key: bool(value) for key, value in kwargs.items() if isinstance(value, torch.SymBool)}
        plain: list[Any] = [bool(value) if isinstance(value, torch.SymBool) else value for value in args]
        return original(*plain, **{**kwargs, **flags})

    functional.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original


def refuse_modules(module: object) -> None:
    """Refuse what is no module that can be traced. Raises: TaskError with what to give instead."""
    kind = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise TaskError(f"a {kind} is no torch.nn.Module: wrap it in one whose forward calls it")
    if isinstance(module, torch.jit.ScriptModule):
        raise TaskError(f"a {kind} is compiled by torch.jit: give the module that it was made of")
    if isinstance(getattr(module, "_orig_mod", None), torch.nn.Module):
        raise TaskError("the module is compiled by torch.compile: give the one that it was made of (its _orig_mod)")
    if isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        raise TaskError(f"a {kind} runs its module on several devices: give that module (its .module)")


def refuse_tensors(module: torch.nn.Module, call: Call, name: str) -> None:
    """Refuse tensors that are sparse, complex, nested, of a class of their own, or hold no data. Raises: TaskError."""
    for tensor in (*call.tensors, *module.parameters(), *module.buffers()):
        if tensor.is_nested or tensor.is_quantized or is_traceable_wrapper_subclass(tensor):
            raise TaskError(
                f"module {name} has a tensor of the class {type(tensor).__name__} (nested, quantized or distributed): "
                "give it plain tensors"
            )
        if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_meta:
            kind = "on the meta device" if tensor.is_meta else f"{tensor.layout}, {tensor.dtype}"
            raise TaskError(f"module {name} has a tensor that is {kind}: use dense real tensors that hold data")


@contextmanager
def _exportable(module: torch.nn.Module) -> Iterator[None]:
    """Put back what an export leaves bound in the module."""
    held = Held.by(module)
    try:
        yield
    finally:
        held.put_back()


def _graphs(program: ExportedProgram) -> Iterator[torch.fx.Graph]:
    """The graph and those of its parts that run in another mode."""
    for each in program.graph_module.modules():
        if isinstance(each, torch.fx.GraphModule):
            yield each.graph


def _switches_autocast(program: ExportedProgram) -> bool:
    return any(str(node.target) == "wrap_with_autocast" for graph in _graphs(program) for node in graph.nodes)


def refuse_random(program: ExportedProgram, name: str) -> None:
    """Refuse a module that draws random numbers: no version could be compared. Raises: TaskError with the line."""
    for node in (node for graph in _graphs(program) for node in graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and _draws(node, node.target):
            raise TaskError(
                f"module {name} draws random numbers ({node.target}{_stack_line(node)}): call its eval() first, or "
                "take the random part out of forward"
            )


def refuse_objects(structure: Any, what: str) -> None:
    """Refuse objects that hold tensors in places that no capture can follow. Raises: TaskError naming the first."""
    for path, leaf in leaves(structure):
        if not isinstance(leaf, torch.Tensor) and _holds_tensors(leaf, _DEEP):
            raise TaskError(
                f"{what}{path} is a {type(leaf).__name__} that holds tensors, and mtmc cannot follow what is done with "
                "them: use tensors, or tuples, lists, dicts and data classes of tensors (a cache of a transformer: "
                "capture a module around it that takes and gives the cache's tensors, or call with use_cache=False)"
            )


def with_own_objects(call: Call) -> Call:
    """The call with copies of the objects in it, which a forward could change."""
    args, kwargs = own_objects((call.args, dict(call.kwargs)))
    return dataclasses.replace(call, args=args, kwargs=kwargs)


def _holds_tensors(item: Any, depth: int) -> bool:
    if isinstance(item, torch.Tensor):
        return True
    if depth == 0 or isinstance(item, str | bytes | int | float | type | torch.dtype) or item is None:
        return False
    if isinstance(item, Mapping):
        return any(_holds_tensors(part, depth - 1) for part in item.values())
    if isinstance(item, list | tuple | set):
        return any(_holds_tensors(part, depth - 1) for part in item)
    if isinstance(item, torch.nn.Module):
        return False
    return any(_holds_tensors(part, depth - 1) for part in vars(item).values()) if hasattr(item, "__dict__") else False


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
