"""The signature of a call: what it is apart from the values of its tensors, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mtmc.task.tensors import leaves

_PLAIN = (bool, int, float, complex, str, bytes, slice, range, torch.dtype, torch.device, torch.layout, torch.Size)


def signature(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A call as text: "float32[2, 16] cpu, None, mask=True". Equal for calls with equal shapes, types and other leaves."""
    parts = [_text(value) for value in args]
    return ", ".join([*parts, *(f"{name}={_text(kwargs[name])}" for name in sorted(kwargs))])


def opaque(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The name of the class of an argument that is neither a tensor nor plain data, a cache say; "" where there is none."""
    return next((type(leaf).__name__ for _, leaf in leaves((*args, *kwargs.values())) if not _is_known(leaf)), "")


def _is_known(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, (torch.Tensor, *_PLAIN))


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} {value.device.type}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return "(" + ", ".join(map(_text, value)) + ")"
    if _is_known(value):
        return repr(value)
    parts = [f"{path} {_text(leaf)}" for path, leaf in leaves(value) if path]  # of a data class
    return f"<{' '.join([type(value).__name__, *parts])}>"
