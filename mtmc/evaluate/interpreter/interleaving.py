"""Programs of an interpreted launch run side by side, in an order that nobody knows beforehand.

Triton's interpreter runs one program after another, in the order of their numbers. On a GPU hundreds of them run at once,
and none may count on what another one has left, but by atomics. So a kernel that adds to what the program before it has
written, or lets the last one sum up what all others have left, would be right here and nowhere else. While
`interleaved_programs` is open, programs begin in an order drawn anew for each launch, a few at a time. Half of them give way
to each other before some of their loads, stores and atomics; the others are hasty: they do so once or twice and then go on
alone until they wait (`mtmc.evaluate.interpreter.standstill`), however long they dawdle. Each is a thread, and one runs at a
time. Where all of them only wait (a spin lock, a barrier of the whole grid), more are begun until one goes on. One that sees
a change of what it waits for goes on first. Of four programs the last one is the last to end now and then, so every other
launch is run from the last program to the first: all are hasty, and of those that do not wait the one that began first goes
on. The launches of the next forward are run the other way round: each launch is run so in one of two forwards, whatever is
drawn. Runs in check workers.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import inspect
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mtmc.evaluate.interpreter.standstill import Standstill

GIVES_WAY, HASTY, TWICE = 0.5, 0.5, 2
"""How often a program gives way to another one where it could; how many do so twice at most but where they wait."""
BEGUN, NEAR = 4, 64
"""Programs that are under way at first; how far from its place in the grid one may begin."""
PATIENCE = 48
"""Times that a program gives way after which another one is begun, until one ends."""
MOST = 128
RESTS = 16
"""Changes of what a program looks at that it sleeps through at most, after others that it did not wait for."""
_STACK = 4 << 20
_ARENA_MAX = -8  # of mallopt

Call = Callable[[], None]
Index = tuple[int, int, int]
Span = tuple[int, int]
"""The first and the last address of an access."""


class _EndedError(BaseException):
    """Ends a program whose launch has failed elsewhere. Not an Exception: nobody is to take it for a failure."""


class _Program:
    """One program under way, in a thread of its own that waits for its turn."""

    def __init__(self, index: Index) -> None:
        self.turn = threading.Semaphore(0)
        self.begin(index, None)

    def begin(self, index: Index, ways: int | None) -> None:
        """Be another one. ways: times that it gives way before it goes on alone until it waits; None for always."""
        self.index, self.ways = index, ways
        self.still, self.waits = Standstill(), False
        self._looked: set[Span] = set()
        self._rests = self._slept = 0

    def stands(self, span: Span) -> bool:
        """Whether it waits, as it is about to look there."""
        self._looked.add(span)
        self.waits = self.still.again()
        return self.waits

    def has_changed(self) -> None:
        """It has changed something itself."""
        self.still.changed()
        self._looked.clear()
        self._rests = self._slept = 0

    def sees(self, span: Span) -> bool:
        """Whether a change by another one wakes it: one of what it looks at, but the more seldom the more were in vain."""
        if not self.waits or not any(low <= span[1] and span[0] <= high for low, high in self._looked):
            return False
        self._slept += 1
        if self._slept <= self._rests:
            return False
        self._rests, self._slept = min(RESTS, 2 * self._rests + 1), 0
        self.wake()
        return True

    def wake(self) -> None:
        """Let it look again."""
        self.waits = False
        self.still.woken()


class Interleaving:
    """Runs `call` once for each program of a launch. draw: for the order. place: told whose turn it is, before each turn.
    backwards: from the last program to the first, each until it ends or waits."""

    def __init__(
        self, call: Call, draw: random.Random, place: Callable[[Index], None], backwards: bool = False
    ) -> None:
        self._call, self._draw, self._place, self._backwards = call, draw, place, backwards
        self._live: list[_Program] = []  # in the order in which they began
        self._waiting: list[Index] = []
        self._running: _Program | None = None
        self._woken: _Program | None = None  # what it waits for may have come: it goes on first
        self._failure: BaseException | None = None
        self._done = threading.Semaphore(0)
        self._given = 0

    def run(self, indices: Sequence[Index]) -> None:
        """Run them. Raises: what the first program that fails raises."""
        begins = [at if self._backwards else -at - self._draw.random() * NEAR for at in range(len(indices))]
        self._waiting = [indices[at] for at in sorted(range(len(indices)), key=begins.__getitem__)]
        before = threading.stack_size(_STACK)
        try:
            for _ in range(1 if self._backwards else BEGUN):
                self._begin()
            self._resume(self._draw.choice(self._live))
            self._done.acquire()
        finally:
            threading.stack_size(before)
        if self._failure is not None:
            raise self._failure

    def _begin(self) -> _Program | None:
        """Let one more program be under way, if there may be; it waits for its turn."""
        if not self._waiting or len(self._live) >= MOST:
            return None
        program = _Program((0, 0, 0))
        self._take_up(program)
        self._live.append(program)
        context = contextvars.copy_context()  # numpy's way with errors is one of a context
        threading.Thread(target=context.run, args=(self._body, program), daemon=True).start()
        return program

    def _take_up(self, program: _Program) -> None:
        """Let it be the next one of the grid. Where many wait for others, it is the first one's turn, as on a GPU."""
        late = self._backwards and len(self._live) >= MOST // 2
        index = self._waiting.pop(0 if late else -1)
        hasty = self._backwards or self._draw.random() < HASTY
        program.begin(index, (0 if self._backwards else TWICE) if hasty else None)

    def _body(self, program: _Program) -> None:
        """Of a thread: programs one after another, until none is left to begin."""
        program.turn.acquire()
        try:
            while self._failure is None:
                self._call()
                self._given = 0
                if not self._waiting or self._backwards:
                    break
                self._take_up(program)
                self._place(program.index)
        except _EndedError:
            pass
        except BaseException as error:
            self._failure = self._failure or error
        self._live.remove(program)
        if self._failure is None and (other := self._next()) is not None:
            self._resume(other)
        elif self._live:
            self._resume(self._live[0])
        else:
            self._done.release()

    def _next(self) -> _Program | None:
        """Who goes on where the one that ran has ended or waits; None where none is left."""
        ready = [program for program in self._live if not program.waits]
        if self._woken in ready:
            ready = [self._woken]
        self._woken = None
        if not ready:
            begun = self._begin()
            ready = [begun] if begun is not None else []
        if not ready:  # they wait for what none of them was seen to change: each looks again
            for program in self._live:
                program.wake()
            return self._draw.choice(self._live) if self._live else None
        return ready[0] if self._backwards else self._draw.choice(ready)

    def _resume(self, program: _Program) -> None:
        self._running = program
        self._place(program.index)
        program.turn.release()

    def _pass_on(self, mine: _Program, other: _Program | None) -> None:
        """Let another one go on, until it is this one's turn again."""
        if other is None or other is mine:
            return
        self._resume(other)
        mine.turn.acquire()
        if self._failure is not None:
            raise _EndedError

    def give_way(self, span: Span) -> None:
        """Of the program that runs, before it looks at memory or changes it there: let another one go on, sometimes."""
        mine, woken = self._running, self._woken
        if mine is None:
            return
        if woken is not None:
            self._woken = None
            return self._pass_on(mine, woken)
        if mine.ways == 0:
            return self._pass_on(mine, self._next()) if mine.stands(span) else None
        if self._draw.random() >= GIVES_WAY:
            return
        mine.ways = None if mine.ways is None else mine.ways - 1
        self._given += 1
        if self._given % PATIENCE == 0:
            self._begin()
        self._pass_on(mine, self._draw.choice(self._live))

    def changed(self, span: Span) -> None:
        """Of the program that runs: it has changed memory there."""
        if self._running is not None:
            self._running.has_changed()
        woken = [program for program in self._live if program.sees(span)]
        self._woken = next(iter(woken), self._woken)


