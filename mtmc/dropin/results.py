"""Result: from what kernels return to what the module returns."""

from __future__ import annotations

from typing import Any

import torch

from mtmc.task import Slot
from mtmc.task.live_call import restore
from mtmc.task.tensors import flat_tensors


class Result:
    """The structure of the module's result around the flat list of tensors that a version returns."""

    def __init__(self, output: Any) -> None:
        self._output = output
        self.restore = self._single if isinstance(output, Slot) else self._structured

    def _single(self, returned: Any) -> Any:
        if isinstance(returned, torch.Tensor):
            return returned
        return restore(self._output, flat_tensors(returned))

    def _structured(self, returned: Any) -> Any:
        return restore(self._output, flat_tensors(returned))
