"""export: a reference through torch.export under fake tensors (no data), at one set of shapes."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from mtmc.errors import TaskError
from mtmc.rewrite.effects import (
    SAME_VALUES,
    Sharing,
    changed_placeholders,
    keeps_statistics,
    refuse_overlaps,
    refuse_what_is_not_followed,
    sharing,
)
from mtmc.rewrite.functional import made_functional
from mtmc.rewrite.lines import REFERENCE_FILE, lines_in
from mtmc.rewrite.passing import without_passing_on
from mtmc.task import Task, Variant, apply_constants
from mtmc.task.exporting import quiet_export
from mtmc.task.normed import normed_quickly
from mtmc.task.recurrent import exported_quickly

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.export import ExportedProgram
    from torch.fx import Node
    from torch.nn import Module


class Export(NamedTuple):
    """A functional export, the module that it was made of, and how what it changes lies in memory."""

    program: ExportedProgram
    model: Module
    sharing: Sharing


def export_reference(task: Task, variant: Variant) -> Export:
    """The export of the reference at one variant's shapes, without data.

    Raises: TaskError naming the op and the line of the reference where it does not export.
    """
    from torch._subclasses.fake_tensor import DataDependentOutputException

    try:
        try:
            return _export(task, variant, fake=True)
        except DataDependentOutputException:  # A constructor that reads numbers out of tensors; forward may not.
            return _export(task, variant, fake=False)
    except TaskError as error:
        raise TaskError(f"task {task.name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise TaskError(_why(task, variant, error)) from error


class _Traced(NamedTuple):
    """A forward as it was traced, with its changes in place. plain: paths of the model's plain tensor attributes.
    mode: what its tensors without data are of, None where they have data."""

    program: ExportedProgram
    model: Module
    inputs: tuple[Any, ...]
    plain: set[str]
    mode: FakeTensorMode | None


def _export(task: Task, variant: Variant, fake: bool) -> Export:
    """The export. fake: no data for the model and its inputs either."""
    traced = _traced(task, variant, fake)
    with _exporting(traced.mode):
        program, written = _functional(traced, exactly=False)
        if not changed_placeholders(program):
            return Export(program, traced.model, Sharing())
        refuse_overlaps(program, traced.model, traced.inputs)
        return Export(program, traced.model, Sharing() if written else sharing(program, traced.model, traced.inputs))


def _traced(
    task: Task,
    variant: Variant,
    fake: bool,
    open_dimensions: Callable[[Any], Any] | None = None,
    toggled: bool = False,
) -> _Traced:
    """What torch traces of a forward.

    open_dimensions: which dimensions of an input may vary, in torch.export's terms. toggled: with all modules in
    the other one of training and evaluation mode.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    source = apply_constants(task.source, variant.constants)
    module = types.ModuleType("mtmc_reference")
    sys.modules[module.__name__] = module
    mode = FakeTensorMode() if fake else None
    try:
        with _exporting(mode):
            exec(compile(source, REFERENCE_FILE, "exec", dont_inherit=True), module.__dict__)
            model = module.Model(*getattr(module, variant.init_inputs)())
            plain = _as_buffers(model) if fake else set()
            inputs = tuple(getattr(module, variant.inputs)())
            if toggled:
                for part in model.modules():
                    part.training = not part.training
            open_ = None if open_dimensions is None else _each(model, inputs, open_dimensions)
            exported = torch.export.export(model, inputs, dynamic_shapes=open_, strict=False)
            refuse_what_is_not_followed(exported)
            if any(_mutates(node) for node in exported.graph.nodes):
                without_passing_on(exported)
            return _Traced(exported, model, inputs, plain, mode)
    finally:
        sys.modules.pop(module.__name__, None)


@contextmanager
def _exporting(mode: FakeTensorMode | None) -> Iterator[None]:
    """What torch.export needs around it, see `_Traced`."""
    import torch

    with quiet_export(), mode or nullcontext(), torch.no_grad(), _converting(), exported_quickly(), normed_quickly():
        yield


def _functional(traced: _Traced, exactly: bool) -> tuple[ExportedProgram, bool]:
    """What was traced without changes in place, and whether `functional` has written it.

    exactly: have torch trace it again in any case, which learns more of open dimensions. Raises: TaskError.
    """
    program, written = traced.program, None
    if any(_mutates(node) for node in program.graph.nodes):
        written = None if exactly else made_functional(program)
        program = written or program.run_decompositions({})
    _refuse_state(program, traced.plain)
    return program, written is not None


class Opened(NamedTuple):
    """A reference exported with open dimensions: its `program` says all that torch finds, `written` the same of sizes and
    numbers, in half the time, but not every condition on them."""

    traced: _Traced

    @property
    def model(self) -> Module:
        """The module that was exported."""
        return self.traced.model

    def program(self) -> ExportedProgram:
        """The functional export. Raises: whatever torch.export raises."""
        with _exporting(self.traced.mode):
            return _functional(self.traced, exactly=True)[0]

    def written(self) -> ExportedProgram:
        """The functional export, as `functional` writes it where it can. Raises: whatever torch.export raises."""
        with _exporting(self.traced.mode):
            return _functional(self.traced, exactly=False)[0]


