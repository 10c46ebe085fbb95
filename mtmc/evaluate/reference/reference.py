"""The trusted side of checking: inputs, the reference's own results, and the float64 oracle they are judged by.

On a GPU all of it is made and run there. At small shapes every output has an oracle (`Reference.expected`). At the full
ones, where inputs alone may take gigabytes, float64 is asked once for a task (`Reference.calibrate`), and then a call
costs little more than the reference itself (`Reference.timed`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mtmc.errors import TaskError
from mtmc.evaluate.loading.degenerate import perturb
from mtmc.evaluate.loading.modules import construct_reference, draw_inputs, init_inputs, load_reference, map_tensors
from mtmc.evaluate.reference.blocks import different, fingerprint
from mtmc.evaluate.reference.calibrating import Calibration, calibrate, measured, narrowest_bytes
from mtmc.evaluate.reference.compare import Calibrated, Expected, describe, flatten
from mtmc.evaluate.reference.distributions import Distribution, redistributed
from mtmc.evaluate.reference.fp64 import computing_in, round_parameters, round_randomly, widen, widen_model
from mtmc.evaluate.reference.memory import release
from mtmc.evaluate.reference.tf32 import library_precision
from mtmc.task import Task, Variant
from mtmc.task.seeding import seed_torch

_log = logging.getLogger(__name__)

Clock = Callable[[Callable[[], Any]], Any]
"""Gives what a function gives, and times it."""


@dataclass(frozen=True)
class ExpectedOutputs:
    """What one case should give.

    inputs: to hand to the candidate. outputs: one per leaf of the reference's result; text stands for a leaf that is no
    tensor. structure: see `flatten`. changed_inputs: positions of input tensors that the reference itself changes.
    """

    inputs: list[Any]
    outputs: list[Expected | Calibrated | str]
    structure: str
    changed_inputs: list[int]

    @property
    def exact(self) -> bool:
        """Whether a float64 oracle stands behind the outputs."""
        return all(output.exact for output in self.outputs if not isinstance(output, str))


class Reference:
    """The task's `Model` at one set of shapes: as it is, in float64, and in float64 with each weight off by a rounding.

    model: the Model on its device, for timing it. arguments: of its constructor.
    calibration: what is known already from another Reference of the same task and variant, None before `calibrate`.
    """

    def __init__(
        self,
        task: Task,
        variant: Variant,
        folder: Path,
        seed: int,
        device: str = "cpu",
        moved: bool = False,
        calibration: Calibration | None = None,
    ) -> None:
        """seed: of the weights. device: "cpu", "cuda:0", ... moved: see `construct`.

        Raises: TaskError if the task does not load or construct.
        """
        self._task, self._variant, self._seed = task, variant, seed
        self.device, self._moved = device, moved
        self._module = load_reference(task, variant, folder)
        self.arguments = init_inputs(self._module, variant, seed, device)
        self.model = self.construct()
        self.calibration = calibration
        self._fp64: tuple[Any, Any] | None = None
        self._exact: dict[str, bool] = {}  # by distribution: whether float64 computes the same function
        self._changed_inputs: list[int] | None = None

    def draw(self, seed: int) -> list[Any]:
        """Inputs as the task draws them, on the device. Raises: TaskError."""
        return draw_inputs(self._module, self._variant, seed, self.device)

    def run(self, inputs: list[Any], seed: int, model: Any = None, clock: Clock | None = None) -> Any:
        """The reference's result (or that of `model`), with random numbers from `seed`. clock: calls it, to time it.

        Raises: TaskError."""
        seed_torch(seed)
        forward = partial(self.model if model is None else model, *inputs)
        try:
            with torch.no_grad():
                return forward() if clock is None else clock(forward)
        except Exception as error:
            raise TaskError(
                f"task {self._task.name}: the reference fails at the {self._variant.label!r} shapes: "
                f"{type(error).__name__}: {error}"
            ) from error

    def expected(self, distribution: Distribution, seed: int) -> ExpectedOutputs | None:
        """Inputs drawn with `seed`, and what they give, each output with a float64 oracle where there can be one.

        None if the reference cannot take inputs so distributed, or weights so moved, or if "wide" inputs, for which
        KernelBench's tolerance is not made, have no oracle.
        Raises: TaskError if it cannot take its own inputs.
        """
        inputs = self.draw(seed)
        if distribution == "drawn" and not self._moved:
            return self._expected_outputs(inputs, seed, distribution)
        try:
            expected = self._expected_outputs(redistributed(inputs, distribution, seed), seed, distribution)
        except TaskError:
            return None  # the reference asserts something about its inputs (probabilities, say)
        if distribution == "wide" and not expected.exact:
            return None
        return expected if all(_is_finite(output) for output in expected.outputs) else None

    def timed(self, seed: int, clock: Clock | None = None) -> ExpectedOutputs:
        """Inputs drawn with `seed`, and what the reference makes of them, without an oracle: the memory of inputs and
        outputs and of one forward, and no more time. Its first call calibrates, unless that is done.

        An output may share memory with the inputs or with the model, where the reference returns such a thing: it holds
        until the next call. clock: times the forward, of a reference that leaves its inputs as they are (not the first
        one, which finds that out). Raises: TaskError.
        """
        precisions = self.calibrate(seed).precisions
        inputs = self.draw(seed)
        if self._changed_inputs is None:
            outputs, structure, inputs = self._watched(inputs, seed)
        else:
            clock = None if self._changed_inputs else clock
            outputs, structure = flatten(self.run(inputs, seed, clock=clock))
            inputs = self.draw(seed) if self._changed_inputs else inputs
        expected: list[Expected | Calibrated | str] = [
            Calibrated(value.detach(), precision) if isinstance(value, torch.Tensor) else describe(value)
            for value, precision in zip(outputs, precisions, strict=True)
        ]
        return ExpectedOutputs(inputs, expected, structure, self._changed_inputs or [])

    def calibrate(self, seed: int) -> Calibration:
        """The precision of the reference at these shapes, from one run in each precision; found once and kept.

        Without an fp64 reference, or the memory to run it, all precisions are None. Raises: TaskError.
        """
        if self.calibration is None:
            where = f"task {self._task.name} at the {self._variant.label} shapes"
            self.calibration = calibrate(self, seed, where)
            release(self.device)
        return self.calibration

    def other_model(self, seed: int) -> Any:
        """A second model with the parameters of another, see `perturb`. Raises: TaskError."""
        model = self.construct()
        perturb(model, seed)
        return model

    def construct(self) -> Any:
        """A new model with the same weights. Raises: TaskError."""
        return construct_reference(self._module, self._task, self.arguments, self._seed, self.device, self._moved)

    def widened(self, rounded: bool, wide: torch.dtype = torch.float64) -> Any:
        """A new model in a wider dtype. rounded: each weight off by a rounding of its own dtype. Raises: TaskError."""
        model = self.construct()
        if rounded:
            round_parameters(model, self._seed)
        widen_model(model, wide)
        return model

    def run_wide(self, model: Any, inputs: list[Any], seed: int, wide: torch.dtype = torch.float64) -> list[Any]:
        """Leaves of what a model in a wider dtype makes of inputs in that dtype. Raises: TaskError."""
        with computing_in(wide):
            return flatten(self.run(inputs, seed, model))[0]

    def rounded(self, inputs: list[Any], seed: int, wide: torch.dtype = torch.float64) -> list[Any]:
        """Inputs in a wider dtype, each moved by up to half a unit in its last place."""
        generator = torch.Generator(self.device).manual_seed(seed)
        moved: list[Any] = map_tensors(inputs, lambda tensor: widen(round_randomly(tensor, generator), wide))
        return moved

    def _expected_outputs(self, inputs: list[Any], seed: int, distribution: Distribution) -> ExpectedOutputs:
        own_inputs = map_tensors(inputs, torch.clone)
        outputs, structure = flatten(self.run(own_inputs, seed))
        changed = different(_tensors(own_inputs), _tensors(inputs))
        return ExpectedOutputs(inputs, self._each_expected(inputs, seed, outputs, distribution), structure, changed)

    def _watched(self, inputs: list[Any], seed: int) -> tuple[list[Any], str, list[Any]]:
        """Leaves and structure of the result, and the inputs as they were; notes which of them the reference changes.

        Raises: TaskError if it changes some, and a second draw with the same seed gives others.
        """
        key = secrets.randbits(62)
        before = [fingerprint(tensor, key) for tensor in _tensors(inputs)]
        outputs, structure = flatten(self.run(inputs, seed))
        after = [fingerprint(tensor, key) for tensor in _tensors(inputs)]
        self._changed_inputs = [at for at, (a, b) in enumerate(zip(before, after, strict=True)) if bool(a != b)]
        if self._changed_inputs:
            inputs = self.draw(seed)
            again = [fingerprint(tensor, key) for tensor in _tensors(inputs)]
            if any(bool(a != b) for a, b in zip(before, again, strict=True)):
                raise TaskError(
                    f"task {self._task.name}: {self._variant.inputs}() gives other inputs after torch.manual_seed, and "
                    "the reference changes them in place: draw them with torch, or leave them unchanged"
                )
        return outputs, structure, inputs

    def _each_expected(
        self, inputs: list[Any], seed: int, own: list[Any], distribution: Distribution
    ) -> list[Expected | Calibrated | str]:
        oracle = self._oracle(inputs, seed)
        if distribution not in self._exact:
            self._exact[distribution] = oracle is not None and all(same for same, _ in measured(own, *oracle))
        exact = self._exact[distribution]
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
        """Leaves of the float64 results, for the inputs and for the inputs moved by half a unit in the last place (and
        in convolutions by what the library may, see `library_precision`).

        None for a reference that mixes in tensors of a fixed dtype, and so cannot run in float64.
        """
        if self._fp64 is None:
            self._fp64 = self.widened(rounded=False), self.widened(rounded=True)
        try:
            exact = self.run_wide(self._fp64[0], map_tensors(inputs, widen), seed)
            with library_precision(self.device, narrowest_bytes([inputs, list(self.model.parameters())])):
                rounded = self.run_wide(self._fp64[1], self.rounded(inputs, seed), seed)
        except TaskError as error:
            _log.info("the reference does not run in float64: %s", error)
            return None
        return exact, rounded


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def _is_finite(output: Expected | Calibrated | str) -> bool:
    if isinstance(output, str) or not output.value.is_floating_point():
        return True
    oracle = output.oracle if isinstance(output, Expected) else output.value
    return bool(torch.isfinite(output.value).all()) and bool(torch.isfinite(oracle).all())
