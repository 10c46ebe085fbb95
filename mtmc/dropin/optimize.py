"""optimize(): a live nn.Module in, a drop-in nn.Module with faster kernels out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mtmc.dropin.drop_in import drop_in, refuse_module
from mtmc.export.no_gain import why_no_gain
from mtmc.search import search
from mtmc.task import capture_module
from mtmc.tree import ROOT_ID

_log = logging.getLogger(__name__)


def optimize(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | torch.Tensor,
    example_kwargs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Any:
    """Search for faster kernels of `module` and return a module that is the same but for its forward, which runs them.

    What is returned is an object of the module's class, see `mtmc.dropin.optimized.OptimizedModule`. Where kernels do not
    hold for a call, or nothing was found, the original's forward runs, and `.mtmc` says why. A drop-in that is given again
    with other inputs gets versions for these besides.

    example_inputs: the positional arguments of one call (or the only one, a tensor); example_kwargs: its keyword
    arguments. settings: those of `mtmc.search.search` (budget, strategy, policy, coder, evaluator, seed, out, ...).

    Raises: TaskError where the module cannot be exported, naming the op, or no drop-in can be made of it; ConfigError,
        RunError, EvaluatorError as `mtmc.search.search` does.
    """
    refuse_module(module)
    capture = capture_module(module, example_inputs, example_kwargs)
    result = search(capture.task, **settings)
    if result.best.node_id != ROOT_ID:
        return drop_in(module, capture, [result.best.source], result=result)
    reason = why_no_gain(result.tree)
    _log.warning("%s: %s", capture.task.name, reason)
    return drop_in(module, capture, [], result=result, reason=reason)
