"""How much memory a task's reference takes, before it takes it, and how much there is."""

from __future__ import annotations

import gc
import logging
import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.loading.modules import construct_reference, draw_inputs, init_inputs, load_reference
from mtmc.task import Task, Variant
from mtmc.task.tensors import flat_tensors, held

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Footprint:
    """Bytes of one forward. peak: the most that is held at once, inputs, weights and outputs included.

    outputs: as they lie when each is dense, which is how they are handed over: an expanded view may stand for terabytes.
    """

    inputs: int
    weights: int
    outputs: int
    peak: int

    @property
    def temporaries(self) -> int:
        """What the forward needs besides."""
        return max(0, self.peak - self.inputs - self.weights - self.outputs)


class _Live(TorchDispatchMode):
    """Counts the bytes of the storages that are alive, of all that is made under it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in flat_tensors(out):
            self._note(tensor.untyped_storage())
        return out

    def _note(self, storage: torch.UntypedStorage) -> None:
        if self._known.get(storage._cdata) is storage:
            return
        size = storage.nbytes()
        self._known[storage._cdata] = storage
        weakref.finalize(storage, self._forget, size)
        self.now += size
        self.peak = max(self.peak, self.now)

    def _forget(self, size: int) -> None:
        self.now -= size


def estimate(task: Task, variant: Variant, folder: Path) -> Footprint | None:
    """What one forward of the reference takes, found on fake tensors (sizes without data), so that nothing is too large.

    None if the reference reads values of its tensors, which fake ones do not have. What libraries allocate for
    themselves (the workspace of a convolution) is not in it.
    """
    from mtmc.evaluate.loading.fake import FakeMode

    live = _Live()
    said = logging.getLogger("torch._subclasses.fake_tensor")
    level = said.level
    said.setLevel(logging.CRITICAL + 1)  # it prints the trace of every failure, and the real run reports those
    try:
        with FakeMode(), live, torch.no_grad():
            module = load_reference(task, variant, folder)
            model = construct_reference(module, _without_state(task), init_inputs(module, variant, 0), 0)
            inputs = draw_inputs(module, variant, 0)
            live.peak = live.now
            outputs = model(*inputs)
    except Exception as error:
        _log.info("task %s cannot be weighed without data: %s: %s", task.name, type(error).__name__, error)
        return None
    finally:
        said.setLevel(level)
    return Footprint(held(inputs), held([*model.parameters(), *model.buffers()]), dense(outputs), live.peak)


class Gauge:
    """The most memory that is held on a device from now on, besides what is held now."""

    def __init__(self, device: str) -> None:
        self._device = device if torch.device(device).type == "cuda" else None
        self._start = 0
        if self._device is not None:
            torch.cuda.reset_peak_memory_stats(self._device)
            self._start = torch.cuda.memory_allocated(self._device)

    def peak(self, kept: Any) -> int:
        """Bytes. kept: all tensors that were made and are held: a CPU, which keeps no count, has at least these."""
        if self._device is None:
            return held(kept)
        return torch.cuda.max_memory_allocated(self._device) - self._start


def dense(value: Any) -> int:
    """Bytes of the tensors in nested lists, tuples and dicts, each written out in full."""
    return sum(tensor.numel() * tensor.element_size() for tensor in flat_tensors(value))


def free_bytes(device: str) -> int:
    """Bytes that this process can still get on a device: what nobody holds, and what torch holds for later."""
    if torch.device(device).type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + cached)
    import psutil

    return int(psutil.virtual_memory().available)


def release(device: str) -> None:
    """Give memory that nothing uses any more back to the device, where other processes can have it."""
    gc.collect()
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()


def in_units(size: int) -> str:
    """ "6.4 GiB", "3 MiB"."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def _without_state(task: Task) -> Task:
    """A live module's weights have the shapes that its constructor gives them."""
    return replace(task, state=None)
