"""Recipe: all that makes the kernels of a captured module anew, for another copy of it, in another process too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from mtmc.task import Capture, Task
from mtmc.task.live_call import Call
from mtmc.task.saved_state import read_state


@dataclass(frozen=True)
class Recipe:
    """A version of a captured module, without the module's tensors.

    source: the version. task: the captured one, without its state. call: the example, its tensors on the meta device.
    places, output: as `mtmc.task.Capture` has them. constants: tensors that forward makes by itself, by their name in
    the printed `Model`, on the CPU. ties, default_dtype: as `mtmc.task.Capture` has them.
    """

    source: str
    task: Task
    call: Call
    places: Mapping[str, str]
    output: Any
    constants: Mapping[str, torch.Tensor]
    ties: tuple[tuple[str, str], ...] = ()
    default_dtype: str = "float32"

    def __deepcopy__(self, memo: Mapping[int, Any]) -> Recipe:
        return self

    @staticmethod
    def of(capture: Capture, source: str) -> Recipe:
        """The recipe of one version of a capture."""
        constants = {}
        if capture.task.state is not None:
            state = read_state(capture.task.state)
            constants = {name: tensor for name, tensor in state.items() if name not in capture.places}
        call = capture.call.with_tensors([_without_values(tensor) for tensor in capture.call.tensors])
        task = replace(capture.task, state=None)
        places = dict(capture.places)
        return Recipe(source, task, call, places, capture.output, constants, capture.ties, capture.default_dtype)


def _without_values(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's shape, strides and dtype."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
