"""A version beside the live module, before it is used: its own tensors, the example, other sizes, other strides.

Each trial is two calls in a row from the same state. Compared are outputs, inputs and all tensors of the module that the
version may write to (its buffers); these are put back to what they held before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from mtmc.dropin.reference import draw_inputs
from mtmc.errors import TaskError
from mtmc.evaluate.reference.distance import within_tolerance
from mtmc.task.live_call import Call, matched, restore
from mtmc.task.quantized import is_fp8
from mtmc.task.tensors import flat_tensors
from mtmc.task.tolerance import Tolerance

if TYPE_CHECKING:
    from mtmc.dropin.winner import Winner

_CALLS = 2
_TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 3e-2, torch.float64: 1e-6}
_USUAL = 1e-3
"""Norm-wise, beside the original in its own dtype: fp32 products may be rounded to TF32 on either side."""


def why_not_right(
    winner: Winner,
    module: torch.nn.Module,
    original: Callable[..., Any],
    example: Sequence[torch.Tensor] | None = None,
) -> str | None:
    """How a version differs from the original forward on the live module, None where it is right.

    example: the inputs of the example call; those that the task draws where it is gone.
    """
    recipe, device = winner.recipe, (example or winner.tensors())[0].device
    try:
        first = example if example is not None else draw_inputs(recipe, recipe.task.full, device)
        trials = [("the example", first), ("transposed inputs", [_transposed(x) for x in first])]
        for variant in (recipe.task.small, *recipe.task.held_out):
            drawn = draw_inputs(recipe, variant, device)
            trials.append((f"inputs of sizes {_sizes(drawn)}", drawn))
    except TaskError as error:
        return str(error)
    with torch.no_grad():
        for name, tensors in trials:
            call = recipe.call.with_tensors(tensors)
            admitted = winner.admit(call.args, call.kwargs)
            if not isinstance(admitted, str):
                reason = _trial(winner, module, original, tensors, may_raise=name.startswith("transposed"))
            else:
                reason = admitted if tensors is first else None
            if reason is not None:
                return f"on {name}: {reason}"
    return None


class _Calls(NamedTuple):
    """What some calls in a row have given. results: with copies of their tensors. after: what inputs and the module's
    buffers held in the end. touched: names of the module's tensors that torch has seen written."""

    results: list[Any]
    after: list[torch.Tensor]
    touched: list[str]


def _trial(
    winner: Winner,
    module: torch.nn.Module,
    original: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    may_raise: bool,
) -> str | None:
    """What differs between the original and the kernels on copies of these inputs. may_raise: whether the original may,
    which is then all that can be known."""
    try:
        wanted = _calls(winner, module, original, tensors)
    except Exception as error:  # a module may raise anything
        return None if may_raise else f"the original raises {in_one_line(error)}"
    try:
        found = _calls(winner, module, lambda *args, **kwargs: _launched(winner, args, kwargs), tensors)
    except Exception as error:  # whatever a launch can raise
        return f"a call raises {in_one_line(error)}"
    lost = sorted({*wanted.touched} - {*found.touched, *winner.mutated_names()})
    if lost:
        return f"the original changes {', '.join(lost)}, which kernels do not"
    tolerance = winner.recipe.task.tolerance
    for number, (one, other) in enumerate(zip(found.results, wanted.results, strict=True)):
        same = matched(Call((other,), {}, ("result",)), Call((one,), {}, ("result",)))
        reason = same if isinstance(same, str) else _differ(same, flat_tensors(other), "output", tolerance)
        if reason is not None:
            return f"{reason} in call {number + 1} of {_CALLS} in a row"
    return _differ(found.after, wanted.after, "after the calls tensor", tolerance)


def _launched(winner: Winner, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    admitted = winner.admit(args, kwargs)
    if isinstance(admitted, str):
        raise TaskError(admitted)
    return winner.run(admitted)


def _calls(
    winner: Winner, module: torch.nn.Module, forward: Callable[..., Any], tensors: Sequence[torch.Tensor]
) -> _Calls:
    """Some calls in a row on the same copies of the inputs; the module's tensors are put back."""
    inputs = [_copied(tensor) for tensor in tensors]
    args, kwargs = winner.recipe.call.with_tensors(inputs).passed
    own = [x for x in winner.tensors() if not isinstance(x, torch.nn.Parameter)]
    kept = [tensor.clone() for tensor in own]
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    before = {name: tensor._version for name, tensor in named.items()}
    results = []
    try:
        for _ in range(_CALLS):
            result = forward(*args, **kwargs)
            results.append(restore(result, [tensor.clone() for tensor in flat_tensors(result)]))
        after = [*inputs, *(tensor.clone() for tensor in own)]
        touched = [name for name, tensor in named.items() if tensor._version != before[name]]
    finally:
        for tensor, value in zip(own, kept, strict=True):
            tensor.copy_(value)
    return _Calls(results, after, touched)


def _differ(
    found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], what: str, tolerance: Tolerance
) -> str | None:
    """The first difference of two lists of tensors. tolerance: the task's; what is within one that it declares is right."""
    if len(found) != len(wanted):
        return f"{len(found)} tensors instead of {len(wanted)}"
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        kind, expected = (tuple(one.shape), one.dtype, one.device), (tuple(other.shape), other.dtype, other.device)
        if kind != expected:
            return f"{what} {index} is {kind} instead of {expected}"
        if not other.dtype.is_floating_point or is_fp8(other.dtype):
            if not within_tolerance(one, other, tolerance):
                return f"{what} {index} has other values"
            continue
        if not tolerance.is_default and within_tolerance(one, other, tolerance):
            continue
        a, b = one.double(), other.double()
        finite = b.isfinite()
        if not torch.equal(a.isnan(), b.isnan()) or not torch.equal(a[~finite & ~b.isnan()], b[~finite & ~b.isnan()]):
            return f"{what} {index} has other infinities or NaN"
        error = float((a[finite] - b[finite]).norm() / (b[finite].norm() + 1e-30))
        if not error <= _TOLERANCE.get(other.dtype, _USUAL):
            return f"{what} {index} is off by {error:.1e} of its norm"
    return None


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's values in memory of their own, with its strides; an expanded tensor as it is, as nobody writes to it."""
    if 0 in tensor.stride():
        return tensor.detach()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with other strides: columns first, or every second element of a vector."""
    tensor = tensor.detach()
    if tensor.dim() >= 2:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    return torch.stack([tensor, tensor], -1)[..., 0]


def _sizes(tensors: Sequence[torch.Tensor]) -> str:
    return ", ".join("x".join(map(str, tensor.shape)) or "1" for tensor in tensors)


def in_one_line(error: Exception) -> str:
    """The type and the message of an error, which may be long."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
