"""Recent: the forms of tensors that were admitted last, compared in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

try:
    from torch._C._dynamo.guards import TensorGuards
except ImportError:  # it is not public: where it is not there, each call is looked up in Python
    TensorGuards = None  # type: ignore[assignment,misc]

_MOST = 4


class Recent:
    """Class, dispatch keys (inference mode and negated views among them), dtype, device, sizes, strides and requires_grad of
    the tensors of the last calls, with what is known of each: ten times faster than reading these in Python."""

    def __init__(self) -> None:
        self._forms: list[tuple[Any, Any]] = []

    def find(self, tensors: Sequence[torch.Tensor]) -> Any:
        """What was kept for tensors of the same form, None where there is nothing."""
        for check, kept in self._forms:
            if check(*tensors):
                return kept
        return None

    def keep(self, tensors: Sequence[torch.Tensor], kept: Any) -> None:
        """Keep something for this form of tensors, in place of the one that was kept first where there are too many."""
        if TensorGuards is None:
            return
        first: dict[int, int] = {}
        for at, tensor in enumerate(tensors):
            first.setdefault(id(tensor), at)
        unique = [tensors[at] for at in first.values()]
        check = TensorGuards(*unique, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        if not check(*unique):
            return
        twice = [(at, first[id(tensor)]) for at, tensor in enumerate(tensors) if first[id(tensor)] != at]
        self._forms = [(_tied(check, list(first.values()), twice) if twice else check, kept), *self._forms[: _MOST - 1]]


def _tied(check: Callable[..., bool], once: list[int], twice: list[tuple[int, int]]) -> Callable[..., bool]:
    """A check for tensors some of which are there twice (a tied weight): torch's own takes each once.

    once: places of those that it takes. twice: places of the others, and where each is already.
    """
    return lambda *tensors: (
        all(tensors[at] is tensors[other] for at, other in twice) and check(*[tensors[at] for at in once])
    )
