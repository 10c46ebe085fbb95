"""How much work it is to follow open sizes through a forward, counted, so that it ends at the same place everywhere.

torch.export carries an expression for each open size. Padding to a multiple, cutting into windows or chunks makes these
expressions long, and each further operator reasons about them: minutes for a network that takes a second at fixed sizes.
The work is counted in the sizes of the tensors that forward makes: the square of an expression's length for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.overrides import TorchFunctionMode

from mtmc.task.tensors import flat_tensors

MOST_WORK = 150_000
"""Of one export: some ten seconds. A language model of 16 layers takes 2,000, one with convolutions 5,000 to 100,000."""
_SHARE = 0.1
"""Of the work, from which on a size has a part in it."""


class TooMuchWork(Exception):
    """Following open sizes was given up. sizes: those, of later dimensions, that had a part in the work."""

    def __init__(self, sizes: frozenset[int]) -> None:
        super().__init__(f"following the sizes {sorted(sizes)} through forward is too much work")
        self.sizes = sizes


@dataclass
class Budget:
    """What the exports of one module may still take in all; two of them go to the limit of one."""

    left: int = 2 * MOST_WORK


class Following(TorchFunctionMode):
    """Counts the work of one forward under torch.export.

    tensors: what it was given, with open sizes. examples: the same with their example sizes.
    Raises: TooMuchWork, from the call that goes over the limit and from each after it.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], examples: Sequence[torch.Tensor], budget: Budget) -> None:
        super().__init__()
        self._budget = budget
        self._left = min(MOST_WORK, budget.left)
        self._sizes = _later_sizes(tensors, examples)
        self._lengths: dict[sympy.Basic, int] = {}
        self._work: Counter[sympy.Basic] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") != "__get__":
            for size in (size for tensor in flat_tensors(out) for size in tensor.shape):
                if isinstance(size, torch.SymInt):
                    self._count(size.node.expr)
            self.check()
        return out

    def check(self) -> None:
        """Raises: TooMuchWork if it was too much."""
        if self._left < 0:
            least = _SHARE * max(self._work.values())
            raise TooMuchWork(frozenset(size for symbol, size in self._sizes.items() if self._work[symbol] >= least))

    def _count(self, expression: sympy.Basic) -> None:
        if expression not in self._lengths:
            self._lengths[expression] = sum(1 for _ in sympy.preorder_traversal(expression))
        work = self._lengths[expression] ** 2
        self._left -= work
        self._budget.left -= work
        for symbol in expression.free_symbols:
            self._work[symbol] += work


def _later_sizes(tensors: Sequence[torch.Tensor], examples: Sequence[torch.Tensor]) -> Mapping[sympy.Basic, int]:
    """The example size that each symbol of a dimension but the first stands for."""
    found: dict[sympy.Basic, int] = {}
    for tensor, example in zip(tensors, examples, strict=True):
        for size, value in list(zip(tensor.shape, example.shape, strict=True))[1:]:
            if isinstance(size, torch.SymInt):
                found.update(dict.fromkeys(size.node.expr.free_symbols, value))
    return found
