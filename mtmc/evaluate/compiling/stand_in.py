"""torch.cuda in a worker without a GPU: the host calls of an honest forward, made to do nothing.

Fake tensors say that they are on a GPU wherever this torch can have it so (a CUDA build; a CPU build has no fake CUDA
tensors that can be indexed). Streams, events and graphs then order nothing: the body of a captured graph runs once, where
it is captured, and a replay runs nothing. What would time something says that there is nothing to time.
Runs in build workers only, and changes torch in that process for good.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from mtmc.task import recurrent

DEVICE = "cuda:0"
_DO_NOTHING = ("set_device", "set_stream", "init", "empty_cache", "reset_peak_memory_stats")
_OF_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
_RECURRENT = (*recurrent.NAMES, *(f"{name}_cell" for name in recurrent.NAMES))

OF_C: dict[str, Callable[[], None]] = {"_cuda_clearCublasWorkspaces": lambda: None}
"""What stands for names of `torch._C`, which a build for the CPU does not have."""


def install() -> str:
    """Make `torch.cuda` harmless in this process. Returns: the device for fake tensors, "cuda:0" or "cpu". Idempotent."""
    import torch

    swap_fake_parameters()
    device = DEVICE if _has_fake_cuda() else "cpu"
    for name, value in replacements(device == DEVICE).items():
        setattr(torch.cuda, name, value)
    for name, value in OF_C.items():
        setattr(torch._C, name, value)
    if device == DEVICE:
        torch.nn.RNNBase.flatten_parameters = lambda self: None  # type: ignore[method-assign]
        for name in _RECURRENT:
            setattr(torch._VF, name, _on_the_cpu(getattr(torch._VF, name)))
            packet = getattr(torch.ops.aten, name)  # what a version calls where its reference has a module
            for overload in packet.overloads():
                setattr(packet, overload, _on_the_cpu(getattr(packet, overload)))
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda self, stream: None
    tensor.pin_memory = lambda self, device=None: self
    return device


def quicken() -> None:
    """Leave out of forwards on fake tensors what costs time and changes nothing there: drawing numbers, seeding devices, the
    steps of recurrent layers."""
    import torch

    def same(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self

    swap_fake_parameters()
    for name in ("uniform_", "normal_"):
        setattr(torch.Tensor, name, same)
    for device in (torch.cuda, torch.xpu, torch.mtia):
        for name in ("manual_seed", "manual_seed_all"):
            setattr(device, name, lambda seed: None)
    for name in recurrent.NAMES:
        setattr(torch._VF, name, recurrent.QuickCall(name, getattr(torch._VF, name)))
        overload = getattr(torch.ops.aten, name).input  # what a version calls; torch looks it up in tables of its own
        overload._op = recurrent.QuickCall(name, overload._op)


def _has_fake_cuda() -> bool:
    """Whether fake tensors of this torch can be on a GPU that is not there."""
    import torch
    import torch._subclasses.fake_tensor

    fake_tensor: Any = torch._subclasses.fake_tensor
    # Where torch.cuda.is_available() says yes, as it will, torch would make a CUDA context for a fake tensor.
    fake_tensor.FakeTensorMode.avoid_device_init = True
    fake_tensor.init_gpu_context = lambda device: None
    try:
        with fake_tensor.FakeTensorMode(), torch.no_grad():
            return bool(torch.zeros(2, 3).to("cuda").t().contiguous()[1:].is_cuda)
    except (RuntimeError, AssertionError):
        return False


def swap_fake_parameters() -> None:
    """Let `Module.to` move fake parameters: torch swaps them, and gives up where anything refers to one weakly."""
    import torch

    utils: Any = torch.utils
    utils.weakref = SimpleNamespace(getweakrefs=lambda tensor: ())


def _on_the_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of fake tensors by way of the CPU: on a GPU it asks cuDNN, or a kernel that torch has no shapes for."""
    from mtmc.task.tensors import map_tensors

    def there_and_back(*args: Any) -> Any:
        result = function(*map_tensors(args, lambda tensor: tensor.to("cpu")))
        return map_tensors(result, lambda tensor: tensor.to(DEVICE))

    return there_and_back


class Stream:
    """Stands for `torch.cuda.Stream`: work on it is work like any other."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        import torch

        self.device = torch.device(DEVICE)
        self.priority = priority
        self.cuda_stream = self.stream_id = self.device_index = 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """All work is done."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """The event, or a new one."""
        return event if event is not None else Event()


class Event:
    """Stands for `torch.cuda.Event`; measures no time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.cuda_event = 0

    def record(self, stream: Any = None) -> None:
        """Nothing to record."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """All work is done."""
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """Raises: RuntimeError, since a launch that hangs on a time cannot be built ahead of it."""
        raise RuntimeError(
            "there is no device to time on where a version is built: a forward must not choose by its own timing "
            "(triton.autotune may)"
        )


on_capture: list[Callable[[], None]] = []
"""Called where a capture begins: what has run before was a rehearsal, and what follows is what a replay launches."""


def _begin_capture() -> None:
    for hear in on_capture:
        hear()


class CUDAGraph:
    """Stands for `torch.cuda.CUDAGraph`: its body runs while it is captured."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """What follows runs as usual."""
        _begin_capture()

    def capture_end(self) -> None:
        """Nothing was captured."""

    def instantiate(self) -> None:
        """Nothing to make."""

    def replay(self) -> None:
        """The launches were made during capture."""

    def reset(self) -> None:
        """Nothing to free."""

    def pool(self) -> tuple[int, int]:
        """An id that is no pool."""
        return (0, 0)


class _Nothing(contextlib.ContextDecorator):
    """A context manager that takes anything and does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class _Capture(_Nothing):
    """Stands for `torch.cuda.graph`."""

    def __enter__(self) -> None:
        _begin_capture()


def _answering(answer: Any) -> Callable[..., Any]:
    """A function of its own that takes anything and gives this."""
    return lambda *args, **kwargs: answer


def _doing_nothing(name: str) -> type:
    """A class of its own that stands for a context manager of that name."""
    return type(name, (_Nothing,), {})


def replacements(available: bool) -> dict[str, Any]:
    """What stands for the names of `torch.cuda`: an object of its own for each, since torch keeps rules by object and
    refuses one that has two of them. available: whether it says that there is a GPU."""
    import torch

    stream = Stream()

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return bool(torch.cuda.get_device_capability()[0] >= 8)

    def make_graphed_callables(callables: Any, *args: Any, **kwargs: Any) -> Any:
        return callables

    found: dict[str, Any] = {
        "Stream": Stream,
        "ExternalStream": type("ExternalStream", (Stream,), {}),
        "Event": Event,
        "CUDAGraph": CUDAGraph,
        "make_graphed_callables": make_graphed_callables,
        "is_bf16_supported": is_bf16_supported,
        "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 1,
        "nvtx": SimpleNamespace(
            range=_doing_nothing("range"), **{name: _answering(None) for name in ("range_push", "range_pop", "mark")}
        ),
        **{name: _answering(stream) for name in ("current_stream", "default_stream")},
        **{name: _doing_nothing(name) for name in ("device", "device_of", "stream", "StreamContext")},
        "graph": _Capture,
        **{name: _answering(None) for name in _DO_NOTHING},
        **{name: _answering(0) for name in _OF_MEMORY},
    }
    if available:
        found["is_available"] = lambda: True
    return found
