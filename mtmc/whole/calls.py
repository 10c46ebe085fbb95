"""The tree of calls of a model, by hooks: which submodule is called, by which, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from mtmc.whole.signature import signature


@dataclass(frozen=True)
class Place:
    """A submodule that is called in one way from one other place; see `mtmc.whole.site.Site`, of which it is the start."""

    index: int
    parent: int | None
    path: str
    signature: str


class Watcher:
    """Is told of each call, between which the calls inside of it come. This one does nothing with it."""

    def enter(self, place: Place, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A call begins."""

    def leave(self, place: Place) -> None:
        """It has ended."""


class CallTree:
    """The places of a model, in the order in which they are first called; the same ones in each call of the model."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self._known: dict[tuple[int | None, str, str], Place] = {}

    def place(self, parent: int | None, path: str, signature: str) -> Place:
        """The place with these names, a new one where there is none yet."""
        key = (parent, path, signature)
        if key not in self._known:
            self._known[key] = Place(len(self.places), *key)
            self.places.append(self._known[key])
        return self._known[key]

    def forget(self) -> None:
        """Know no place any more."""
        self.places.clear()
        self._known.clear()

    @contextmanager
    def watched(self, model: torch.nn.Module, watcher: Watcher) -> Iterator[None]:
        """Tell `watcher` of every call of the model and of its submodules. Its hooks are taken away again."""
        stack: list[Place] = []
        paths = {id(module): path for path, module in model.named_modules()}

        def enter(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            parent = stack[-1].index if stack else None
            stack.append(self.place(parent, paths[id(module)], signature(args, kwargs)))
            watcher.enter(stack[-1], module, args, kwargs)

        def leave(module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
            watcher.leave(stack.pop())

        handles = []
        try:
            for module in model.modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    handles.append(module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True))
                    handles.append(module.register_forward_hook(leave))
            yield
        finally:
            for handle in handles:
                handle.remove()
