"""ModuleState: whether a module and its submodules are, but for their tensors, as they were when they were captured."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch

from mtmc.dropin.named_values import NamedValues

REGISTRIES = frozenset(vars(torch.nn.Module()))
"""What each module has: `training`, its tensors, submodules and hooks."""
_CONTAINERS = (list, dict, set)
DEEP = 4
"""Levels of containers and objects in each other that are looked at."""
NO_OBJECTS = (torch.Tensor, type, FunctionType, ModuleType)
"""Kinds of values whose attributes are not looked at."""
_MODE = "training"
_OF_COMPILER = frozenset(("_is_torch_compile", "_compiled_call_impl"))
"""What torch.compile leaves on a module that it was given; forward reads neither."""


_Owned = dict[int, tuple[str, dict[str, Any]]]
"""By its id: where a dict of attributes is, and the dict."""


class ModuleState:
    """What forward of a module may read in Python: its class, attributes, submodules, their hooks and training modes.

    Tensors in `_parameters` and `_buffers` are no part of it: kernels read those that are there at each call. Containers and
    objects that modules keep as attributes (a configuration) are looked at a few levels deep, and so are plain values of
    classes and files that the code of the modules names (`mtmc.dropin.named_values`).
    """

    def __init__(self, root: torch.nn.Module, tensors: Collection[tuple[int, Any]]) -> None:
        """tensors: (id of a dict, key) of plain attributes that kernels read at each call; these may be replaced."""
        self._tensors = frozenset(tensors)
        self._named = dict(root.named_modules())
        owned: _Owned = {id(vars(module)): (path, module.__dict__) for path, module in self._named.items()}
        for path, attributes in list(owned.values()):
            _own_objects(path, attributes, owned, self._named, DEEP)
        self._modules = list(self._named.values())
        self._names = [name for name, _ in owned.values()]
        self._dicts = [attributes for _, attributes in owned.values()]
        self._children = [module._modules for module in self._modules if module._modules]
        # The root's own hooks run whoever computes its forward.
        self._hooks = [
            hooks for module in self._modules[1:] for hooks in (module._forward_hooks, module._forward_pre_hooks)
        ]
        self.retake()

    def retake(self) -> None:
        """Take the module as it is now."""
        self._classes: list[Any] = list(map(type, self._modules))
        self._kinds = list(dict.fromkeys(self._classes))
        self._forwards = [kind.forward for kind in self._kinds]
        self._snapshots = [_snapshot(attributes) for attributes in self._dicts]
        self._child_snapshots = [dict(children) for children in self._children]
        self._values = NamedValues(self._kinds)

    def why_not(self) -> str | None:
        """What has changed, None where nothing has. In C but for one line where nothing has."""
        try:
            if (
                self._dicts == self._snapshots
                and self._children == self._child_snapshots
                and not any(self._hooks)
                and list(map(type, self._modules)) == self._classes
                and [kind.forward for kind in self._kinds] == self._forwards
                and self._values.same()
            ):
                return None
        except Exception:  # values without an order or a truth, as tensors are: they have been replaced
            pass
        return self._difference()

    def _difference(self) -> str | None:
        forwards = dict(zip(self._kinds, self._forwards, strict=True))
        for path, module, kind in zip(self._named, self._modules, self._classes, strict=True):
            if type(module) is not kind or kind.forward is not forwards[kind]:
                return f"{path or 'the module'} has another class or forward than at capture"
        for path, module in list(self._named.items())[1:]:
            if module._forward_hooks or module._forward_pre_hooks:
                return f"submodule {path} has forward hooks, which kernels do not call"
        for children, before in zip(self._children, self._child_snapshots, strict=True):
            if children.keys() != before.keys() or any(children[key] is not before[key] for key in before):
                return f"submodules were replaced, added or removed since capture ({', '.join(children)})"
        for name, attributes, before in zip(self._names, self._dicts, self._snapshots, strict=True):
            for key in dict.fromkeys((*before, *attributes)):
                now, then = attributes.get(key, _MISSING), before.get(key, _MISSING)
                if _same(now, then):
                    continue
                read = (id(attributes), key) in self._tensors and isinstance(now, torch.Tensor)
                if read or (key in _OF_COMPILER and now is not _MISSING):
                    before[key] = now
                elif key == _MODE:
                    return f"{name or 'the module'} is in {'training' if now else 'evaluation'} mode, unlike at capture"
                else:
                    return f"attribute {key} of {name or 'the module'} has changed since capture"
        return self._values.changed()


_MISSING = object()


def _snapshot(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with copies of plain containers, so that changes inside of these are seen; registries are as they are."""
    return {key: value if key in REGISTRIES else _copied(value, DEEP) for key, value in attributes.items()}


def _copied(value: Any, depth: int) -> Any:
    """A copy of a plain container and of those in it; anything else as it is."""
    kind = type(value)
    if kind not in (*_CONTAINERS, tuple) or depth == 0:
        return value
    if kind is dict:
        return {key: _copied(item, depth - 1) for key, item in value.items()}
    return kind(value) if kind is set else kind([_copied(item, depth - 1) for item in value])


def _own_objects(path: str, held: Any, owned: _Owned, named: dict[str, torch.nn.Module], depth: int) -> None:
    """Add the attributes of objects that a module keeps, in containers and other objects too: a configuration, an
    activation that is no module, but no tensor, class or function. Modules among them (in a plain list) are added to
    `named`, with those in them."""
    if depth == 0:
        return
    items = held.items() if isinstance(held, dict) else enumerate(held)
    for key, value in items:
        if key in REGISTRIES or key == "mtmc" or isinstance(value, NO_OBJECTS):
            continue
        name = f"{path}.{key}".lstrip(".")
        if type(value) in (*_CONTAINERS, tuple):
            _own_objects(name, value, owned, named, depth - 1)
        elif isinstance(attributes := getattr(value, "__dict__", None), dict) and id(attributes) not in owned:
            found = {"": value} if not isinstance(value, torch.nn.Module) else dict(value.named_modules())
            for inside, each in found.items():
                inner = f"{name}.{inside}".rstrip(".")
                if isinstance(each, torch.nn.Module):
                    named[inner] = each
                owned[id(vars(each))] = inner, vars(each)
                _own_objects(inner, vars(each), owned, named, depth - 1)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # what cannot be compared is another
        return False
