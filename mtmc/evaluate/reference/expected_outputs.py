"""What one call of a candidate should give and leave behind, and on which inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mtmc.evaluate.reference.bounds import all_calibrated
from mtmc.evaluate.reference.compare import Calibrated, Expected
from mtmc.evaluate.reference.distance import all_finite
from mtmc.evaluate.reference.effects import Effects
from mtmc.evaluate.reference.hard import TELLS


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
    def finite(self) -> bool:
        """Whether everything is, the oracles' values too."""
        outputs = [each for each in self.everything if not isinstance(each, str) and each.value.is_floating_point()]
        oracles = [each.oracle for each in outputs if isinstance(each, Expected)]
        return all_finite([*(each.value for each in outputs), *oracles])

    @property
    def tells(self) -> bool:
        """Whether everything is more than noise of its own rounding."""
        outputs = [each for each in self.everything if isinstance(each, Expected) and each.value.numel()]
        leaves = [(each.value, each.oracle, each.rounded) for each in outputs if each.value.is_floating_point()]
        return all(max(known.own, known.rounding) <= TELLS for known in all_calibrated(leaves))

    @property
    def everything(self) -> list[Expected | Calibrated | str]:
        """The outputs, and all that is left behind."""
        return [*self.outputs, *self.left_inputs.values(), *self.left_state.values()]


def of_call(
    inputs: list[Any],
    expected: list[Expected | Calibrated | str],
    structure: str,
    effects: Effects,
    kept: Iterable[str],
    first: bool = True,
) -> ExpectedOutputs:
    """What a call should give. expected: of the outputs, and of what is left behind after them, see `effects`.

    kept: paths of all that the reference's model keeps.
    """
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
        tuple(path for path in kept if path not in effects.state),
        first,
    )
