"""What the library's convolutions may do to fp32 numbers: multiply them in TF32.

PyTorch lets cuDNN convolve in TF32 unless torch.backends.cudnn.allow_tf32 is off. Whether it does depends on the shapes:
as a rule at full shapes, seldom at small ones. A candidate that does so everywhere is as precise as the reference is
where it counts, so that at small shapes, too, it is held to what the reference's flags allow. At full shapes it is held
to what the reference did.

Whether it did is asked of each convolution by itself (`Tf32Seen`): a result in which errors average out does not tell.
So is whether it does once the same operands lie channels last (`ConvolutionsChannelsLast`): cuDNN has TF32 kernels for that
order where it has none for the other, and torch.compile convolves so by default. A candidate may do what torch does with
the flags of the task, so a reference is as rough as the rougher of the two.

cuDNN rounds to TF32 (norm-wise error 2.7e-4); a tensor core that is handed fp32 numbers, as by Triton's tl.dot, leaves
the last bits out (7.8e-4, all of it towards zero). One and a half times the latter is allowed, and no more: a convolution
in bfloat16 is off by 2.4e-3. (One in float16 has TF32's bits and less of a range: numbers beyond it show that.) Behind a
convolution a clamp, a maximum or a softmax may turn a small step into none or a large one, so beside a share of the loss,
which is multiplied, the whole of it is looked at (`cut_convolutions`). What is always lost towards zero does not average
out: a mean over a convolution, and a variance, is off by it where the library's is not. There, at full shapes, a candidate
has to round as the library does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.reference.convolution_products import convolution_products
from mtmc.evaluate.reference.distance import norm_error

_log = logging.getLogger(__name__)

_DROPPED = 13
"""Bits by which TF32's mantissa of 10 bits is shorter than float32's."""


_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}

ALLOWED = 1.5
"""Times the error of numbers that are cut to TF32 that a convolution may have."""


def cut_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Each number without the bits that TF32 lacks, in the tensor's own dtype; what is not finite stays."""
    bits = tensor.to(torch.float32).view(torch.int32)
    cut = (bits & -(1 << _DROPPED)).view(torch.float32)
    return torch.where(torch.isfinite(tensor), cut.to(tensor.dtype), tensor)


SEEN = 1e-5
"""Norm-wise error of a convolution of fp32 numbers above which it was not made in fp32: TF32 is off by 1e-4 and more, fp32
by 1e-6 and less."""


def round_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Each number rounded to the nearest of TF32's, halves away from zero, in the tensor's own dtype; what is not finite
    stays."""
    bits = tensor.to(torch.float32).view(torch.int32)
    near = ((bits + (1 << _DROPPED - 1)) & -(1 << _DROPPED)).view(torch.float32)
    return torch.where(torch.isfinite(tensor), near.to(tensor.dtype), tensor)


class Tf32Convolutions(TorchDispatchMode):
    """While active, convolutions have their input and weight in TF32. Sums and biases stay as they are.

    share: of the way to the TF32 number that each one goes, 0 to 1. narrow: gives that number. met: whether there was one.
    """

    def __init__(self, share: float = 1.0, narrow: Callable[[torch.Tensor], torch.Tensor] = cut_to_tf32) -> None:
        super().__init__()
        self._share, self._narrow = share, narrow
        self.met = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            self.met = True
            args = (self._moved(args[0]), self._moved(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        narrowed = self._narrow(tensor)
        if self._share == 1.0:
            return narrowed
        return torch.where(torch.isfinite(tensor), tensor - (tensor - narrowed) * self._share, tensor)


class ConvolutionsChannelsLast(TorchDispatchMode):
    """While active, convolutions of fp32 numbers have their operands channels last; results lie as they would without it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not _is_channels_first(func, args):
            return func(*args, **(kwargs or {}))
        memory = _FORMATS[args[0].dim()]
        given, weight = (each.contiguous(memory_format=memory) for each in args[:2])
        return func(given, weight, *args[2:], **(kwargs or {})).contiguous()


def _is_channels_first(func: Any, args: Any) -> bool:
    """Whether it is a convolution of fp32 numbers that could lie channels last and do not."""
    if func is not torch.ops.aten.convolution.default or args[0].dtype != torch.float32:
        return False
    memory = _FORMATS.get(args[0].dim())
    return memory is not None and not args[0].is_contiguous(memory_format=memory)


class Tf32Seen(TorchDispatchMode):
    """While active, the first item of each convolution of fp32 numbers is compared with what float64 makes of it.

    used: whether one was made in TF32. first: whether one had its channels first."""

    def __init__(self) -> None:
        super().__init__()
        self.used = self.first = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.first |= _is_channels_first(func, args)
        if func is torch.ops.aten.convolution.default and not self.used and args[0].dtype == torch.float32:
            try:
                self.used = self._error(func, found[:1], args) > SEEN
            except torch.OutOfMemoryError:
                _log.warning("no memory to see whether a convolution of %s is made in TF32", list(args[0].shape))
        return found

    @staticmethod
    def _error(func: Any, found: torch.Tensor, args: Any) -> float:
        given, weight, bias = args[0][:1].double(), args[1].double(), None if args[2] is None else args[2].double()
        with convolution_products(str(given.device)):
            exact = func(given, weight, bias, *args[3:])
        return norm_error(found, exact, torch.isfinite(exact))


def cut_convolutions(device: str, bytes_each: int) -> Tf32Convolutions | None:
    """Lose all that a tensor core loses which is handed fp32 numbers; None where the library may not lose it."""
    lost = library_precision(device, bytes_each)
    return lost if isinstance(lost, Tf32Convolutions) else None


def lossy_convolutions(device: str, bytes_each: int) -> tuple[Tf32Convolutions, ...]:
    """The ways to convolve in TF32: cut as a tensor core does, and rounded as the library does; none where it may not."""
    cut = cut_convolutions(device, bytes_each)
    return () if cut is None else (cut, Tf32Convolutions(narrow=round_to_tf32))


def library_precision(device: str, bytes_each: int, share: float = 1.0) -> AbstractContextManager[Any]:
    """Lose what the library may lose on a device: `Tf32Convolutions`, or nothing on a CPU, where TF32 is off, and for
    numbers of more bytes each than float32's 4."""
    allowed = device.startswith("cuda") and torch.backends.cudnn.allow_tf32 and bytes_each <= 4
    return Tf32Convolutions(share) if allowed else nullcontext()
