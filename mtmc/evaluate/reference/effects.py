"""What a call changes besides giving its result: tensors among its inputs, and what the module keeps (its buffers).

Buffers go by their paths, and so do the plain tensors that modules keep as attributes: a reference may change those too.
What a candidate's model keeps is looked up where it lies, so that no code of its class runs: what a property would work out
when it is looked up is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mtmc.evaluate.reference.blocks import different

_dict_of = vars(torch.nn.Module)["__dict__"].__get__
_KINDS = ("_buffers", "_parameters", "_modules")


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
    return {
        f"{prefix}.{name}" if prefix else name: value
        for prefix, space in _modules(_root(model))
        for name, value in (*space["_buffers"].items(), *space.items())
        if isinstance(value, torch.Tensor)
    }


def parameters(model: Any) -> dict[str, torch.Tensor]:
    """A model's parameters by path, each once; {} for what is no module."""
    found = {
        id(value): (f"{prefix}.{name}" if prefix else name, value)
        for prefix, space in _modules(_root(model))
        for name, value in space["_parameters"].items()
        if value is not None
    }
    return dict(found.values())


def find(model: Any, path: str) -> Any:
    """What a model has under a path; None where it has nothing there."""
    found = _root(model)
    for part in path.split("."):
        found = _held(found, part)
    return found


def _root(model: Any) -> Any:
    """A model, or what torch.compile has made it of."""
    inside = _held(model, "_orig_mod")
    return model if inside is None else inside


def _space(module: Any) -> dict[str, Any] | None:
    """What lies in a module; None of what is none."""
    return _dict_of(module) if issubclass(type(module), torch.nn.Module) else None


def _held(module: Any, name: str) -> Any:
    """What a module holds under a name, as it lies there."""
    space = _space(module) or {}
    if name in space:
        return space[name]
    return next((space[kind][name] for kind in _KINDS if name in space.get(kind, ())), None)


def _modules(model: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, what lies in it) of a module and of those in it, each once."""
    seen, left = set[int](), [("", model)]
    while left:
        prefix, module = left.pop()
        space = _space(module)
        if space is None or "_modules" not in space or id(module) in seen:
            continue
        seen.add(id(module))
        yield prefix, space
        inside = [(f"{prefix}.{name}" if prefix else name, each) for name, each in space["_modules"].items()]
        left += reversed(inside)


def values(model: Any, paths: Iterable[str] | None = None) -> dict[str, torch.Tensor]:
    """Copies of what a model keeps under these paths (all if left out), as far as it has them."""
    chosen = kept_tensors(model) if paths is None else {path: find(model, path) for path in paths}
    there = {path: value.detach() for path, value in chosen.items() if isinstance(value, torch.Tensor)}
    copies = {path: torch.empty_like(value) for path, value in there.items()}
    _copy_all(list(copies.values()), list(there.values()))
    return copies


def put(model: Any, saved: Mapping[str, torch.Tensor]) -> None:
    """Let a model keep these values: in the tensors that it has, where they fit, or else in new ones."""
    root, targets, sources = _root(model), list[torch.Tensor](), list[torch.Tensor]()
    for path, value in saved.items():
        prefix, _, name = path.rpartition(".")
        space = _space(find(root, prefix) if prefix else root) or {}
        place = space if name in space else space.get("_buffers", {})
        now = place.get(name)
        if isinstance(now, torch.Tensor) and (now.shape, now.dtype) == (value.shape, value.dtype):
            targets.append(now)
            sources.append(value)
        else:
            place[name] = value.clone()
    with torch.no_grad():
        _copy_all(targets, sources)


def _copy_all(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy each tensor: on a GPU a few launches for hundreds of them."""
    if targets:
        torch._foreach_copy_(targets, sources)


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
