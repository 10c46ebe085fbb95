"""The float64 oracle of a reference at one set of shapes, which every output of a call is judged by where they are small."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch

from mtmc.errors import TaskError
from mtmc.evaluate.reference.bounds import FACTOR
from mtmc.evaluate.reference.calibrating import measured, narrowest_bytes
from mtmc.evaluate.reference.compare import Calibrated, Expected
from mtmc.evaluate.reference.convolution_products import ConvolutionProducts, convolution_products
from mtmc.evaluate.reference.distributions import USUAL, Distribution
from mtmc.evaluate.reference.effects import Effects
from mtmc.evaluate.reference.expected_value import FEW_TERMS, Precision
from mtmc.evaluate.reference.fp64 import widen
from mtmc.evaluate.reference.returned import describe
from mtmc.evaluate.reference.running_sums import RunningSums
from mtmc.evaluate.reference.side_by_side import side_by_side
from mtmc.evaluate.reference.tf32 import ALLOWED, Tf32Convolutions, library_precision, lossy_convolutions
from mtmc.evaluate.reference.wide_reference import WideReference
from mtmc.task.tensors import map_tensors

_log = logging.getLogger(__name__)


class Restartable(WideReference, Protocol):
    """A reference whose models can keep again what they kept at first."""

    model: Any

    def restart(self, effects: Effects | None = None, model: Any = None, wide: torch.dtype | None = None) -> None:
        """Let a model, which was made in the dtype `wide`, keep what it kept when it was constructed."""
        ...


class Oracle:
    """A reference's model in float64, and the same with each weight off by a rounding, made when they are first asked.

    The reference is given with each question: one that held its oracle, and was held by it, would not go when it is dropped.
    """

    def __init__(self, task: str) -> None:
        """task: its name, for messages."""
        self._task = task
        self._models: tuple[Any, Any] | None = None
        self._lossy: list[Any] = []
        self._products: AbstractContextManager[Any] | None = None  # how float64 convolves, None before that was asked
        self._exact: dict[str, bool] = {}  # by distribution: whether float64 computes the same function

    def expected(
        self,
        reference: Restartable,
        inputs: list[Any],
        seed: int,
        own: list[Any],
        distribution: Distribution,
        effects: Effects,
        first: bool = True,
    ) -> list[Expected | Calibrated | str]:
        """What each leaf of a call's result and of what it leaves behind is measured by. own: these of the reference itself.

        distribution: of the inputs. first: whether the model starts from what it keeps at first; else it goes on from the
        call that was asked about before. Raises: TaskError.
        """
        results = self._results(reference, inputs, seed, effects, first)
        if distribution not in self._exact:
            self._exact[distribution] = results is not None and _is_same_function(own, *results)
        exact = self._exact[distribution]
        if not exact:
            _log.warning("task %s has no float64 oracle: its tolerance decides alone", self._task)
        oracle, rounded, *lossy = results if results is not None and exact else (own, own)
        least, tolerance = partial(_least, distribution=distribution), reference.tolerance
        return [
            Expected(value.detach(), o.detach(), r.detach(), exact, tolerance, least(value), moved)
            if isinstance(value, torch.Tensor)
            else describe(value)
            for value, o, r, moved in zip(own, oracle, rounded, _all_moved(oracle, lossy), strict=True)
        ]

    def _results(
        self, reference: Restartable, inputs: list[Any], seed: int, effects: Effects, first: bool
    ) -> tuple[list[Any], ...] | None:
        """Leaves of the float64 results and what is left behind, for the inputs and for the inputs moved by half a unit in
        the last place (and in convolutions by what the library may, see `library_precision`, in running sums by what adding
        one number after another loses, see `RunningSums`); and where the library may, with all that convolutions lose, one
        way and the other.

        None for a reference that cannot run in float64: one that keeps tensors of another dtype out of torch's sight, say.
        """
        wide = torch.float64
        if self._models is None:
            self._models = reference.widened(False, wide), reference.widened(True, wide)
        if first:
            for model in (*self._models, *self._lossy):
                reference.restart(effects, model, wide)
        if self._products is None:
            self._products = convolution_products(reference.device)
        try:
            with self._products:  # before the modes that lose something of a convolution, which must meet it
                return self._in_float64(reference, inputs, seed, effects)
        except TaskError as error:
            _log.info("the reference does not run in float64: %s", error)
            return None
        finally:
            if isinstance(self._products, ConvolutionProducts) and not self._products.met:
                self._products = nullcontext()  # it has none: nothing need be watched

    def _in_float64(
        self, reference: Restartable, inputs: list[Any], seed: int, effects: Effects
    ) -> tuple[list[Any], ...]:
        """See `_results`. Raises: TaskError."""
        assert self._models is not None
        wide = torch.float64
        exact = reference.run_wide(self._models[0], map_tensors(inputs, widen), seed, wide, effects)
        narrowest = narrowest_bytes([inputs, list(reference.model.parameters())])
        # What is found is multiplied by FACTOR.
        losing = library_precision(reference.device, narrowest, ALLOWED / FACTOR)
        with losing, RunningSums():
            moved = reference.rounded(inputs, seed, wide)
            rounded = reference.run_wide(self._models[1], moved, seed, wide, effects)
        convolves = isinstance(losing, Tf32Convolutions) and losing.met
        ways = lossy_convolutions(reference.device, narrowest) if convolves else ()
        lossy = []
        for way, model in zip(ways, self._models_of(reference, effects, len(ways)), strict=True):
            with way:
                lossy.append(reference.run_wide(model, map_tensors(inputs, widen), seed, wide, effects))
        return exact, rounded, *lossy

    def _models_of(self, reference: Restartable, effects: Effects, count: int) -> list[Any]:
        """Models for convolutions that lose something: the exact one's, unless each has to keep something of its own."""
        if not effects:
            return [self._models[0]] * count if self._models else []
        self._lossy += [reference.widened(False, torch.float64) for _ in range(len(self._lossy), count)]
        return self._lossy[:count]


