"""A task's reference, run at one set of shapes, on the CPU or on the meta device (shapes only, no data), and weighed.

This executes the user's own file in this process, which is a child of the user's where a file is loaded
(`mtmc.task.child`). Candidates, which others wrote, never come here: they run in the evaluator's worker processes. Imports
torch.
"""

from __future__ import annotations

import math
import sys
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from mtmc.errors import TaskError
from mtmc.task.base import Variant
from mtmc.task.bundling import place
from mtmc.task.mold import Weights, weights_of
from mtmc.task.quantized import readable
from mtmc.task.seeding import seed_torch
from mtmc.task.statements import compiled
from mtmc.task.tensors import flat_tensors

_MODULE = "mtmc_reference"
_BATCH_NORM = torch.ops.aten.native_batch_norm.default
_MOST_ELEMENTS = 2**27
"""Of a tensor that is made only to learn its shape."""


@dataclass(frozen=True)
class Limits:
    """What a run may take. elements: of any one tensor. macs: multiply-adds of all products. ops: ATen calls."""

    elements: int
    macs: int
    ops: int


UNLIMITED = Limits(sys.maxsize, sys.maxsize, sys.maxsize)


@dataclass(frozen=True)
class Footprint:
    """What one construction and one forward took, and what came out.

    elements: of the largest tensor made. macs: multiply-adds of matrix products and convolutions. ops: ATen calls.
    activations: elements of the largest tensor that the forward makes. calls: of torch's functions in the forward, which
    are as many at all shapes where forward takes the same way through them. shapes: of the inputs, the parameters and
    buffers, and the outputs. finite: no output holds a NaN. constant: every output is one value throughout, so that a
    kernel could be right by luck. (The meta device holds no values, so there finite is True and constant is False.)
    """

    elements: int
    macs: int
    ops: int
    activations: int
    calls: int
    shapes: tuple[tuple[int, ...], ...]
    finite: bool = True
    constant: bool = False


class TooLargeError(Exception):
    """A run that was stopped because it went over its limits."""


class Meter(TorchDispatchMode):
    """Counts what the ATen calls under it take, and stops at the first that goes over the limits."""

    def __init__(self, limits: Limits = UNLIMITED) -> None:
        super().__init__()
        self.limits = limits
        self.elements = 0
        self.largest = 0
        """Elements of the largest tensor made that is no view of another, since this was last set to 0."""
        self.macs = 0
        self.ops = 0
        self.effort = 0.0
        """Work done so far, in units of about 0.1 ms of one CPU core; the same on every machine."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], list | tuple) and args[0] and all(type(size) is int for size in args[0]):
            self._count_elements(math.prod(args[0]))  # A factory's size, before it takes the memory.
        out = _normalized(*args) if func is _BATCH_NORM and args[0].is_meta else func(*args, **kwargs)
        tensors = flat_tensors(out)
        packet = getattr(func, "overloadpacket", None)
        macs = flop_registry[packet](*args, **kwargs, out_val=out) // 2 if packet in flop_registry else 0
        elements = sum(tensor.numel() for tensor in tensors)
        has_data = not any(tensor.is_meta for tensor in tensors)
        self.ops += 1
        self.macs += macs
        self.effort += 1 + (macs / 1e6 + elements / 1e5 if has_data else 0)
        for tensor in tensors:
            self._count_elements(tensor.numel())
            self.largest = self.largest if getattr(func, "is_view", False) else max(self.largest, tensor.numel())
        if self.macs > self.limits.macs or self.ops > self.limits.ops:
            raise TooLargeError(f"{self.macs} multiply-adds in {self.ops} ATen calls")
        return out

    def hold(self, weights: Weights | None) -> None:
        """Count weights that are there already as if they were made. Raises: TooLargeError."""
        if weights is not None:
            self._count_elements(weights.largest)

    def _count_elements(self, elements: int) -> None:
        self.elements = max(self.elements, elements)
        if elements > self.limits.elements:
            raise TooLargeError(f"a tensor of {elements} elements")


def _normalized(x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    """What a batch norm gives for a tensor without data: torch finds that out operation by operation, which took two thirds
    of the time of a ResNet-101's trials."""
    kept = torch.promote_types(x.dtype, torch.float32)
    statistics = (x.new_empty(x.shape[1], dtype=kept) for _ in range(2))
    return torch.empty_like(x), *statistics


def namespace(source: str, variant: Variant, name: str) -> dict[str, Any]:
    """The names that a task's file defines, executed with the constants of `variant`; tracebacks call it `<task NAME>`.

    Raises: whatever the file raises.
    """
    module = types.ModuleType(_MODULE)
    statements = compiled(source, variant.constants, _filename(name))
    previous = sys.modules.get(_MODULE)
    sys.modules[_MODULE] = module  # Dataclasses and typing look their module up by name.
    try:
        for code in statements:
            exec(code, module.__dict__)
    finally:
        if previous is None:
            del sys.modules[_MODULE]
        else:
            sys.modules[_MODULE] = previous
    return module.__dict__


def instantiate(
    source: str, variant: Variant, name: str, state: Weights | None = None, seed: int = 0
) -> tuple[torch.nn.Module, list[Any]]:
    """The reference module and its inputs at one set of shapes, on the default device, drawn from `seed`.

    state: what the module holds instead of what its constructor would draw, see `held`.
    The caller's random state is left as it was. Raises: whatever the file raises.
    """
    with torch.random.fork_rng(devices=[]):
        seed_torch(seed)
        names = namespace(source, variant, name)
        if state is not None:
            return state.module(names["Model"], torch.get_default_device().type != "meta"), list(
                names[variant.inputs]()
            )
        model = names["Model"](*names[variant.init_inputs]())
        return model, list(names[variant.inputs]())


