"""What float64 says of a reference where an oracle for every output would take too long and too much memory: asked once.

Where float64 does not fit and the numbers have 16 bits, float32 is asked instead: it is as far from them as they are from
what they stand for (2^-24 beside 2^-11 and 2^-8), and takes half of the memory. Where that does not fit either, the first
items of the batch are asked for, of a reference whose items do not know of each other, see `first_items`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.errors import TaskError
from mtmc.evaluate.reference.bounds import FACTOR, all_calibrated, with_cut
from mtmc.evaluate.reference.compare import Precision
from mtmc.evaluate.reference.convolution_products import convolution_products
from mtmc.evaluate.reference.distance import Limits, distance
from mtmc.evaluate.reference.effects import Effects
from mtmc.evaluate.reference.first_items import FirstItems, Size, few_items, first_items
from mtmc.evaluate.reference.fp64 import same_function, widen
from mtmc.evaluate.reference.memory import Gauge, free_bytes, in_units, release
from mtmc.evaluate.reference.running_sums import RunningSums
from mtmc.evaluate.reference.tf32 import ConvolutionsChannelsLast, Tf32Seen, cut_convolutions, library_precision
from mtmc.evaluate.reference.wide_reference import WideReference
from mtmc.outcome import LIBRARY_TF32, REFERENCE_ERROR, TF32_LAST, WIDENED
from mtmc.task.quantized import readable
from mtmc.task.tensors import flat_tensors, held, map_tensors
from mtmc.task.tolerance import DEFAULT, Tolerance

_log = logging.getLogger(__name__)

Precisions: TypeAlias = Sequence[Precision | None]

LATER = 0.01
"""Of a call after others, where the model keeps something: norm-wise error that the reference's own result may have, and how
far it may be off as a share of its range. What was left out or is an older call's answer is further off."""


@dataclass(frozen=True)
class Library:
    """How the library convolves fp32 numbers for a reference. tf32: in TF32, as the reference calls it or channels last.
    last: whether it was asked channels last too, since some of them lie channels first. only_last: in TF32 there alone."""

    tf32: bool = False
    last: bool = False
    only_last: bool = False


@dataclass(frozen=True)
class Calibration:
    """What float64 says of a reference at one set of shapes, good for any weights and inputs drawn there.

    precisions: one per leaf of its result, and after them one for each tensor that it changes; None for what is no floating
    tensor; all None without an fp64 reference. effects: what it changes. library: how its convolutions are made.
    carried: whether it has running sums.
    """

    precisions: tuple[Precision | None, ...]
    effects: Effects = field(default_factory=Effects)
    library: Library = Library()
    carried: bool = False

    @property
    def error(self) -> float | None:
        """The largest norm-wise error of the reference itself, None where it is not known."""
        return max((each.own for each in self.precisions if each is not None), default=None)

    @property
    def widened(self) -> float:
        """What was added to the absolute tolerance of an output at most, since the reference itself comes near it."""
        return max((each.slack for each in self.precisions if each is not None), default=0.0)

    @property
    def metrics(self) -> dict[str, float]:
        """For outcomes: by how much the tolerance is widened, and the reference's own error, none where it is not; and
        whether it convolves in TF32."""
        widened = {WIDENED: self.widened, REFERENCE_ERROR: self.error or 0.0} if self.widened else {}
        tf32 = {LIBRARY_TF32: 1.0} if self.library.tf32 else {}
        return widened | tf32 | ({TF32_LAST: 1.0} if self.library.only_last else {})


