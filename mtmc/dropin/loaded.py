"""A source's classes, executed once in a process, and instances of them whose tensors are given at each call."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from mtmc.cache import source_file
from mtmc.errors import TaskError
from mtmc.rewrite.guard_text import check_name, is_guarded


def launchable(device: torch.device) -> bool:
    """Whether kernels can be launched on tensors of this device: a GPU, or the CPU where Triton interprets."""
    return device.type == "cuda" or (device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1")


def launched_on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Makes a tensors' device the current one, on which Triton launches whatever it is given."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


_CHECK = "_mtmc_check"


@functools.lru_cache(maxsize=256)
def load_source(source: str) -> ModuleType:
    """The source as a module, from a file that stays as long as the process: Triton reads the text of its kernels there.

    Raises: whatever the source raises.
    """
    name = f"mtmc_version_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, source_file(source))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if is_guarded(source):
        # Asked once for each form of tensors here, not once more by each forward.
        check = check_name(source)
        setattr(module, _CHECK, getattr(module, check))
        setattr(module, check, lambda *_, **__: None)
    return module


def guards_of(source: str) -> tuple[Callable[..., str | None], tuple[str, ...]] | None:
    """The function of a source that says by tensors what it does not hold for, and the names of forward's arguments.

    None where the source has no guards.
    """
    module = load_source(source)
    if _CHECK not in vars(module):
        return None
    names = tuple(inspect.signature(module.ModelNew.forward).parameters)[1:]
    check = vars(module)[_CHECK]
    named = next(name for name in check.__code__.co_names if name.rstrip("_") == "why_not")
    return getattr(module, named), names


class Instance:
    """An instance of a source's class that holds no tensors of its own: `run` takes inputs and the model's tensors.

    names: of the model's tensors, in the order in which `run` takes them.
    """

    def __init__(
        self,
        source: str,
        kind: str,
        names: Sequence[str],
        constants: Mapping[str, torch.Tensor],
        device: torch.device,
    ) -> None:
        """kind: the class. constants: values of the tensors that are not among `names`.

        Raises: TaskError if the class has other tensors than these.
        """
        loaded = load_source(source)
        self.module = _made(getattr(loaded, kind), device)
        slots = _slots(self.module)
        odd = sorted(slots.keys() ^ {*names, *constants})
        if odd:
            raise TaskError(f"{kind} of a version and the captured module have other tensors ({', '.join(odd)})")
        for name, value in constants.items():
            owner, key = slots[name]
            owner[key] = value.to(device)
        self._slots = [slots[name] for name in names]
        self._forward = self.module.forward
        self._check = vars(loaded).get(_CHECK)

    @property
    def is_guarded(self) -> bool:
        """Whether the source says what it holds for."""
        return self._check is not None

    def why_not(self, inputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> str | None:
        """Why the source's own guards refuse a call, None where they do not or there are none."""
        if self._check is None:
            return None
        self._hold(tensors)
        reason: str | None = self._check(self.module, *inputs)
        return reason

    def run(self, inputs: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> Any:
        """What forward returns. Raises: whatever it raises."""
        self._hold(tensors)
        return self._forward(*inputs)

    def _hold(self, tensors: Sequence[torch.Tensor]) -> None:
        for (owner, key), tensor in zip(self._slots, tensors, strict=True):
            if owner[key] is not tensor:
                owner[key] = tensor

    def own_tensors(self) -> list[torch.Tensor]:
        """Those that are held now; until the first run what the constructor made."""
        return [owner[key] for owner, key in self._slots]


def _made(kind: type[torch.nn.Module], device: torch.device) -> torch.nn.Module:
    """An instance whose own tensors have no memory, unless the constructor makes some that are neither parameters nor
    buffers: these are needed."""
    with torch.device("meta"):
        module = kind()
    plain = [value for part in module.modules() for value in vars(part).values() if isinstance(value, torch.Tensor)]
    if not plain:
        return module
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.device(device):
        return kind()


def _slots(module: torch.nn.Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Name in the state dict -> the dict that holds the tensor, and its key there."""
    found: dict[str, tuple[dict[str, Any], str]] = {}
    for prefix, part in module.named_modules():
        for registry in (part._parameters, part._buffers):
            for key, value in registry.items():
                if value is not None:
                    found[f"{prefix}.{key}".lstrip(".")] = (registry, key)
    return found
