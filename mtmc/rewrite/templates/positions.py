"""positions: what pooling and convolution have in common: the spatial dimensions, and their sizes in the launcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtmc.rewrite.body import Body, Node, NotCovered, Window, maps_into, shape_of
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Shape, Size, Varying, product, same
from mtmc.rewrite.sizes import Scope
from mtmc.rewrite.templates.launcher import size_expression
from mtmc.rewrite.templates.writer import Writer

AXES = ("d", "h", "w")
CONVOLUTIONS = ("convolution", "transposed convolution")
"""Operations of windows that are products of matrices."""


@dataclass(frozen=True)
class Windowed:
    """A body with one pooling or convolution.

    source: the value from outside that its windows are taken of. before: elementwise work on it; after: on the result, of a
    convolution with reductions over its channels. axes: letters of the spatial dimensions. inputs, outputs: their sizes.
    """

    node: Node
    window: Window
    source: str
    before: tuple[Node, ...]
    after: tuple[Node, ...]
    axes: tuple[str, ...]
    inputs: tuple[Size, ...]
    outputs: tuple[Size, ...]
    shape: Shape


def analyse(graph: Graph, body: Body) -> Windowed:
    """The one window of a body. Raises: NotCovered where there is more in it than elementwise work around one, and behind a
    convolution reductions over channels."""
    nodes = [node for node in body.nodes if node.kind == "window"]
    kinds = {node.kind for node in body.nodes}
    if len(nodes) != 1 or not kinds <= {"window", "map", "reduce"}:
        raise NotCovered("more than one pooling or convolution with elementwise work around it")
    node = nodes[0]
    assert node.window is not None
    if "reduce" in kinds and node.operation not in CONVOLUTIONS:
        raise NotCovered("reductions behind windows that are no product")
    before = maps_into(body, node.reads()[0], "windows")
    source, shape = _source(graph, body, node.reads()[0], before)
    made = {each.name for each in before}
    after = tuple(each for each in body.nodes if each is not node and each not in before)
    if made & set(body.stores) or any(read in made for each in after for read in each.reads()):
        raise NotCovered("what the windows are taken of is also needed elsewhere")
    if any(body.node(read) is not None for read in node.reads()[1:]):
        raise NotCovered("work on the weights of a convolution")
    _check_after(graph, body, node, after)
    if any(read == node.name for each in before for read in each.reads()):
        raise NotCovered("windows of windows")
    rank = len(node.window.size)
    inputs, outputs = shape[-rank:], node.shape[-rank:]
    return Windowed(node, node.window, source, before, after, AXES[-rank:], inputs, outputs, shape)


def _check_after(graph: Graph, body: Body, node: Node, after: Sequence[Node]) -> None:
    """Raises: NotCovered for work behind a window that is neither on its result's elements nor, where some reduction over
    its channels comes before, on one number a position."""
    channel = len(node.shape) - 1 if node.window is not None and node.window.last else 1
    places = product(tuple(size for axis, size in enumerate(node.shape) if axis != channel))
    narrow = set[str]()
    for each in after:
        if each.kind == "reduce":
            if shape_of(graph, body, each.reads()[0]) != node.shape or each.dims != (channel,):
                raise NotCovered(f"{each.name} does not reduce the channels of the windows' result")
            narrow.add(each.name)
        elif same(product(each.shape), product(node.shape)):
            continue
        elif not (narrow & set(each.reads()) and same(product(each.shape), places)):
            raise NotCovered("work after the windows with another number of elements")
        else:
            narrow.add(each.name)


def _source(graph: Graph, body: Body, read: str, before: tuple[Node, ...]) -> tuple[str, Shape]:
    if not before:
        if body.node(read) is not None:
            raise NotCovered("windows of windows")
        return read, graph.values[read].shape
    shape = before[-1].shape
    made = {node.name for node in before}
    if any(node.shape != shape for node in before):
        raise NotCovered("work before the windows that broadcasts")
    for node in before:
        for operand in node.operands:
            if isinstance(operand, str) and operand not in made and graph.values[operand].shape == shape:
                return operand, shape
    raise NotCovered("nothing to take windows of")


def constant(size: Size) -> int | None:
    """The number that a size is at every variant, or None."""
    return size[0] if len(set(size)) == 1 else None


def text_of(writer: Writer, size: Size) -> str:
    """A number inside a kernel: written out where it is constant, else an argument."""
    number = constant(size)
    return writer.size(size) if number is None else str(number)


def times(text: str, factor: str) -> str:
    """text * factor, as short as it can be written."""
    return text if factor == "1" else f"{text} * {factor}"


def shifted(text: str, offset: str, sign: str = "-") -> str:
    """text - offset, as short as it can be written."""
    return text if offset == "0" else f"{text} {sign} {offset}"


def factor(parts: Sequence[str]) -> str:
    """The product of some names, ready to multiply or divide by."""
    text = " * ".join(part for part in parts if part != "1") or "1"
    return f"({text})" if "*" in text else text


def bracketed(text: str) -> str:
    """In parentheses, unless it is one name or in such already."""
    return text if text.isidentifier() else f"({text})"


def digits(index: str, counts: Sequence[str]) -> list[str]:
    """The digits of a running index, the last the fastest; the first is left as large as it comes."""
    found: list[str] = []
    for at in reversed(range(len(counts))):
        below = factor(counts[at + 1 :])
        place = index if below == "1" else f"{index} // {below}"
        found.insert(0, place if at == 0 else f"{place} % {counts[at]}")
    return found


def inside_sizes(found: Windowed) -> list[str]:
    """Expressions of the operand's spatial sizes in the launcher."""
    lead = len(found.shape) - len(found.axes)
    return [f"{found.source}.shape[{lead + at}]" for at in range(len(found.axes))]


