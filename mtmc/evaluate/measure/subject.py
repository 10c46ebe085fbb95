"""What the oracle asks of a candidate's process, done there: make a model, call it, call it again and again, profile it.

It sees inputs and never an expected value, a verdict or a clock that counts. A gated call enqueues all of its work behind
the gate: the inputs are written only when the candidate's host code has returned, so nothing in it can depend on them.
"""

from __future__ import annotations

import gc
import linecache
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from mtmc.evaluate.audit.diagnosis import diagnose, diagnose_exception
from mtmc.evaluate.check.answers import MISSING, OutOfMemory, Raised, Text
from mtmc.evaluate.check.candidate import poisoned_memory
from mtmc.evaluate.check.layout import (
    Place,
    aligned,
    dense_places,
    memory_order,
    view,
    viewed,
    without_gaps,
)
from mtmc.evaluate.check.ownership import written_out
from mtmc.evaluate.compiling.prebuilt import know
from mtmc.evaluate.core_split import keep_to
from mtmc.evaluate.loading.modules import candidate_text, construct, load_module
from mtmc.evaluate.measure.backend import DeviceBackend, Window
from mtmc.evaluate.measure.flags import DONE, GATE, HOST_LAST, HOST_LED, LED, Flags
from mtmc.evaluate.measure.handing_over import between, hand_over, layout_of, revealing
from mtmc.evaluate.measure.kernels_seen import kernels_of
from mtmc.evaluate.measure.questions import LIBRARY
from mtmc.evaluate.measure.wire import (
    READY,
    Call,
    Enqueued,
    Forget,
    Line,
    Load,
    Loop,
    Output,
    Profile,
    Profiled,
    Ready,
    Restore,
    Returned,
    Said,
)
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.evaluate.reference.blocks import different
from mtmc.evaluate.reference.effects import Remembered, changed_buffers, find, parameters, values
from mtmc.evaluate.reference.returned import comparable, describe, flatten, is_plain, undisturbed
from mtmc.task.seeding import seed_torch
from mtmc.task.tensors import flat_tensors

if TYPE_CHECKING:
    from mtmc.evaluate.measure.compile_ahead import Prepared

_now = time.perf_counter  # bound before any candidate runs
OWN_MODELS: dict[str, Callable[..., Any]] = {"clone": torch.clone, "identity": lambda x: x, "first": lambda x: x[:1]}
FILLED = "filled:"
"""Name, with numbers of elements behind it, of the evaluator's own model that gives zeros, whatever its inputs are."""
BEGIN_S = 10.0
"""Seconds until calls in a row must have been let begin: the oracle is gone otherwise."""


@dataclass(frozen=True)
class _Taken:
    """A result that was taken apart. said: what is told of it. copies: its tensors, and where in the arena they go."""

    said: Returned
    copies: list[tuple[Place, torch.Tensor]]


