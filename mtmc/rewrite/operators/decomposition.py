"""decomposition: what torch makes of an op: its decomposition, traced at every exported variant and merged."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mtmc.rewrite.graph import Op, Ref, Shape, Tensor, Varying

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

LONGEST = 100
"""Ops of a decomposition that may become part of a kernel."""


class NoTrace(Exception):
    """Why an op has no decomposition that kernels could follow."""


@dataclass(frozen=True)
class Input:
    """A tensor among an op's arguments."""

    shape: Shape
    dtype: str
    strides: Shape


@dataclass(frozen=True)
class Decomposition:
    """What an op is made of. inputs: names of its tensors, in order. results: what it gives, None for nothing."""

    inputs: tuple[str, ...]
    ops: tuple[Op, ...]
    values: Mapping[str, Tensor]
    results: tuple[Any, ...]


@lru_cache(maxsize=2048)
def decomposition(target: str, args: Any, kwargs: Any, text: str, variants: int) -> Decomposition | str:
    """What an op is made of, or why that is not known. text: of the arguments, since 1 and True are the same key."""
    from mtmc.rewrite.exported import LOCK

    try:
        with LOCK:
            traces = [_trace(target, args, kwargs, variant) for variant in range(variants)]
        return _merged(target, traces)
    except NoTrace as error:
        return str(error)
    except Exception as error:  # whatever torch's decompositions raise, the op then stays a call
        return f"{target} cannot be decomposed: {type(error).__name__}"


def _trace(target: str, args: Any, kwargs: Any, variant: int) -> GraphModule:
    """The decomposition at the shapes of one variant, without data."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    run = _function(target)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        tensors = [_fake(each, variant) for each in _inputs((args, kwargs))]

        def call(*given: Any) -> Any:
            left = iter(given)
            result = run(*_concrete(args, variant, left), **dict(_concrete(kwargs, variant, left)))
            return tuple(result) if isinstance(result, (tuple, list)) else result  # no named tuple of torch's

        found: GraphModule = make_fx(call)(*tensors)
        if any(_is_mutable(node) for node in found.graph.nodes):
            found = make_fx(torch.func.functionalize(call, remove="mutations"))(*tensors)
    found.graph.eliminate_dead_code()
    if len(found.graph.nodes) > LONGEST:
        raise NoTrace(f"{target} is made of too many ops")
    return found


def _function(target: str) -> Callable[..., Any]:
    """torch's decomposition of an op. Raises: NoTrace where there is none."""
    import torch
    from torch._decomp import get_decompositions

    packet, _, kind = target.removeprefix("aten.").partition(".")
    op = getattr(getattr(torch.ops.aten, packet, None), kind, None)
    if op is None:
        raise NoTrace(f"no kernel template covers {target}")
    found = get_decompositions([op]).get(op)
    if found is not None:
        return found
    composite: Callable[..., Any] = op.decompose

    def decompose(*args: Any, **kwargs: Any) -> Any:
        result = composite(*args, **kwargs)
        if result is NotImplemented:
            raise NoTrace(f"no kernel template covers {target}")
        return result

    return decompose


def _inputs(item: Any) -> Iterator[Input]:
    if isinstance(item, Input):
        yield item
    elif isinstance(item, tuple):
        for part in item:
            yield from _inputs(part)


def _fake(known: Input, variant: int) -> Any:
    import torch

    shape = tuple(size[variant] for size in known.shape)
    dtype = getattr(torch, known.dtype)
    if not known.strides:
        return torch.empty(shape, dtype=dtype)
    return torch.empty_strided(shape, tuple(stride[variant] for stride in known.strides), dtype=dtype)


def _concrete(item: Any, variant: int, tensors: Iterator[Any]) -> Any:
    if isinstance(item, Input):
        return next(tensors)
    if isinstance(item, Varying):
        return item.values[variant]
    if isinstance(item, tuple):
        return tuple(_concrete(part, variant, tensors) for part in item)
    return item


