"""transform_calls: what torch's Fourier transforms are asked for: dimensions, lengths, norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.operators.steps import argument

_SCALED = {
    0: {True: "backward", False: "forward"},
    1: {True: "ortho", False: "ortho"},
    2: {True: "forward", False: "backward"},
}
"""The number that ATen's inner transforms are given -> of one with exp(-i a), and of one with exp(i a), torch's word."""


class Wall(Exception):
    """An op on complex numbers that is not written out."""


@dataclass(frozen=True)
class Wanted:
    """A transform of several dimensions. lengths: None where a dimension keeps its own. real: whether its operand (forward)
    or its result (inverse) is real; half: whether of such a spectrum there is but one half."""

    dims: tuple[int, ...]
    lengths: tuple[Any, ...]
    norm: str
    inverse: bool
    real: bool
    half: bool = True


def wanted(graph: Graph, op: Op) -> Wanted | None:
    """The transform that an op is; None for another op. Raises: Wall."""
    parts, x = op.target.split("."), op.args[0] if op.args else None
    if parts[0] != "aten" or "fft" not in parts[1] or not isinstance(x, Ref):
        return None
    name, rank, real = parts[1], len(graph.values[x.name].shape), not graph.values[x.name].dtype.startswith("complex")
    if name in ("_fft_r2c", "_fft_c2c", "_fft_c2r"):
        forward = name == "_fft_r2c" or (name == "_fft_c2c" and bool(op.args[3]))
        norm, dims = _SCALED[int(op.args[2])][forward], tuple(dim % rank for dim in op.args[1])
        lengths = (*(None for _ in dims[1:]), op.args[3] if name == "_fft_c2r" else None)
        return Wanted(dims, lengths, norm, not forward, name != "_fft_c2c", name == "_fft_c2r" or bool(op.args[3]))
    kind = name.removeprefix("fft_").rstrip("2n")
    if kind not in ("rfft", "irfft", "fft", "ifft"):
        raise Wall(op.target)
    norm = argument(op, 3, "norm") or "backward"
    half = kind in ("rfft", "irfft")
    if name[-1] in "2n":
        dims, given = argument(op, 2, "dim", (-2, -1) if name[-1] == "2" else None), argument(op, 1, "s")
        if dims is None:
            dims = tuple(range(rank)) if given is None else tuple(range(rank - len(given), rank))
        lengths = given if given is not None else (None,) * len(dims)
    else:
        dims, lengths = (argument(op, 2, "dim", -1),), (argument(op, 1, "n"),)
    return Wanted(tuple(dim % rank for dim in dims), tuple(lengths), norm, kind.startswith("i"), half or real, half)
