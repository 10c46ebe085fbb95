"""Slot: where a tensor is in a structure of arguments or results."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slot:
    """Stands for a tensor in a structure. index: its place in the flat list of the structure's tensors."""

    index: int