def _is_mutable(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _merged(target: str, traces: list[GraphModule]) -> Decomposition:
    """One decomposition of the traces at all variants. Raises: NoTrace where they are of different ops."""
    columns = [list(trace.graph.nodes) for trace in traces]
    if any([_called(node) for node in column] != [_called(node) for node in columns[0]] for column in columns):
        raise NoTrace(f"{target} is made of other ops at other shapes")
    merger = _Merger(traces)
    for nodes in zip(*columns, strict=True):
        merger.add(nodes)
    if any(op.target == target for op in merger.ops):
        raise NoTrace(f"no kernel template covers {target}")
    return Decomposition(tuple(merger.inputs), tuple(merger.ops), merger.values, merger.results)


def _called(node: Node) -> str:
    return str(node.target) if node.op == "call_function" else node.op


def _alike(one: Any, other: Any) -> bool:
    """Whether two numbers are the same; NaN is the same as NaN."""
    return bool(one == other or (one != one and other != other))


class _Merger:
    """Reads the same node of all traces side by side."""

    def __init__(self, traces: list[GraphModule]) -> None:
        self.traces = traces
        self.inputs: list[str] = []
        self.ops: list[Op] = []
        self.values: dict[str, Tensor] = {}
        self.results: tuple[Any, ...] = ()
        self._names: dict[str, Any] = {}
        """Of the first trace's nodes: their values, or the numbers that they are."""

    def add(self, nodes: tuple[Node, ...]) -> None:
        """One node of each trace."""
        node = nodes[0]
        if node.op == "placeholder":
            self.inputs.append(node.name)
            self._keep(nodes, node.name)
        elif node.op == "get_attr":
            self._names[node.name] = self._number(nodes)
        elif node.op == "output":
            found = self._convert([each.args[0] for each in nodes])
            self.results = found if isinstance(found, tuple) else (found,)
        elif node.target is operator.getitem:
            parent, index = node.args
            assert not isinstance(parent, (int, str)) and parent is not None
            self._names[node.name] = Ref(f"{parent.name}_{index}")  # type: ignore[union-attr]
        else:
            self._call(nodes)

    def _call(self, nodes: tuple[Node, ...]) -> None:
        node = nodes[0]
        if "val" not in node.meta:
            return
        several = isinstance(node.meta["val"], (tuple, list))
        outputs = tuple(f"{node.name}_{at}" for at in range(len(node.meta["val"]))) if several else (node.name,)
        for at, output in enumerate(outputs):
            self._keep(nodes, output, at if several else None)
        args = self._convert([each.args for each in nodes])
        kwargs = {key: self._convert([each.kwargs[key] for each in nodes]) for key in node.kwargs}
        self.ops.append(Op(node.name, str(node.target), args, kwargs, outputs, None))

    def _keep(self, nodes: tuple[Node, ...], name: str, pick: int | None = None) -> None:
        import torch

        found = [node.meta["val"] if pick is None else node.meta["val"][pick] for node in nodes]
        if not all(isinstance(value, torch.Tensor) for value in found):
            return
        if len({value.dim() for value in found}) > 1:
            raise NoTrace(f"{name} has another number of dimensions")
        shape = tuple(zip(*[tuple(int(size) for size in value.shape) for value in found], strict=True))
        contiguous = all(value.is_contiguous() for value in found)
        strides = () if contiguous else tuple(zip(*[tuple(map(int, value.stride())) for value in found], strict=True))
        self.values[name] = Tensor(shape, str(found[0].dtype).removeprefix("torch."), contiguous, strides)
        if pick is None:
            self._names[nodes[0].name] = Ref(name)

    def _number(self, nodes: tuple[Node, ...]) -> Any:
        """What a constant of one number is, at all variants."""
        found = [getattr(trace, str(node.target)) for trace, node in zip(self.traces, nodes, strict=True)]
        if any(each.numel() != 1 or each.dim() for each in found):
            raise NoTrace("a constant of several numbers")
        numbers = [each.item() for each in found]
        if any(number != numbers[0] for number in numbers):
            raise NoTrace("another constant at other shapes")
        return numbers[0]

    def _convert(self, column: list[Any]) -> Any:
        """The same argument of all traces as one."""
        import torch

        first = column[0]
        if isinstance(first, torch.fx.Node):
            return self._names[first.name]
        if isinstance(first, (tuple, list)):
            if len({len(each) for each in column}) > 1:
                raise NoTrace("an argument list of another length")
            return tuple(self._convert(list(part)) for part in zip(*column, strict=True))
        if all(_alike(each, first) for each in column):
            return first
        if all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in column):
            return Varying(tuple(column))
        raise NoTrace(f"argument {first!r} differs")