def size_lines(found: Windowed, scope: Scope, spare: dict[str, Varying]) -> list[str]:
    """The launcher's lines that work out the result's spatial sizes. Raises: NotCovered where the usual formula fails."""
    formula = _Formula(found, scope, spare)
    return [f"{INDENT}out_{axis} = {formula.text(at)}" for at, axis in enumerate(found.axes)]


def own_memory(body: Body) -> tuple[str, ...]:
    """The results that are no parts of larger tensors."""
    return tuple(value for value in body.stores if body.part(value) is None)


def allocations(
    graph: Graph, found: Windowed, stores: Sequence[str], lead: Sequence[str], memory: str = ""
) -> list[str]:
    """The launcher's lines that allocate the results, of all channels or of none. lead: expressions of the dimensions before
    the spatial ones. memory: the memory format of those of all channels, "" for the usual one."""
    places, whole = [f"out_{axis}" for axis in found.axes], found.node.shape
    one = (1,) * len(graph.variants)
    shapes = {whole: lead, (whole[0], one, *whole[2:]): (lead[0], "1"), (whole[0], *whole[2:]): lead[:1]}
    lines = []
    for value in stores:
        if graph.values[value].shape not in shapes:
            raise NotCovered("a result of another shape than the windows'")
        shape = ", ".join((*shapes[graph.values[value].shape], *places))
        dtype, like = graph.values[value].dtype, graph.values[found.source].dtype
        own = f"{found.source}.dtype" if dtype == like else f"torch.{dtype}"
        end = f", memory_format={memory}" if memory and graph.values[value].shape == whole else ""
        lines.append(f"{INDENT}{value} = torch.empty(({shape}), device={found.source}.device, dtype={own}{end})")
    return lines


class _Formula:
    """Expressions of output sizes, each worked out from the input's and the window."""

    def __init__(self, found: Windowed, scope: Scope, spare: dict[str, Varying]) -> None:
        self.found, self.scope, self.spare = found, scope, spare

    def text(self, axis: int) -> str:
        """The size of a result's dimension. Raises: NotCovered where the formula does not give what was exported."""
        found, window = self.found, self.found.window
        whole = inside_sizes(found)[axis]
        if window.adaptive:
            return self._number(found.outputs[axis])
        size, stride, padding, dilation = (
            getattr(window, name)[axis] for name in ("size", "stride", "padding", "dilation")
        )
        values = list(zip(found.inputs[axis], found.outputs[axis], size, stride, padding, dilation, strict=True))
        step = self._number(stride)
        if found.node.operation == "transposed convolution":
            reach = {out - i * s for i, out, k, s, p, d in values}
            if len(reach) != 1:
                raise NotCovered("padding that differs between shapes")
            return _plus(times(whole, step), reach.pop())
        offset = {2 * p - d * (k - 1) - 1 for i, out, k, s, p, d in values}
        tap, around, spread = (self._number(each) for each in (size, padding, dilation))
        room = f"{whole} + 2 * {around} - {spread} * ({tap} - 1) - 1"
        if len(offset) == 1:
            room = _plus(whole, min(offset))
        if all(out == (i + 2 * p - d * (k - 1) - 1) // s + 1 for i, out, k, s, p, d in values):
            if step == "1":
                return _plus(whole, min(offset) + 1) if len(offset) == 1 else f"{room} + 1"
            return f"({room}) // {step} + 1"
        if constant(stride) == 1 and found.inputs[axis] == found.outputs[axis]:
            return whole
        if window.ceil:
            return f"min(triton.cdiv({room}, {step}) + 1, triton.cdiv({shifted(whole, around, '+')}, {step}))"
        raise NotCovered("a result of another size than its windows give")

    def _number(self, size: Size) -> str:
        number = constant(size)
        return str(number) if number is not None else size_expression(size, "number", self.scope, self.spare)


def _plus(text: str, number: int) -> str:
    return f"{text} {'-' if number < 0 else '+'} {abs(number)}" if number else text
