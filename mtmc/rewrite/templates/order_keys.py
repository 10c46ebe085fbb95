"""order_keys: whole numbers that stand for elements, so that the order of these is that of the numbers.

A key is a 32-bit number: of a float its bits, with those of negative ones turned round, all NaN the largest, and both zeros
0. A pack is a key, the place below it, and at the bottom whether it is the zero with a sign:

    bits 63 to 32 the key, 31 to 1 the place, 0 the sign

No two packs of a row are equal, so that however they are put in order, equal elements keep theirs.
"""

from __future__ import annotations

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.operators.typed import BITS
from mtmc.rewrite.templates.writer import Writer

LAST = "9223372036854775807"
"""The largest pack, which stands for what is outside of the bounds."""
_NAN, _OTHERS = "0x7FC00000", "0x7FFFFFFF"
_ROUNDED = {"float16": "tl.float16", "bfloat16": "tl.bfloat16"}


def check(dtype: str) -> None:
    """Raises: NotCovered for a dtype whose keys are wider than 32 bits."""
    if BITS.get(dtype, 32) > 32:
        raise NotCovered(f"packs of {dtype}")


def key(writer: Writer, value: str, dtype: str, falling: bool, name: str) -> None:
    """Write the keys of some values as `name`. falling: whether the largest has the smallest key."""
    if dtype in BITS or dtype == "bool":
        writer.line(f"{name} = {value}.to(tl.int32)")
    else:
        # what torch puts in order are numbers of that dtype
        rounded = f"{value}.to({_ROUNDED[dtype]}).to(tl.float32)" if dtype in _ROUNDED else value
        writer.line(f"{name}_of = {rounded}")
        writer.line(f"{name} = {name}_of.to(tl.int32, bitcast=True)")
        writer.line(f"{name} = tl.where({name} < 0, {name} ^ {_OTHERS}, {name})")
        writer.line(f"{name} = tl.where({name}_of == 0.0, 0, tl.where({name}_of != {name}_of, {_NAN}, {name}))")
    if falling:
        writer.line(f"{name} = ~{name}")


def pack(writer: Writer, value: str, dtype: str, falling: bool, name: str) -> None:
    """Write the packs of values in the columns `cols` as `name`, where `mask` holds."""
    key(writer, value, dtype, falling, f"{name}_key")
    low = "cols.to(tl.int64) << 1"
    if dtype not in BITS and dtype != "bool":
        sign = f"({name}_key_of == 0.0) & ({name}_key_of.to(tl.int32, bitcast=True) < 0)"
        low = f"({low}) | ({sign}).to(tl.int64)"
    writer.line(f"{name} = tl.where(mask, ({name}_key.to(tl.int64) << 32) | {low}, {LAST})")


def unpack(writer: Writer, packs: str, dtype: str, falling: bool, value: str, place: str) -> None:
    """Write the values of packs as `value`, in what kernels compute in, and their places as `place`; "" for neither."""
    if place:
        writer.line(f"{place} = ({packs} >> 1) & {_OTHERS}")
    if value:
        writer.line(f"{value}_key = ({packs} >> 32).to(tl.int32)")
        value_of(writer, f"{value}_key", dtype, falling, value, f"({packs} << 31).to(tl.int32)")


def value_of(writer: Writer, keys: str, dtype: str, falling: bool, value: str, sign: str = "") -> None:
    """Write the values that have some keys as `value`. sign: of zeros, at the top of 32 bits; "" where it is lost."""
    if falling:
        writer.line(f"{keys} = ~{keys}")
    if dtype == "bool":
        writer.line(f"{value} = {keys} != 0")
    elif dtype in BITS:
        writer.line(f"{value} = {keys}.to(tl.{dtype})")
    else:
        writer.line(f"{value}_bits = tl.where({keys} < 0, {keys} ^ {_OTHERS}, {keys})")
        if sign:  # a place below it is cut off; a zero's own sign is all that is set
            writer.line(f"{value}_bits = {value}_bits | {sign}")
        writer.line(f"{value} = {value}_bits.to(tl.float32, bitcast=True)")
