"""attention_turned: what scores are worked on with, and lies nearer from row to row than from column to column.

The lanes of a warp have neighbouring columns of a tile of scores. An operand that lies the other way (a bias of columns and
rows; the product of keys with a table of distances, gathered by distance and turned) would be read by elements far from each
other, each out of a sector of its own. Its tile is read along the rows, and turned in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from mtmc.rewrite.body import Body, Node, NotCovered, Operand, Trailing
from mtmc.rewrite.graph import Graph, Size, Tensor, is_one, product, same
from mtmc.rewrite.index_maps import Asked, At, Reshaped, broadcast_at
from mtmc.rewrite.places import Atom, Digit, Place
from mtmc.rewrite.space import Group
from mtmc.rewrite.templates.elements import Elements, Variables, home
from mtmc.rewrite.templates.softmax_product import SoftmaxProduct
from mtmc.rewrite.templates.writer import Writer

ACROSS, BELOW = "rows_across", "cols_below"
"""The numbers of a turned tile's rows, which stand side by side, and of its columns."""
NAMES = (ACROSS, f"{ACROSS}_mask", BELOW, f"{BELOW}_mask")


class TurningAttention(Protocol):
    """What is asked of the attention that is being written, see `attention_kernel.Kernel`."""

    graph: Graph
    body: Body
    writer: Writer
    found: SoftmaxProduct
    block: str
    n_rows: str
    packed: bool


@dataclass
class TurnedTiles:
    """The turned tiles of one block of columns. end: where its columns end, "" where none of the block's is behind."""

    kernel: TurningAttention
    end: str
    _elements: Elements | None = field(default=None, init=False)

    def read(self, node: Node, variables: Variables) -> None:
        """Lines that read what an elementwise step on the scores takes and lies turned. variables: what is known at the
        place at hand, which is added to. Raises: NotCovered where a value cannot be had at its place."""
        kernel, alone = self.kernel, len(node.shape) <= 2 or same(product(node.shape[:-2]), ())
        elements = Elements(kernel.writer, self._groups(("rows", "cols"), ("", ""), alone), {})
        at = home(kernel.writer, node.shape, elements.groups)
        if kernel.packed or at is None:  # rows of several heads stand in one tile
            return
        for item in node.operands:
            known = isinstance(item, (str, Trailing)) and (item in variables or (item, node.shape) in variables)
            if known or not isinstance(item, (str, Trailing)):
                continue
            place = broadcast_at(at, elements.shape(item))
            if _is_turned(elements, item, place):
                outside = isinstance(item, Trailing) or kernel.body.node(item) is None
                variables[(item, node.shape) if outside else (item, place, ())] = self._tile(item, place, variables)

    def _tile(self, item: str | Trailing, at: At, variables: Variables) -> str:
        """The variable with a tile of an operand, read turned."""
        writer = self.kernel.writer
        elements = self._elements = self._elements or self._begun()
        _share_names(variables, elements.variables)
        text = elements.value(item, tuple(_turned_place(place) for place in at))
        name = elements.fresh(f"{item.value if isinstance(item, Trailing) else item}_turned")
        writer.line(f"{name} = tl.trans(tl.broadcast_to({text}, [BLOCK_N, BLOCK_M]))")
        elements.variables[("local", name)] = name
        _share_names(elements.variables, variables)
        return name

    def _begun(self) -> Elements:
        """Where turned tiles are read, with lines that say where that is."""
        writer, masks = self.kernel.writer, (f"{ACROSS}_mask", f"{BELOW}_mask" if self.end else "")
        writer.comment("what lies nearer from row to row is read so, and turned")
        writer.line(f"{ACROSS} = {self.kernel.block} * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]")
        writer.line(f"{masks[0]} = {ACROSS} < {self.kernel.n_rows}")
        writer.line(f"{BELOW} = start + tl.arange(0, BLOCK_N)[:, None]")
        if self.end:
            writer.line(f"{masks[1]} = {BELOW} < {self.end}")
        return Elements(writer, self._groups((ACROSS, BELOW), masks, False), {})

    def _groups(self, names: tuple[str, str], masks: tuple[str, str], alone: bool) -> tuple[Group, ...]:
        found = self.kernel.found
        rows, cols = Group(names[0], found.rows, masks[0]), Group(names[1], found.columns, masks[1])
        return (rows, cols) if alone else (Group("batch", product(found.batch), ""), rows, cols)


def _share_names(given: Variables, taker: Variables) -> None:
    """Nothing that is made with one set of variables may bear a name of the other's."""
    taker.update({("local", name): name for name in given.values()})


def _turned_place(place: Place) -> Place:
    """A place at hand as a turned tile knows it."""
    return Place(tuple((_turned_atom(atom), factor) for atom, factor in place.terms), place.more, place.count)


def _turned_atom(atom: Atom) -> Atom:
    if isinstance(atom, Digit):
        index = {"rows": ACROSS, "cols": BELOW}.get(atom.index, atom.index)
        return Digit(index, atom.below, atom.count, atom.top)
    return atom


def _is_turned(elements: Elements, item: Operand, at: At) -> bool:
    """Whether all that an operand is made of at a place lies nearer from row to row than from column to column."""
    found = list(_loads(elements, item, at, {}))
    return bool(found) and all(_nearer_by_rows(tensor, place, hangs) for tensor, place, hangs in found)


Hangs = dict[str, frozenset[str]]
"""The running indices that indices hang on which are loaded."""


def _loads(elements: Elements, item: Operand, at: At, hangs: Hangs) -> Iterator[tuple[Tensor, At, Hangs]]:
    """The tensors that are read for an operand at a place, but for the indices of others, and where; nothing where the
    place is cut into pieces, or is no plain one."""
    node = elements.writer.body.node(item) if isinstance(item, str) else None
    if node is None:
        if isinstance(item, (str, Trailing)):
            tensor = elements.writer.tensor(item.value if isinstance(item, Trailing) else item)
            yield tensor, at[: len(tensor.shape)], hangs
        return
    if node.kind == "map":
        for each in node.operands:
            if isinstance(each, (str, Trailing)):
                yield from _loads(elements, each, broadcast_at(at, elements.shape(each)), hangs)
    if node.kind not in ("view", "index"):
        return
    index = Reshaped(node.shape) if node.kind == "view" else node.index
    assert index is not None

    def load(number: int, place: At, wrap: Size | None) -> str:
        name = f"{node.name} {number}"
        hangs[name] = frozenset().union(*(_indices(each, hangs) for each in place))
        return name

    try:
        pieces = index.pieces(
            Asked(at, tuple(map(elements.shape, node.operands)), len(elements.writer.graph.variants), load)
        )
    except NotCovered:
        return
    if len(pieces) == 1:
        yield from _loads(elements, node.operands[pieces[0].operand], pieces[0].at, hangs)


def _indices(place: Place, hangs: Hangs) -> frozenset[str]:
    return frozenset().union(*(hangs.get(index, frozenset((index,))) for index in place.indices))


def _nearer_by_rows(tensor: Tensor, at: At, hangs: Hangs) -> bool:
    """Whether an element's neighbour from row to row lies nearer than that from column to column, at the full shapes."""
    steps = {"rows": 0, "cols": 0}
    for place, stride, size in zip(at, tensor.lying, tensor.shape, strict=True):
        if is_one(size):
            continue
        for index in _indices(place, hangs) & steps.keys():
            steps[index] = max(steps[index], abs(stride[0]))
    return 0 < steps["rows"] < steps["cols"]
