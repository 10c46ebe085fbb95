"""symmetry: which values of a graph are symmetric matrices, or batches of them, because of how they are made.

x @ x.T is, and so is the square of such a product, what is added to it that is symmetric, and every elementwise function of
symmetric matrices and numbers. Each value has a form: what it is computed by, as a number that equal computations share.
Next to it stands the form of its transpose, which follows from those of its operands: (a @ b).T is b.T @ a.T. A value whose
forms are one is symmetric, whatever the inputs hold. Numbers that a factor is multiplied by count for the product as a
whole, and products of products for one of all their factors, so (2 * s) @ s and x @ s @ x.T are found as well.

The two halves of such a value may be other ones by roundings: sums are taken in other orders, and a factor is rounded after
it was multiplied by a number, the other one before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

from mtmc.rewrite.body import Body, Index, Node, NotCovered, Number, Operand, Trailing
from mtmc.rewrite.expansion import build
from mtmc.rewrite.graph import Graph, Shape, Varying, is_one, same
from mtmc.rewrite.index_maps import Expanded, Permuted
from mtmc.rewrite.operators.table import table

Forms = tuple[int, int]
"""Of a value, and of its transpose."""

_COMMUTING = ("{0} + {1}", "{0} * {1}", "{0} == {1}")
_SCALING = ("{0} * {1}", "{0} / {1}")
MOST_FACTORS = 16
"""Of a product of products that counts for one of all of them."""


@lru_cache(maxsize=64)
def symmetric_values(graph: Graph) -> frozenset[str]:
    """Names of the values of a graph that are symmetric in their last two dimensions."""
    return _Table(graph).symmetric()


class _Table:
    """The forms of all values of a graph, found from the first op to the last."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._numbers: dict[Hashable, int] = {}
        self._keys: dict[int, Hashable] = {}
        self._forms: dict[str, Forms] = {}
        self._shapes: dict[str, Shape] = {}

    def symmetric(self) -> frozenset[str]:
        """See `symmetric_values`."""
        for op in self._graph.ops:
            try:
                body = build(self._graph, (op.name,), table)
            except NotCovered:
                continue
            for node in body.nodes:
                self._shapes[node.name] = node.shape
                self._forms[node.name] = self._of_node(body, node)
        return frozenset(value for value in self._graph.values if len(set(self._of(value))) == 1)

    def _number(self, key: Hashable) -> int:
        number = self._numbers.setdefault(key, len(self._numbers))
        self._keys[number] = key
        return number

    def _opaque(self, name: str) -> Forms:
        return self._number(("value", name, False)), self._number(("value", name, True))

    def _of(self, name: str) -> Forms:
        """Of a value or a node; what nothing is known of equals itself alone, and not its transpose."""
        return self._forms.get(name) or self._opaque(name)

    def _shape(self, name: str) -> Shape:
        found = self._shapes.get(name)
        return self._graph.values[name].shape if found is None else found

    def _of_node(self, body: Body, node: Node) -> Forms:
        known: dict[str, Callable[[Node], Forms | None]] = {"map": self._of_map, "dot": self._of_dot}
        found = known.get(node.kind, self._of_moved)(node) if len(node.shape) > 1 else None
        return found or self._opaque(node.name)

    def _of_map(self, node: Node) -> Forms | None:
        operands = [self._of_operand(node, each) for each in node.operands]
        found: list[Any] = [each for each in operands if each is not None]
        if len(found) < len(operands):
            return None
        dtype = self._dtype(node.name)
        if node.operation == "{0}" and isinstance(found[0][0], int) and dtype and dtype == self._dtype(node.reads()[0]):
            return found[0][0], found[0][1]  # a copy
        straight, turned = (self._map(node, dtype, [each[at] for each in found]) for at in (0, 1))
        return straight, turned

    def _dtype(self, name: str) -> str:
        """Of a value; "" of what a kernel keeps to itself."""
        return self._graph.values[name].dtype if name in self._graph.values else ""

    def _map(self, node: Node, dtype: str, operands: list[Hashable]) -> int:
        if node.operation in _COMMUTING:
            operands = sorted(operands, key=repr)
        return self._number(("map", node.operation, node.compute, dtype, *operands))

    def _of_operand(self, node: Node, operand: Operand) -> tuple[Hashable, Hashable] | None:
        """What an operand of elementwise work counts for, there and in the transpose; None where that is not known."""
        if isinstance(operand, Index):
            return operand, Index({1: 2, 2: 1}.get(operand.axis, operand.axis))
        if not isinstance(operand, str):
            return None if isinstance(operand, Trailing) else (operand, operand)
        shape, forms = self._shape(operand), self._of(operand)
        if all(map(is_one, shape[-2:])):
            return ("everywhere", forms[0]), ("everywhere", forms[0])
        return forms if _same_matrix(shape, node.shape) else None

    def _of_dot(self, node: Node) -> Forms | None:
        if len(node.operands) != 2 or node.operation not in ("a @ b", "a @ b.T"):
            return None
        left, right = (self._of(read) for read in node.reads())
        if node.operation == "a @ b.T":
            right = right[1], right[0]
        return self._product(left[0], right[0]), self._product(right[1], left[1])

    def _product(self, *factors: int) -> int:
        """Of a product of two, which are products themselves or not."""
        scales, flat = list[Hashable](), list[Hashable]()
        for factor in factors:
            mine, inner = self._unscaled(factor)
            key = self._keys[inner]
            scales += mine
            if isinstance(key, tuple) and key[0] == "product" and len(key[2]) < MOST_FACTORS:
                scales += key[1]
                flat += key[2]
            else:
                flat.append(inner)
        return self._number(("product", tuple(sorted(scales, key=repr)), tuple(flat)))

    def _unscaled(self, form: int) -> tuple[list[Hashable], int]:
        """What a form is multiplied by, and the form that is."""
        scales, key = list[Hashable](), self._keys[form]
        while isinstance(key, tuple) and key[:2] in [("map", each) for each in _SCALING]:
            numbers = [each for each in key[4:] if not isinstance(each, int)]
            if len(numbers) != 1 or not _is_scale(numbers[0]) or (key[1] == "{0} / {1}" and numbers[0] == key[4]):
                break
            [form] = [each for each in key[4:] if isinstance(each, int)]
            scales.append((key[1], key[3], numbers[0]))
            key = self._keys[form]
        return scales, form

    def _of_moved(self, node: Node) -> Forms | None:
        """Of what is done to whole matrices of a batch, and of transposes."""
        if not node.operands or not isinstance(node.operands[0], str) or len(node.operands) > 1:
            return None
        [operand] = node.reads()
        shape, forms = self._shape(operand), self._of(operand)
        rank = len(shape)
        if isinstance(node.index, Permuted):
            dims = node.index.dims
            if rank < 2 or set(dims[-2:]) != {rank - 2, rank - 1}:
                return None
            forms = forms if dims[-2] < dims[-1] else (forms[1], forms[0])
            return forms if dims[:-2] == tuple(range(rank - 2)) else self._both(("permuted", dims[:-2]), forms)
        if not _same_matrix(shape, node.shape):
            return None
        if node.kind == "view" or isinstance(node.index, Expanded):
            return forms if shape == node.shape else self._both(("view", node.shape[:-2]), forms)
        leading = node.kind == "reduce" and all(dim < rank - 2 for dim in node.dims)
        return self._both(("reduce", node.operation, node.dims, node.shape[:-2]), forms) if leading else None

    def _both(self, key: tuple[Hashable, ...], forms: Forms) -> Forms:
        return self._number((*key, forms[0])), self._number((*key, forms[1]))


def _is_scale(operand: Hashable) -> bool:
    """Whether it is one number for all elements of a matrix."""
    return isinstance(operand, (Number, Varying)) or (isinstance(operand, tuple) and operand[0] == "everywhere")


def _same_matrix(shape: Shape, other: Shape) -> bool:
    """Whether the last two dimensions are the same."""
    return len(shape) > 1 and all(same(a, b) for a, b in zip(shape[-2:], other[-2:], strict=True))
