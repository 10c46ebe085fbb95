"""What a candidate's process does for the first time is slow: it is done beforehand, with a model of the evaluator's own.

Torch loads each of its kernels onto the device at its first launch, and imports some of itself at the first use. In a
process that waits for its turn that costs nobody anything; in its turn the whole device waits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from mtmc.evaluate.check.candidate import poisoned_memory
from mtmc.evaluate.loading.modules import construct, load_module
from mtmc.evaluate.reference.blocks import different
from mtmc.evaluate.reference.effects import Remembered, changed_buffers, values
from mtmc.evaluate.reference.returned import flatten, undisturbed
from mtmc.task.seeding import seed_torch

NAME = "mtmc_rehearsal"
TEXT = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.product = torch.nn.Linear(64, 64)
        self.scale = torch.nn.Parameter(torch.ones(64))

    def forward(self, x):
        return self.product(x) * self.scale + torch.empty_like(x).zero_()
"""


def rehearse(device: str, folder: Path) -> None:
    """Load, construct and call a small model as `subject` does it, and leave nothing of it behind but what is warm.

    device: of torch. folder: where its text is written for a moment.
    """
    path = folder / f"{NAME}.py"
    module = load_module(TEXT, path)
    try:
        for moved in (False, True):
            model = construct(module, "ModelNew", [], 0, None, device=device, moved=moved)
            Remembered(model).restore(())
            before = [value.detach().clone() for value in model.parameters()]
            untouched = values(model, ())
            seed_torch(1)
            with poisoned_memory(), torch.no_grad():
                result = model(torch.ones(64, 64, device=device))
            with undisturbed():
                [leaf], _ = flatten(result)
                torch.empty_like(leaf).copy_(leaf)
            different(list(model.parameters()), before)
            changed_buffers(model, untouched)
    finally:
        sys.modules.pop(NAME, None)
        path.unlink(missing_ok=True)
