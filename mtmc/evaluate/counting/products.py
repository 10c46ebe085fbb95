"""The products of a reference that any version of it has to compute, as far as trials at its small shapes tell.

A product counts where each element of its result shows in the reference's, by itself and not only in a sum with its
neighbours, and where its operands hold no pattern that spares work: zeros that are always in the same places or beside each
other, rows that repeat. Where the result of one enters linearly into what another makes of it, the two may be multiplied
beforehand, and none of the task's products count. What is left may take fewer flops by half (triangles, symmetry, Strassen),
and a convolution by four fifths (Winograd); nothing is asked beyond that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mtmc.evaluate.counting.prices import product_flops
from mtmc.evaluate.counting.tally import Counts
from mtmc.task.tensors import flat_tensors

if TYPE_CHECKING:
    from mtmc.evaluate.reference.reference import Reference

MOST, SAMPLE = 8, 6
"""Products of a reference that are tried; places of each result that are changed."""
SHARE, CONVOLUTION, TAPS = 0.45, 0.18, 49
"""Of the flops that must be there, and of those of a convolution with at most so many taps."""
SEED = 7
_LARGE, _SAME, _ALWAYS = 1e4, 0.03, 0.9

Change = Callable[[torch.Tensor], torch.Tensor]


class Products(TorchDispatchMode):
    """Notes the operands of each product, and changes the result of one. at: which, -1 for none."""

    def __init__(self, at: int = -1, change: Change = torch.clone) -> None:
        super().__init__()
        self.operands: list[list[torch.Tensor]] = []
        self.results: list[torch.Tensor] = []
        self._at, self._change = at, change

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not product_flops(func, args, kwargs or {}, result):
            return result
        self.operands.append([tensor.detach().clone() for tensor in flat_tensors(args) if tensor.dim() >= 2])
        first = flat_tensors(result)[0]
        self.results.append(first.detach().clone())
        if len(self.results) - 1 != self._at:
            return result
        changed = self._change(first)
        return (changed, *result[1:]) if isinstance(result, tuple) else changed


def least_flops(reference: Reference, records: Sequence[Counts]) -> int:
    """Flops of products that any version computes. reference: at small shapes. records: of its forward at the full ones.

    Raises: TaskError.
    """
    full = [record for record in records if record["dot_flops"]]
    if not full or len(full) > MOST:
        return 0
    inputs, others = reference.draw(SEED), reference.draw(SEED + 1)
    plain, again, other = _run(reference, inputs), _run(reference, inputs), _run(reference, others)
    if len(plain.results) != len(full) or len(other.results) != len(full) or _off(plain.outputs, again.outputs):
        return 0
    needed = []
    for at in range(len(full)):
        if at + 1 < len(full) and _is_linear(reference, inputs, plain, at):
            return 0
        patterned = any(map(_is_patterned, plain.operands[at], other.operands[at]))
        needed.append(not patterned and _shows(reference, inputs, plain, at))
    return int(sum(_share(record) * record["dot_flops"] for record, need in zip(full, needed, strict=True) if need))


class _Run:
    def __init__(self, seen: Products, outputs: list[torch.Tensor]) -> None:
        self.operands, self.results, self.outputs = seen.operands, seen.results, outputs


def _run(reference: Reference, inputs: list[Any], at: int = -1, change: Change = torch.clone) -> _Run:
    from mtmc.task.tensors import map_tensors

    reference.restart()
    with Products(at, change) as seen:
        result = reference.run(map_tensors(inputs, torch.clone), SEED)
    return _Run(seen, [tensor.detach().double().nan_to_num() for tensor in flat_tensors(result)])


def _off(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> float:
    """How far results are apart."""
    return float(sum(float((x - y).norm()) for x, y in zip(a, b, strict=True)))


def _shows(reference: Reference, inputs: list[Any], plain: _Run, at: int) -> bool:
    """Whether each of some elements of a product changes the result, and no two of them only by their sum."""
    result = plain.results[at]
    generator = torch.Generator().manual_seed(SEED + at)
    for place in torch.randint(result.numel(), (SAMPLE,), generator=generator).tolist():
        alone = {
            step: _off(_run(reference, inputs, at, _adding({place: step})).outputs, plain.outputs)
            for step in (_LARGE, -_LARGE)
        }
        step, single = max(alone.items(), key=lambda item: item[1])
        if single == 0.0:
            return False
        for stride in {1, *(abs(int(n)) for n in result.stride())}:
            beside = (place + stride) % result.numel()
            pair = _off(_run(reference, inputs, at, _adding({place: step, beside: -step})).outputs, plain.outputs)
            if beside != place and pair <= _SAME * single:
                return False
    return True


def _is_linear(reference: Reference, inputs: list[Any], plain: _Run, at: int) -> bool:
    """Whether the result hangs linearly on that of a product."""
    noise = torch.randn(plain.results[at].shape, generator=torch.Generator().manual_seed(SEED))
    noise = noise.to(plain.results[at].dtype) * (float(plain.results[at].double().std()) or 1.0)
    once = _run(reference, inputs, at, lambda tensor: tensor + noise).outputs
    twice = _run(reference, inputs, at, lambda tensor: tensor + 2 * noise).outputs
    expected = [2 * a - b for a, b in zip(once, plain.outputs, strict=True)]
    return _off(twice, expected) <= 1e-2 * _off(once, plain.outputs)


def _adding(steps: dict[int, float]) -> Change:
    """Adds to some elements, by their flat places."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.detach().clone(memory_format=torch.contiguous_format)
        for place, step in steps.items():
            changed.view(-1)[place] += step
        return changed

    return change


def _is_patterned(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether operands of two draws are zero in the same places, or rows of one repeat."""
    if a.shape != b.shape or not a.is_floating_point():
        return True
    zeros = a == 0
    share = float(zeros.float().mean())
    if share > 0.05 and float((zeros & (b == 0)).sum()) >= _ALWAYS * float(zeros.sum()):
        return True
    for dim in (-1, -2):  # blocks of zeros, wherever they are
        near = min(1, a.shape[dim] - 1)
        beside = (zeros & zeros.roll(near, dim)).float().mean()
        if share > 0.05 and float(beside) > share * (1 + share) / 2:
            return True
    flat = a.reshape(-1, a.shape[-1])
    across = a.transpose(-1, -2).reshape(-1, a.shape[-2])
    return any(len(torch.unique(rows, dim=0)) < len(rows) for rows in (flat, across))


def _share(record: Counts) -> float:
    """Part of a product's flops that any way to compute it takes."""
    if not str(record["op"]).endswith("convolution"):
        return SHARE
    taps = record["dims"][4] if len(record["dims"]) > 4 else TAPS + 1
    return SHARE if taps == 1 else CONVOLUTION if taps <= TAPS else 0.0
