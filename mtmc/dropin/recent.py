"""Recent: the forms of tensors that were admitted last, compared in C."""

from __future__ import annotations

from collections.abc import Sequence
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
        check = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        if check(*tensors):  # never where one tensor is there twice (a tied weight)
            self._forms = [(check, kept), *self._forms[: _MOST - 1]]
