"""optimize(): a live nn.Module in, a drop-in nn.Module with faster kernels out."""

from __future__ import annotations

import importlib.util
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from mtmc.search import SearchResult, search
from mtmc.task import Capture, capture_module, resolve
from mtmc.task.live_call import flat_inputs, restore

log = logging.getLogger(__name__)


class OptimizedModule(torch.nn.Module):
    """A module that runs mtmc's kernels and falls back to the original where they cannot run.

    It shares the original's parameters and buffers. `result` is the search that found the kernels. The original is used,
    with one warning that says why, where gradients are wanted (the kernels have no backward) and where a kernel cannot
    be launched (no GPU, another device or dtype).
    """

    def __init__(
        self, original: torch.nn.Module, kernels: torch.nn.Module, template: Any, result: SearchResult
    ) -> None:
        super().__init__()
        self.original = original
        # In a tuple, so that it is no submodule: its parameters are the original's own and must not be listed twice.
        self._kernels = (kernels,)
        self._template = template
        self._broken_on: set[str] = set()
        self._warned = False
        self.result = result

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The original's result for the same arguments."""
        reason = self._why_not(args, kwargs)
        if reason is None:
            try:
                return restore(self._template, _flat(self._kernels[0](*flat_inputs(self.original, args, kwargs))))
            except Exception as error:  # whatever a launch can raise: the original is always right
                self._broken_on.add(_device(args, kwargs))
                reason = f"{type(error).__name__}: {error}"
        self._warn(reason)
        return self.original(*args, **kwargs)

    def _why_not(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        device = _device(args, kwargs)
        if device in self._broken_on:
            return f"its kernels could not be launched on {device} before"
        if torch.is_grad_enabled() and any(p.requires_grad for p in self.original.parameters()):
            return "gradients are wanted and its kernels have no backward; call it under torch.no_grad()"
        return None

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"mtmc: the original module is used: {reason}", RuntimeWarning, stacklevel=3)


def optimize(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor,
    example_kwargs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> OptimizedModule:
    """Search for faster kernels of `module` and return a drop-in module that uses the best ones found.

    example_inputs: the positional arguments of one call (or the only one, a tensor); example_kwargs: its keyword
    arguments. settings: those of `mtmc.search.search` (budget, strategy, policy, coder, evaluator, seed, out, ...).

    Raises: TaskError where the module cannot be exported, naming the op; ConfigError, RunError, EvaluatorError as
        `mtmc.search.search` does.
    """
    capture = capture_module(module, example_inputs, example_kwargs)
    result = search(capture.task, **settings)
    return OptimizedModule(module, _kernels(result.best.source, module, capture), capture.output, result)


def _kernels(source: str, module: torch.nn.Module, capture: Capture) -> torch.nn.Module:
    """The best version as a module that shares the live module's parameters and buffers."""
    with torch.device("meta"):
        kernels: torch.nn.Module = _load(source).ModelNew()
    assert capture.task.state is not None
    state = torch.load(io.BytesIO(capture.task.state), map_location=capture.call.tensors[0].device, weights_only=True)
    state |= {attribute: resolve(module, path) for attribute, path in capture.places.items()}
    kernels.load_state_dict({name: state[name] for name in kernels.state_dict()}, assign=True)
    return kernels.train(module.training)


def _load(source: str) -> ModuleType:
    """The source as a module, from a file of its own: triton reads the text of its kernels back from there."""
    folder = Path(tempfile.mkdtemp(prefix="mtmc-best-"))
    path = folder / "best.py"
    path.write_text(source, encoding="utf-8")
    name = f"mtmc_best_{folder.name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in _flat(part)]


def _device(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return str(value.device)
    return "cpu"
