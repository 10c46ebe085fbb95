"""Whether a forward replays a CUDA graph of its launches, and what it copies around it. For estimates, without a GPU.

The forward is called twice on fake tensors that say that they are on a GPU, with stand-ins for torch.cuda: between the
beginning and the end of a capture all launches and torch ops go into the graph, and a replay gives them back. What the
second call does is what every later call does. Runs in a process that ends afterwards: it changes torch for good.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from mtmc.evaluate.counting.interpreter_parts import interpreter_parts
from mtmc.evaluate.counting.storages import Storages
from mtmc.evaluate.counting.tally import Record
from mtmc.evaluate.counting.torch_ops import torch_modes

_log = logging.getLogger(__name__)

_USES_CUDA_GRAPH = re.compile(r"\bCUDAGraph\b|\bcuda\.graph\b")


def copies_around(source: str, model: Any, inputs: Sequence[Any], records: Sequence[Record]) -> list[Record] | None:
    """Records of the torch ops that surround one replayed graph of all launches; None for any other forward.

    source: of the candidate. model, inputs: made of fake tensors, in whose mode this is called. records: of the same
    forward without a graph; the graph must hold the same launches and ops in the same order.
    """
    if not _USES_CUDA_GRAPH.search(source):
        return None
    log: list[Record] = []
    storages, paused = Storages(fake=True), list[bool]()
    modes = torch_modes(storages, log, paused)
    _stand_in(log)
    try:
        with modes[0], modes[1]:
            model(*inputs)
            log.clear()
            model(*inputs)
    except Exception as error:  # what a candidate's host code does with a GPU that is none is not to be blamed on it
        _log.info("taken to launch its kernels one by one: %s: %s", type(error).__name__, error)
        return None
    graphs = [entry["graph"] for entry in log if "graph" in entry]
    if len(graphs) != 1 or list(map(_name, graphs[0])) != list(map(_name, records)):
        return None
    around = [entry for entry in log if "graph" not in entry]
    return None if any("kernel" in entry for entry in around) else around


def _name(record: Record) -> str:
    return str(record.get("kernel") or record.get("op"))


def _stand_in(log: list[Record]) -> None:
    """Let fake tensors be on a GPU, launches be noted by name, and graphs keep what is logged while they are captured."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    from mtmc.evaluate.compiling import stand_in

    class Graph(stand_in.CUDAGraph):
        def capture_begin(self, *args: Any, **kwargs: Any) -> None:
            self.first = len(log)

        def capture_end(self) -> None:
            self.entries = log[self.first :]
            del log[self.first :]

        def replay(self) -> None:
            log.append({"graph": self.entries})

    class GraphContext:
        def __init__(self, graph: Graph, *args: Any, **kwargs: Any) -> None:
            self.graph = graph

        def __enter__(self) -> None:
            self.graph.capture_begin()

        def __exit__(self, *_: object) -> None:
            self.graph.capture_end()

    def run(jitted: Any, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("warmup"):
            log.append({"kernel": jitted.__name__})

    for name, value in {**stand_in.replacements(False), "CUDAGraph": Graph, "graph": GraphContext}.items():
        setattr(torch.cuda, name, value)
    FakeTensor.is_cuda = property(lambda self: True)  # type: ignore[assignment]
    interpreter_parts().InterpretedFunction.run = run
