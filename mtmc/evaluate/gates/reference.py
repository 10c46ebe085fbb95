"""The trusted side of the check: inputs, the reference's own results, and the float64 oracle they are judged by."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from mtmc.errors import TaskError
from mtmc.evaluate.gates.candidate import differ
from mtmc.evaluate.gates.compare import Expected, flatten, norm_error
from mtmc.evaluate.gates.loading import construct_reference, draw_inputs, init_inputs, load_reference
from mtmc.task import Task, Variant

_log = logging.getLogger(__name__)

Distribution = Literal["drawn", "shifted"]
SPREAD = 3.0
SHIFT = 0.5
OTHER_FUNCTION = 0.05
"""Norm-wise difference of the reference from its float64 twin that rounding does not make in a stable function."""


@dataclass(frozen=True)
class Truth:
    """What one case should give.

    inputs: to hand to the candidate. outputs: one per leaf of the reference's result; text stands for a leaf that is no
    tensor. structure: see `flatten`. changed_inputs: positions of input tensors that the reference itself changes.
    """

    inputs: list[Any]
    outputs: list[Expected | str]
    structure: str
    changed_inputs: list[int]

    @property
    def exact(self) -> bool:
        """Whether a float64 oracle stands behind the outputs."""
        return all(output.exact for output in self.outputs if isinstance(output, Expected))


class Reference:
    """The task's `Model` at one set of shapes: as it is, in float64, and in float64 with each weight off by a rounding.

    Raises (constructor): TaskError if the task does not load or construct.
    """

    def __init__(self, task: Task, variant: Variant, folder: Path, seed: int) -> None:
        self._task, self._variant = task, variant
        self._module = load_reference(task, variant, folder)
        self.arguments = init_inputs(self._module, variant, seed)
        self._own, self._double, self._rounded = (
            construct_reference(self._module, task, self.arguments, seed) for _ in range(3)
        )
        _widen_model(self._double)
        _round_parameters(self._rounded, seed)
        _widen_model(self._rounded)

    def truth(self, distribution: Distribution, seed: int) -> Truth | None:
        """Inputs drawn with `seed`, and what they give. None if the reference cannot take inputs so distributed.

        Raises: TaskError if it cannot take its own inputs.
        """
        inputs = draw_inputs(self._module, self._variant, seed)
        if distribution == "drawn":
            return self._truth(inputs, seed)
        try:
            truth = self._truth(shift(inputs), seed)
        except TaskError:
            return None  # the reference asserts something about its inputs (probabilities, say)
        return truth if all(_is_finite(output) for output in truth.outputs) else None

    def _truth(self, inputs: list[Any], seed: int) -> Truth:
        own_inputs = map_tensors(inputs, torch.clone)
        outputs, structure = flatten(self._run(self._own, own_inputs, seed))
        before, after = flatten(inputs)[0], flatten(own_inputs)[0]
        tensors = [(a, b) for a, b in zip(before, after, strict=True) if isinstance(a, torch.Tensor)]
        changed = [at for at, (a, b) in enumerate(tensors) if differ(b, a)]
        return Truth(inputs, self._expected(inputs, seed, outputs), structure, changed)

    def _expected(self, inputs: list[Any], seed: int, own: list[Any]) -> list[Expected | str]:
        oracle = self._oracle(inputs, seed)
        exact = oracle is not None and all(map(_same_function, own, *oracle))
        if not exact:
            _log.warning("task %s has no float64 oracle: KernelBench's tolerance decides alone", self._task.name)
        results = oracle if oracle is not None and exact else (own, own)
        return [
            Expected(value.detach(), o.detach(), r.detach(), exact)
            if isinstance(value, torch.Tensor)
            else describe(value)
            for value, o, r in zip(own, *results, strict=True)
        ]

    def _oracle(self, inputs: list[Any], seed: int) -> tuple[list[Any], list[Any]] | None:
        """Leaves of the float64 results, for the inputs and for the inputs moved by half a unit in the last place.

        None for a reference that mixes in tensors of a fixed dtype, and so cannot run in float64.
        """
        generator = torch.Generator().manual_seed(seed)
        moved = map_tensors(inputs, lambda tensor: _round_randomly(tensor, generator))
        try:
            with _default_float64():
                exact = flatten(self._run(self._double, map_tensors(inputs, _widen), seed))[0]
                rounded = flatten(self._run(self._rounded, map_tensors(moved, _widen), seed))[0]
        except TaskError as error:
            _log.info("the reference does not run in float64: %s", error)
            return None
        return exact, rounded

    def _run(self, model: Any, inputs: list[Any], seed: int) -> Any:
        torch.manual_seed(seed)
        try:
            with torch.no_grad():
                return model(*inputs)
        except Exception as error:
            raise TaskError(
                f"task {self._task.name}: the reference fails at the {self._variant.label!r} shapes: "
                f"{type(error).__name__}: {error}"
            ) from error


def _same_function(own: Any, exact: Any, rounded: Any) -> bool:
    """Whether float64 gave the same function's value, and not one of other random draws (torch draws other numbers in
    float64) or of another shape: then it is far off without being sensitive to the rounding of its inputs."""
    if not isinstance(own, torch.Tensor) or not own.is_floating_point() or own.numel() == 0:
        return getattr(exact, "shape", None) == getattr(own, "shape", None)
    if exact.shape != own.shape:
        return False
    finite = torch.isfinite(own) & torch.isfinite(exact) & torch.isfinite(rounded)
    return (
        norm_error(own.double(), exact, finite) < OTHER_FUNCTION or norm_error(rounded, exact, finite) > OTHER_FUNCTION
    )


def describe(value: Any) -> str:
    """Text by which two outputs that are no tensors are compared."""
    return f"{type(value).__module__}.{type(value).__qualname__} {value!r}"[:200]


def shift(inputs: list[Any]) -> list[Any]:
    """Floating inputs three times as wide, centred half a spread above zero: both signs, no zero mean.

    A constant tensor stays as it is, and so do integers (they are indices as a rule).
    """

    def shifted(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() < 2:
            return tensor
        wide = tensor.double()
        spread, centre = wide.std(), wide.mean()
        return ((wide - centre) * SPREAD + SHIFT * spread).to(tensor.dtype) if float(spread) > 0 else tensor

    return map_tensors(inputs, shifted)


def map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with `function` applied to every tensor in its nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, function) for item in value)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def _is_finite(output: Expected | str) -> bool:
    if isinstance(output, str) or not output.value.is_floating_point():
        return True
    return bool(torch.isfinite(output.value).all()) and bool(torch.isfinite(output.oracle).all())


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def _widen_model(model: Any) -> None:
    """Parameters, buffers, and the plain tensors that modules keep as attributes."""
    model.double()
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                setattr(module, name, _widen(value))


def _round_parameters(model: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.data = _round_randomly(parameter.data, generator)


def _round_randomly(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """float64 values up to half a unit in the last place of the tensor's dtype away from it."""
    if not tensor.is_floating_point():
        return tensor
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 0.5
    return tensor.double() * (1.0 + noise * torch.finfo(tensor.dtype).eps)


@contextlib.contextmanager
def _default_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