def share_memory_of_threads() -> None:
    """Let the C library keep no memory of its own for each thread to come, which counts against a process's limit."""
    with contextlib.suppress(AttributeError, OSError):  # another library than glibc has no such habit
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


@contextlib.contextmanager
def interleaved_programs(secret: int, backwards_first: bool) -> Iterator[None]:
    """While open, the programs of each launch run side by side. secret: draws their order. backwards_first: whether the
    first launch of more than one program is run from its last program to its first, and so every other one after it."""
    from triton.runtime import interpreter

    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    draw = random.Random(secret)
    names = {"create_masked_load": 0, "create_masked_store": 0, "create_atomic_rmw": 1, "create_atomic_cas": 0}
    kept = [(builder, name, getattr(builder, name)) for name in names] + [(executor, "__init__", executor.__init__)]
    present: list[Interleaving] = []  # of the launch that runs
    backwards = itertools.cycle((backwards_first, not backwards_first))

    def before(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not present:
                return original(self, *args, **kwargs)
            pointers = args[names[name]]
            span = (int(pointers.data.min()), int(pointers.data.max())) if pointers.data.size else (0, -1)
            present[-1].give_way(span)
            found = original(self, *args, **kwargs)
            if _changes(interpreter._interpreter, name, pointers, args, found):
                present[-1].changed(span)
            return found

        return method

    def made(self: Any, fn: Any, *rest: Any, **named: Any) -> None:
        kept[-1][2](self, fn, *rest, **named)
        self.fn = _all_at_once(fn, interpreter.interpreter_builder, draw, present, backwards)

    for owner, name, original in kept[:-1]:
        setattr(owner, name, before(name, original))
    executor.__init__ = made
    try:
        yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _changes(memory: Any, name: str, pointers: Any, args: Sequence[Any], found: Any) -> bool:
    """Whether an access may have changed anything: not an atomic that gave back what lies there now."""
    at = {"create_masked_store": 2, "create_atomic_rmw": 3, "create_atomic_cas": None}
    if name not in at:
        return False
    mask = True if (place := at[name]) is None else args[place]
    given = mask if isinstance(mask, bool | np.ndarray) else mask.data
    kept = np.ascontiguousarray(np.broadcast_to(given, pointers.data.shape), bool)
    if name == "create_masked_store":
        return bool(kept.any())
    now = memory.load(pointers.data, kept, np.zeros_like(found.data), found.data.dtype)
    return bool(now[kept].tobytes() != found.data[kept].tobytes())


def _all_at_once(
    fn: Any, builder: Any, draw: random.Random, present: list[Interleaving], backwards: Iterator[bool]
) -> Any:
    """A kernel's function, which the interpreter calls for one after another, that runs all of them for the first."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> None:
        size = builder.grid_dim
        if size[0] * size[1] * size[2] == 1:
            fn(*args, **kwargs)
        elif tuple(builder.grid_idx) == (0, 0, 0):
            # The order in which a GPU begins them.
            indices = [(x, y, z) for z in range(size[2]) for y in range(size[1]) for x in range(size[0])]
            run, place = functools.partial(fn, *args, **kwargs), lambda index: builder.set_grid_idx(*index)
            present.append(Interleaving(run, draw, place, next(backwards)))
            try:
                present[-1].run(indices)
            finally:
                present.pop()
            builder.set_grid_idx(0, 0, 0)

    call.__signature__ = inspect.signature(fn)  # type: ignore[attr-defined]
    return call
