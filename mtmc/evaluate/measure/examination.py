"""One candidate before the oracle: is it right at every set of shapes, and how long does it take at the full ones?

Runs in the oracle's process. Everything that counts is decided here: inputs, expected values, the clock, the verdict.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from mtmc.evaluate.gates.blocks import fingerprint
from mtmc.evaluate.gates.candidate import Answer
from mtmc.evaluate.gates.cases import Plan
from mtmc.evaluate.gates.judge import judge
from mtmc.evaluate.gates.reference import Reference, Truth
from mtmc.evaluate.measure.arena import Place, contiguous_places, memory_of, place, stretch, view
from mtmc.evaluate.measure.clock import Patience
from mtmc.evaluate.measure.fabric import DONE, GATE, Fabric, Flags
from mtmc.evaluate.measure.grounds import Grounds, tensors_of
from mtmc.evaluate.measure.wire import Call, Gone, Line, Load, Profile, Silent, places_of
from mtmc.outcome import Diagnosis, Status

_log = logging.getLogger(__name__)

FULL = 0
WARM_CALLS = 2
"""Timed calls that are thrown away: clocks rise, caches of the host fill."""
ENQUEUE_S = 2.0
"""Seconds after which a forward that has not returned behind the gate is taken to wait for the device."""


class Failed(Exception):
    """The candidate did not stand the examination."""

    def __init__(self, status: Status, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.message)
        self.status, self.diagnosis = status, diagnosis


@dataclass
class Samples:
    """Timed calls, in milliseconds. stated: by the candidate's events; walls: by the oracle's clock.

    ahead: whether the calls were enqueued behind the gate. flushes: the oracle's own work while the gate was closed.
    output_bytes, outputs: bytes and number of a call's outputs. input_bytes: of its inputs.
    """

    stated: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    flushes: list[float] = field(default_factory=list)
    ahead: bool = True
    output_bytes: int = 0
    outputs: int = 0
    input_bytes: int = 0


@dataclass(frozen=True)
class Arena:
    """Both pieces of shared memory and the flags, on the oracle's side."""

    inputs: torch.Tensor
    outputs: torch.Tensor
    flags: Flags


