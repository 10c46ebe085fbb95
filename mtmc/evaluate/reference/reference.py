"""The trusted side of checking: inputs, the reference's own results, and the float64 oracle they are judged by.

On a GPU all of it is made and run there. At small shapes every output has an oracle (`Reference.expected`). At the full
ones, where inputs alone may take gigabytes, float64 is asked once for a task (`Reference.calibrate`), and then a call
costs little more than the reference itself (`Reference.timed`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from mtmc.errors import TaskError, TooLarge
from mtmc.evaluate.loading.degenerate import perturb
from mtmc.evaluate.loading.modules import construct_reference, draw_inputs, init_inputs, load_reference
from mtmc.evaluate.reference.blocks import different, fingerprint, same_bits
from mtmc.evaluate.reference.calibrating import Calibration, calibrate, later
from mtmc.evaluate.reference.calls import CALLS
from mtmc.evaluate.reference.compare import Calibrated, Expected, Precision
from mtmc.evaluate.reference.distributions import USUAL, Distribution, redistributed
from mtmc.evaluate.reference.effects import Effects, kept_tensors, put, values
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs, of_call
from mtmc.evaluate.reference.fp64 import Recasting, computing_in, round_parameters, round_randomly, widen, widen_model
from mtmc.evaluate.reference.hard import Hard, calibrate_hard, hard_of
from mtmc.evaluate.reference.memory import release
from mtmc.evaluate.reference.oracle import Oracle
from mtmc.evaluate.reference.returned import describe, flatten, tensors_in
from mtmc.task import Task, Variant
from mtmc.task.seeding import seed_torch
from mtmc.task.tensors import map_tensors

_log = logging.getLogger(__name__)

Clock = Callable[[Callable[[], Any]], Any]
"""Gives what a function gives, and times it."""


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
        self.hard: list[Hard | None] = []
        self._oracle = Oracle(task.name)
        self._effects = Effects()  # of calls with an oracle
        self._recasting = Recasting()
        self._fixed: list[bool] | None = None  # which tensors among the inputs are the same in every draw
        self._initial: dict[torch.dtype | None, dict[str, torch.Tensor]] = {}  # what models keep, by their dtype

    @cached_property
    def _kept(self) -> tuple[str, ...]:
        """Paths of what the model keeps, after the first call that was asked about."""
        return tuple(kept_tensors(self.model))

    def draw(self, seed: int) -> list[Any]:
        """Inputs as the task draws them, on the device. Raises: TaskError."""
        return draw_inputs(self._module, self._variant, seed, self.device)

    def drawn(self, distribution: Distribution, seed: int) -> list[Any]:
        """Inputs from a distribution, on the device. Raises: TaskError."""
        inputs = self.draw(seed)
        if distribution == "drawn":
            return inputs
        if self._fixed is None:
            pairs = zip(tensors_in(inputs), tensors_in(self.draw(seed + 1)), strict=False)
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
            kind = TooLarge if isinstance(error, torch.OutOfMemoryError) else TaskError
            raise kind(
                f"task {self._task.name}: the reference fails at the {self._variant.label!r} shapes: "
                f"{type(error).__name__}: {error}"
            ) from error

    def expected(self, distribution: Distribution, seed: int, calls: int = CALLS) -> list[ExpectedOutputs] | None:
        """Inputs drawn with `seed`, and what they give, each output with a float64 oracle where there can be one: of one
        call, or of so many in a row where the reference changes its inputs, or what its model keeps.

        None if the reference cannot take inputs so distributed, or weights so moved, or if they tell nothing: no oracle
        stands behind inputs for which KernelBench's tolerance is not made, or rounding alone moves their result by `TELLS`.
        Raises: TaskError if it cannot take its own inputs.
        """
        if distribution == "drawn" and not self._moved:
            return self._each_call(distribution, seed, calls)
        try:
            found = self._each_call(distribution, seed, calls)
        except TaskError:
            return None  # the reference asserts something about its inputs (probabilities, say)
        if distribution not in USUAL and not all(expected.exact for expected in found):
            return None
        if not all(expected.finite for expected in found):
            return None
        return found if distribution in USUAL or all(expected.tells for expected in found) else None

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
            kind = None if known is None else hard_of(seed, known)
            inputs = self.draw(seed) if kind is None else self.drawn(kind, seed)
            calibration = known[kind] if known is not None and kind is not None else calibration
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
        had time to grow: outputs need be as near as `later` says. Raises: TaskError.
        """
        calibration = self.calibrate(seed)
        effects = calibration.effects
        if first:
            self.restart(effects)
        own = map_tensors(inputs, torch.clone) if effects.inputs else inputs
        outputs, structure = flatten(self.run(own, seed))
        left, precisions = self.left(self.model, own, effects), list(calibration.precisions)
        if not first:
            precisions = [later(*each) for each in zip([*outputs, *left], precisions, strict=True)]
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
        return of_call(inputs, expected, structure, effects, self._kept)

    def beside(self, inputs: list[Any], seed: int, distribution: Distribution) -> list[Expected | Calibrated | str]:
        """What a reference that changes nothing makes of inputs from a distribution, each output with a float64 oracle where
        there can be one. Raises: TaskError."""
        outputs, _ = flatten(self.run(inputs, seed))
        return self._oracle.expected(self, inputs, seed, outputs, distribution, Effects())

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
        before = [fingerprint(tensor, key) for tensor in tensors_in(inputs)] + list(kept.values())
        outputs = flatten(self.run(inputs, seed, model))[0]
        drawn, now = tensors_in(inputs), kept_tensors(model)
        after = [fingerprint(tensor, key) for tensor in drawn]
        after += [fingerprint(now[path], key) if path in now else was for path, was in kept.items()]
        changed = [at for at, (a, b) in enumerate(zip(before, after, strict=True)) if bool(a != b)]
        paths = list(kept)
        effects = Effects(
            tuple(at for at in changed if at < len(drawn)),
            tuple(paths[at - len(drawn)] for at in changed if at >= len(drawn)),
        )
        if effects.inputs:
            again = [fingerprint(tensor, key) for tensor in tensors_in(self.draw(seed))]
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

    def calibrate_hard(self, seed: int) -> Hard | None:
        """The same on inputs that stand out, found once and kept; None where they tell nothing, or where float64 tells
        nothing of its own inputs, or where it changes anything, which tells by itself."""
        if not self.hard:
            known = self.calibrate(seed)
            asked = known.error is not None and not known.effects
            where = f"task {self._task.name} at the {self._variant.label} shapes"
            self.hard.append(calibrate_hard(self, seed, where, known.library) if asked else None)
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
        with computing_in(wide, self._recasting):
            outputs = flatten(self.run(inputs, seed, model))[0]
        if not effects:
            return outputs
        return [*map_tensors(outputs, torch.clone), *self.left(model, inputs, effects)]

    def rounded(self, inputs: list[Any], seed: int, wide: torch.dtype = torch.float64) -> list[Any]:
        """Inputs in a wider dtype, each moved by up to half a unit in its last place."""
        generator = torch.Generator(self.device).manual_seed(seed)
        moved: list[Any] = map_tensors(inputs, lambda tensor: widen(round_randomly(tensor, generator), wide))
        return moved

    def _each_call(self, distribution: Distribution, seed: int, count: int) -> list[ExpectedOutputs]:
        """One call, or where the reference changes something, some in a row from what its model keeps at first: the one that
        tells whether it does is the first of these, where it is known already."""
        drawn, known = self.drawn(distribution, seed), self._effects
        if known:
            self.restart(known)
        own_inputs, before = map_tensors(drawn, torch.clone), values(self.model)
        outputs, structure = flatten(self.run(own_inputs, seed))
        inputs_changed = Effects(tuple(different(tensors_in(own_inputs), tensors_in(drawn))))
        effects = self._effects = known | inputs_changed | self._changed_since(before)
        if not effects:
            expected = self._oracle.expected(self, drawn, seed, outputs, distribution, effects)
            return [of_call(drawn, expected, structure, effects, self._kept)]
        others = self.drawn(distribution, seed + 1)
        calls = []
        done = count > 1 and known == effects  # the first of them
        if not done:
            self.restart(effects)
        for number in range(count):
            inputs = drawn if number + 1 < count else others
            if number or not done:
                own_inputs = map_tensors(inputs, torch.clone)
                outputs, structure = flatten(self.run(own_inputs, seed))
            own = [*map_tensors(outputs, torch.clone), *self.left(self.model, own_inputs, effects)]
            expected = self._oracle.expected(self, inputs, seed, own, distribution, effects, first=number == 0)
            calls.append(of_call(inputs, expected, structure, effects, self._kept, first=number == 0))
        self._effects |= self._changed_since(before)
        return calls if self._effects == effects else self._each_call(distribution, seed, count)

    def _changed_since(self, before: dict[str, torch.Tensor]) -> Effects:
        """What the model keeps otherwise than before."""
        now = kept_tensors(self.model)
        paths = [path for path in before if path in now]
        changed = different([now[path] for path in paths], [before[path] for path in paths])
        return Effects(state=tuple(paths[at] for at in changed))

    def left(self, model: Any, inputs: list[Any], effects: Effects) -> list[torch.Tensor]:
        """Copies of what a call has left behind."""
        tensors = tensors_in(inputs) if effects.inputs else []
        kept = values(model, effects.state)
        return [tensors[at].clone() for at in effects.inputs] + [kept[path] for path in effects.state]
