"""What a call changes besides giving its result: tensors among its inputs, and what the module keeps (its buffers).

Buffers go by their paths, and so do the plain tensors that modules keep as attributes: a reference may change those too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mtmc.evaluate.reference.blocks import different

CALLS = 3
"""In a row, where a reference changes something: the second one on the inputs of the first, the third on others."""


@dataclass(frozen=True)
class Effects:
    """What a reference changes. inputs: positions of tensors among its inputs. state: paths of what its model keeps."""

    inputs: tuple[int, ...] = ()
    state: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.inputs or self.state)

    def __or__(self, other: Effects) -> Effects:
        inputs, state = {*self.inputs, *other.inputs}, dict.fromkeys((*self.state, *other.state))
        return Effects(tuple(sorted(inputs)), tuple(state))


def kept_tensors(model: Any) -> dict[str, torch.Tensor]:
    """What a model keeps between calls besides its parameters, by path; {} for what is no module."""
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    if not isinstance(model, torch.nn.Module):
        return {}
    return dict(_walk(model))


def _walk(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for prefix, module in model.named_modules():
        for name, value in (*module._buffers.items(), *vars(module).items()):
            if isinstance(value, torch.Tensor):
                yield (f"{prefix}.{name}" if prefix else name), value


def find(model: Any, path: str) -> Any:
    """What a model has under a path; None where it has nothing there."""
    found = getattr(model, "_orig_mod", model)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def values(model: Any, paths: Iterable[str] | None = None) -> dict[str, torch.Tensor]:
    """Copies of what a model keeps under these paths (all if left out), as far as it has them."""
    chosen = kept_tensors(model) if paths is None else {path: find(model, path) for path in paths}
    return {path: value.detach().clone() for path, value in chosen.items() if isinstance(value, torch.Tensor)}


def put(model: Any, saved: Mapping[str, torch.Tensor]) -> None:
    """Let a model keep these values: in the tensors that it has, where they fit, or else in new ones."""
    root = getattr(model, "_orig_mod", model)
    for path, value in saved.items():
        prefix, _, name = path.rpartition(".")
        owner = find(root, prefix) if prefix else root
        now = getattr(owner, name, None)
        if isinstance(now, torch.Tensor) and (now.shape, now.dtype) == (value.shape, value.dtype):
            with torch.no_grad():
                now.copy_(value)
        else:
            setattr(owner, name, value.clone())


def changed_buffers(model: Any, before: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Paths under which a model keeps something else than before, the first eight."""
    now = {path: find(model, path) for path in before}
    there = [path for path, value in now.items() if isinstance(value, torch.Tensor)]
    changed = different([now[path].detach() for path in there], [before[path] for path in there])
    return tuple(there[at] for at in changed[:8])


class Remembered:
    """What a candidate's model keeps at first, remembered of a path when it is asked for."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._values: dict[str, torch.Tensor] = {}

    def restore(self, paths: Iterable[str]) -> None:
        """Let the model keep under these paths what it kept when that was asked for the first time."""
        asked = list(paths)
        self._values |= values(self._model, [path for path in asked if path not in self._values])
        put(self._model, {path: self._values[path] for path in asked if path in self._values})
