"""fake: forwards on tensors that have shapes and types and no data, for any reference that can be constructed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)

from mtmc.evaluate.pool.server import out_of_memory


class FakeMode(FakeTensorMode):
    """A `FakeTensorMode` that copies of its tensors stay in: `copy.deepcopy` of a layer, as torch's own transformer makes
    for each of its layers, would copy the mode too, and tensors of two modes do not mix."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeMode:
        return self


def constructed(make: Callable[[], Any], make_real: Callable[[], Any], device: str) -> Any:
    """The module that `make` makes; where its constructor reads values, which fake tensors do not have, the one that
    `make_real` makes outside of the fake mode, with fake tensors in place of its own. Without a fake mode: `make()`.

    The real module's weights are all in memory for that moment, as they are wherever a version is checked.
    Raises: whatever `make` raises.
    """
    try:
        return make()
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        failure = error
    try:
        with unset_fake_temporarily():
            model = make_real()
    except Exception as error:
        if out_of_memory(error):
            raise
        raise failure from None
    return _without_data(model, device)


def _without_data(model: Any, device: str) -> Any:
    """The same module with fake parameters, buffers and plain tensors; one that two modules share stays shared."""
    known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in known:
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            if isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, tensor.requires_grad)
            known[id(tensor)] = tensor, made
        return known[id(tensor)][1]

    for module in model.modules():
        for held in (module._parameters, module._buffers, vars(module)):
            for name, value in held.items():
                if isinstance(value, torch.Tensor):
                    held[name] = fake(value)
    return model
