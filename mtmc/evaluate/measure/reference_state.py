"""What the oracle knows of one task: its reference at each set of shapes, and the arena its tensors fit in."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from mtmc.errors import TaskError, TooLarge
from mtmc.evaluate.check.cases import Plan, PlannedCase
from mtmc.evaluate.check.layout import aligned, dense_places, place
from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.call_time import Slots
from mtmc.evaluate.measure.cases_ahead import CasesAhead
from mtmc.evaluate.measure.clock import TaskOverhead
from mtmc.evaluate.measure.flops import CountedProducts, Product
from mtmc.evaluate.measure.reference_cache import memory_of as device_memory
from mtmc.evaluate.reference.admission import Admission, admit
from mtmc.evaluate.reference.calibrating import Calibration
from mtmc.evaluate.reference.effects import find, kept_tensors, parameters
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.hard import Hard, loosened, tells
from mtmc.evaluate.reference.mattering import mattering_bytes
from mtmc.evaluate.reference.memory import dense
from mtmc.evaluate.reference.necessary import necessary
from mtmc.evaluate.reference.reference import Reference
from mtmc.evaluate.reference.returned import flatten
from mtmc.hardware import Hardware
from mtmc.task import Task, Variant
from mtmc.task.quantized import readable
from mtmc.task.tensors import flat_tensors, map_tensors

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """Of one forward: bytes of the inputs that must be read, of the weights, and of what must be written (see `necessary`),
    and the flops of its products (torch's flop counter: matrix products, convolutions, attention). products: each with
    what it takes at least, see `CountedProducts`."""

    input_bytes: int
    weight_bytes: int
    output_bytes: int
    flops: int = 0
    products: tuple[Product, ...] = ()

    def least_ms(self, gpu: Hardware) -> float:
        """Time at the peaks of a GPU: every byte once, every product in the fastest way that keeps its precision."""
        moved = self.input_bytes + self.weight_bytes + self.output_bytes
        return max(moved / (gpu.dram_gbs * 1e6), sum(each.least_ms(gpu) for each in self.products))


DRAWS, TRIES, TRIED_S = 4, 32, 8.0
"""Of inputs, and of pieces of each input in each of them, where it is tried what the result hangs on; counted work for all,
see `mattering.WORK_S`."""
SPARE_OUTPUT = 1 << 20
"""Bytes of the output piece beyond what the reference gives, so that a wrong answer can be seen to be wrong."""


class ReferenceState:
    """One task on one device. Raises (constructor): TaskError if the task is not admitted.

    gateable, hosts: see `ReferenceClock`. overhead: measured where a verdict was in doubt. slots: for calls in a row.
    needed: bytes of inputs and outputs in the arena.
    """

    def __init__(self, task: Task, backend: DeviceBackend, folder: Path, draw_seed: Callable[[], int]) -> None:
        self.task = task
        self.folder = folder
        self._backend = backend
        self._draw_seed = draw_seed
        self.admission: Admission = admit(task, str(backend.device), folder)
        self.gateable: bool | None = None
        self.hosts: tuple[float, ...] = ()
        self.overhead: TaskOverhead | None = None
        self._references: dict[tuple[int, bool], tuple[Reference, int]] = {}
        self._calibrations: dict[tuple[int, bool], Calibration] = {}
        self._hard: dict[tuple[int, bool], list[Hard | None]] = {}
        self._ahead = CasesAhead(self._case)
        if self.admission.variant == self.variants[0].label:
            self._calibrations[0, False] = self.admission.calibration
        self.slots, self.needed = self._sizes()
        self.work = self._work()

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Full, small, held-out: by their index here a model is called."""
        return self.task.variants

    def reference(self, variant: int, moved: bool = False) -> tuple[Reference, int]:
        """The reference at a set of shapes, and the secret seed of its weights."""
        key = (variant, moved)
        if key not in self._references:
            seed = self._draw_seed()
            device = str(self._backend.device)
            known = self._calibrations.get(key)
            made = Reference(self.task, self.variants[variant], self.folder, seed, device, moved, known)
            made.hard = self._hard.setdefault(key, made.hard)
            self._references[key] = (made, seed)
        return self._references[key]

    def moved_at_full(self) -> bool:
        """Whether the reference takes moved weights at the full shapes, and float64 tells enough of what it makes of them.

        A trained network's numbers may be anything with others. The model with its own weights is not made for this."""
        plain = self._calibrations.get((0, False))
        if self.task.state is not None or (plain is not None and plain.error is None):
            return False
        try:
            reference, seed = self.reference(0, moved=True)
            if reference.calibration is None:
                reference.calibration = loosened(reference.calibrate(seed))
            weights = any(parameter.is_floating_point() for parameter in reference.model.parameters())
            if weights and tells(reference.calibration):
                outputs = flatten(reference.run(reference.draw(seed), seed))[0]
                reference.restart(reference.calibration.effects)
                if all(bool(readable(each).isfinite().all()) for each in flat_tensors(outputs)):
                    return True
        except TaskError as error:
            _log.info("no moved weights at the full shapes: %s", error)
        self._references.pop((0, True), None)
        return False

    def expected(
        self, variant: int, moved: bool, distribution: str, seed: int, calls: int
    ) -> list[ExpectedOutputs] | None:
        """What the calls of a case should give; None where the reference refuses such inputs, or weights so moved.

        Raises: TaskError.
        """
        try:
            reference, _ = self.reference(variant, moved)
        except TaskError:
            if not moved:
                raise
            return None
        return reference.expected(distribution, seed, calls)  # type: ignore[arg-type]

    def case(self, case: PlannedCase, calls: int) -> list[ExpectedOutputs] | None:
        """What so many calls of a case should give, on inputs that no candidate has seen. Raises: TaskError."""
        return self._ahead.take(case, calls)

    def prepare(self, todo: Plan) -> bool:
        """Make one case of a plan ahead, see `CasesAhead.prepare`. Raises: TaskError."""
        return self._ahead.prepare(todo.cases, todo.calls)

    def _case(self, case: PlannedCase, calls: int) -> list[ExpectedOutputs] | None:
        variant = self.variants.index(case.variant)
        return self.expected(variant, case.moved, case.distribution, self._draw_seed(), calls)

    def forget(self) -> None:
        """Drop all references, so that the next ones have other weights; their precision is known already."""
        self._ahead.clear()
        for key, (reference, _) in self._references.items():
            if reference.calibration is not None:
                self._calibrations[key] = reference.calibration
        self._references.clear()

    def arguments(self, variant: int, moved: bool = False) -> bytes:
        """Constructor arguments of a set of shapes, pickled, on the CPU."""
        return pickle.dumps(map_tensors(self.reference(variant, moved)[0].arguments, torch.Tensor.cpu))

    def _work(self) -> Work:
        """What a forward at the full shapes has to do, starting from what the model keeps at first."""
        reference, seed = self.reference(0)[0], self._draw_seed()
        effects, model = self.admission.calibration.effects, reference.model
        reference.restart(effects)
        inputs = flat_tensors(drawn := reference.draw(seed))
        kept = {id(each): each for each in (*parameters(model).values(), *kept_tensors(model).values())}
        changing = flat_tensors([[inputs[at] for at in effects.inputs], [find(model, path) for path in effects.state]])

        def forward() -> list[torch.Tensor]:
            given = flatten(reference.run(drawn, seed))[0]
            return flat_tensors([given, [find(model, path) for path in effects.state]])

        with CountedProducts() as counted:
            moved = necessary(inputs, list(kept.values()), changing, forward)
        weights = dense(list(kept.values()))
        return Work(moved.read, weights, moved.written, counted.flops, tuple(counted.products))

    @cached_property
    def bytes_that_matter(self) -> int:
        """Bytes of the inputs at the full shapes that the result hangs on, see `mattering_bytes`: the mean of some draws.
        Where calls change what the model keeps or their inputs, each is made from the same start."""
        reference, found = self.reference(0)[0], list[int]()
        for _ in range(DRAWS):
            seed = self._draw_seed()
            inputs = flat_tensors(drawn := reference.draw(seed))
            work_s, forward = TRIED_S / DRAWS / max(1, len(inputs)), partial(self._results, drawn, seed)
            found.append(mattering_bytes(inputs, forward, seed, TRIES, work_s, self.work.flops))
        return sum(found) // len(found)

    def _results(self, drawn: list[Any], seed: int) -> list[torch.Tensor]:
        """Copies of all that a call on these inputs at the full shapes gives, leaves in the model and changes of the inputs,
        which are as before then."""
        reference, effects = self.reference(0)[0], self.admission.calibration.effects
        reference.restart(effects)
        inputs = flat_tensors(drawn)
        changing = [inputs[at] for at in effects.inputs]
        before = [each.clone() for each in changing]
        made = flatten(reference.run(drawn, seed))[0]
        kept = [find(reference.model, path) for path in effects.state]
        results = [each.clone() for each in flat_tensors([made, kept, changing])]
        for now, then in zip(changing, before, strict=True):
            now.copy_(then)
        return results

    def _sizes(self) -> tuple[Slots, tuple[int, int]]:
        """Slots for calls in a row at the full shapes; bytes of the input and output pieces: of all slots, or of the largest
        set of shapes."""
        sizes: list[tuple[int, int]] = []
        for variant in range(len(self.variants)):
            reference, seed = self.reference(variant)[0], self._draw_seed()
            drawn = reference.draw(seed)  # no oracle: its float64 models are made while a candidate is at work
            results = flatten(reference.run(drawn, seed))[0]
            kept = [find(reference.model, path) for path in self.admission.calibration.effects.state]
            sizes.append((place(flat_tensors(drawn))[1], dense_places([*results, *kept])[1]))
        slots = Slots.of(*sizes[0], total=device_memory(self._backend.device).total)
        inputs, outputs = (max(slots.sizes[at], *(size[at] for size in sizes)) for at in range(2))
        return slots, (inputs + aligned(1), outputs + SPARE_OUTPUT)


def output_bytes(expected: ExpectedOutputs) -> int:
    """Bytes of the dense outputs of a case and of what is kept after it, as they lie in the arena."""
    given = [*expected.outputs, *expected.left_state.values()]
    return dense_places([each if isinstance(each, str) else each.value for each in given])[1]


def check_memory(needed: int, free: int, what: str) -> None:
    """Raises: TooLarge if a task needs more bytes than there are."""
    if needed > free:
        raise TooLarge(
            f"{what} needs about {needed / 1e9:.1f} GB of GPU memory, {free / 1e9:.1f} GB are free: take smaller "
            "shapes, or a larger GPU (evaluator.devices)"
        )
