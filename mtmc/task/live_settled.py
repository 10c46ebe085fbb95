"""What the first call of a live module does once for all is done before anybody looks at the module.

Some modules set themselves up when they are first called: weights are scaled and a flag says so, a table is made longer,
a name is noted. Such a module is another one afterwards, and stays that. A look that put the flag back alone would have
the weights scaled again at each further look. So what a second call does not change again stays as the first call left
it, as it would after any call. What each call changes anew is put back; parameters that each call changes are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from mtmc.errors import TaskError
from mtmc.task.live_state import Held, same_values, state_tensors

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def settle(module: torch.nn.Module, run: Callable[[], Any], name: str) -> bool:
    """Call a module once, and again where that has changed anything but values of buffers; says whether it has.

    run: makes one call of the module, on copies of its inputs. name: of the module, for errors.
    Raises: TaskError if each call changes a parameter, which is then as the first call left it; whatever `run` raises.
    """
    before = Held.by(module)
    kept = [(tensor, tensor.detach().clone()) for tensor in state_tensors(before)]
    marks = _marks(module)
    try:
        run()
        bound = {path for path, *_ in before.bound_anew()}
        written = _other(module, marks)
        stays = _second_call(module, run, bound, written, name) if bound or written else _Stays(frozenset(), ())
    except BaseException:
        before.put_back()
        _restore(kept)
        raise
    before.put_back(but_new=True, but=stays.paths)
    _restore([(tensor, value) for tensor, value in kept if not any(tensor is each for each in stays.tensors)])
    return bool(bound or written)


class _Stays:
    """What a first call has set up. paths: of what is bound. tensors: those that hold what it wrote."""

    def __init__(self, paths: frozenset[str], tensors: tuple[torch.Tensor, ...]) -> None:
        self.paths, self.tensors = paths, tensors


def _second_call(
    module: torch.nn.Module, run: Callable[[], Any], bound: set[str], written: Mapping[str, torch.Tensor], name: str
) -> _Stays:
    """What of the first call stays, for a second one does not do it again. The module is as the first call left it.

    bound: paths that the first call bound anew. written: parameters in which it wrote.
    """
    after = Held.by(module)
    held = [(tensor, tensor.detach().clone()) for tensor in state_tensors(after)]
    values = [(tensor, tensor.detach().clone()) for tensor in written.values()]
    marks = _marks(module)
    try:
        run()
        again = {path for path, *_ in after.bound_anew()}
        changed = _other(module, marks)
        same = tuple(tensor for tensor, value in held if same_values(tensor, value))
    finally:
        after.put_back()
        _restore([*held, *values])
    if changed:
        raise TaskError(
            f"module {name}: forward changes its parameter {next(iter(changed))} at every call, which kernels cannot: "
            "register it as a buffer, or take the change out of forward (the call that was tried has changed it once)"
        )
    paths = frozenset(bound - again)
    return _Stays(paths, same if paths or written else ())


def _marks(module: torch.nn.Module) -> dict[str, tuple[torch.Tensor, int]]:
    """Each parameter with the sum of its bits, in which a write is seen however it was made."""
    return {path: (tensor, _sum_of_bits(tensor)) for path, tensor in module.named_parameters() if _is_plain(tensor)}


def _other(module: torch.nn.Module, marks: Mapping[str, tuple[torch.Tensor, int]]) -> dict[str, torch.Tensor]:
    """The parameters that hold something else than when the marks were made, by path."""
    return {path: tensor for path, (tensor, mark) in marks.items() if _sum_of_bits(tensor) != mark}


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_meta


def _sum_of_bits(tensor: torch.Tensor) -> int:
    plain = tensor.detach()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    if plain.is_contiguous() and plain.numel() * plain.element_size() % 8 == 0 and plain.storage_offset() == 0:
        plain = plain.view(-1)  # eight bytes at a time: a sum of short words takes several times as long
        return int(plain.view(torch.int64).sum(dtype=torch.int64))
    return int(plain.view(_WORDS[plain.element_size()]).sum(dtype=torch.int64))


def _restore(values: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for tensor, before in values:
            if not same_values(tensor, before):
                tensor.copy_(before)