class Subject:
    """inputs: memory that they lie in. window, room: what outputs are copied into, and its bytes: seen by this process only
    from when a candidate's host code has returned until its work is done. prepared: a baseline that was compiled before.
    others: hardware threads on which one that was not is compiled; none: where this process runs."""

    def __init__(
        self,
        line: Line,
        backend: DeviceBackend,
        flags: Flags,
        inputs: torch.Tensor,
        window: Window,
        room: int,
        refusals: list[str],
        prepared: Prepared | None = None,
        others: Sequence[int] = (),
    ) -> None:
        self._refusals, self._prepared, self._others = refusals, prepared, others
        self._line = line
        self._backend = backend
        self._flags = flags  # kept: the device writes into its page
        self._inputs, self._window, self._room = inputs, window, room
        self._models: dict[int, Callable[..., Any]] = {}
        self._state: bytes | None = None  # of the model that was made last
        self._remembered: dict[int, Remembered] = {}
        self._modules: dict[str, tuple[ModuleType, Path]] = {}  # by text: one at shapes that change no constant
        self._paths: dict[int, Path] = {}
        self._returned: dict[int, Returned] = {}  # what the last call of a model gave

    def answer(self, request: Any) -> None:
        """Do what is asked and say how it went."""
        kinds: dict[type, Callable[[Any], Said]] = {
            Load: self._load,
            Call: self._call,
            Restore: self._restore,
            Loop: self._loop,
            Profile: self._profile,
            Forget: self._forget,
        }
        try:
            said = kinds[type(request)](request)
            if self._refusals:  # swallowed: a version that falls back is not the version that was built
                said = Raised(diagnose("check", "NotPrebuilt", self._refusals[0], ""))
        except Exception as error:
            said = self._failed(
                error, request.model if isinstance(request, Load | Call | Restore | Loop | Profile) else -1
            )
        if not isinstance(said, Raised | OutOfMemory):  # then its work is done, and else nothing more is asked of it
            self._window.hide()
        self._line.say(said)

    def _failed(self, error: Exception, model: int) -> Raised | OutOfMemory:
        if isinstance(error, torch.OutOfMemoryError) or out_of_memory(error):
            return OutOfMemory(str(error)[:2000])
        path = self._paths.get(model)
        if path is None:
            return Raised(diagnose("check", type(error).__name__, traceback.format_exc()[-2000:], ""))
        text = path.read_text() if path.exists() else ""
        return Raised(diagnose_exception("check", error, str(path), text))

    def _forget(self, _: Forget) -> Ready:
        """As after `Open`, but for what the candidate did to this interpreter: only trusted ones come here twice."""
        self._models.clear()
        self._returned.clear()
        self._remembered.clear()
        self._modules.clear()
        self._paths.clear()
        linecache.clearcache()  # the next one's text lies at the same path
        gc.collect()
        self._backend.empty_cache()
        return READY

    def _load(self, request: Load) -> Ready:
        if request.baseline in OWN_MODELS:
            self._models[request.model] = OWN_MODELS[request.baseline]
        elif request.baseline.startswith(FILLED):
            self._models[request.model] = self._filled(request.baseline.removeprefix(FILLED))
        else:
            self._models[request.model] = self._construct(request)
        self._remembered[request.model] = Remembered(self._models[request.model])
        return READY

    def _filled(self, counts: str) -> Callable[..., Any]:
        device = self._backend.device
        return lambda *inputs: tuple(torch.zeros(int(count), device=device) for count in counts.split(","))

    def _construct(self, request: Load) -> Callable[..., Any]:
        module = self._module(request)
        arguments = pickle.loads(request.arguments)
        name = ("Library" if request.baseline == LIBRARY else "Model") if request.baseline else "ModelNew"
        device = str(self._backend.device)
        self._state = self._state if request.known else request.state
        model = construct(module, name, arguments, request.seed, self._state, device=device, moved=request.moved)
        if request.baseline:
            mode = request.baseline.partition(":")[2]
            model = self._compiled(model, mode) if mode else model
        return model

    def _compiled(self, model: Any, mode: str) -> Callable[..., Any]:
        known = None
        if self._prepared is not None and self._prepared.mode == mode:
            known = self._prepared.with_numbers_of(model)
        if known is not None:
            return known
        keep_to(self._others)  # at its first call, with as many processes as there are cores for
        return torch.compile(model, mode=mode)

    def _module(self, request: Load) -> ModuleType:
        text = candidate_text(request.source, request.constants)
        if text not in self._modules:
            path = self._paths[request.model] = Path.cwd() / f"mtmc_candidate_{request.model}.py"
            module = load_module(text, path)
            if not request.baseline and self._backend.device.type == "cuda":
                know(module)
            self._modules[text] = module, path
        module, self._paths[request.model] = self._modules[text]
        return module

    def _call(self, request: Call) -> Returned:
        model = self._models[request.model]
        if request.first and request.kept:  # before the gate, so that it takes none of the candidate's time
            self._restore(Restore(request.model, request.kept))
        if request.check:
            return self._checked_call(model, request)
        ahead = request.gated and self._backend.asynchronous
        if request.gated and not ahead:
            self._line.say(Enqueued(request.serial))
        seed_torch(request.seed)
        if request.gated:
            wait = self._backend.wait_everywhere if request.everywhere else self._backend.wait
            wait(GATE, request.serial)
        first = self._backend.mark()
        given = self._arguments(request.inputs)
        result = model(*given)
        taken = self._taken(result, model, request.kept, request.own, given)
        began = _now()
        last = self._backend.mark()
        if request.gated:
            self._backend.join()
        joined = self._backend.mark()
        # A device that waits for the host does nothing between the marks; behind a gate that is shut it sees them at once.
        host_ms = (_now() - began) * 1e3 if self._flags.words[GATE] >= request.serial else 0.0
        self._hand_over(taken)
        self._returned[request.model] = taken.said
        self._backend.signal(DONE, request.done)
        if ahead:
            self._line.say(Enqueued(request.serial))
        self._backend.synchronize()
        behind = max(0.0, self._backend.beyond_ms(last, joined) - host_ms) if request.gated else 0.0
        return replace(taken.said, ms=self._backend.elapsed_ms(first, last) + behind, behind_ms=behind)

    def _restore(self, request: Restore) -> Ready:
        """Put back what a model keeps; the device is idle then, as the oracle finds it."""
        self._remembered[request.model].restore(request.kept)
        self._backend.synchronize()
        return READY

    def _loop(self, request: Loop) -> Returned:
        """Forwards in a row, each handed over into its slot. What takes time and is not the candidate's comes first, or when
        all is done: what the last one has left in the model.

        The inputs of a call come to their place when the one before has returned: nothing can be made of them sooner. The
        layout is that of the call before, which was found right: another one is an error.
        """
        model, said = self._models[request.model], self._returned[request.model]
        count = len(said.outputs)
        self._remembered[request.model].restore(request.kept)
        step = request.input_step
        pieces = {slot: self._inputs[step * slot : step * (slot + 1)] for slot in request.slots}
        arguments = [[viewed(pieces[slot], item) for item in request.inputs] for slot in request.slots]
        laid = [each if isinstance(each, Text) else layout_of(each) for each in (*said.outputs, *said.state)]
        spots = dense_places(laid)[0]
        outputs = self._window.show()
        rooms = [outputs[request.output_step * slot :] for slot in request.slots]
        places = [_views(room, spots[:count]) for room in rooms]
        left = _views(rooms[-1], spots[count:])
        coming = [
            None if request.sources is None else revealing(pieces[slot], outputs, request.sources + step * slot)
            for slot in request.slots
        ]
        first = [viewed(self._inputs[:step], item) for item in request.inputs]  # valid inputs, of an earlier call
        for _ in range(request.warm):
            model(*first)
        seed_torch(request.seed)
        self._backend.synchronize()
        words, serial = self._flags.words, request.serial
        self._line.say(Enqueued(serial))
        until = time.monotonic() + BEGIN_S
        while words[GATE] < serial:
            if time.monotonic() > until:
                raise TimeoutError("the oracle did not let the calls begin")
        between([], [], coming[0])
        for at, (given, taken, following) in enumerate(zip(arguments, places, [*coming[1:], None], strict=True)):
            if at == request.lead:
                self._backend.signal(LED, serial)
                words[HOST_LED] = serial  # last: the signal is no work of the candidate's host
            between(model(*given), taken, following)
        words[HOST_LAST] = serial
        self._backend.join()
        self._backend.signal(DONE, serial)
        between([find(model, path) for path in request.kept], left, None)
        self._backend.synchronize()
        return said

    def _checked_call(self, model: Any, request: Call) -> Returned:
        named = parameters(model)
        before = [value.detach().clone() for value in named.values()]
        untouched = values(model, request.untouched)
        seed_torch(request.seed)
        with poisoned_memory():
            result = model(*self._arguments(request.inputs))
        taken = self._taken(result, model, request.kept)
        self._hand_over(taken)
        self._backend.synchronize()
        changed = different([value.detach() for value in named.values()], before)
        names = tuple(list(named)[at] for at in changed[:8])
        return replace(taken.said, changed_parameters=names, changed_buffers=changed_buffers(model, untouched))

    def _arguments(self, inputs: Any) -> Any:
        return [viewed(self._inputs, item) for item in inputs]

    def _taken(
        self, result: Any, model: Any, kept: tuple[str, ...], own: tuple[bool, ...] = (), given: Any = ()
    ) -> _Taken:
        """Take a result apart, with what the model keeps under some paths. Part of the call that is timed; afterwards no
        code of the candidate's runs, see `flatten`. own, given: see `written_out`."""
        with undisturbed():
            leaves, structure = flatten(result)
            if any(own) and all(map(comparable, leaves)):
                leaves = written_out(leaves, own, flat_tensors(given))
            plain: list[Any] = [without_gaps(leaf) if is_plain(leaf) else describe(leaf) for leaf in leaves]
            for found in [find(model, path) for path in kept]:
                plain.append(found if is_plain(found) else MISSING if found is None else describe(found))
            places, size = dense_places(plain)
            said: list[Output | Text] = []
            copies: list[tuple[Place, torch.Tensor]] = []
            for leaf, spot in zip(plain, places, strict=True):
                if spot is None:
                    said.append(Text(leaf))
                    continue
                said.append(Output(spot.dtype, tuple(spot.shape), memory_order(leaf), leaf.device.type))
                if aligned(size) <= aligned(self._room):
                    copies.append((spot, leaf))
        return _Taken(Returned(tuple(said[: len(leaves)]), structure, state=tuple(said[len(leaves) :])), copies)

    def _hand_over(self, taken: _Taken, together: bool = True) -> None:
        """Copy outputs to where the oracle reads them. That memory is mapped only now, when all that the candidate has
        launched is launched, and at an address that none of it can know. together: see `handing_over.hand_over`."""
        with undisturbed():
            outputs = self._window.show()
            hand_over([(view(outputs, spot), leaf) for spot, leaf in taken.copies], together)

    def _profile(self, request: Profile) -> Profiled:
        model = self._models[request.model]

        def forward() -> None:
            self._remembered[request.model].restore(request.kept)
            seed_torch(request.seed)
            taken = self._taken(model(*self._arguments(request.inputs)), model, request.kept)
            self._hand_over(taken, together=False)  # a launch each: what is seen beside them is counted
            self._backend.synchronize()

        return kernels_of(forward, request.calls)


def _views(memory: torch.Tensor, spots: Sequence[Place | None]) -> list[torch.Tensor | None]:
    """The tensors that have places in a piece of memory; None for what is none."""
    return [None if spot is None else view(memory, spot) for spot in spots]