class Examination:
    """The conversation with one candidate. Each method raises `Failed` where the candidate is to blame."""

    def __init__(self, line: Line, fabric: Fabric, arena: Arena, draw_seed: Callable[[], int], limit_s: float) -> None:
        self._line = line
        self._fabric = fabric
        self._arena = arena
        self._draw_seed = draw_seed
        self._deadline = time.monotonic() + limit_s
        self._limit_s = limit_s
        self._stage = "check"
        self._last = ""
        self.judged = True  # not where the evaluator's own models run: their outputs set no standard

    # -- correctness ---------------------------------------------------------------------------------------------

    def load(self, grounds: Grounds, variant: int, source: str, moved: bool = False, made: str = "") -> int:
        """Have the candidate construct its model at a set of shapes; the number to call it by."""
        _, seed = grounds.reference(variant, moved)
        number = 2 * variant + int(moved)
        shapes = grounds.variants[variant]
        arguments = grounds.arguments(variant, moved)
        self._where(f"construction at the {shapes.label} shapes")
        request = Load(number, source, shapes.constants, arguments, grounds.task.state, seed, moved, made)
        self._said(self._ask(request))
        return number

    def check(self, grounds: Grounds, source: str, plan: Plan) -> dict[str, float]:
        """All cases of a plan, ungated. Returns: "error" (the largest norm-wise one), "cases", "float64_oracle"."""
        worst, cases, exact = 0.0, 0, True
        numbers: dict[int, int] = {}
        for case in plan.cases:
            variant = grounds.variants.index(case.variant)
            truth = grounds.truth(variant, case.moved, case.distribution, self._draw_seed())
            if truth is None:
                continue
            if case.serial not in numbers:
                numbers[case.serial] = self.load(grounds, variant, source, case.moved)
            worst = max(worst, self.ask_for(truth, numbers[case.serial], case.where, check=True))
            cases += 1
            exact = exact and truth.exact
        return {"error": worst, "cases": float(cases), "float64_oracle": float(exact)}

    def ask_for(self, truth: Truth, number: int, where: str, check: bool = False) -> float:
        """One ungated forward and its comparison with a truth; the norm-wise error."""
        self._where(where)
        places = self._write(truth)
        self._fabric.synchronize()
        said = self._said(self._ask(Call(number, places, self._draw_seed(), 0, False, check)))
        return self._compare(said, truth, where)

    # -- time ----------------------------------------------------------------------------------------------------

    def load_own(self, made: str, number: int) -> int:
        """Have the process make one of the evaluator's own models; the number to call it by."""
        self._where("calibration")
        self._said(self._ask(Load(number, "", (), b"", None, 0, False, made)))
        return number

    def time(
        self, draw: Callable[[int], Truth], number: int, patience: Patience, count: Callable[[Truth], None], ahead: bool
    ) -> Samples:
        """Timed forwards on fresh inputs until patience ends, every output checked.

        draw: the truth of a seed. count: called after each. ahead: whether to try to have the calls enqueued.
        """
        self._stage = "time"
        samples, calls = Samples(ahead=ahead), 0
        started = time.monotonic()
        while not patience.enough(samples.stated, time.monotonic() - started):
            truth = draw(self._draw_seed())
            calls += 1
            stated, wall, ahead = self._timed_call(truth, number, calls, samples)
            if samples.ahead and not ahead:
                samples, started = Samples(ahead=False), time.monotonic()
            elif calls > WARM_CALLS:
                samples.stated.append(stated)
                samples.walls.append(wall)
            samples.output_bytes, samples.outputs = _size_of(truth)
            samples.input_bytes = sum(t.numel() * t.element_size() for t in tensors_of(truth.inputs))
            count(truth)
        return samples

    def _timed_call(self, truth: Truth, number: int, call: int, samples: Samples) -> tuple[float, float, bool]:
        """Stated time, the oracle's clock, and whether all was enqueued behind the gate.

        The seed that the candidate's generator is set to says nothing of the inputs.
        """
        where = f"full shapes, timed call {call}"
        self._where(where)
        flags = self._arena.flags.words
        serial = int(flags[GATE]) + 1
        places, tensors = self._places(truth)
        ahead = samples.ahead
        if ahead:
            self._send(Call(number, places, self._draw_seed(), serial, True))
            ahead = self._enqueued(serial)
        if not ahead:
            return self._open_call(truth, number, serial, where)
        self._fill(places, tensors)
        before = self._fabric.mark()
        self._fabric.flush()
        after = self._fabric.mark()
        self._fabric.synchronize()
        samples.flushes.append(self._fabric.elapsed_ms(before, after))
        start = time.perf_counter()
        flags[GATE] = serial
        wall = self._await_done(serial, start)
        said = self._said(self._hear())
        self._compare(said, truth, where)
        return _number(said, "ms"), wall, True

    def _open_call(self, truth: Truth, number: int, serial: int, where: str) -> tuple[float, float, bool]:
        """A call whose host code waits for the device: the gate is open, and its host time counts too."""
        flags = self._arena.flags.words
        if int(flags[GATE]) < serial and self._pending:  # the call that did not return behind the gate
            flags[GATE] = serial
            self._said(self._hear())
            serial += 1
        places, tensors = self._places(truth)
        self._fill(places, tensors)
        self._fabric.flush()
        self._fabric.synchronize()
        flags[GATE] = serial
        start = time.perf_counter()
        self._send(Call(number, places, self._draw_seed(), serial, True))
        wall = self._await_done(serial, start)
        said = self._said(self._hear())
        self._compare(said, truth, where)
        return wall, wall, False

    def profile(self, reference: Reference, number: int, calls: int) -> dict[str, Any]:
        """What the profiler sees, see `kernels_of`."""
        self._stage = "verify"
        self._where("profiled calls")
        places = self._write(reference.timed(self._draw_seed()))
        self._fabric.synchronize()
        said = self._said(self._ask(Profile(number, places, self._draw_seed(), calls)))
        kernels = said.get("kernels")
        if not isinstance(kernels, dict):
            raise Failed("crash", self._diagnosis("BadAnswer", "the candidate's process gave no profile"))
        return kernels

    # -- the arena -----------------------------------------------------------------------------------------------

    def _places(self, truth: Truth) -> tuple[Any, list[torch.Tensor]]:
        tensors = tensors_of(truth.inputs)
        spots, _ = place(tensors)
        return places_of(truth.inputs, spots), tensors

    def _fill(self, places: Any, tensors: list[torch.Tensor]) -> None:
        """Write the inputs, and poison the outputs."""
        self._arena.outputs.fill_(0xFF)
        for spot, tensor in zip(_flat_places(places), tensors, strict=True):
            stretch(self._arena.inputs, spot).copy_(memory_of(tensor))

    def _write(self, truth: Truth) -> Any:
        places, tensors = self._places(truth)
        self._fill(places, tensors)
        return places

    def _compare(self, said: dict[str, Any], truth: Truth, where: str) -> float:
        """Norm-wise error of the outputs in the arena. Raises: Failed."""
        answer = self._answer(said, truth)
        error, diagnosis = judge(answer, truth, where, self._stage)
        if diagnosis is not None and self.judged:
            raise Failed("wrong_result", diagnosis)
        return error

    def _answer(self, said: dict[str, Any], truth: Truth) -> Answer:
        try:
            outputs: list[torch.Tensor | str] = []
            stated = [_stand_in(item) for item in said["outputs"]]
            places, size = contiguous_places(stated)
            if size > self._arena.outputs.numel():
                raise Failed("wrong_result", self._diagnosis("Shape", f"the outputs take {size} bytes"))
            for item, spot in zip(said["outputs"], places, strict=True):
                outputs.append(str(item["text"]) if spot is None else view(self._arena.outputs, spot))
                if spot is not None and item["device"] != self._fabric.device.type:
                    message = f"an output lies on {item['device']!r}, not on {self._fabric.device.type!r}"
                    raise Failed("wrong_result", self._diagnosis("Device", message))
            changed = [str(name) for name in said.get("changed_parameters", [])]
            return Answer(outputs, str(said["structure"]), self._changed_inputs(truth), changed)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            message = f"the candidate's process answered nonsense: {error}"
            raise Failed("crash", self._diagnosis("BadAnswer", message)) from error

    def _changed_inputs(self, truth: Truth) -> list[int]:
        """Which input tensors are no longer what was written."""
        tensors = tensors_of(truth.inputs)
        spots, _ = place(tensors)
        keys = [self._draw_seed() for _ in tensors]
        now = [fingerprint(view(self._arena.inputs, spot), key) for spot, key in zip(spots, keys, strict=True)]
        then = [fingerprint(tensor, key) for tensor, key in zip(tensors, keys, strict=True)]
        if not tensors:
            return []
        return torch.stack(now).ne(torch.stack(then)).nonzero().flatten().tolist()

    # -- the conversation ----------------------------------------------------------------------------------------

    _pending = False

    def _where(self, text: str) -> None:
        self._last = text

    def _send(self, request: Any) -> None:
        try:
            self._line.ask(request)
            self._pending = True
        except Gone as error:
            raise self._died(error) from error

    def _ask(self, request: Any) -> dict[str, Any]:
        started = time.perf_counter()
        self._send(request)
        said = self._hear()
        _log.debug("%s: %.1f ms", self._last, (time.perf_counter() - started) * 1e3)
        return said

    def _hear(self) -> dict[str, Any]:
        """The next answer but for a belated "enqueued"."""
        while True:
            try:
                said = self._line.heard(self._deadline - time.monotonic())
            except Silent:
                raise self._silent() from None
            except Gone as error:
                raise self._died(error) from error
            if "enqueued" not in said:
                self._pending = False
                return said

    def _enqueued(self, serial: int) -> bool:
        """Whether the candidate has enqueued its call behind the gate, and returned."""
        try:
            said = self._line.heard(min(ENQUEUE_S, max(0.0, self._deadline - time.monotonic())))
        except Silent:
            return False
        except Gone as error:
            raise self._died(error) from error
        if said.get("enqueued") == serial:
            return True
        self._arena.flags.words[GATE] = serial
        self._said(said)
        raise Failed("crash", self._diagnosis("BadAnswer", "the candidate's process answered out of turn"))

    def _await_done(self, serial: int, start: float) -> float:
        """Milliseconds from `start` until the candidate's stream raises its flag."""
        words = self._arena.flags.words
        while True:
            for _ in range(2000):
                if words[DONE] == serial:
                    return (time.perf_counter() - start) * 1e3
            if self._line.speaks() and words[DONE] != serial:
                said = self._heard_early()
                if said is None:
                    continue
                self._said(said)
                raise Failed(
                    "crash", self._diagnosis("BadAnswer", "the candidate's process answered before it was done")
                )
            if time.monotonic() > self._deadline:
                raise self._silent()

    def _heard_early(self) -> dict[str, Any] | None:
        """What was said before the flag: None for "enqueued"."""
        try:
            said = self._line.heard(1.0)
        except Silent:
            return None
        except Gone as error:
            raise self._died(error) from error
        return None if "enqueued" in said else said

    def _said(self, said: dict[str, Any]) -> dict[str, Any]:
        """An answer that is none of failure. Raises: Failed."""
        if "out_of_memory" in said:
            message = f"the candidate ran out of memory: {str(said['out_of_memory'])[:1000]} ({self._last})"
            raise Failed("out_of_memory", self._diagnosis("MemoryError", message))
        if "failure" in said:
            raise Failed("crash", self._stated_failure(said["failure"]))
        return said

    def _stated_failure(self, stated: Any) -> Diagnosis:
        try:
            given = Diagnosis(**{**stated, "stage": self._stage})
            message = f"{given.message} ({self._last})"
            return Diagnosis(
                self._stage, str(given.kind)[:100], str(message)[:2000], given.line, str(given.excerpt)[:2000]
            )
        except TypeError:
            return self._diagnosis("BadAnswer", "the candidate's process failed and did not say how")

    def _silent(self) -> Failed:
        message = f"stopped after {self._limit_s:g} s: an endless loop, or far too much work ({self._last})"
        return Failed("timeout", self._diagnosis("Timeout", message))

    def _died(self, error: Exception) -> Failed:
        return Failed("crash", self._diagnosis("ProcessExit", f"the candidate's process ended: {error} ({self._last})"))

    def _diagnosis(self, kind: str, message: str) -> Diagnosis:
        return Diagnosis(self._stage, kind, message)


def verdict(failed: Failed) -> dict[str, Any]:
    """A failed examination as plain data."""
    return {"status": failed.status, "diagnosis": asdict(failed.diagnosis)}


def _stand_in(item: dict[str, Any]) -> Any:
    """A tensor without memory of the stated type and shape, or the text of what is none."""
    if "text" in item:
        return str(item["text"])
    shape = [int(size) for size in item["shape"]]
    return torch.empty(shape, dtype=getattr(torch, str(item["dtype"])), device="meta")


def _flat_places(value: Any) -> list[Place]:
    if isinstance(value, Place):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [spot for item in value for spot in _flat_places(item)]
    return []


def _size_of(truth: Truth) -> tuple[int, int]:
    tensors = [each.value for each in truth.outputs if not isinstance(each, str)]
    return sum(t.numel() * t.element_size() for t in tensors), len(tensors)


def _number(said: dict[str, Any], name: str) -> float:
    try:
        return max(float(said[name]), 0.0)
    except (KeyError, TypeError, ValueError):
        return 0.0
