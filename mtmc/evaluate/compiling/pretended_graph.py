"""CUDA graphs on a GPU that is not there: what is captured runs, and runs again, on the same tensors, at each replay.

A process that notes what a forward launches keeps a journal. What is noted during a capture goes into the graph, and is
noted anew at each replay; tensors without data need no more than that.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from mtmc.evaluate.compiling import stand_in
from mtmc.task.tensors import flat_tensors, storage_key

_PREPARES = re.compile(r"\bCUDAGraph\b|\bcuda\.graph\b|\b_version\b")


def prepares_itself(source: str) -> bool:
    """Whether a version's first call may do what no other one does: it captures graphs, or asks whether weights have changed
    since it packed them."""
    return _PREPARES.search(source) is not None


@dataclass
class Journal:
    """What forwards launch, in order. entries: grows while they run. replayed: notes a replay of some of them."""

    entries: list[Any] = field(default_factory=list)
    replayed: Callable[[list[Any], list[Any]], None] = list.extend


class Graph(stand_in.CUDAGraph):
    """Stands for `torch.cuda.CUDAGraph`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._calls: list[Callable[[], None]] = []
        self._noted: list[Any] = []
        self._first = 0
        self._stack = contextlib.ExitStack()

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """What follows runs as usual, and is noted. Raises: RuntimeError inside of another capture."""
        if _state.captured:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self._calls, self._first = [], len(_state.journal.entries)
        self._stack.enter_context(_launches_into(self._calls))
        self._stack.enter_context(_Ops(self._calls))
        _state.captured.append(self)

    def capture_end(self) -> None:
        """What was noted is the graph."""
        _state.captured.remove(self)
        self._stack.close()
        self._noted = _state.journal.entries[self._first :]
        del _state.journal.entries[self._first :]

    def replay(self) -> None:
        """Do all of it again."""
        journal = _state.journal
        count = len(journal.entries)
        for call in self._calls:
            call()
        del journal.entries[count:]
        journal.replayed(journal.entries, self._noted)


class GraphContext:
    """Stands for `torch.cuda.graph`."""

    def __init__(self, cuda_graph: Graph, *args: Any, **kwargs: Any) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()


@dataclass
class _State:
    journal: Journal = field(default_factory=Journal)
    captured: list[Graph] = field(default_factory=list)
    launching: bool = False


_state = _State()
NAMES: dict[str, Any] = {
    "CUDAGraph": Graph,
    "graph": GraphContext,
    "is_current_stream_capturing": lambda: bool(_state.captured),
}
"""What stands for the names of `torch.cuda` that have to do with graphs."""


@contextlib.contextmanager
def writing(journal: Journal | None) -> Iterator[None]:
    """While open, graphs that are captured and replayed write into this journal; None: into none."""
    before, _state.journal = _state.journal, journal or Journal()
    try:
        yield
    finally:
        while _state.captured:  # left open: on a GPU nothing of it would run
            _state.captured[-1].capture_end()
        _state.journal = before


class _Ops(TorchDispatchMode):
    """Notes torch's ops on tensors with data: how to do each again, into the same memory."""

    def __init__(self, calls: list[Callable[[], None]]) -> None:
        super().__init__()
        self._calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result = func(*args, **named)
        given = {storage_key(tensor) for tensor in flat_tensors((args, named))}
        fresh = [(at, tensor) for at, tensor in enumerate(flat_tensors(result))]
        if _state.launching or any(isinstance(tensor, FakeTensor) for _, tensor in fresh):
            return result
        kept = [(at, tensor) for at, tensor in fresh if storage_key(tensor) not in given]
        if func._schema.is_mutable or (kept and not func._schema.name.startswith("aten::empty")):

            def again() -> None:
                new = flat_tensors(func(*args, **named))
                for at, tensor in kept:
                    tensor.copy_(new[at])

            self._calls.append(again)
        return result


@contextlib.contextmanager
def _launches_into(calls: list[Callable[[], None]]) -> Iterator[None]:
    """While open, launches of kernels are noted too."""
    before = [(owner, owner.run) for owner in (InterpretedFunction, JITFunction)]

    def noting(owner: Any, original: Any) -> Callable[..., Any]:
        def run(jitted: Any, *args: Any, **kwargs: Any) -> Any:
            _state.launching = True  # what the interpreter does with tensors is part of the launch
            try:
                result = original(jitted, *args, **kwargs)
            finally:
                _state.launching = False
            if not any(isinstance(value, FakeTensor) for value in flat_tensors((args, kwargs))):
                calls.append(lambda: owner.run(jitted, *args, **kwargs))
            return result

        return run

    for owner, original in before:
        owner.run = noting(owner, original)
    try:
        yield
    finally:
        for owner, original in before:
            owner.run = original
