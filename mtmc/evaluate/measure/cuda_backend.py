"""The backend of one NVIDIA GPU: memory shared by file descriptor, streams that wait on words of pinned host memory.

Memory comes from the driver's virtual memory management (CUDA driver API: cuMemCreate, cuMemExportToShareableHandle)
and not from CUDA IPC, because a descriptor crosses the borders of a sandbox's namespaces and gives the receiver just
that allocation. A stream that waits (cuStreamWaitValue32) holds no multiprocessor: the other process runs at full
speed meanwhile.
"""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import dataclass
from typing import Any

import torch

from mtmc.errors import EvaluatorError
from mtmc.evaluate.compiling.cold_cache import ColdCache
from mtmc.evaluate.measure.flags import Flags

_log = logging.getLogger(__name__)

_DEVICE_MAP = 0x02  # CU_MEMHOSTREGISTER_DEVICEMAP
_WAIT_GEQ = 0x0  # CU_STREAM_WAIT_VALUE_GEQ
_NO_TIMING = 0x2  # CU_EVENT_DISABLE_TIMING
JOINS = 4
"""Joins by which a process measures what one takes."""
ROOM_BYTES = 4 << 30
"""For the contexts of the processes that wait for the next candidates, and the oracle's next draws."""
MOST_CYCLES = 3_000_000
"""Cycles in a millisecond, above those of any GPU."""
GAP_UNITS = 1 << 13
"""Units of address space, of 2 MiB as a rule, among which the place of a mapping is drawn. All around it is unmapped: device
code that looks for it by its address faults. Address space costs nothing."""
JOINS_SINCE = 12050
"""First version of the driver with cuCtxRecordEvent."""
POOL, PRIORITIES = 32, 4
"""Streams that torch has in turn for each priority, and priorities that it tells apart."""
SPECIAL_STREAMS = (1, 2)
"""Handles of the two streams that every thread can name: the one that waits for all others, and its own."""


@dataclass(frozen=True)
class _Mapping:
    """Where memory is mapped: inside of a reservation of addresses, in bytes."""

    address: int
    size: int
    base: int
    reserved: int


class CudaWindow:
    """See `backend.Window`. Mapping takes no wait for the device, so that it goes on behind a closed gate."""

    def __init__(self, backend: CudaBackend, handle: Any, size: int) -> None:
        self._backend, self._handle, self._size = backend, handle, size
        self._mapping: _Mapping | None = None

    def show(self) -> torch.Tensor:
        """See `Window.show`."""
        if self._mapping is None:
            self._mapping = self._backend.map(self._handle, self._size)
        return _bytes_at(self._mapping.address, self._size)

    def hide(self) -> None:
        """See `Window.hide`."""
        if self._mapping is not None:
            mapping, self._mapping = self._mapping, None
            self._backend.unmap(mapping)


