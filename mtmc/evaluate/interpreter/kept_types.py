"""What the interpreter makes anew for each result is made once: the types of blocks, their shapes, numpy's dtypes.

As it comes, it unwraps, checks and prints the shape of every intermediate result, and looks each dtype up in a table that
it builds for this. That took a fifth of its time. Nothing changes such an object once it is made.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

_OWN = ("handle", "type", "dtype")
"""Attributes of a tensor that are not of its shape alone."""


def keep_types(interpreter: types.ModuleType) -> None:
    """Let the interpreter of this process keep what it has made of each shape and dtype."""
    from triton.language import core

    core.block_type.__init__ = kept_blocks(core.block_type.__init__)
    core.tensor.__init__ = kept_shapes(core.tensor.__init__)
    interpreter._get_np_dtype = kept_dtypes(interpreter._get_np_dtype)  # type: ignore[attr-defined]


def kept_blocks(original: Callable[..., None]) -> Callable[..., None]:
    """`__init__` of block types that computes what follows from a shape once. original: Triton's."""
    made: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple(getattr(shape, "values", shape))  # newer versions have tuples of their own, and refuse Python's
        if isinstance(shape, tuple) or not all(type(size) is int for size in sizes):
            original(self, element_ty, shape)
            return
        key = element_ty.name, sizes  # pointer types have no hash; and who has the name may have other address spaces
        if key not in made:
            original(self, element_ty, shape)
            made[key] = {**vars(self), "kept_sizes": sizes}
        vars(self).update(made[key], element_ty=element_ty)

    return init


def kept_shapes(original: Callable[..., None]) -> Callable[..., None]:
    """`__init__` of tensors that makes the shape of each kind of block once. original: Triton's."""
    made: dict[tuple[int, ...], dict[str, Any]] = {}

    def init(self: Any, handle: Any, type: Any) -> None:
        sizes = vars(type).get("kept_sizes") if type.is_block() else ()
        known = made.get(sizes)
        if known is None:
            original(self, handle, type)
            if sizes is not None:
                made[sizes] = {name: value for name, value in vars(self).items() if name not in _OWN}
            return
        vars(self).update(known, handle=handle, type=type, dtype=type.scalar)

    return init


def kept_dtypes(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """numpy's dtype of what a type holds, looked up once for each. original: Triton's, which raises KeyError for others."""
    made: dict[str, Any] = {}

    def dtype(of: Any) -> Any:
        scalar = of.scalar
        if scalar.is_ptr() or scalar.name not in made:
            found = original(of)
            if scalar.is_ptr():
                return found
            made[scalar.name] = found
        return made[scalar.name]

    return dtype
