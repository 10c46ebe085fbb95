"""Memory that the oracle shares with candidates' processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mtmc.evaluate.check.layout import aligned
from mtmc.evaluate.measure.backend import DeviceBackend
from mtmc.evaluate.measure.reference_state import check_memory


@dataclass(frozen=True)
class Arena:
    """Device memory of one task: what candidates' processes open, and what they cannot.

    fds: descriptors of `inputs` and `outputs`, two allocations, so that no address in the one leads to the other. kept: as
    large as `outputs`, for what lay there when a candidate said that it was done.
    """

    fds: tuple[int, int]
    inputs: torch.Tensor
    outputs: torch.Tensor
    kept: torch.Tensor

    @property
    def size(self) -> int:
        """Bytes of all of it."""
        return self.inputs.numel() + self.outputs.numel() + self.kept.numel()

    def holds(self, needed: tuple[int, int]) -> bool:
        """Whether so many bytes of inputs and outputs have room."""
        return self.inputs.numel() >= needed[0] and self.outputs.numel() >= needed[1]

    @classmethod
    def made(cls, backend: DeviceBackend, needed: tuple[int, int], what: str) -> Arena:
        """One that holds so many bytes. what: that needs them, for a message. Raises: TooLarge if there are not so many."""
        inputs, outputs = aligned(needed[0]), aligned(needed[1])
        if backend.device.type == "cuda":
            check_memory(inputs + 2 * outputs, torch.cuda.mem_get_info()[0], what)
        pieces = [backend.create(size) for size in (inputs, outputs)]
        kept = torch.empty(pieces[1][1].numel(), dtype=torch.uint8, device=backend.device)
        return cls((pieces[0][0], pieces[1][0]), pieces[0][1], pieces[1][1], kept)
