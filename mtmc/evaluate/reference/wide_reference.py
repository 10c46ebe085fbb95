"""What is asked of a reference to find its precision: its own models and inputs, and those in wider dtypes."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from mtmc.evaluate.reference.effects import Effects
from mtmc.task.tolerance import Tolerance


class WideReference(Protocol):
    """A reference at one set of shapes, and models like its own in wider dtypes, see `reference.Reference`."""

    device: str
    tolerance: Tolerance

    def construct(self) -> Any:
        """A new model."""
        ...

    def draw(self, seed: int) -> list[Any]:
        """Inputs."""
        ...

    def widened(self, rounded: bool, wide: torch.dtype) -> Any:
        """A new model in a wider dtype. rounded: each weight off by a rounding of its own dtype."""
        ...

    def observed(self, model: Any, inputs: list[Any], seed: int) -> tuple[list[Any], Effects]:
        """The leaves of a model's result, with what it leaves behind after them, and what that is."""
        ...

    def run_wide(
        self, model: Any, inputs: list[Any], seed: int, wide: torch.dtype, effects: Effects = ...
    ) -> list[Any]:
        """The leaves of the result of a model in a wider dtype, with what it leaves behind after them."""
        ...

    def rounded(self, inputs: list[Any], seed: int, wide: torch.dtype) -> list[Any]:
        """Inputs in the wider dtype, each off by a rounding of its own."""
        ...
