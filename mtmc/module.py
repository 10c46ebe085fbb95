"""optimize(): a live nn.Module in, a drop-in nn.Module with faster kernels out."""

from __future__ import annotations

import importlib.util
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
from mtmc.task import task_from_module
from mtmc.task.live import flat_inputs, restore

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
    task = task_from_module(module, example_inputs, example_kwargs)
    result = search(task, **settings)
    args = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    with torch.no_grad():
        template = module(*args, **(example_kwargs or {}))
    return OptimizedModule(module, _kernels(result.best.source, module), template, result)


def _kernels(source: str, module: torch.nn.Module) -> torch.nn.Module:
    """The best version as a module that shares the live module's parameters and buffers."""
    with torch.device("meta"):
        kernels: torch.nn.Module = _load(source).ModelNew()
    state = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    wanted = kernels.state_dict(keep_vars=True)
    kernels.load_state_dict({name: state[name] for name in wanted}, assign=True)
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