def calibrate(reference: WideReference, seed: int, where: str, known: Library | None = None) -> Calibration:
    """The precision of a reference, from one run in each precision, one model in memory at a time, on models of its own,
    so that a reference that counts its calls is where it was. Where convolutions could lie channels last and do not, it
    is as rough as the rougher of both orders.

    where: for messages. known: how it convolves, where that is known already. Raises: TaskError.
    """
    gauge = Gauge(reference.device)
    model, inputs = reference.construct(), reference.draw(seed)
    own, effects = reference.observed(model, inputs, seed)
    weights = list(model.parameters())
    narrowest = narrowest_bytes([inputs, weights])
    taken = gauge.peak([inputs, weights, own]) + held(own)
    kept, weighed = held(inputs) + held(own), held(weights)
    del model, inputs, weights
    if known is None:
        library, last = convolving(reference, seed, where)
    else:
        library, last = known, _watched(reference, seed, where, ConvolutionsChannelsLast()) if known.last else []
    results = [own, *last]
    size = Size(taken, weighed, kept + sum(map(held, results[1:])), narrowest)
    release(reference.device)
    for wide in (torch.float64, torch.float32) if narrowest <= 2 else (torch.float64,):
        needed = size.needed(wide)
        if needed > free_bytes(reference.device):
            _log.warning("%s: %s would need about %s", where, wide, in_units(needed))
            continue
        try:
            with convolution_products(reference.device):  # before the modes that lose something of a convolution
                return _asked(reference, seed, results, effects, wide, narrowest, library)
        except (TaskError, torch.OutOfMemoryError) as error:
            _log.warning("%s: no oracle in %s: %s", where, wide, error)
        except _AnotherFunction as error:
            _log.warning("%s: no oracle in %s: %s", where, wide, error)
            return Calibration((None,) * len(own), effects, library=library)
        release(reference.device)  # not before the error is gone, whose frames hold what it had
    return _of_first_items(reference, seed, results, effects, size, where, library)


def convolving(reference: WideReference, seed: int, where: str) -> tuple[Library, list[list[Any]]]:
    """How fp32 numbers are convolved, as far as a reference lets itself be watched, in calls of its own; and what it makes
    of its inputs with all convolutions channels last, nothing where none could lie so or that fails. Where there is no
    memory to watch all of it, a part of its batch says how it convolves."""
    if cut_convolutions(reference.device, 4) is None:
        return Library(), []
    found = _as_seen(reference, seed, where)
    if found is None:
        release(reference.device)
        few = few_items(reference, seed)
        seen = None if few is None else _as_seen(few, seed, f"{where}, {few.count} items of {few.batch}")
        found = Library() if seen is None else replace(seen[0], last=False), []  # its results are of few items
    return found


def _as_seen(reference: WideReference | FirstItems, seed: int, where: str) -> tuple[Library, list[list[Any]]] | None:
    """See `convolving`; None where the reference does not let itself be watched."""
    seen = Tf32Seen()
    if not _watched(reference, seed, where, seen):
        return None
    if not seen.first:
        return Library(seen.used), []
    release(reference.device)
    there = Tf32Seen()
    with ConvolutionsChannelsLast():
        last = _watched(reference, seed, where, there)
    return Library(seen.used or there.used, last=True, only_last=there.used and not seen.used), last


def _watched(reference: WideReference | FirstItems, seed: int, where: str, mode: TorchDispatchMode) -> list[list[Any]]:
    """What the reference makes of its inputs while a mode is active; nothing where that fails."""
    try:
        with mode:
            return [reference.observed(reference.construct(), reference.draw(seed), seed)[0]]
    except (TaskError, torch.OutOfMemoryError) as error:
        _log.warning("%s: its convolutions were not looked at: %s", where, error)
        return []


def _of_first_items(
    reference: WideReference,
    seed: int,
    results: list[list[Any]],
    effects: Effects,
    size: Size,
    where: str,
    library: Library,
) -> Calibration:
    """What float64 says of as many items of the batch as fit; nothing where none do, or where they know of each other."""
    own = results[0]
    try:
        items = None if effects else first_items(reference, seed, own, size, free_bytes(reference.device))
        if items is not None:
            first = [items.of(each) for each in results]
            with convolution_products(items.device):
                found = _asked(items, seed, first, effects, torch.float64, size.narrowest, library)
            _log.info("%s: the oracle is of %s items of %s", where, items.count, items.batch)
            return found
    except (TaskError, torch.OutOfMemoryError, _AnotherFunction) as error:
        _log.warning("%s: no oracle of the first items: %s", where, error)
    release(reference.device)
    _log.warning("%s: only small shapes have an oracle", where)
    return Calibration((None,) * len(own), effects, library=library)


