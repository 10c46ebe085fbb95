"""in_place: what the drop-in of a zoo's module does beside the module itself: results, state, gradients."""

from __future__ import annotations

import copy
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mtmc.agents.coders.rewriter import Rewriter
from mtmc.bench.facts import has_kernel
from mtmc.dropin import drop_in
from mtmc.search import SearchResult
from mtmc.search.folder import handed_out
from mtmc.task import Capture
from mtmc.task.tensors import flat_tensors
from tests.zoo.example import Example

RIGHT = "right"
CALLS = 2
"""In a row, so that what the first leaves behind is read by the second."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 3e-2}
"""Norm-wise, beside the module in its own dtype."""


class TimeIsUp(BaseException):
    """Not an `Exception`, which whoever runs kernels may take for theirs."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises: TimeIsUp in the main thread where the body takes longer."""

    def end(*_: object) -> None:
        raise TimeIsUp(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def compare_drop_in(made: Example, capture: Capture, result: SearchResult, limit_s: float) -> str:
    """ "right" where the drop-in with the fastest version does what the module does, else what differs.

    Where no version can be dropped in or its kernels are not used, that is said with the reason. On the module's device;
    without a GPU Triton's interpreter has to be on (TRITON_INTERPRET=1).
    """
    source = _fastest(result, capture)
    if source is None:
        return "no version"
    try:
        with at_most(limit_s), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _compare(made, capture, source)
    except TimeIsUp as error:
        return str(error)


def _fastest(result: SearchResult, capture: Capture) -> str | None:
    """The file of the fastest right version with a kernel that needs no CUDA graph, with its guards; None without any."""
    right = [node for node in result.versions if node.outcome.ok and has_kernel(node.source)]
    right = [node for node in right if "CUDAGraph" not in node.source]
    best = min(right, key=lambda node: node.outcome.runtime_ms or 0.0, default=None)
    if best is None:
        return None
    # A search that stays at its root has asked for no guards.
    return handed_out(best, result.guards or Rewriter().guards(capture.task), result.tolerance)


def _compare(made: Example, capture: Capture, source: str) -> str:
    twin = copy.deepcopy(made.module)
    dropped = drop_in(made.module, capture, [source])
    if not dropped.mtmc.versions:  # one that was captured elsewhere is looked at when it is called first
        return f"the original runs: {dropped.mtmc.reason}"
    with torch.no_grad():
        for number in range(CALLS):
            args, kwargs, others = (
                _copied(made.args),
                _copied(dict(made.kwargs)),
                _copied((made.args, dict(made.kwargs))),
            )
            found, wanted = dropped(*args, **kwargs), twin(*others[0], **others[1])
            told = _difference(found, wanted, "result") or _difference((args, kwargs), others, "input")
            told = told or _difference(_state(dropped), _state(twin), "state")
            if told:
                return f"wrong in call {number + 1}: {told}"
    if dropped.mtmc.kernel_calls != CALLS:
        return f"the original runs: {next(iter(dropped.mtmc.reasons), 'no reason')}"
    return _compare_gradients(dropped, twin, made) or RIGHT


def _compare_gradients(dropped: torch.nn.Module, twin: torch.nn.Module, made: Example) -> str:
    """How gradients of the drop-in differ from the module's, "" where they do not."""
    gradients = []
    for module in (dropped, twin):
        args, kwargs = _copied(made.args), _copied(dict(made.kwargs))
        for tensor in flat_tensors((args, kwargs)):
            tensor.requires_grad_(tensor.is_floating_point())
        inputs = [tensor for tensor in (*flat_tensors((args, kwargs)), *module.parameters()) if tensor.requires_grad]
        try:
            with torch.enable_grad():
                out = [x for x in flat_tensors(module(*args, **kwargs)) if x.requires_grad]
                total = sum((x.float().square().sum() for x in out), torch.zeros(()))
        except RuntimeError as error:  # one that writes to its inputs, which must then not be leaves
            gradients.append(type(error).__name__)
            continue
        found = torch.autograd.grad(total, inputs, allow_unused=True) if total.requires_grad else ()
        gradients.append([x for x in found if x is not None])
    return _difference(gradients[0], gradients[1], "gradient")


def _state(module: torch.nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _copied(structure: Any) -> Any:
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda x: x.detach().clone(), structure)


def _difference(found: Any, wanted: Any, what: str) -> str:
    """How two structures of tensors differ, "" where they do not."""
    if type(found) is not type(wanted):
        return f"{what} is a {type(found).__name__}, not a {type(wanted).__name__}"
    pairs = list(zip(flat_tensors(found), flat_tensors(wanted), strict=False))
    if len(flat_tensors(found)) != len(flat_tensors(wanted)):
        return f"{what} holds {len(flat_tensors(found))} tensors, not {len(flat_tensors(wanted))}"
    for index, (one, other) in enumerate(pairs):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{what} {index} is {tuple(one.shape)} {one.dtype}, not {tuple(other.shape)} {other.dtype}"
        if not one.is_floating_point():
            if not torch.equal(one, other):
                return f"{what} {index} has other values"
            continue
        a, b = one.detach().double(), other.detach().double()
        if not torch.equal(a.isfinite(), b.isfinite()):
            return f"{what} {index} has other infinities or NaN"
        a, b = a[b.isfinite()], b[b.isfinite()]
        error = ((a - b).norm() / (b.norm() + 1e-9)).item()
        if error > TOLERANCE.get(other.dtype, 1e-3):
            return f"{what} {index} is off by {error:.1e} of its norm"
    return ""
