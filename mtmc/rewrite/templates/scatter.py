"""scatter: a tensor, changed by elements of another at places that are loaded.

One kernel writes the tensor as it was, with the elementwise work before it; a second one goes over what is scattered, and
stores it or combines it by atomics. Floats are added up in fp32, in the order in which programs come: two runs may differ by
roundings, as torch's own do on a GPU. Whole numbers, and the largest and smallest, are the same every time. Those of floats
are found among whole numbers that have their order (`order_keys`), of which a third kernel makes floats again.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.rewrite.body import Body, Node, NotCovered
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Graph, Shape, Size, Varying, is_one, product
from mtmc.rewrite.index_maps import At, broadcast_at
from mtmc.rewrite.places import linear
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.sizes import NoExpression
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.elements import Elements, home
from mtmc.rewrite.templates.launcher import (
    Launch,
    Printed,
    allocation,
    contiguous_lines,
    launch_lines,
    printed,
    scope_of,
    scope_with_results,
    size_expression,
)
from mtmc.rewrite.templates.order_keys import key, value_of
from mtmc.rewrite.templates.pointwise import block_of
from mtmc.rewrite.templates.writer import Writer, kernel_text

_ATOMICS = {"add": "tl.atomic_add", "amax": "tl.atomic_max", "amin": "tl.atomic_min"}
_COMBINED = ("float32", "int32", "int64")
"""What atomics take."""


class Scatter:
    """Elements that go to places which are loaded."""

    name = "scatter"

    def matches(self, body: Body) -> bool:
        """Has something that is scattered."""
        return any(node.kind == "scatter" for node in body.nodes)

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """512 elements a program, 4 warps."""
        return {"block": 512, "num_warps": 4}

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """Two kernels or three. Raises: NotCovered where there is more than elementwise work before one scatter."""
        nodes = [node for node in body.nodes if node.kind == "scatter"]
        if body.stores != (nodes[0].name,) or len(nodes) > 1:
            raise NotCovered("work on what was scattered, or other results beside it")
        return _Assembler(graph, body, stage, name, nodes[0]).printed()


@dataclass
class _Assembler:
    """Prints the kernels and their launcher.

    kept: torch's name of the dtype in which elements are combined, "" where that is the result's own.
    """

    graph: Graph
    body: Body
    stage: Stage
    name: str
    node: Node

    def __post_init__(self) -> None:
        self.dtype = self.graph.values[self.node.name].dtype
        extreme, floats = self.node.operation in ("amax", "amin"), self.node.compute == "float"
        self.keyed = extreme and floats
        self.kept = "int32" if self.keyed else "float32" if floats and self.node.operation == "add" else self.dtype
        if self.node.operation != "set" and self.kept not in _COMBINED:
            raise NotCovered(f"{self.dtype} that are combined by atomics")
        self.scope, self.spare = scope_with_results(self.graph, self.body), dict[str, Varying]()
        self.texts: list[str] = []
        self.lines: list[str] = []
        self.made = f"{self.name}_made" if self.kept != self.dtype else self.node.name

    def printed(self) -> Printed:
        """All of it."""
        self._start()
        self._scatter()
        if self.made != self.node.name:
            self._finish()
        return printed(self.body, self.name, self.texts, self.lines, self.spare)

    def _start(self) -> None:
        """The tensor as it was."""
        writer, elements, group = self._writer(f"{self.name}_start_kernel", self.node.shape)
        value = elements.value(self.node.operands[0], self._home(writer, self.node.shape, group))
        writer.store(self.node.name, self._kept(writer, value), "offs", "mask")
        self.lines += contiguous_lines(writer)
        self.lines.append(
            allocation(self.graph, self.body, self.node.name, scope_of(self.graph, self.body), self.spare)
        )
        if self.made != self.node.name:
            self.lines.append(f"{INDENT}{self.made} = torch.empty_like({self.node.name}, dtype=torch.{self.kept})")
        self._launch(writer, self.node.shape, (self.made,), (), "the tensor as it was")

    def _scatter(self) -> None:
        """What is scattered."""
        node = self.node
        writer, elements, group = self._writer(f"{self.name}_kernel", node.space)
        at = self._home(writer, node.space, group)
        place, conditions = elements.target(node, at)
        mask = elements.masked(conditions)
        source = node.operands[1]
        value = elements.value(source, broadcast_at(at, elements.shape(source)), conditions)
        offset = elements.text(linear(place, node.shape, len(self.graph.variants)))
        offset = offset if elements.hangs(place) else f"{offset} + tl.zeros([BLOCK], tl.int64)"
        if node.operation == "set":
            writer.store(node.name, value, offset, mask)
        else:
            writer.line(f"given = {self._kept(writer, value)}")
            target = f"{writer.pointer(node.name)} + {offset}"
            writer.line(f'{_ATOMICS[node.operation]}({target}, given, mask={mask}, sem="relaxed")')
        self.lines += [line for line in contiguous_lines(writer) if line not in self.lines]
        self._launch(writer, node.space, (self.made,), (), "what is scattered")

    def _finish(self) -> None:
        """The result in its own dtype."""
        node = self.node
        writer, _, _ = self._writer(f"{self.name}_finish_kernel", node.shape)
        writer.line("made = tl.load(made_ptr + offs, mask=mask, other=0)")
        value = "made"
        if self.keyed:
            value_of(writer, "made", self.dtype, False, "made_value")
            value = "made_value"
        writer.store(node.name, value, "offs", "mask")
        self._launch(writer, node.shape, (node.name,), ("made_ptr",), "the result in its own dtype")

    def _kept(self, writer: Writer, value: str) -> str:
        """A value as it is combined with others. NaN is the largest and the smallest of all."""
        if not self.keyed:
            return f"tl.cast({value}, tl.{self.kept})" if self.node.operation != "set" else value
        key(writer, value, self.dtype, False, "each")
        if self.node.operation == "amin":
            writer.line("each = tl.where(each_of != each_of, -0x7FFFFFFF, each)  # the key of a NaN below all others")
        return "each"

    # -- what the kernels have in common -------------------------------------------------------------------------
    def _writer(self, name: str, shape: Shape) -> tuple[Writer, Elements, Group]:
        """A kernel that goes over the elements of a shape."""
        writer = Writer(self.graph, self.body, name)
        count = writer.argument("n_elements", self._count(shape), product(shape))
        writer.line("block = tl.program_id(0)")
        group = block_of(writer, count, product(shape))
        return writer, Elements(writer, (group,), {}), group

    def _home(self, writer: Writer, shape: Shape, group: Group) -> At:
        at = home(writer, shape, (group,))
        assert at is not None
        return at

    def _count(self, shape: Shape) -> str:
        """Expression of how many elements a shape has, which may be that of no tensor."""
        try:
            return self.scope.size(product(shape))
        except NoExpression:
            sizes = [size_expression(size, f"n_{len(self.texts)}_{at}", self.scope, self.spare)
                     for at, size in enumerate(shape) if not is_one(size)]  # fmt: skip
            return " * ".join(f"({size})" if " " in size else size for size in sizes)

    def _launch(self, writer: Writer, shape: Shape, outputs: tuple[str, ...], extra: tuple[str, ...], doc: str) -> None:
        space: Size = product(shape)
        count = self._count(shape)
        block = self.stage.number("block")
        wide = writer.wide(count, space)
        constants = (("WIDE", wide), ("BLOCK", str(block)))
        text = f"{', '.join(self.stage.ops)}: {doc}, BLOCK elements a program."
        self.texts.append(kernel_text(writer, (self.node.name,), extra, [constant for constant, _ in constants], text))
        grid = (f"triton.cdiv({count}, {block})",)
        given = (self.made,) if extra else ()
        launch = Launch(writer.name, writer, outputs, given, grid, constants, self.stage.number("num_warps"))
        self.lines += launch_lines(launch, self.scope, self.spare)
