"""fourier: Fourier transforms of real numbers, and of complex ones as pairs, as products with matrices of cosines.

`mtmc.fourier` is the op that `algebra.transforms` writes in the place of torch's: it takes and gives real numbers along a
last dimension, of complex ones the real and the imaginary part side by side. As a call it is torch's own transform; as a
kernel it is one product, whose right operand the kernel makes: exp(i a) has cos(a) for its real part, and
cos(a - pi / 2) for the imaginary one. The angle is a whole number of quarters of 2 pi / n, taken modulo 4 n: no rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mtmc.rewrite.body import Count, Index, NotCovered, Number, Operand
from mtmc.rewrite.builder import Builder, Expand
from mtmc.rewrite.graph import FOURIER, Op, Shape, Size, Varying
from mtmc.rewrite.operators.steps import floats, result_of, tensor

Kind = Literal["rfft", "fft", "ifft", "irfft"]
Part = Literal["both", "real", "imag"]
LONGEST = 512
"""Numbers of a transform that is a product: n numbers take some 2 n^2 multiplications in place of 5 n log n, and a GPU has
time for one or two hundred while it reads them. Above, torch's transform is faster by far."""


@dataclass(frozen=True)
class Transform:
    """What an op's arguments say. inverse: exp(+i a). paired, pairs: whether operand and result are complex."""

    kind: Kind
    length: Any
    norm: str
    part: Part
    real: bool

    @property
    def inverse(self) -> bool:
        return self.kind in ("ifft", "irfft")

    @property
    def paired(self) -> bool:
        return not self.real


def transform_of(op: Op) -> Transform:
    """The arguments of `mtmc.fourier`: operand, kind, length, norm, part of the result, whether the operand is real."""
    _, kind, length, norm, part, real = op.args
    return Transform(kind, length, norm, part, real)


def length_of(item: Any, variants: int) -> Size:
    """A length at every variant."""
    if isinstance(item, Varying):
        return tuple(int(value) for value in item.values)
    return (int(item),) * variants


def _fourier(builder: Builder, op: Op) -> None:
    found, x = transform_of(op), tensor(op)
    floats(builder, op, x)
    variants = len(builder.graph.variants)
    length, inner, outer = length_of(found.length, variants), builder.shape(x)[-1], result_of(builder, op)[-1]
    if length[0] > LONGEST:
        raise NotCovered(f"a transform of {length[0]} numbers, more than {LONGEST}")
    rows = len(builder.shape(x))
    if rows < 2:
        raise NotCovered("a transform of one row")
    matrix = _matrix(builder, found, length, (inner, outer))
    scale = _scale(found)
    name = op.outputs[0]
    if scale is None:
        builder.dot(x, matrix, False, result_of(builder, op), name=name)
    else:
        made = builder.dot(x, matrix, False, result_of(builder, op))
        builder.map(scale, made, Count(length), name=name)


def _size(length: Size) -> Operand:
    return Number(length[0]) if len(set(length)) == 1 else Count(length)


def _scale(found: Transform) -> str | None:
    """What a result is multiplied by, over {0} and the length {1}."""
    if found.norm == "ortho":
        return "{0} / tl.sqrt({1} * 1.0)"
    return "{0} / {1}" if (found.norm == "forward") != found.inverse else None


def _entry(found: Transform) -> tuple[str, str]:
    """Of an entry of the matrix its angle in quarters of 2 pi / n, and what its cosine is multiplied by ("": nothing):
    {0} is its row, {1} its column, {2} the length."""
    own, part = ("({0} // 2)", "({0} % 2)") if found.paired else ("{0}", "0")
    if found.kind == "irfft":
        quarters, other = f"{part}", "{1}"
    else:
        other = "({1} // 2)" if found.part == "both" else "{1}"
        theirs = {"both": "({1} % 2)", "real": "0", "imag": "1"}[found.part]
        # exp(-i a): the imaginary part of a number gets -sin(a) = cos(a + pi / 2), exp(i a): sin(a) = cos(a - pi / 2)
        quarters = f"({part} - {theirs})" if found.inverse else f"({theirs} - {part})"
    quarter = f"(4 * {own} * {other} + ({quarters} + 4) * {{2}}) % (4 * {{2}})"
    weight = ""
    if found.kind == "irfft":  # all but the first, and the one in the middle of an even length, stand for two
        weight = f"tl.where(({own} == 0) | (2 * {own} == {{2}}), 1.0, tl.where(2 * {own} < {{2}}, 2.0, 0.0))"
    return quarter, weight


def _matrix(builder: Builder, found: Transform, length: Size, shape: Shape) -> str:
    """The matrix. An angle is brought to at most pi / 4 as a whole number: its rounding would be that of 2 pi else."""
    quarter, weight = _entry(found)
    places, number = (Index(2), Index(1), _size(length)), _size(length)
    turn = builder.matrix(quarter, places, shape, "int")
    half = builder.matrix("tl.minimum({0}, 4 * {1} - {0})", (turn, number), shape, "int")
    sharp = builder.matrix("tl.minimum({0}, 2 * {1} - {0})", (half, number), shape, "int")
    near = builder.matrix(
        "tl.minimum({0}, {1} - {0}).to(tl.float32) * (1.5707963267948966 / {1})", (sharp, number), shape
    )
    size = builder.matrix("tl.where(2 * {0} > {2}, tl.sin({1}), tl.cos({1}))", (sharp, near, number), shape)
    signed = builder.matrix("tl.where({0} > {2}, -{1}, {1})", (half, size, number), shape)
    if not weight:
        return signed
    return builder.matrix(f"{weight} * {{3}}", (*places, signed), shape)


FOURIER_OPS: dict[str, Expand] = {FOURIER: _fourier}
