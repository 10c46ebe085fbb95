"""The weights of a live module as bytes (`Task.state`), and as tensors again."""

from __future__ import annotations

import io
from collections.abc import Mapping

import torch


def save_state(state: Mapping[str, torch.Tensor]) -> bytes:
    """What `read_state` reads."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getvalue()


def read_state(state: bytes, device: str = "cpu") -> dict[str, torch.Tensor]:
    """The tensors on a device, by their names in the printed `Model`. Raises: what `torch.load` raises."""
    found: dict[str, torch.Tensor] = torch.load(io.BytesIO(state), map_location=device, weights_only=True)
    return found
