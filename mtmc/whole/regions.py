"""A captured graph as a tree of modules, as the modules were that it was captured from; and calls of kernels in a graph.

Dynamo gives one flat graph, whose inputs are the weights too. Each of its operations knows the calls of modules that it was
in. So it is split again: a graph for each such call, one in the other. With the weights put back into the modules that use
them, that is a model like any other, and can be profiled, divided into pieces and searched.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.passes.split_module import split_module

_NO_CALL = ("placeholder", "output", "get_attr")
Slot = tuple[nn.Module, str]
"""A module and the name of a weight of it."""


def nested(graph: GraphModule, depth: int = 0) -> GraphModule:
    """The graph with a submodule for each call of a module, and so on inside of these. Its inputs stay what they are.

    depth: of the calls that are looked at, from outside.
    """
    while True:
        calls = {node: _call_of(node, depth) for node in graph.graph.nodes if node.op not in _NO_CALL}
        if not calls or all(call is None for call in calls.values()):
            return graph
        if len(set(calls.values())) > 1:
            break
        depth += 1  # all of it is inside of one call
    number, last = -1, object()
    parts: dict[Node, int] = {}
    for node, call in calls.items():
        number += call != last
        last, parts[node] = call, number
    split = split_module(graph, None, lambda node: parts[node])  # type: ignore[arg-type]
    inside = {f"submod_{parts[node]}": call for node, call in calls.items()}
    for name, call in inside.items():
        if call is not None:
            setattr(split, name, nested(getattr(split, name), depth + 1))
    return split


def _call_of(node: Node, depth: int) -> str | None:
    """The key of the call of a module that a node is in, at that depth; None where it is in none so deep."""
    stack = list((node.meta.get("nn_module_stack") or {}).keys())
    return str(stack[depth]) if depth < len(stack) else None


def with_weights(graph: GraphModule, weights: Mapping[str, torch.Tensor]) -> dict[str, list[Slot]]:
    """Put weights into the modules of a nested graph that use them, instead of inputs. weights: by name of the input.

    Returns where each weight is now, by the same names. What is shared is in several places.
    """
    slots: dict[str, list[Slot]] = {name: [] for name in weights}
    inside: dict[str, dict[str, str]] = {}  # submodule -> name of its input -> name of the weight
    for node in graph.graph.nodes:
        if node.op == "call_module":
            child = getattr(graph, node.target)
            names = [each.name for each in child.graph.nodes if each.op == "placeholder"]
            given = {name: arg.name for name, arg in zip(names, node.args, strict=True) if arg.name in weights}
            inside[node.target] = given
            node.args = tuple(arg for arg in node.args if arg.name not in weights)
    for placeholder in [node for node in graph.graph.nodes if node.op == "placeholder" and node.name in weights]:
        if placeholder.users:
            name = f"weight_{sum(len(each) for each in slots.values())}"
            _register(graph, name, weights[placeholder.name])
            slots[placeholder.name].append((graph, name))
            with graph.graph.inserting_before(next(iter(graph.graph.nodes))):
                found = graph.graph.get_attr(name)
            placeholder.replace_all_uses_with(found)
        graph.graph.erase_node(placeholder)
    graph.recompile()
    for target, given in inside.items():
        found_inside = with_weights(getattr(graph, target), {name: weights[given[name]] for name in given})
        for name, places in found_inside.items():
            slots[given[name]] += places
    return slots


def compile_now(model: nn.Module) -> None:
    """Make the code of all graphs inside of a model. One that does it at its first call calls itself then, with its hooks a
    second time."""
    for module in model.modules():
        if isinstance(module, GraphModule):
            _LazyGraphModule.force_recompile(module)


def _register(module: nn.Module, name: str, value: torch.Tensor) -> None:
    if isinstance(value, nn.Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


GRAPH = "whole"


def wrapped(graph: GraphModule) -> GraphModule:
    """A graph that calls the nested `graph` as its submodule "whole", so that the graph as a whole can be a piece."""
    outer = Graph()
    given = []
    for node in [node for node in graph.graph.nodes if node.op == "placeholder"]:
        given.append(outer.placeholder(node.name))
        given[-1].meta = dict(node.meta)
    call = outer.call_module(GRAPH, tuple(given))
    results = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    outer.output(tuple(outer.call_function(operator.getitem, (call, index)) for index in range(len(results))))
    return GraphModule({GRAPH: nested(graph)}, outer)


def weight_inputs(graph: GraphModule, weights: Collection[str]) -> dict[str, dict[int, str]]:
    """Which inputs of each part of a nested graph are weights. weights: names of those among the inputs of `graph`.

    Returns, by path of the part: place of the input -> name of the weight among the inputs of the whole.
    """
    return _weight_inputs(graph, {name: name for name in weights}, "")


def _weight_inputs(graph: GraphModule, names: Mapping[str, str], path: str) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for node in graph.graph.nodes:
        if node.op == "call_module":
            child = getattr(graph, node.target)
            inside = f"{path}.{node.target}" if path else node.target
            own = [each.name for each in child.graph.nodes if each.op == "placeholder"]
            places = {index: names[arg.name] for index, arg in enumerate(node.args) if arg.name in names}
            found[inside] = places
            found |= _weight_inputs(child, {own[index]: name for index, name in places.items()}, inside)
    return found


@dataclass
class Region:
    """A part of a graph that kernels compute.

    graph: the part as it was, of all its inputs. kernels: the same with its weights inside. weights: by place among the
    inputs, where the weight is in `kernels`. strides: of what it returns, known when it was traced.
    """

    graph: GraphModule
    kernels: Callable[..., Any]
    weights: Mapping[int, Sequence[Slot]]
    strides: list[tuple[int, ...]] = field(default_factory=list)

    def run(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the part returns, in memory of its own. values: of all inputs, weights among them."""
        for index, slots in self.weights.items():
            for module, name in slots:
                held = module._parameters if name in module._parameters else module._buffers
                if held[name] is not values[index]:
                    held[name] = values[index]  # type: ignore[assignment]
        inputs = [value for index, value in enumerate(values) if index not in self.weights]
        with torch.no_grad():
            found = _flat(self.kernels(*inputs))
        taken = {value.untyped_storage().data_ptr() for value in values}
        made = []
        for index, value in enumerate(found):
            wanted = self.strides[index] if self.strides else value.stride()
            if value.untyped_storage().data_ptr() in taken or value.stride() != wanted:
                value = torch.empty_strided(value.shape, wanted, dtype=value.dtype, device=value.device).copy_(value)
            taken.add(value.untyped_storage().data_ptr())
            made.append(value)
        return made

    def fake(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The shapes of what the part returns."""
        found = _flat(self.graph(*values))
        self.strides = [tuple(value.stride()) for value in found]
        return [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in found]


REGIONS: list[Region] = []
"""All regions of this process: compiled code names them by number."""


@torch.library.custom_op("mtmc::region", mutates_args=(), schema="(Tensor[] values, int number) -> Tensor[]")
def region(values: Sequence[torch.Tensor], number: int) -> list[torch.Tensor]:
    """Kernels in the place of a part of a graph."""
    return REGIONS[number].run(values)


@region.register_fake
def _(values: Sequence[torch.Tensor], number: int) -> list[torch.Tensor]:
    return REGIONS[number].fake(values)


def replace_region(root: GraphModule, path: str, make: Callable[[GraphModule], Region]) -> None:
    """Call kernels where a nested graph calls the part at `path`. make: gives its region."""
    above, _, name = path.rpartition(".")
    parent = root.get_submodule(above) if above else root
    assert isinstance(parent, GraphModule)
    node = next(node for node in parent.graph.nodes if node.op == "call_module" and node.target == name)
    part = getattr(parent, name)
    REGIONS.append(make(part))
    value = node.meta.get("example_value")
    with parent.graph.inserting_before(node):
        call = parent.graph.call_function(torch.ops.mtmc.region.default, (list(node.args), len(REGIONS) - 1))
        several = isinstance(value, tuple | list) if value is not None else _returns_several(part)
        result = call if several else parent.graph.call_function(operator.getitem, (call, 0))
    call.meta.update({key: each for key, each in node.meta.items() if key != "example_value"})
    if value is not None:
        call.meta["example_value"] = list(value) if several else [value]
        result.meta["example_value"] = value
    node.replace_all_uses_with(result)
    parent.graph.erase_node(node)
    parent.recompile()


def _returns_several(part: GraphModule) -> bool:
    output = next(node for node in part.graph.nodes if node.op == "output")
    return isinstance(output.args[0], tuple | list)


def unsafe(part: nn.Module, inputs: Sequence[Any]) -> str | None:
    """Why kernels cannot be called in the place of a part, None where they can. inputs: of one call, copies of them.

    What changes its inputs or gives back a part of their memory would need more than a call with results.
    """
    if not all(isinstance(value, torch.Tensor) for value in inputs):
        return "it takes something that is no tensor"
    held = [*inputs, *part.parameters(), *part.buffers()]
    before = [tensor._version for tensor in held]
    with torch.no_grad():
        found = part(*inputs)
    found = found if isinstance(found, tuple | list) else [found]
    if not all(isinstance(value, torch.Tensor) for value in found):
        return "it returns something that is no tensor"
    if [tensor._version for tensor in held] != before:
        return "it changes tensors in place"
    memory = [tensor.untyped_storage().data_ptr() for tensor in (*held, *found)]
    if len(set(memory[len(held) :])) < len(found) or set(memory[len(held) :]) & set(memory[: len(held)]):
        return "it returns a view of what it takes"
    return None


def _flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)