class _AnotherFunction(Exception):
    """The wider dtype gives another result."""


def _asked(
    reference: WideReference,
    seed: int,
    results: list[list[Any]],
    effects: Effects,
    wide: torch.dtype,
    narrowest: int,
    library: Library,
) -> Calibration:
    """results: of the reference itself, and of it in other ways that are as right.

    Raises: TaskError, torch.OutOfMemoryError or _AnotherFunction where a wider dtype tells nothing."""
    sums = RunningSums()

    def rounded() -> list[Any]:
        model = reference.widened(True, wide)
        with sums:
            return reference.run_wide(model, reference.rounded(reference.draw(seed), seed, wide), seed, wide, effects)

    def plain() -> list[Any]:
        inputs = map_tensors(reference.draw(seed), lambda tensor: widen(tensor, wide))
        return reference.run_wide(reference.widened(False, wide), inputs, seed, wide, effects)

    exact, own = plain(), results[0]
    off = rounded()
    found, *others = [measured(each, exact, off, reference.tolerance) for each in results]
    del off
    if not all(same for same, _ in found):
        # Deep networks make much of TF32's rounding; float64 is then as sensitive to that as the reference is far from it.
        with library_precision(reference.device, narrowest):
            if not all(same for same, _ in measured(own, exact, rounded())):
                raise _AnotherFunction("it gives another result there")
    precisions = tuple(precision for _, precision in found)
    for other in others:
        if all(same for same, _ in other):
            precisions = loosest(precisions, [precision for _, precision in other])
    if library.tf32 and (cut := cut_convolutions(reference.device, narrowest)) is not None:
        with cut:
            cuts = plain()
        precisions = tuple(
            known and _with_cut(known, value, o, q, reference.tolerance)
            for known, value, o, q in zip(precisions, own, exact, cuts, strict=True)
        )
    return Calibration(precisions, effects, library=library, carried=sums.carried)


def loosest(ones: Precisions, others: Precisions) -> tuple[Precision | None, ...]:
    """What allows as much as either of two precisions of each output; None where one is not known."""

    def wider(a: Precision | None, b: Precision | None) -> Precision | None:
        if a is None or b is None:
            return None
        return Precision(*map(max, astuple(a), astuple(b)))

    return tuple(map(wider, ones, others))


def _with_cut(known: Precision, value: Any, exact: Any, cut: Any, tolerance: Tolerance) -> Precision:
    limits = Limits.of(value.dtype, tolerance)
    return with_cut(known, distance(cut, exact, limits.relative / FACTOR), limits.absolute)


def measured(
    own: Sequence[Any], exact: Sequence[Any], rounded: Sequence[Any], tolerance: Tolerance = DEFAULT
) -> list[tuple[bool, Precision | None]]:
    """For each leaf, whether float64 gave the same function's value, and the precision of a floating one."""
    leaves = list(zip(own, exact, rounded, strict=True))
    same = [getattr(e, "shape", None) == getattr(o, "shape", None) for o, e, _ in leaves]
    asked = [at for at, (value, _, _) in enumerate(leaves) if same[at] and _has_precision(value)]
    found: list[tuple[bool, Precision | None]] = [(each, None) for each in same]
    for at, known in zip(asked, all_calibrated([leaves[at] for at in asked], tolerance), strict=True):
        found[at] = same_function(known.own, known.rounding), known
    return found


def _has_precision(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.numel())


def later(value: Any, known: Precision | None) -> Precision | None:
    """The precision of what a call gives that others came before. known: of the first one."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return known
    numbers = readable(value)
    numbers = torch.where(torch.isfinite(numbers), numbers, 0.0)
    span = float(numbers.amax() - numbers.amin())
    known = known or Precision(0.0, 0.0)
    return Precision(max(known.own, LATER), known.rounding, max(known.slack, LATER * span))


def narrowest_bytes(value: Any) -> int:
    """Bytes of an element of the narrowest floating dtype in nested lists, 8 if there is none."""
    return min((tensor.element_size() for tensor in flat_tensors(value) if tensor.is_floating_point()), default=8)
