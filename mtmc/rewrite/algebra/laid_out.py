"""laid_out: how what is made of some values lies in memory, after those have come to lie in another way.

torch says it itself: each op is called on tensors without data, at every exported variant.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from mtmc.rewrite.graph import FOURIER, IN_ORDER, Graph, Op, Ref, Tensor, Varying
from mtmc.rewrite.overloads import overload

if TYPE_CHECKING:
    import torch


def laid_out(graph: Graph, changed: Sequence[str], settled: Collection[str] = ()) -> Graph | None:
    """The graph with the layout of all values that hang on the changed ones.

    settled: ops whose results stay as they lie, since a rule will see to that.
    Returns: None where forward's result would lie in another way, or an op does not take its operands as they lie.
    """
    values, moved = dict(graph.values), set(changed)
    if moved & graph.results():
        return None
    for op in graph.ops:
        if not moved & graph.reads[op.name] or op.name in settled:
            continue
        found = results_of(op, values, len(graph.variants))
        if found is None:
            return None
        for name, tensor in found.items():
            old = values[name]
            if (tensor.shape, tensor.dtype) != (old.shape, old.dtype):
                return None
            if (tensor.contiguous, tensor.strides) != (old.contiguous, old.strides):
                values[name] = tensor
                moved.add(name)
    return None if moved & graph.results() else graph.knowing(values)


def results_of(op: Op, values: dict[str, Tensor], variants: int) -> dict[str, Tensor] | None:
    """An op's results by name, those of which something is known; None where torch refuses its operands."""
    if op.target in (FOURIER, IN_ORDER):  # which give rows in order, however their operand lies
        return {name: values[name] for name in op.outputs}
    call = overload(op.target)
    if call is None:
        return None
    named = [name for name in op.outputs if name in values]
    if not named:
        return {}
    from torch._subclasses.fake_tensor import FakeTensorMode

    columns: dict[str, list[torch.Tensor]] = {name: [] for name in named}
    for variant in range(variants):
        try:
            with (
                FakeTensorMode()
            ):  # as references are exported; a device without data says other things of convolutions
                made = call(*without_data(op.args, values, variant), **without_data(dict(op.kwargs), values, variant))
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            return None
        listed = dict(zip(op.outputs, made if isinstance(made, (tuple, list)) else (made,), strict=False))
        for name in named:
            columns[name].append(listed[name])
    return {name: _tensor(column) for name, column in columns.items()}


def without_data(item: Any, values: dict[str, Tensor], variant: int) -> Any:
    """An op's argument at one variant, tensors without data."""
    import torch

    if isinstance(item, Ref):
        tensor = values[item.name]
        shape = [size[variant] for size in tensor.shape]
        dtype = getattr(torch, tensor.dtype)
        if tensor.contiguous:
            return torch.empty(shape, dtype=dtype, device="cpu")
        return torch.empty_strided(shape, [size[variant] for size in tensor.strides], dtype=dtype, device="cpu")
    if isinstance(item, Varying):
        return item.values[variant]
    if isinstance(item, torch.device):
        return torch.device("cpu")
    if isinstance(item, dict):
        return {key: without_data(part, values, variant) for key, part in item.items()}
    return [without_data(part, values, variant) for part in item] if isinstance(item, (tuple, list)) else item


def _tensor(column: Sequence[torch.Tensor]) -> Tensor:
    """What is known of a value. column: it at every variant."""
    shape = tuple(zip(*[tuple(each.shape) for each in column], strict=True))
    contiguous = all(each.is_contiguous() for each in column)
    strides = () if contiguous else tuple(zip(*[tuple(each.stride()) for each in column], strict=True))
    return Tensor(shape, str(column[0].dtype).removeprefix("torch."), contiguous, strides)
