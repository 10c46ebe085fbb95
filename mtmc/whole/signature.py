"""The signature of a call: what it is apart from the values of its tensors, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

_PLAIN = (bool, int, float, complex, str, bytes, slice, range, torch.dtype, torch.device, torch.layout, torch.Size)


def signature(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A call as text: "float32[2, 16] cpu, None, mask=True". Equal for calls with equal shapes, types and other leaves."""
    parts = [_text(value) for value in args]
    return ", ".join([*parts, *(f"{name}={_text(kwargs[name])}" for name in sorted(kwargs))])


def opaque(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The name of the class of an argument that is neither a tensor nor plain data, a cache say; "" where there is none."""
    return next((type(leaf).__name__ for leaf in leaves((*args, *kwargs.values())) if not _is_known(leaf)), "")


def leaves(value: Any) -> Iterator[Any]:
    """What nested tuples, lists and dicts hold, in order."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def map_tensors(value: Any, change: Any) -> Any:
    """The same nested tuples, lists and dicts with each tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        items = {name: map_tensors(each, change) for name, each in value.items()}
        return items if type(value) is dict else type(value)(**items)
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        parts = [map_tensors(each, change) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _is_known(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, (torch.Tensor, *_PLAIN))


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} {value.device.type}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return "(" + ", ".join(map(_text, value)) + ")"
    return repr(value) if _is_known(value) else f"<{type(value).__name__}>"
