"""Reductions and scans by a rule of the kernel's own, in the order of a tree and whole blocks at a time.

Triton's interpreter goes through the elements one by one from the left, 0.1 ms each, so a rule that holds only in that order
would be right there. A GPU combines neighbours, then what came of them, and so on, and so is it done here.
"""

from __future__ import annotations

import dis
import types
from typing import Any

import numpy as np

_Array = np.ndarray[Any, Any]
_Values = list[_Array]


def combine_as_trees(interpreter: types.ModuleType) -> None:
    """Change the interpreter's reductions and scans, for good."""

    def generic_reduce(self: Any, values: Any) -> Any:
        whole = self.axis is None
        data = [value.handle.data.reshape(-1) if whole else value.handle.data for value in values]
        kinds = [value.dtype for value in values]
        axis = 0 if whole else self.axis
        data = [np.moveaxis(each, axis, 0) for each in data]
        while data[0].shape[0] > 1:  # a power of 2
            data = _combined(self, [each[0::2] for each in data], [each[1::2] for each in data], kinds)
        found = [each[0] for each in data]
        if self.keep_dims:
            ones = (1,) * values[0].handle.data.ndim
            found = [each.reshape(ones) if whole else np.expand_dims(each, axis) for each in found]
        return [self.to_tensor(each, kind) for each, kind in zip(found, kinds, strict=True)]

    def generic_scan(self: Any, values: Any) -> Any:
        kinds = [value.dtype for value in values]
        data = [np.moveaxis(value.handle.data, self.axis, 0) for value in values]
        behind = 1
        while behind < data[0].shape[0]:
            # Of the first ones something is made that is not used: blocks have a power of 2 of elements.
            before = [np.concatenate([each[:behind], each[:-behind]]) for each in data]
            combined = _combined(self, before, data, kinds)
            data = [np.concatenate([each[:behind], new[behind:]]) for new, each in zip(combined, data, strict=True)]
            behind *= 2
        found = [np.ascontiguousarray(np.moveaxis(each, 0, self.axis)) for each in data]
        return [self.to_tensor(each, kind) for each, kind in zip(found, kinds, strict=True)]

    interpreter.ReduceOps.generic_reduce = generic_reduce
    interpreter.ScanOps.generic_scan = generic_scan


def _combined(ops: Any, left: _Values, right: _Values, kinds: list[Any]) -> _Values:
    """What the rule makes of two blocks each, element by element; one at a time where it decides by their values."""
    found = [np.empty(each.shape, each.dtype) for each in left]
    places = np.ndindex(left[0].shape) if _branches(ops.combine_fn) else [...]
    for place in places:
        given = [
            ops.to_tensor(np.ascontiguousarray(each[place]) if place is ... else each[place], kind)
            for part in (left, right)
            for each, kind in zip(part, kinds, strict=True)
        ]
        result = ops.combine_fn.fn(*given)
        results = result if isinstance(result, tuple) else (result,)
        for whole, part in zip(found, results, strict=True):
            data = np.asarray(getattr(getattr(part, "handle", None), "data", part))
            whole[place] = data if place is ... else data.item()
    return found


def _branches(rule: Any) -> bool:
    """Whether a rule decides by one element's values, which no block can."""
    names = [each.opname for each in dis.get_instructions(rule.fn)]
    return any("JUMP" in name and "_IF_" in name for name in names)