class CudaBackend:
    """The first visible GPU. Raises (constructor): EvaluatorError where torch sees none, or cuda-bindings is missing."""

    asynchronous = True

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise EvaluatorError("torch sees no CUDA device: evaluator=lab needs none, evaluator=gpu needs one")
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise EvaluatorError(
                "evaluator=gpu needs the package cuda-bindings: pip install 'cuda-bindings>=12.9'"
            ) from error
        self._driver = driver
        torch.zeros(1, device="cuda")  # torch's context becomes the present one
        self._properties = torch.cuda.get_device_properties(0)
        self._flags = 0
        self._mapped: dict[int, tuple[Any, _Mapping]] = {}  # descriptor -> handle, where
        self._everything = self._joining_event()
        self._join_ms = 0.0
        self._cold: ColdCache | None = None
        self._streams: tuple[int, ...] | None = None

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return torch.device("cuda", 0)

    def create(self, size: int) -> tuple[int, torch.Tensor]:
        """See `DeviceBackend.create`. Raises: torch.OutOfMemoryError if the GPU has not that much."""
        d = self._driver
        place, unit = self._kind_of_memory()
        size = -(-max(size, 1) // unit) * unit
        error, handle = d.cuMemCreate(size, place, 0)
        if error == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise torch.OutOfMemoryError(f"CUDA out of memory: no {size >> 20} MiB to share with a candidate")
        _checked((error,))
        mapping = self.map(handle, size)
        fd = int(_checked(d.cuMemExportToShareableHandle(handle, place.requestedHandleTypes, 0)))
        self._mapped[fd] = (handle, mapping)
        return fd, _bytes_at(mapping.address, size)

    def open(self, fd: int, size: int) -> torch.Tensor:
        """See `DeviceBackend.open`."""
        return _bytes_at(self.map(self._imported(fd), size).address, size)

    def window(self, fd: int, size: int) -> CudaWindow:
        """See `DeviceBackend.window`."""
        handle = self._imported(fd)
        os.close(fd)
        return CudaWindow(self, handle, size)

    def release(self, fd: int) -> None:
        """See `DeviceBackend.release`."""
        handle, mapping = self._mapped.pop(fd)
        self.synchronize()
        self.unmap(mapping)
        _checked(self._driver.cuMemRelease(handle))
        os.close(fd)

    def share(self, flags: Flags) -> None:
        """See `DeviceBackend.share`."""
        d = self._driver
        _checked(d.cuMemHostRegister(flags.address, flags.words.nbytes, _DEVICE_MAP))
        self._flags = int(_checked(d.cuMemHostGetDevicePointer(flags.address, 0)))

    def wait(self, word: int, serial: int) -> None:
        """See `DeviceBackend.wait`."""
        stream = torch.cuda.current_stream().cuda_stream
        _checked(self._driver.cuStreamWaitValue32(stream, self._flags + 4 * word, serial, _WAIT_GEQ))

    def wait_everywhere(self, word: int, serial: int) -> None:
        """See `DeviceBackend.wait_everywhere`."""
        if self._streams is None:
            pools = [_stream(priority=-level) for level in range(PRIORITIES) for _ in range(POOL)]
            self._streams = tuple(dict.fromkeys([*SPECIAL_STREAMS, *(int(each.cuda_stream) for each in pools)]))
        for stream in self._streams:
            _checked(self._driver.cuStreamWaitValue32(stream, self._flags + 4 * word, serial, _WAIT_GEQ))
        self.wait(word, serial)
        self.join()

    def signal(self, word: int, serial: int) -> None:
        """See `DeviceBackend.signal`."""
        stream = torch.cuda.current_stream().cuda_stream
        _checked(self._driver.cuStreamWriteValue32(stream, self._flags + 4 * word, serial, 0))

    def signal_after(self, word: int, serial: int, milliseconds: float) -> None:
        """See `DeviceBackend.signal_after`: a stream of its own sleeps meanwhile, on one multiprocessor."""
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(int(milliseconds * MOST_CYCLES))
            self.signal(word, serial)

    def mark(self) -> Any:
        """See `DeviceBackend.mark`."""
        event = torch.cuda.Event(enable_timing=True)
        _record(event, torch.cuda.current_stream())
        return event

    def elapsed_ms(self, first: Any, last: Any) -> float:
        """See `DeviceBackend.elapsed_ms`."""
        return float(_elapsed(first, last))

    def join(self) -> None:
        """See `DeviceBackend.join`. With a driver before `JOINS_SINCE` the clock alone bounds what other streams do."""
        if self._everything is not None:
            context, event = self._everything
            _checked(self._driver.cuCtxRecordEvent(context, event))
            _checked(self._driver.cuStreamWaitEvent(torch.cuda.current_stream().cuda_stream, event, 0))

    def beyond_ms(self, first: Any, last: Any) -> float:
        """See `DeviceBackend.beyond_ms`."""
        return max(0.0, self.elapsed_ms(first, last) - self._join_ms)

    def synchronize(self) -> None:
        """See `DeviceBackend.synchronize`."""
        _synchronize()

    def flush(self) -> None:
        """See `DeviceBackend.flush`: after persisting lines have lost that right."""
        _checked(self._driver.cuCtxResetPersistingL2Cache())
        if self._cold is None:
            self._cold = ColdCache()
        self._cold.empty()

    def leave_room(self) -> None:
        """See `DeviceBackend.leave_room`: `ROOM_BYTES` of what is free are left, or an eighth of a small GPU's memory."""
        free, total = torch.cuda.mem_get_info()
        room = min(ROOM_BYTES, total // 8)
        torch.cuda.set_per_process_memory_fraction(min(1.0, max(0.0, (free - room) / total)))

    def empty_cache(self) -> None:
        """See `DeviceBackend.empty_cache`."""
        torch.cuda.empty_cache()

    def warm_up(self) -> None:
        """See `DeviceBackend.warm_up`: kernels of copies and fills, cuBLAS, the event pool."""
        x = torch.ones(64, 64, device="cuda")
        y = torch.empty_like(x)
        y.copy_(x @ x)
        y.view(-1).view(torch.uint8)[:64].copy_(x.view(-1).view(torch.uint8)[:64])
        first, last = self.mark(), self.mark()
        self.synchronize()
        self.elapsed_ms(first, last)
        self._join_ms = max(self._joined_ms() for _ in range(JOINS))

    def _joined_ms(self) -> float:
        """What a join takes between two marks on a device that has nothing else to do."""
        first = self.mark()
        self.join()
        last = self.mark()
        self.synchronize()
        return self.elapsed_ms(first, last)

    def _joining_event(self) -> tuple[Any, Any] | None:
        """This context and an event that may record all of it; None where the driver knows no such thing."""
        d = self._driver
        version = int(_checked(d.cuDriverGetVersion()))
        if version < JOINS_SINCE or not hasattr(d, "cuCtxRecordEvent"):
            _log.warning(
                "driver %d and its bindings cannot wait for a whole context: the clock alone bounds it", version
            )
            return None
        return _checked(d.cuCtxGetCurrent()), _checked(d.cuEventCreate(_NO_TIMING))

    def _kind_of_memory(self) -> tuple[Any, int]:
        """What memory is made that can be shared, and the unit of its size in bytes."""
        d = self._driver
        place = d.CUmemAllocationProp()
        place.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        place.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        place.location.id = 0
        place.requestedHandleTypes = d.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        grain = d.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        return place, int(_checked(d.cuMemGetAllocationGranularity(place, grain)))

    def _imported(self, fd: int) -> Any:
        kind = self._driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        return _checked(self._driver.cuMemImportFromShareableHandle(fd, kind))

    def map(self, handle: Any, size: int) -> _Mapping:
        """Map memory of a size in whole units, at a place of its own with nothing before or behind it, see `GAP_UNITS`."""
        d = self._driver
        _, unit = self._kind_of_memory()
        front = unit * (1 + secrets.randbelow(GAP_UNITS))
        reserved = front + size + unit
        base = int(_checked(d.cuMemAddressReserve(reserved, 0, 0, 0)))
        address = base + front
        _checked(d.cuMemMap(address, size, 0, handle, 0))
        access = d.CUmemAccessDesc()
        access.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = 0
        access.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        _checked(d.cuMemSetAccess(address, size, [access], 1))
        return _Mapping(address, size, base, reserved)

    def unmap(self, mapping: _Mapping) -> None:
        """Undo `map`. No work on the device may use it any more."""
        _checked(self._driver.cuMemUnmap(mapping.address, mapping.size))
        _checked(self._driver.cuMemAddressFree(mapping.base, mapping.reserved))


# Bound before any candidate runs: what a candidate assigns to torch's classes afterwards does not reach them.
# A torch without CUDA has none of them, and makes no `CudaBackend`.
_stream: Any = torch.cuda.Stream
_record: Any = getattr(torch._C._CudaEventBase, "record", None)
_elapsed: Any = getattr(torch._C._CudaEventBase, "elapsed_time", None)
_synchronize: Any = getattr(torch._C, "_cuda_synchronize", None)


class _Interface:
    """What `torch.as_tensor` needs to see bytes at an address."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


def _bytes_at(address: int, size: int) -> torch.Tensor:
    return torch.as_tensor(_Interface(address, size), device="cuda")


def _checked(result: tuple[Any, ...]) -> Any:
    """The value of a driver call. Raises: EvaluatorError with the driver's error name."""
    error, *values = result
    if int(error) != 0:
        raise EvaluatorError(f"the CUDA driver refused a call of the evaluator: {error.name} ({int(error)})")
    return values[0] if len(values) == 1 else tuple(values)
