"""The words between oracle and candidate: one socket, requests pickled (the oracle is trusted), answers in JSON."""

from __future__ import annotations

import json
import pickle
import select
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal, NoReturn

from mtmc.evaluate.check.answers import OutOfMemory, Raised, Text
from mtmc.evaluate.check.layout import Place
from mtmc.evaluate.plain import MalformedError, from_plain
from mtmc.evaluate.pool.messages import read_exactly
from mtmc.task.tensors import map_tensors

HEADER = 8
ANSWER_LIMIT = 1 << 20
"""Bytes an answer may have; a candidate that says more is cut off."""


class Silent(Exception):
    """The other side did not answer in time."""


class Gone(Exception):
    """The other side ended."""


class Nonsense(Gone):
    """The other side said what no candidate's process says: it is not listened to any more."""


@dataclass(frozen=True)
class Hello:
    """Before all else, as early as can be. Comes with the descriptor of the flags, and has no answer."""


@dataclass(frozen=True)
class Open:
    """Comes with the descriptors of the input piece and of the output piece: two allocations. Sizes in bytes."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class Load:
    """Make a model. See `mtmc.evaluate.loading.modules.construct` for the fields that both sides share.

    model: serial number it is called by. source: the candidate's text. baseline: "" for the candidate's ModelNew; else a
    model of the evaluator's own: "clone" (copies its input), "identity" (returns it), "first" (returns its first element),
    "eager" (the text's Model), "compile:MODE" (that under torch.compile), "library" (the text's Library).
    state: None where there is none, and where `known`: then it is that of the model before.
    """

    model: int
    source: str
    constants: tuple[tuple[str, int], ...]
    arguments: bytes
    state: bytes | None
    seed: int
    moved: bool
    baseline: str = ""
    known: bool = False


@dataclass(frozen=True)
class Call:
    """One forward. inputs: pickled nested arguments in which `Place`s stand for tensors.

    serial: above all earlier ones. done: what the flag becomes when the outputs are handed over, drawn for this call.
    gated: whether its work waits for the gate. everywhere: and every other stream of the process, too. check: whether fresh
    memory is poisoned and changed parameters are looked for. kept, untouched, first: see
    `mtmc.evaluate.check.candidate.Case`; what is untouched is looked at in a check only. own: of each leaf of the result
    whether the reference's lies in memory of its own, see `mtmc.evaluate.check.ownership`.
    """

    model: int
    inputs: Any
    seed: int
    serial: int
    done: int
    gated: bool
    check: bool = False
    kept: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    first: bool = True
    everywhere: bool = False
    own: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Restore:
    """Put back what a model keeps, as the first `Call` would: before one whose host time counts. kept: as there."""

    model: int
    kept: tuple[str, ...]


@dataclass(frozen=True)
class Loop:
    """Some forwards in a row, without a gate. slots: the slot of each call, in order: its inputs lie there, at the places of
    `inputs` from the slot's start, and its outputs go there. input_step, output_step: bytes from one slot to the next.
    sources: where in the output piece the inputs of all slots lie until the call before has returned; None: at their places
    from the first. lead: calls after which `LED` and `HOST_LED` are written. kept: as of `Call`, put back before the first
    call. warm: calls before them, on what lies in the first slot, whose results nobody sees."""

    model: int
    inputs: Any
    seed: int
    serial: int
    slots: tuple[int, ...]
    lead: int
    input_step: int
    output_step: int
    sources: int | None = None
    kept: tuple[str, ...] = ()
    warm: int = 0


@dataclass(frozen=True)
class Profile:
    """Profile `calls` forwards on what lies in the arena now. kept: paths of what the model changes: each starts from what
    it kept at first."""

    model: int
    inputs: Any
    seed: int
    calls: int
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forget:
    """Let go of the candidate that was examined: the next one comes to the same process."""


@dataclass(frozen=True)
class Ready:
    """What was asked for is done: `Hello`, `Open`, `Load`, `Restore`, `Forget`."""

    ready: Literal[True]


@dataclass(frozen=True)
class Enqueued:
    """The work of a gated call is enqueued behind the gate; or calls in a row are ready to begin."""

    enqueued: int


@dataclass(frozen=True)
class Output:
    """A tensor whose elements lie in the arena. order: of its dimensions in memory. device: type of that which it is on."""

    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class Returned:
    """A forward's result. outputs: its leaves. structure: see `flatten`. ms: by the device's events, of a call without
    check; behind_ms: the part of it in which other streams were at work after the call's own. changed_parameters: names of
    the first that were changed, of one with check; changed_buffers: of those that the reference leaves alone. state: what is
    kept under the paths that were asked for, in the arena after the outputs."""

    outputs: tuple[Output | Text, ...]
    structure: str
    ms: float = 0.0
    changed_parameters: tuple[str, ...] = ()
    changed_buffers: tuple[str, ...] = ()
    state: tuple[Output | Text, ...] = ()
    behind_ms: float = 0.0


@dataclass(frozen=True)
class Profiled:
    """What the profiler saw of a forward. count: of device activities a call. names: of the distinct kernels, the first
    ones. busy_ms: their summed durations a call. Counts and times include what the evaluator itself does there."""

    count: float
    names: tuple[str, ...]
    busy_ms: float


Request = Hello | Open | Load | Call | Restore | Loop | Profile | Forget
READY = Ready(True)
Said = Ready | Enqueued | Returned | Profiled | Raised | OutOfMemory


class Line:
    """One end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._pending = bytearray()

    def ask(self, request: Request, fds: tuple[int, ...] = ()) -> None:
        """Send a request, with descriptors where it has any. Raises: Gone."""
        body = pickle.dumps(request)
        try:
            if fds:
                socket.send_fds(self.socket, [len(body).to_bytes(HEADER, "little")], list(fds))
            else:
                self.socket.sendall(len(body).to_bytes(HEADER, "little"))
            self.socket.sendall(body)
        except OSError as error:
            raise Gone(str(error)) from error

    def asked(self, fds: int = 0) -> tuple[Any, list[int]]:
        """The next request and its descriptors. Raises: Gone at the end."""
        received: list[int] = []
        if fds:
            head, received, _, _ = socket.recv_fds(self.socket, HEADER, fds)
            if not head:
                raise Gone("the oracle closed the line")
        else:
            head = self._exactly(HEADER)
        return pickle.loads(self._exactly(int.from_bytes(head, "little"))), list(received)

    def say(self, answer: Said) -> None:
        """Send an answer. Raises: OSError if nobody listens."""
        body = json.dumps(asdict(answer)).encode()
        self.socket.sendall(len(body).to_bytes(HEADER, "little") + body)

    def heard(self, limit_s: float) -> Said:
        """The next answer. Raises: Silent after `limit_s` seconds, Gone if it cannot come, Nonsense if it is none."""
        deadline = time.monotonic() + limit_s
        while True:
            answer = self._complete()
            if answer is not None:
                return answer
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                raise Silent
            try:
                data = self.socket.recv(1 << 16)
            except OSError as error:
                raise Gone(str(error)) from error
            if not data:
                raise Gone("the process ended")
            self._pending += data

    def speaks(self) -> bool:
        """Whether something waits to be heard."""
        return bool(self._pending) or bool(select.select([self.socket], [], [], 0)[0])

    def close(self) -> None:
        """End the conversation."""
        self.socket.close()

    def _complete(self) -> Said | None:
        size = int.from_bytes(self._pending[:HEADER], "little")
        if len(self._pending) >= HEADER and size > ANSWER_LIMIT:
            raise Nonsense(f"an answer of {size} bytes")
        if len(self._pending) < HEADER or len(self._pending) < HEADER + size:
            return None
        body = bytes(self._pending[HEADER : HEADER + size])
        del self._pending[: HEADER + size]
        try:
            said: Said = from_plain(Said, json.loads(body, parse_constant=_no_number))
        except (ValueError, RecursionError) as error:
            raise Nonsense(str(error)) from error
        return said

    def _exactly(self, size: int) -> bytes:
        try:
            return read_exactly(self.socket, size)
        except EOFError as error:
            raise Gone("the oracle closed the line") from error


def _no_number(text: str) -> NoReturn:
    """Raises: MalformedError. What is infinite or not a number compares with nothing, and so would pass each bound."""
    raise MalformedError(f"{text} is no number")


def places_of(value: Any, places: list[Place]) -> Any:
    """Nested arguments with each tensor replaced by the next place."""
    left = iter(places)
    return map_tensors(value, lambda _: next(left))
