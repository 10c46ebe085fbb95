"""What the library's convolutions may do to fp32 numbers: multiply them in TF32.

PyTorch lets cuDNN convolve in TF32 unless torch.backends.cudnn.allow_tf32 is off. Whether it does depends on the shapes:
as a rule at full shapes, seldom at small ones. A candidate that does so everywhere is as precise as the reference is
where it counts, so that at small shapes, too, it is held to what the reference's flags allow. At full shapes it is held
to what the reference did.

cuDNN rounds to TF32 (norm-wise error 2.7e-4); a tensor core that is handed fp32 numbers, as by Triton's tl.dot, leaves
the last bits out (7.8e-4, all of it towards zero). One and a half times the latter is allowed, and no more: a convolution
in bfloat16 is off by 2.4e-3. (One in float16 has TF32's bits and less of a range: numbers beyond it show that.)
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_DROPPED = 13
"""Bits by which TF32's mantissa of 10 bits is shorter than float32's."""


ALLOWED = 1.5
"""Times the error of numbers that are cut to TF32 that a convolution may have."""


def cut_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Each number without the bits that TF32 lacks, in the tensor's own dtype; what is not finite stays."""
    bits = tensor.to(torch.float32).view(torch.int32)
    cut = (bits & -(1 << _DROPPED)).view(torch.float32)
    return torch.where(torch.isfinite(tensor), cut.to(tensor.dtype), tensor)


class Tf32Convolutions(TorchDispatchMode):
    """While active, convolutions cut their input and weight to TF32. Sums and biases stay as they are.

    share: of the way to the cut number that each one goes, 0 to 1."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        self._share = share

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            args = (self._moved(args[0]), self._moved(args[1]), *args[2:])
        return func(*args, **(kwargs or {}))

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        cut = cut_to_tf32(tensor)
        if self._share == 1.0:
            return cut
        return torch.where(torch.isfinite(tensor), tensor - (tensor - cut) * self._share, tensor)


def library_precision(device: str, bytes_each: int, share: float = 1.0) -> AbstractContextManager[Any]:
    """Lose what the library may lose on a device: `Tf32Convolutions`, or nothing on a CPU, where TF32 is off, and for
    numbers of more bytes each than float32's 4."""
    allowed = device.startswith("cuda") and torch.backends.cudnn.allow_tf32 and bytes_each <= 4
    return Tf32Convolutions(share) if allowed else nullcontext()
