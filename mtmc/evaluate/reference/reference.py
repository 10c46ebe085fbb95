"""The trusted side of checking: inputs, the reference's own results, and the float64 oracle they are judged by.

On a GPU all of it is made and run there. At small shapes every output has an oracle (`Reference.expected`). At the full
ones, where inputs alone may take gigabytes, float64 is asked once for a task (`Reference.calibrate`), and then a call
costs little more than the reference itself (`Reference.timed`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mtmc.errors import TaskError
from mtmc.evaluate.loading.degenerate import perturb
from mtmc.evaluate.loading.modules import construct_reference, draw_inputs, init_inputs, load_reference
from mtmc.evaluate.reference.blocks import different, fingerprint, same_bits
from mtmc.evaluate.reference.calibrating import Calibration, calibrate, measured, narrowest_bytes
from mtmc.evaluate.reference.compare import FACTOR, Calibrated, Expected, Precision, calibrated
from mtmc.evaluate.reference.distributions import Distribution, redistributed
from mtmc.evaluate.reference.effects import CALLS, Effects, kept_tensors, put, values
from mtmc.evaluate.reference.expected_value import FEW_TERMS
from mtmc.evaluate.reference.fp64 import computing_in, round_parameters, round_randomly, widen, widen_model
from mtmc.evaluate.reference.hard import TELLS, calibrate_hard, hard_of
from mtmc.evaluate.reference.memory import release
from mtmc.evaluate.reference.returned import describe, flatten
from mtmc.evaluate.reference.running_sums import RunningSums
from mtmc.evaluate.reference.tf32 import ALLOWED, library_precision
from mtmc.task import Task, Variant
from mtmc.task.quantized import readable
from mtmc.task.seeding import seed_torch
from mtmc.task.tensors import map_tensors

_log = logging.getLogger(__name__)

USUAL = ("drawn", "shifted")
"""Distributions for which KernelBench's tolerance is made."""
LATER = 0.01
"""Of a call after others, where the model keeps something: norm-wise error that the reference's own result may have, and how
far it may be off as a share of its range. What was left out or is an older call's answer is further off."""
Clock = Callable[[Callable[[], Any]], Any]
"""Gives what a function gives, and times it."""


@dataclass(frozen=True)
class ExpectedOutputs:
    """What one case should give.

    inputs: to hand to the candidate. outputs: one per leaf of the reference's result; text stands for a leaf that is no
    tensor. structure: see `flatten`. changed_inputs: positions of input tensors that the reference itself changes.
    left_inputs, left_state: what it leaves in its inputs, by position, and in what its model keeps, by path.
    untouched: paths of what its model keeps and it does not change.
    first: whether the model is as it was constructed before this call, instead of as the call before has left it.
    hard: whether the inputs stand out, see `Reference.timed`.
    """

    inputs: list[Any]
    outputs: list[Expected | Calibrated | str]
    structure: str
    changed_inputs: list[int]
    left_inputs: Mapping[int, Expected | Calibrated] = field(default_factory=dict)
    left_state: Mapping[str, Expected | Calibrated] = field(default_factory=dict)
    untouched: tuple[str, ...] = ()
    first: bool = True
    hard: bool = False

    @property
    def note(self) -> str:
        """For messages: what its inputs are, where they are not the task's own."""
        return ", inputs that stand out" if self.hard else ""

    @property
    def exact(self) -> bool:
        """Whether a float64 oracle stands behind the outputs."""
        return all(output.exact for output in self.everything if not isinstance(output, str))

    @property
    def everything(self) -> list[Expected | Calibrated | str]:
        """The outputs, and all that is left behind."""
        return [*self.outputs, *self.left_inputs.values(), *self.left_state.values()]


