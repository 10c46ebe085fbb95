"""The reference in float64: itself, and with inputs and weights each off by a rounding of their own dtype.

Where float64 does not fit, float32 does as well for numbers of 16 bits (see `calibrating`): the dtype is a parameter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.task.quantized import is_fp8

OTHER_FUNCTION = 0.05
"""Norm-wise difference of the reference from its fp64 reference that rounding does not make in a stable function."""


def same_function(own_error: float, rounding_error: float) -> bool:
    """Whether float64 gave the same function's value, and not one of other random draws (torch draws other numbers in
    float64): then it is far off without being sensitive to the rounding of its inputs.

    own_error, rounding_error: norm-wise, of the reference and of the rounded fp64 reference beside the other one.
    """
    return own_error < OTHER_FUNCTION or rounding_error > OTHER_FUNCTION


def widen(tensor: torch.Tensor, wide: torch.dtype = torch.float64) -> torch.Tensor:
    """A copy, in the wide dtype where the tensor is floating. fp8 stays: it is what values are stored in, and nothing
    computes in it, so that a cast out of it comes first (and gives the wide dtype, see `_WideCasts`)."""
    wider = tensor.is_floating_point() and not is_fp8(tensor.dtype)
    return tensor.to(wide, copy=True) if wider else tensor.clone()


def widen_model(model: Any, wide: torch.dtype = torch.float64) -> None:
    """Put parameters, buffers, and the plain tensors that modules keep as attributes into the wide dtype."""
    model.to(wide)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                setattr(module, name, widen(value, wide))


def round_parameters(model: Any, seed: int) -> None:
    """Move each floating parameter by up to half a unit in its last place; it is in float64 then."""
    generators: dict[torch.device, torch.Generator] = {}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                device = parameter.device
                generator = generators.setdefault(device, torch.Generator(device).manual_seed(seed))
                parameter.data = round_randomly(parameter.data, generator)


def round_randomly(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """float64 values up to half a unit in the last place of the tensor's dtype away from it; takes no more memory.

    Integers and fp8 stay as they are: a quantized value is what it is, and no rounding of another one."""
    if not tensor.is_floating_point() or is_fp8(tensor.dtype):
        return tensor
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64, device=generator.device)
    return noise.sub_(0.5).mul_(torch.finfo(tensor.dtype).eps).add_(1.0).mul_(tensor)


class Recasting:
    """What `computing_in` has put into the wide dtype of one function, which was narrower: what computed it once without a
    cast, an op of 8 bits or a grouped attention has none the next time either, and need not be watched again: watching takes
    several times as long as a small op. watched: whether it is; None: not yet seen through."""

    def __init__(self) -> None:
        self.watched: bool | None = None


@contextlib.contextmanager
def computing_in(wide: torch.dtype, seen: Recasting | None = None) -> Iterator[None]:
    """While open, torch makes floating tensors in this dtype, casts to narrower ones give it too, and convolutions keep all
    of its bits. seen: of the function that is computed, if it is computed again."""
    before, tf32 = torch.get_default_dtype(), torch.backends.cudnn.allow_tf32
    torch.set_default_dtype(wide)
    torch.backends.cudnn.allow_tf32 = False
    try:
        if seen is not None and seen.watched is False:
            yield
            return
        with _RepeatedHeads() as heads, _WideCasts(wide) as casts:
            yield
        if seen is not None:
            seen.watched = bool(seen.watched) or heads.met or casts.met
    finally:
        torch.set_default_dtype(before)
        torch.backends.cudnn.allow_tf32 = tf32


class _WideCasts(TorchDispatchMode):
    """A cast to a narrower floating dtype, and a tensor made in one, are in the wide dtype: such a cast only rounds, and
    what is asked for is the result without roundings. (Norms and softmaxes of models in bfloat16 go through float32.)"""

    def __init__(self, wide: torch.dtype) -> None:
        super().__init__()
        self.met = False
        self._wide = wide
        self._narrower = {torch.bfloat16, torch.float16, torch.float32, torch.float64} - {wide, torch.float64}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if named.get("dtype") in self._narrower:
            self.met = True
            named["dtype"] = self._wide
        if func is torch.ops.aten._scaled_mm.default:
            self.met = True
            return self._scaled(func, args, named)
        if func is torch.ops.aten._grouped_mm.default:
            self.met = True
            given = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | named
            if given.get("bias") is None:
                return _by_groups(given["self"], given["mat2"], given.get("offs"))
        return func(*args, **named)

    def _scaled(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """A scaled product of 8-bit numbers, whose scales and bias the library takes in fp32 and 16 bits alone."""
        given = dict(zip((each.name for each in func._schema.arguments), args, strict=False)) | named
        scales = [given["scale_a"], given["scale_b"]]
        whole = all(scale.numel() == 1 or 1 in scale.shape[-2:] for scale in scales)
        if given.get("scale_result") is not None or not whole or is_fp8(given.get("out_dtype") or self._wide):
            return func(*args, **named)
        found = given["self"].to(self._wide) @ given["mat2"].to(self._wide) * scales[0] * scales[1]
        return found if given.get("bias") is None else found + given["bias"]


def _by_groups(left: torch.Tensor, right: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
    """Grouped products one by one: the library has none in float64. What lies behind the last group is 0."""
    if offsets is None:
        return left @ right
    ends = offsets.tolist()
    parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    if left.dim() == right.dim() == 2:
        return torch.stack([left[:, part] @ right[part] for part in parts])
    shape = (left.shape[-2], right.shape[-1])
    found = left.new_zeros(shape)
    for number, part in enumerate(parts):
        if left.dim() == 2:
            found[part] = left[part] @ right[number]
        else:
            found[:, part] = left[number] @ right[:, part]
    return found


class _RepeatedHeads(TorchFunctionMode):
    """Attention of grouped queries as that of repeated keys and values, which it is by its definition: for wide dtypes
    only the latter has a kernel that does not hold all scores at once."""

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func is torch.nn.functional.scaled_dot_product_attention and named.pop("enable_gqa", False):
            self.met = True
            named = (
                dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | named
            )
            args = ()
            for name in ("key", "value"):
                groups = named["query"].shape[-3] // named[name].shape[-3]
                named[name] = named[name].repeat_interleave(groups, dim=-3)
        return func(*args, **named)