def _is_same_function(own: list[Any], exact: list[Any], rounded: list[Any], *lossy: list[Any]) -> bool:
    """Whether float64 gave what the reference computes. Deep networks make much of what TF32 loses: then the reference is
    no further off than `FACTOR` times what that comes to in float64."""
    ways = [[same for same, _ in measured(own, exact, rounded)]]
    for way in lossy:
        pairs = zip(measured(own, exact, way), own, exact, strict=True)
        ways.append([same or _is_nearer(known, value, o) for (same, known), value, o in pairs])
    return all(any(column) for column in zip(*ways, strict=True))


def _is_nearer(known: Precision | None, value: Any, oracle: Any) -> bool:
    shaped = isinstance(value, torch.Tensor) and value.shape == oracle.shape
    return shaped and known is not None and known.own <= FACTOR * known.rounding


def _all_moved(oracle: list[Any], lossy: list[list[Any]]) -> list[torch.Tensor | None]:
    """By how much each leaf of the oracle moves at most at each place; None for what is no floating tensor, and where
    nothing is lost."""
    moved: list[torch.Tensor | None] = [None] * len(oracle)
    if not lossy:
        return moved
    asked = [at for at, each in enumerate(oracle) if isinstance(each, torch.Tensor) and each.is_floating_point()]
    items = [[way[at].detach() for way in (oracle, *lossy)] for at in asked]
    for positions, rows in side_by_side(items):
        for at, row in zip(positions, _moved(rows).unbind(), strict=True):
            moved[asked[at]] = row.reshape(oracle[asked[at]].shape)
    for at, item in zip(asked, items, strict=True):
        if moved[at] is None:
            moved[at] = _moved(item)
    return moved


def _moved(item: list[torch.Tensor]) -> torch.Tensor:
    """By how much others than the first differ from it."""
    oracle, *lossy = (each.double() for each in item)
    apart = [(each - oracle).abs() for each in lossy]
    return torch.nan_to_num(torch.stack(apart).amax(0), nan=0.0, posinf=0.0)


def _least(value: torch.Tensor, distribution: Distribution) -> float:
    """See `FEW_TERMS`."""
    return FEW_TERMS if value.dtype == torch.float32 and distribution not in USUAL else 0.0