class Reference:
    """The task's `Model` at one set of shapes: as it is, in float64, and in float64 with each weight off by a rounding.

    model: the Model on its device, for timing it. arguments: of its constructor.
    calibration: what is known already from another Reference of the same task and variant, None before `calibrate`.
    hard: the same for inputs that stand out, see `calibrate_hard`: empty before it is asked for.
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
        self.tolerance = task.tolerance
        self._module = load_reference(task, variant, folder)
        self.arguments = init_inputs(self._module, variant, seed, device)
        self.model = self.construct()
        self.calibration = calibration
        self.hard: list[Calibration | None] = []
        self._fp64: tuple[Any, Any] | None = None
        self._exact: dict[str, bool] = {}  # by distribution: whether float64 computes the same function
        self._effects = Effects()  # of calls with an oracle
        self._untouched: tuple[str, ...] | None = None
        self._fixed: list[bool] | None = None  # which tensors among the inputs are the same in every draw
        self._initial: dict[torch.dtype | None, dict[str, torch.Tensor]] = {}  # what models keep, by their dtype

    def draw(self, seed: int) -> list[Any]:
        """Inputs as the task draws them, on the device. Raises: TaskError."""
        return draw_inputs(self._module, self._variant, seed, self.device)

    def drawn(self, distribution: Distribution, seed: int) -> list[Any]:
        """Inputs from a distribution, on the device. Raises: TaskError."""
        inputs = self.draw(seed)
        if distribution == "drawn":
            return inputs
        if self._fixed is None:
            pairs = zip(_tensors(inputs), _tensors(self.draw(seed + 1)), strict=False)
            self._fixed = [a.shape == b.shape and a.dtype == b.dtype and bool(same_bits(a, b)) for a, b in pairs]
        return redistributed(inputs, distribution, seed, self._fixed)

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

    def expected(self, distribution: Distribution, seed: int) -> list[ExpectedOutputs] | None:
        """Inputs drawn with `seed`, and what they give, each output with a float64 oracle where there can be one: of one
        call, or of some in a row where the reference changes its inputs, or what its model keeps.

        None if the reference cannot take inputs so distributed, or weights so moved, or if they tell nothing: no oracle
        stands behind inputs for which KernelBench's tolerance is not made, or rounding alone moves their result by `TELLS`.
        Raises: TaskError if it cannot take its own inputs.
        """
        if distribution == "drawn" and not self._moved:
            return self._each_call(distribution, seed)
        try:
            calls = self._each_call(distribution, seed)
        except TaskError:
            return None  # the reference asserts something about its inputs (probabilities, say)
        if distribution not in USUAL and not all(expected.exact for expected in calls):
            return None
        everything = [each for expected in calls for each in expected.everything]
        if not all(map(_is_finite, everything)):
            return None
        return calls if distribution in USUAL or all(map(_tells, everything)) else None

    def timed(self, seed: int, clock: Clock | None = None, hard: bool = False) -> ExpectedOutputs:
        """Inputs drawn with `seed`, and what the reference makes of them, without an oracle: the memory of inputs and
        outputs and of one forward, and no more time. Its first call calibrates, unless that is done.

        An output may share memory with the inputs or with the model, where the reference returns such a thing: it holds
        until the next call. clock: times the forward, of a reference that leaves its inputs as they are. hard: whether the
        inputs are to stand out, where that tells something. Raises: TaskError.
        """
        calibration = self.calibrate(seed)
        effects = calibration.effects
        self.restart(effects)
        known = self.calibrate_hard(seed) if hard else None
        try:
            inputs = self.draw(seed) if known is None else self.drawn(hard_of(seed, known), seed)
            calibration = known or calibration
        except torch.OutOfMemoryError:  # a copy more than the task's own inputs take
            if known is None:
                raise
            _log.warning("task %s: no memory for inputs that stand out", self._task.name)
            release(self.device)
            inputs, known = self.draw(seed), None
        results = flatten(self.run(inputs, seed, clock=None if effects.inputs else clock))
        left = self.left(self.model, inputs, effects)
        inputs = self.draw(seed) if effects.inputs else inputs
        expected = self._as_calibrated(inputs, results, left, calibration.precisions, effects)
        return replace(expected, hard=known is not None)

    def answer(self, inputs: list[Any], seed: int, first: bool = True) -> ExpectedOutputs:
        """What the reference makes of inputs that were drawn before, which it leaves as they are; the rest as of `timed`.

        first: whether the model starts from what it keeps at first; else it goes on from the call before, and rounding has
        had time to grow: outputs need be as near as `LATER` says. Raises: TaskError.
        """
        calibration = self.calibrate(seed)
        effects = calibration.effects
        if first:
            self.restart(effects)
        own = map_tensors(inputs, torch.clone) if effects.inputs else inputs
        outputs, structure = flatten(self.run(own, seed))
        left, precisions = self.left(self.model, own, effects), list(calibration.precisions)
        if not first:
            precisions = [_later(*each) for each in zip([*outputs, *left], precisions, strict=True)]
        return self._as_calibrated(inputs, (outputs, structure), left, precisions, effects)

    def _as_calibrated(
        self,
        inputs: list[Any],
        results: tuple[list[Any], str],
        left: list[torch.Tensor],
        precisions: Sequence[Precision | None],
        effects: Effects,
    ) -> ExpectedOutputs:
        """results: leaves and structure. precisions: of these leaves, and of what is left behind."""
        outputs, structure = results
        expected: list[Expected | Calibrated | str] = [
            Calibrated(value.detach(), precision, self.tolerance)
            if isinstance(value, torch.Tensor)
            else describe(value)
            for value, precision in zip([*outputs, *left], precisions, strict=True)
        ]
        return self._as_expected(inputs, expected, structure, effects)

    def beside(self, inputs: list[Any], seed: int, distribution: Distribution) -> list[Expected | Calibrated | str]:
        """What a reference that changes nothing makes of inputs from a distribution, each output with a float64 oracle where
        there can be one. Raises: TaskError."""
        outputs, _ = flatten(self.run(inputs, seed))
        return self._each_expected(inputs, seed, outputs, distribution, Effects())

    def restart(self, effects: Effects | None = None, model: Any = None, wide: torch.dtype | None = None) -> None:
        """Let the model (or `model`, which was made in the dtype `wide`) keep what it kept when it was constructed.

        effects: what may have changed; everything if left out. Raises: TaskError.
        """
        if effects is not None and not effects.state:
            return
        model = self.model if model is None else model
        if effects is None and not kept_tensors(model):
            return
        if not {*(effects.state if effects else ())} <= {*self._initial.get(wide, {})} or wide not in self._initial:
            fresh = self.construct() if wide is None else self.widened(False, wide)
            self._initial[wide] = values(fresh, None if effects is None else effects.state)
        put(model, self._initial[wide])

    def from_start(self, *inputs: Any) -> Any:
        """The model's result from what it keeps at first, of a reference that is calibrated."""
        self.restarted()
        return self.model(*inputs)

    def restarted(self) -> None:
        """Let the model of a reference that is calibrated keep what it kept when it was constructed. Raises: TaskError."""
        self.restart(None if self.calibration is None else self.calibration.effects)

    def observed(self, model: Any, inputs: list[Any], seed: int) -> tuple[list[Any], Effects]:
        """Leaves of a model's result, with copies of what it leaves behind after them, and what that is.

        Raises: TaskError if it changes inputs, and a second draw with the same seed gives others.
        """
        key = secrets.randbits(62)
        kept = {path: fingerprint(tensor, key) for path, tensor in kept_tensors(model).items()}
        before = [fingerprint(tensor, key) for tensor in _tensors(inputs)] + list(kept.values())
        outputs = flatten(self.run(inputs, seed, model))[0]
        drawn, now = _tensors(inputs), kept_tensors(model)
        after = [fingerprint(tensor, key) for tensor in drawn]
        after += [fingerprint(now[path], key) if path in now else was for path, was in kept.items()]
        changed = [at for at, (a, b) in enumerate(zip(before, after, strict=True)) if bool(a != b)]
        paths = list(kept)
        effects = Effects(
            tuple(at for at in changed if at < len(drawn)),
            tuple(paths[at - len(drawn)] for at in changed if at >= len(drawn)),
        )
        if effects.inputs:
            again = [fingerprint(tensor, key) for tensor in _tensors(self.draw(seed))]
            if any(bool(a != b) for a, b in zip(before, again, strict=False)):
                raise TaskError(
                    f"task {self._task.name}: {self._variant.inputs}() gives other inputs after torch.manual_seed, and "
                    "the reference changes them in place: draw them with torch, or leave them unchanged"
                )
        return [*outputs, *self.left(model, inputs, effects)], effects

    def calibrate(self, seed: int) -> Calibration:
        """The precision of the reference at these shapes, from one run in each precision; found once and kept.

        Without an fp64 reference, or the memory to run it, all precisions are None. Raises: TaskError.
        """
        if self.calibration is None:
            where = f"task {self._task.name} at the {self._variant.label} shapes"
            self.calibration = calibrate(self, seed, where)
            release(self.device)
        return self.calibration

    def calibrate_hard(self, seed: int) -> Calibration | None:
        """The same on inputs that stand out, found once and kept; None where they tell nothing, or where float64 tells
        nothing of its own inputs, or where it changes anything, which tells by itself."""
        if not self.hard:
            known = self.calibrate(seed)
            asked = known.error is not None and not known.effects
            where = f"task {self._task.name} at the {self._variant.label} shapes"
            self.hard.append(calibrate_hard(self, seed, where) if asked else None)
            release(self.device)
        return self.hard[0]

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

    def run_wide(
        self,
        model: Any,
        inputs: list[Any],
        seed: int,
        wide: torch.dtype = torch.float64,
        effects: Effects = Effects(),  # noqa: B008 - frozen
    ) -> list[Any]:
        """Leaves of what a model in a wider dtype makes of inputs in that dtype, with copies of what it leaves behind after
        them. Raises: TaskError."""
        with computing_in(wide):
            outputs = flatten(self.run(inputs, seed, model))[0]
        if not effects:
            return outputs
        return [*map_tensors(outputs, torch.clone), *self.left(model, inputs, effects)]

    def rounded(self, inputs: list[Any], seed: int, wide: torch.dtype = torch.float64) -> list[Any]:
        """Inputs in a wider dtype, each moved by up to half a unit in its last place."""
        generator = torch.Generator(self.device).manual_seed(seed)
        moved: list[Any] = map_tensors(inputs, lambda tensor: widen(round_randomly(tensor, generator), wide))
        return moved

    def _each_call(self, distribution: Distribution, seed: int) -> list[ExpectedOutputs]:
        """One call, or where the reference changes something, some in a row from what its model keeps at first."""
        drawn = self.drawn(distribution, seed)
        outputs, structure, found = self._first_call(drawn, seed)
        self._effects |= found
        effects = self._effects
        if not effects:
            expected = self._each_expected(drawn, seed, outputs, distribution, effects)
            return [self._as_expected(drawn, expected, structure, effects)]
        others = self.drawn(distribution, seed + 1)
        calls = []
        self.restart(effects)
        for number in range(CALLS):
            inputs = drawn if number + 1 < CALLS else others
            own_inputs = map_tensors(inputs, torch.clone)
            outputs, structure = flatten(self.run(own_inputs, seed))
            own = [*map_tensors(outputs, torch.clone), *self.left(self.model, own_inputs, effects)]
            expected = self._each_expected(inputs, seed, own, distribution, effects, first=number == 0)
            calls.append(self._as_expected(inputs, expected, structure, effects, first=number == 0))
        return calls

    def _first_call(self, inputs: list[Any], seed: int) -> tuple[list[Any], str, Effects]:
        """Leaves and structure of the result of a call on copies of these inputs, and what it changes."""
        own_inputs, before = map_tensors(inputs, torch.clone), values(self.model)
        outputs, structure = flatten(self.run(own_inputs, seed))
        now = kept_tensors(self.model)
        paths = [path for path in before if path in now]
        changed = different([now[path] for path in paths], [before[path] for path in paths])
        positions = different(_tensors(own_inputs), _tensors(inputs))
        return outputs, structure, Effects(tuple(positions), tuple(paths[at] for at in changed))

    def left(self, model: Any, inputs: list[Any], effects: Effects) -> list[torch.Tensor]:
        """Copies of what a call has left behind."""
        tensors = _tensors(inputs) if effects.inputs else []
        kept = values(model, effects.state)
        return [tensors[at].clone() for at in effects.inputs] + [kept[path] for path in effects.state]

    def _as_expected(
        self,
        inputs: list[Any],
        expected: list[Expected | Calibrated | str],
        structure: str,
        effects: Effects,
        first: bool = True,
    ) -> ExpectedOutputs:
        """expected: of the outputs, and of what is left behind after them."""
        if self._untouched is None:
            self._untouched = tuple(kept_tensors(self.model))
        count = len(expected) - len(effects.inputs) - len(effects.state)
        left: list[Any] = expected[count:]
        changed = list(effects.inputs)
        return ExpectedOutputs(
            inputs,
            expected[:count],
            structure,
            changed,
            dict(zip(changed, left[: len(changed)], strict=True)),
            dict(zip(effects.state, left[len(changed) :], strict=True)),
            tuple(path for path in self._untouched if path not in effects.state),
            first,
        )

    def _each_expected(
        self,
        inputs: list[Any],
        seed: int,
        own: list[Any],
        distribution: Distribution,
        effects: Effects,
        first: bool = True,
    ) -> list[Expected | Calibrated | str]:
        oracle = self._oracle(inputs, seed, effects, first)
        if distribution not in self._exact:
            self._exact[distribution] = oracle is not None and all(same for same, _ in measured(own, *oracle))
        exact = self._exact[distribution]
        if not exact:
            _log.warning("task %s has no float64 oracle: its tolerance decides alone", self._task.name)
        results = oracle if oracle is not None and exact else (own, own)
        return [
            Expected(value.detach(), o.detach(), r.detach(), exact, self.tolerance, _least(value, distribution))
            if isinstance(value, torch.Tensor)
            else describe(value)
            for value, o, r in zip(own, *results, strict=True)
        ]

    def _oracle(
        self, inputs: list[Any], seed: int, effects: Effects, first: bool
    ) -> tuple[list[Any], list[Any]] | None:
        """Leaves of the float64 results and what is left behind, for the inputs and for the inputs moved by half a unit in
        the last place (and in convolutions by what the library may, see `library_precision`, in running sums by what adding
        one number after another loses, see `RunningSums`).

        None for a reference that cannot run in float64: one that keeps tensors of another dtype out of torch's sight, say.
        """
        if self._fp64 is None:
            self._fp64 = self.widened(rounded=False), self.widened(rounded=True)
        if first:
            for model in self._fp64:
                self.restart(effects, model, torch.float64)
        try:
            exact = self.run_wide(self._fp64[0], map_tensors(inputs, widen), seed, effects=effects)
            narrowest = narrowest_bytes([inputs, list(self.model.parameters())])
            # What is found is multiplied by FACTOR.
            with library_precision(self.device, narrowest, ALLOWED / FACTOR), RunningSums():
                rounded = self.run_wide(self._fp64[1], self.rounded(inputs, seed), seed, effects=effects)
        except TaskError as error:
            _log.info("the reference does not run in float64: %s", error)
            return None
        return exact, rounded


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def _later(value: Any, known: Precision | None) -> Precision | None:
    """The precision of what a call gives that others came before. known: of the first one."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return known
    numbers = readable(value)
    numbers = torch.where(torch.isfinite(numbers), numbers, 0.0)
    span = float(numbers.amax() - numbers.amin())
    known = known or Precision(0.0, 0.0)
    return Precision(max(known.own, LATER), known.rounding, max(known.slack, LATER * span))


def _least(value: torch.Tensor, distribution: Distribution) -> float:
    """See `FEW_TERMS`."""
    return FEW_TERMS if value.dtype == torch.float32 and distribution not in USUAL else 0.0


def _tells(output: Expected | Calibrated | str) -> bool:
    """Whether an output is more than noise of its own rounding."""
    if not isinstance(output, Expected) or not output.value.is_floating_point() or not output.value.numel():
        return True
    found = calibrated(output.value, output.oracle, output.rounded)
    return max(found.own, found.rounding) <= TELLS


def _is_finite(output: Expected | Calibrated | str) -> bool:
    if isinstance(output, str) or not output.value.is_floating_point():
        return True
    oracle = output.oracle if isinstance(output, Expected) else output.value
    return all(bool(torch.isfinite(readable(each)).all()) for each in (output.value, oracle))
