"""The backend "mtmc" of torch.compile: kernels for the parts of a captured graph that are worth them, Inductor for the rest.

    torch.compile(model, backend="mtmc", options={"budget": 32, "evaluator": "gpu"})

Options are the settings of `mtmc.search.search`; "inner", the backend for the rest ("inductor"); and "most_kernels", the
operations of one part at most (512 on a GPU, else 64). A graph is searched
when it is compiled, at the first call. On a GPU the graph with kernels is timed against the inner backend's own, and the
faster one is used. Graphs that need gradients, or whose sizes are not fixed, go to the inner backend as they are.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._guards import tracing
from torch.fx import GraphModule, Node

from mtmc.dropin import drop_in
from mtmc.errors import ConfigError, TaskError
from mtmc.search import components
from mtmc.whole.campaign import Campaign
from mtmc.whole.live import LiveModel
from mtmc.whole.pieces import Limits
from mtmc.whole.regions import Region, Slot, compile_now, replace_region, unsafe, weight_inputs, with_weights, wrapped
from mtmc.whole.settings import checked, hardware_of
from mtmc.whole.settle import MARGIN
from mtmc.whole.timing import compare_on_gpu

_log = logging.getLogger(__name__)

NAME, INNER = "mtmc", "inductor"
Compiled = Callable[..., Any]


def mtmc(
    graph: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Compiled:
    """A callable for a captured graph; see this module's text.

    Raises: ConfigError for an option there is not; ConfigError, RunError, EvaluatorError as `mtmc.search.search` does.
    """
    if mode is not None:
        raise ConfigError(f'the backend {NAME!r} has no mode {mode!r}: use options={{"budget": 32, ...}}')
    given = dict(options or {})
    inner = _inner(given.pop("inner", INNER))
    reason = _why_not(example_inputs)
    if reason is not None:
        _log.warning("a graph is left to the inner backend: %s", reason)
        return inner(graph, list(example_inputs))
    with (
        tracing(None),
        torch.no_grad(),
    ):  # the tracing of the graph that is being compiled is none of the searches' business
        replaced = _with_kernels(graph, example_inputs, given)
    if replaced is None:
        return inner(graph, list(example_inputs))
    made = inner(replaced, list(example_inputs))
    if not any(value.is_cuda for value in example_inputs):
        return made
    plain = inner(graph, list(example_inputs))
    ours, theirs = compare_on_gpu([partial(made, *example_inputs), partial(plain, *example_inputs)])
    _log.warning("the graph takes %.4g ms with kernels, %.4g ms without", ours, theirs)
    return made if ours < (1 - MARGIN) * theirs else plain


def _inner(name: str | Compiled) -> Compiled:
    """A backend by its name, or itself. Raises: ConfigError for one that there is not."""
    if callable(name):
        return name
    from torch._dynamo.backends.registry import lookup_backend
    from torch._dynamo.exc import InvalidBackend

    try:
        found: Compiled = lookup_backend(name)
    except InvalidBackend as error:
        raise ConfigError(f"there is no backend {name!r} of torch.compile for options inner=: {error}") from error
    return found


def _why_not(inputs: Sequence[Any]) -> str | None:
    """Why a graph is not searched at all."""
    if not all(isinstance(value, torch.Tensor) for value in inputs):
        return "its sizes are not fixed: compile with dynamic=False"
    if torch.is_grad_enabled() and any(value.requires_grad for value in inputs):
        return "gradients are wanted, and kernels have no backward: call it under torch.no_grad()"
    if any(isinstance(size, torch.SymInt) for value in inputs for size in value.shape):
        return "its sizes are not fixed: compile with dynamic=False"
    return None


def _with_kernels(graph: GraphModule, inputs: Sequence[Any], options: Mapping[str, Any]) -> GraphModule | None:
    """The graph with calls of the kernels that were found, None where none were."""
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    given = dict(zip(names, inputs, strict=True))
    weights = {node.name: given[node.name] for node in graph.graph.nodes if _is_weight(node, given)}
    model = wrapped(graph)
    slots = with_weights(model, weights)
    compile_now(model)
    live = LiveModel(model.eval(), tuple(value for name, value in given.items() if name not in weights), {})
    settings = dict(options)
    limits = Limits.where(live.on_gpu)
    limits = replace(limits, most_kernels=settings.pop("most_kernels", limits.most_kernels))
    budget, out, rest = checked(settings)
    evaluator = components.resolve("evaluator", options.get("evaluator", "lab"))
    try:
        profile = live.profile(hardware_of(evaluator))
        with tempfile.TemporaryDirectory(prefix="mtmc-") as temporary:
            campaign = Campaign(model, profile, live.take, evaluator, budget, out or Path(temporary), rest, limits)
            campaign.run()
            return _replaced(graph, campaign, slots)
    except TaskError as error:
        _log.warning("a graph is left to the inner backend: %s", error)
        return None


def _is_weight(node: Node, given: Mapping[str, Any]) -> bool:
    """Whether an input of a graph is a parameter or a buffer of a module."""
    if node.op != "placeholder":
        return False
    return isinstance(given[node.name], nn.Parameter) or "_buffers" in str(node.target)


def _replaced(graph: GraphModule, campaign: Campaign, slots: Mapping[str, Sequence[Slot]]) -> GraphModule | None:
    """The nested graph, its weights still inputs, with a region in each place of a winner."""
    model, count = wrapped(graph), 0
    of_weights = weight_inputs(model, slots)
    for piece in campaign.choice.pieces:
        found = campaign.searches.get(piece.key)
        if found is None or found.source is None or not found.beats_compiler:
            continue
        args, _ = campaign.take(piece)
        for path in piece.paths:
            part = campaign.model.get_submodule(path)
            reason = unsafe(part, args)
            made: Any = drop_in(part, found.capture, [found.source]) if reason is None else None
            if made is None or not made.mtmc.versions:
                _log.warning("%s stays as it was: %s", path, reason or made.mtmc.reason)
                continue
            inside = set(part.modules())
            weights = {
                index: [slot for slot in slots[name] if slot[0] in inside] for index, name in of_weights[path].items()
            }
            replace_region(model, path, partial(Region, kernels=made, weights=weights))
            count += 1
    return model if count else None