def held(source: str, variant: Variant, name: str, tensors: Mapping[str, torch.Tensor]) -> Weights:
    """A live module's tensors, for the printed module. Raises: TaskError if they are not its own."""
    names = namespace(source, variant, name)
    return weights_of(lambda: names["Model"](*names[variant.init_inputs]()), tensors, name)


def weigh(
    source: str,
    variant: Variant,
    name: str,
    *,
    state: Weights | None = None,
    device: str = "cpu",
    meter: Meter | None = None,
    seed: int = 0,
) -> Footprint:
    """Construct the reference and run it once at `variant`, and say what that took.

    state: see `instantiate` (on the CPU). device: "cpu", or "meta" where no data is held, so that no size is too
    large. meter: counts, and holds the limits.
    Raises: TaskError if the reference fails, with the reason and its line; TooLargeError if it goes over the limits.
    """
    meter = meter or Meter()
    try:
        with trial_conditions(), torch.device(device), torch.no_grad(), meter:
            meter.hold(state)
            if device == "meta":
                model, inputs = _without_data(source, variant, name, state, seed)
            else:
                model, inputs = instantiate(source, variant, name, state, seed)
            with torch.random.fork_rng(devices=[]):
                seed_torch(seed)
                meter.largest = 0
                with _Calls() as calls:
                    outputs = flat_tensors(model(*inputs))
        floating = [out for out in outputs if out.is_floating_point()]
        finite = device == "meta" or not any(bool(torch.isnan(readable(out)).any()) for out in floating)
        constant = device != "meta" and _constant(outputs)
    except TooLargeError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(
            f"task {name} at its {variant.label} shapes: {describe_failure(error, name, source)}"
        ) from error
    tensors = (*flat_tensors(inputs), *model.parameters(), *model.buffers(), *outputs)
    shapes = tuple(tuple(tensor.shape) for tensor in tensors)
    return Footprint(meter.elements, meter.macs, meter.ops, meter.largest, calls.count, shapes, finite, constant)


def own_error(source: str, variant: Variant, name: str, seed: int = 0) -> float:
    """How far the reference is from itself in float64, norm-wise, the worst output; 0 where it does not run in float64.

    Raises: whatever the file raises.
    """
    with trial_conditions(), torch.no_grad():
        model, inputs = instantiate(source, variant, name, seed=seed)
        outputs = flat_tensors(model(*inputs))
        wide = [
            item.double() if isinstance(item, torch.Tensor) and item.is_floating_point() else item for item in inputs
        ]
        try:
            exact = flat_tensors(model.double()(*wide))
        except Exception:  # whatever a forward raises that insists on its own dtype
            return 0.0
    pairs = [(a.double(), b.double()) for a, b in zip(outputs, exact, strict=True) if a.is_floating_point()]
    return max((float((a - b).norm() / b.norm().clamp(min=1e-30)) for a, b in pairs), default=0.0)


class _Calls(TorchFunctionMode):
    """Counts the calls of torch's functions and of tensors' methods."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += getattr(func, "__name__", "") != "__get__"
        return func(*args, **(kwargs or {}))


def _without_data(
    source: str, variant: Variant, name: str, state: Weights | None, seed: int
) -> tuple[torch.nn.Module, list[Any]]:
    """The reference module and its inputs on the meta device; one whose constructor reads values is made on the CPU first.

    Raises: TooLargeError where that would take too much memory; whatever the file raises.
    """
    try:
        return instantiate(source, variant, name, state, seed)
    except (RuntimeError, NotImplementedError) as error:
        if "meta" not in str(error):
            raise
    with torch.device("cpu"), Meter(Limits(_MOST_ELEMENTS, sys.maxsize, sys.maxsize)):
        model, inputs = instantiate(source, variant, name, state, seed)
    return model.to("meta"), [item.to("meta") if isinstance(item, torch.Tensor) else item for item in inputs]


def describe_failure(error: BaseException, name: str, source: str) -> str:
    """One line on an exception of a task's file: the line of the file it came from, its type and its first line."""
    line = line_of(error, name)
    where = f"{place(source, line)}: " if line is not None else ""
    return f"{where}{type(error).__name__}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """The first line of what an exception says."""
    try:
        text = str(error).strip().splitlines()
    except Exception:  # a user's own class may fail there too
        text = []
    return text[0] if text else "no message"


def line_of(error: BaseException, name: str) -> int | None:
    """The innermost line of a task's file that an exception came from, None where it came from no line of it."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _filename(name):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _filename(name: str) -> str:
    return f"<task {name}>"


def _constant(outputs: Sequence[torch.Tensor]) -> bool:
    """Whether each output with more than one element is one value, to rounding."""
    several = [out.double() for out in outputs if out.numel() > 1 and not out.is_complex()]
    return bool(several) and all(float(out.max() - out.min()) <= 1e-6 * float(out.abs().max()) for out in several)


@contextmanager
def trial_conditions() -> Iterator[None]:
    """One thread and no warnings: trials are tiny, and most of the shapes tried are not going to be used."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