def export_open(
    task: Task, variant: Variant, open_dimensions: Callable[[Any], Any] | None, toggled: bool = False
) -> Opened:
    """The export of a reference that exports at these shapes, see `_traced`. Raises: whatever torch.export raises."""
    from torch._subclasses.fake_tensor import DataDependentOutputException

    try:
        return Opened(_traced(task, variant, True, open_dimensions, toggled))
    except DataDependentOutputException:
        return Opened(_traced(task, variant, False, open_dimensions, toggled))


def _each(model: Module, inputs: tuple[Any, ...], open_dimensions: Callable[[Any], Any]) -> tuple[Any, ...]:
    """What `open_dimensions` says of each tensor of the inputs, in the inputs' own structure."""
    import torch
    from torch.utils._pytree import tree_map

    found = tuple(tree_map(lambda item: open_dimensions(item) if isinstance(item, torch.Tensor) else None, inputs))
    kinds = [each.kind for each in inspect.signature(model.forward).parameters.values()]
    plain = kinds.index(inspect.Parameter.VAR_POSITIONAL) if inspect.Parameter.VAR_POSITIONAL in kinds else len(found)
    return found[:plain] + ((found[plain:],) if plain in range(len(kinds)) and plain < len(found) else ())


def _as_buffers(model: Module) -> set[str]:
    """Make buffers of the tensors that modules keep as plain attributes, so that they can be followed; their paths.

    Not of single numbers: those are known, without data too.
    """
    import torch

    found = set()
    for prefix, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.dim():
                delattr(module, name)
                module.register_buffer(name, value, persistent=False)
                found.add(f"{prefix}.{name}" if prefix else name)
    return found


def copied(node: Node) -> Node | None:
    """What a copy into another tensor of the same shape and dtype leaves there; None for another op."""
    import torch

    if str(node.target) != "aten.copy.default":
        return None
    target, source = node.args[:2]
    assert isinstance(target, torch.fx.Node) and isinstance(source, torch.fx.Node)
    one, other = target.meta["val"], source.meta["val"]
    return source if (one.shape, one.dtype) == (other.shape, other.dtype) else None


def _refuse_state(program: ExportedProgram, plain: set[str]) -> None:
    """Raises: TaskError where a result, or what a call leaves behind, depends on what a plain tensor attribute held before.

    It does not move with its module. One that forward sets before it reads it is set by a version too.
    """
    signature = program.graph_signature
    needed = {str(getattr(spec.arg, "name", "")) for spec in signature.output_specs}
    for node in reversed(program.graph.nodes):
        if node.name in needed:
            source = copied(node)
            needed |= {each.name for each in ([source] if source else node.all_input_nodes) if node.op != "output"}
    for name, path in signature.inputs_to_buffers.items():
        if path in plain and name in needed:
            raise TaskError(
                f"forward reads what the plain tensor attribute {path!r} held before; register it as a buffer"
            )


@contextmanager
def _converting() -> Iterator[None]:
    """Let `Model.half()` and the like work on fake tensors: torch wants to swap a parameter's memory, which they do not
    allow, so modules get new parameters instead."""
    import torch

    original, made = torch.nn.Module._apply, dict[int, tuple[torch.Tensor, torch.nn.Parameter]]()

    def convert(self: Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Module:
        for child in self.children() if recurse else ():
            child._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                if id(parameter) not in made:  # one that two modules share stays shared
                    made[id(parameter)] = parameter, torch.nn.Parameter(fn(parameter), parameter.requires_grad)
                self._parameters[name] = made[id(parameter)][1]
        for name, buffer in self._buffers.items():
            self._buffers[name] = None if buffer is None else fn(buffer)
        return self

    torch.nn.Module._apply = convert  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module._apply = original  # type: ignore[method-assign]


def _mutates(node: Node) -> bool:
    if str(node.target) in SAME_VALUES:
        return False
    if keeps_statistics(node):
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _why(task: Task, variant: Variant, error: BaseException) -> str:
    lines = [frame.tb_lineno for frame in _frames(error) if frame.tb_frame.f_code.co_filename == REFERENCE_FILE]
    lines += lines_in(str(error))
    where = f" at line {lines[-1]} of the reference" if lines else ""
    code = task.source.splitlines()
    text = f" ({code[lines[-1] - 1].strip()!r})" if lines and lines[-1] <= len(code) else ""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, AssertionError) and "fake mode" in reason:
        reason = "a tensor that a module keeps as a plain attribute is used or changed; register it as a buffer"
    return (
        f"task {task.name!r} does not export with torch.export{where}{text} at its {variant.label} shapes: "
        f"{type(error).__name__}: {reason}. mtmc needs a forward without data-dependent Python control flow; "
        f"use tensor operations (torch.where) instead"
    )


def _frames(error: BaseException) -> list[types.TracebackType]:
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames
