"""Programs of an interpreted launch run side by side, in an order that nobody knows beforehand.

Triton's interpreter runs one program after another, in the order of their numbers. On a GPU hundreds of them run at once,
and none may count on what another one has left, but by atomics. So a kernel that adds to what the program before it has
written, or lets the last one sum up what all others have left, would be right here and nowhere else. While
`interleaved_programs` is open, programs begin in an order drawn anew for each launch, a few at a time, and give way to
each other before some of their loads, stores and atomics. Each is a thread, and one runs at a time. Where all of them
only wait (a spin lock, a barrier of the whole grid), more are begun until one goes on. Of four programs the last one is
the last to end now and then, so every other launch is run from the last program to the first, one after another, as long
as none of them waits, and the launches of the next forward the other way round: each launch is run so in one of two
forwards, whatever is drawn. Runs in check workers.
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

GIVES_WAY = 0.5
"""How often a program gives way to another one where it could."""
BEGUN, NEAR = 4, 64
"""Programs that are under way at first; how far from its place in the grid one may begin."""
PATIENCE = 48
"""Times that a program gives way after which another one is begun, until one ends."""
WAITS = 16 * PATIENCE
"""Times that a program could give way before it ends, after which it is taken for one that waits for another."""
MOST = 128
_STACK = 4 << 20
_ARENA_MAX = -8  # of mallopt

Call = Callable[[], None]
Index = tuple[int, int, int]


class _EndedError(BaseException):
    """Ends a program whose launch has failed elsewhere. Not an Exception: nobody is to take it for a failure."""


class _Program:
    """One program under way, in a thread of its own that waits for its turn."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.turn = threading.Semaphore(0)


class Interleaving:
    """Runs `call` once for each program of a launch. draw: for the order. place: told whose turn it is, before each turn.
    backwards: from the last program to the first, each to its end."""

    def __init__(
        self, call: Call, draw: random.Random, place: Callable[[Index], None], backwards: bool = False
    ) -> None:
        self._call, self._draw, self._place, self._backwards = call, draw, place, backwards
        self._live: list[_Program] = []
        self._waiting: list[Index] = []
        self._running: _Program | None = None
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

    def _begin(self) -> None:
        """Let one more program be under way; it waits for its turn."""
        if not self._waiting or len(self._live) >= MOST:
            return
        program = _Program(self._waiting.pop())
        self._live.append(program)
        context = contextvars.copy_context()  # numpy's way with errors is one of a context
        threading.Thread(target=context.run, args=(self._body, program), daemon=True).start()

    def _body(self, program: _Program) -> None:
        """Of a thread: programs one after another, until none is left to begin."""
        program.turn.acquire()
        try:
            while self._failure is None:
                self._call()
                self._given = 0
                if not self._waiting:
                    break
                program.index = self._waiting.pop()
                self._place(program.index)
        except _EndedError:
            pass
        except BaseException as error:
            self._failure = self._failure or error
        self._live.remove(program)
        if self._live:
            self._resume(self._draw.choice(self._live))
        else:
            self._done.release()

    def _resume(self, program: _Program) -> None:
        self._running = program
        self._place(program.index)
        program.turn.release()

    def give_way(self) -> None:
        """Of the program that runs: let another one go on, sometimes."""
        mine = self._running
        if self._backwards:
            self._given += 1
            self._backwards = self._given < WAITS
            return
        if mine is None or self._draw.random() >= GIVES_WAY:
            return
        self._given += 1
        if self._given % PATIENCE == 0:
            self._begin()
        other = self._draw.choice(self._live)
        if other is mine:
            return
        self._resume(other)
        mine.turn.acquire()
        if self._failure is not None:
            raise _EndedError


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
    names = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
    kept = [(builder, name, getattr(builder, name)) for name in names] + [(executor, "__init__", executor.__init__)]
    present: list[Interleaving] = []  # of the launch that runs
    backwards = itertools.cycle((backwards_first, not backwards_first))

    def before(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if present:
                present[-1].give_way()
            return original(self, *args, **kwargs)

        return method

    def made(self: Any, fn: Any, *rest: Any, **named: Any) -> None:
        kept[-1][2](self, fn, *rest, **named)
        self.fn = _all_at_once(fn, interpreter.interpreter_builder, draw, present, backwards)

    for owner, name, original in kept[:-1]:
        setattr(owner, name, before(original))
    executor.__init__ = made
    try:
        yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


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
