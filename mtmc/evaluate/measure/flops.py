"""The flops of a forward's products, by torch's counter, and what they take at least: by the numbers that are multiplied.

torch's own formulas refuse attention with fewer heads of keys than of queries (grouped-query attention).

How fast products can be is a matter of each one's factors, not of the task's inputs: fp32 inputs may be multiplied in bf16,
and bf16 ones be widened first. So the numbers themselves are looked at, as far as a sample tells: factors that 16 or 8 bits
hold exactly may be multiplied in these, whatever their dtype is. A matrix times its own transpose, or a symmetric one
squared, is symmetric, and half of it has to be computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtmc.hardware import Hardware, tensor_rate

if TYPE_CHECKING:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

_FORWARD = (
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
    *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu"),
)
_BACKWARD = tuple(f"{name}_backward" for name in _FORWARD)


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any) -> int:
    """Of scores and their product with the values: 2 B H M N (D + E).

    query: [B, H, M, D]; key: [B, any number of heads, N, D]; value: [B, as many, N, E].
    """
    batch, heads, rows, depth = query
    return 2 * batch * heads * rows * key[2] * (depth + value[3])


def attention_backward_flops(
    grad_out: Sequence[int], query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any
) -> int:
    """Of the scores again, their gradient, and those of query, key and value: 2 B H M N (3 D + 2 E)."""
    batch, heads, rows, depth = query
    return 2 * batch * heads * rows * key[2] * (3 * depth + 2 * value[3])


@dataclass(frozen=True)
class Product:
    """Flops that products of one kind take at least. dtype, precision: of the fastest unit that keeps what their factors
    hold, as `tensor_rate` takes them."""

    dtype: str
    precision: str | None
    flops: int

    def least_ms(self, gpu: Hardware) -> float:
        """At the peak of a GPU's unit."""
        rate, products = tensor_rate(self.dtype, self.precision, gpu)
        return self.flops * products / (rate * 1e9)


class CountedProducts:
    """Counts the products of the forwards that run while it is open. products: each with its least flops.

    flops: of all, as torch counts them, each product in full."""

    def __init__(self) -> None:
        self.flops = 0
        self.products: list[Product] = []
        self._counter: FlopCounterMode | None = None

    def __enter__(self) -> CountedProducts:
        import torch
        from torch.utils.flop_counter import FlopCounterMode, flop_registry, shape_wrapper

        formulas: dict[Any, Callable[..., int]] = dict(flop_registry)
        for names, formula in ((_FORWARD, attention_flops), (_BACKWARD, attention_backward_flops)):
            ops = [getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)]
            formulas |= dict.fromkeys(ops, shape_wrapper(formula))
        noted = {op: self._noting(str(op), formula) for op, formula in formulas.items()}
        self._counter = FlopCounterMode(display=False, custom_mapping=noted)
        self._counter.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._counter is not None:
            self._counter.__exit__(*raised)

    def _noting(self, op: str, formula: Callable[..., int]) -> Callable[..., int]:
        """A formula that notes the product as well. torch hands it the tensors, and not their shapes, by `_get_raw`."""
        name = op.rpartition(".")[2]

        def note(*args: Any, **kwargs: Any) -> int:
            flops = int(formula(*args, **kwargs))
            self.flops += flops
            left, right = _factors(name, args)
            half = name in _MATRICES and _transposes(left, right)
            least = flops * (left.shape[-2] + 1) // (2 * left.shape[-2]) if half else flops
            self.products.append(Product(*_unit(left, right, "conv" in name), least))
            return flops

        note._get_raw = True  # type: ignore[attr-defined]
        return note


_MATRICES = ("mm", "bmm", "addmm", "baddbmm")
_SAMPLE = 1 << 16
"""Numbers of a factor that are looked at: of random ones in fp32, one in 65536 would be held by bf16."""
_KINDS = (("int8", ("int8",)), ("fp8", ("float8_e4m3fn", "float8_e5m2")), ("fp16", ("float16", "bfloat16")))
"""From the fastest: units, and dtypes that hold what they multiply."""


def _factors(name: str, args: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The tensors that an op multiplies; what a product is added to comes before them."""
    left, right = args[1:3] if name in ("addmm", "baddbmm") else args[:2]
    return left, right


def _unit(left: torch.Tensor, right: torch.Tensor, convolution: bool) -> tuple[str, str | None]:
    """Of the fastest way to multiply two factors that keeps what they hold: dtype and precision, see `tensor_rate`.

    A factor of fp32 beside one that 16 bits hold is split in three of these; two such factors make three TF32 products,
    or one in a convolution, where torch's flags let the library do so."""
    import torch

    if torch.float64 in (left.dtype, right.dtype):
        return "fp64", None
    ranks = [_rank(_sample(each)) for each in (left, right)]
    if max(ranks) < len(_KINDS):
        kinds = [_KINDS[rank][0] for rank in ranks]
        return (kinds[0] if kinds[0] == kinds[1] else "fp16"), None
    if min(ranks) < len(_KINDS):
        return "fp32", "bf16x3"
    return "fp32", "tf32" if convolution and torch.backends.cudnn.allow_tf32 else "tf32x3"


def _rank(numbers: torch.Tensor) -> int:
    """The first of `_KINDS` that holds all of them; their number if none does."""
    import torch

    if not numbers.is_floating_point():
        return 0 if numbers.dtype in (torch.int8, torch.uint8) else len(_KINDS)
    wide = numbers.float()
    for rank, (_, names) in enumerate(_KINDS):
        for dtype in (getattr(torch, name) for name in names):
            held = wide.clamp(-128, 127).to(dtype) if dtype == torch.int8 else wide.to(dtype)
            if numbers.dtype == dtype or bool(((held.float() == wide) | wide.isnan()).all()):
                return rank
    return len(_KINDS)


def _transposes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether one factor is a multiple of the other's transpose, but for roundings."""
    if left.shape != right.mT.shape or not left.is_floating_point() or not left.numel():
        return False
    a, b = (_sample(each).double() for each in (left, right.mT))
    times = (a * b).sum() / (b * b).sum()
    return float((a - times * b).norm()) <= _ROUNDED * _eps(left) * float(a.norm())


_ROUNDED = 4.0
"""Epsilons by which the two halves of a symmetric product are apart, at most: each is rounded by itself."""


def _eps(tensor: torch.Tensor) -> float:
    import torch

    return torch.finfo(tensor.dtype).eps


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Numbers of a tensor all over it, about `_SAMPLE` or fewer."""
    step = max(1.0, (tensor.numel() / _SAMPLE) ** (1 / max(1, tensor.dim())))
    places = tuple(slice(None, None, min(size, math.ceil(step)) or 1) for size in tensor.shape)
    return tensor.detach()[places]
