"""The weights of a live module, as tensors on a device.

Of a network of 640 MB they take half a second to read, and one screening constructs some forty models: in float64, with
rounded weights, at each set of shapes. So those on a GPU are read once. A host's memory is what its processes are
limited in, and holds one model at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch

from mtmc.task.saved_state import read_state


def saved_state(state: bytes, device: str) -> Mapping[str, torch.Tensor]:
    """The tensors of a saved state on a device, which must stay as they are: the next model is given the same ones.

    Raises: what `torch.load` raises.
    """
    return read_state(state, device) if device == "cpu" else _kept(state, device)


@lru_cache(maxsize=1)
def _kept(state: bytes, device: str) -> Mapping[str, torch.Tensor]:
    return read_state(state, device)
