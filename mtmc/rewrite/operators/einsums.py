"""einsums: Einstein sums as nodes of a kernel: products of tensors as they lie, permutations, elementwise work and sums.

The last are for sums that touch no element of the largest operand (or of the result) more than once, or only a few times
for a few terms (`few_times`): a step of a state, a weighted mean over heads, states handed on from chunk to chunk. Others
are products of matrices, which `algebra.einsums` writes as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.builder import Builder
from mtmc.rewrite.graph import Op, Shape, Size
from mtmc.rewrite.index_maps import Expanded, Permuted
from mtmc.rewrite.operators.steps import floats

FEW = 8
"""Times that elements are touched, and terms of a sum, below which it is no work for tensor cores: of 16 rows and 16 columns
that they multiply at least most would be empty, and memory is the limit."""


@dataclass(frozen=True)
class Equation:
    """An Einstein sum. terms: the labels of each operand's dimensions. out: of the result's."""

    terms: tuple[str, ...]
    out: str

    @property
    def summed(self) -> str:
        """Labels that are summed over, in the order in which they come."""
        return "".join(dict.fromkeys(label for term in self.terms for label in term if label not in self.out))


def equation_of(op: Op) -> Equation:
    """The equation of an einsum. Raises: NotCovered for one with dots, repeated labels, or no right side."""
    text = str(op.args[0]).replace(" ", "")
    left, arrow, out = text.partition("->")
    found = Equation(tuple(left.split(",")), out)
    if not arrow or "." in text or any(len(set(term)) < len(term) for term in (*found.terms, out)):
        raise NotCovered(f"the sum {text}")
    return found


def few_times(found: Equation, sizes: Mapping[str, Size]) -> bool:
    """Whether an operand has all labels but a few numbers of them, at the full shapes, and few terms are summed up.
    sizes: of each label."""
    labels = set(found.out + found.summed)
    times = [_numbers(labels - set(term), sizes) for term in found.terms]
    return max(min(times), _numbers(found.summed, sizes)) <= FEW


def _numbers(labels: Iterable[str], sizes: Mapping[str, Size]) -> int:
    return prod(sizes[label][0] for label in labels)


def einsum(builder: Builder, op: Op) -> None:
    """The nodes of an einsum. Raises: NotCovered."""
    found, names = equation_of(op), [item.name for item in op.args[1]]
    floats(builder, op, *names)
    if len(found.terms) == 1 and not found.summed:
        dims = tuple(found.terms[0].index(label) for label in found.out)
        shape = tuple(builder.shape(names[0])[dim] for dim in dims)
        builder.index("permute", Permuted(dims), (names[0],), shape, name=op.outputs[0])
    elif not _matrices(builder, op, found, names):
        _elementwise(builder, op, found, names)


def _matrices(builder: Builder, op: Op, found: Equation, names: Sequence[str]) -> bool:
    """Add the product of two tensors as they lie, [batch, m, k] and [batch, k, n] or [batch, n, k]; False if it is none."""
    if len(names) != 2 or len(found.summed) != 1 or found.terms[0][-1:] != found.summed or len(found.terms[1]) < 2:
        return False
    (left, right), summed = found.terms, found.summed
    shared, transposed = left[: len(right) - 2], right[-1] == summed
    kept = right[-2] if transposed else right[-1]
    if right not in (f"{shared}{summed}{kept}", f"{shared}{kept}{summed}") or found.out != f"{left[:-1]}{kept}":
        return False
    if len(set(left + kept)) != len(left) + 1 or (len(right) > 2 and len(left) != len(right)):
        return False
    a, b = (builder.shape(name) for name in names)
    builder.dot(names[0], names[1], transposed, (*a[:-1], b[-2 if transposed else -1]), name=op.outputs[0])
    return True


def _elementwise(builder: Builder, op: Op, found: Equation, names: Sequence[str]) -> None:
    labels, sizes = _as_it_lies(found) or found.out + found.summed, _sizes(builder, found, names)
    whole_term = any(set(term) == set(labels) for term in found.terms)
    if found.summed and not (whole_term or few_times(found, sizes)):
        raise NotCovered(f"the sum {op.args[0]} is a product of matrices that do not lie so")
    whole = tuple(sizes[label] for label in labels)
    spread = [_spread(builder, name, term, labels, sizes) for name, term in zip(names, found.terms, strict=True)]
    text = " * ".join(f"{{{number}}}" for number in range(len(spread)))
    name = None if found.summed else op.outputs[0]
    each = builder.map(text, *(_expanded(builder, item, whole) for item in spread), name=name)
    if found.summed:
        builder.reduce("sum", each, [labels.index(label) for label in found.summed], False, name=op.outputs[0])


def _as_it_lies(found: Equation) -> str:
    """The labels in the order of an operand that has them all, if those of the result stand so in it, and those that are
    summed are neighbours: rows and columns then lie as that one's do. "" where there is none."""
    for term in found.terms:
        places = [term.index(label) for label in found.summed if label in term]
        whole = len(places) == len(found.summed) and "".join(label for label in term if label in found.out) == found.out
        if whole and places and max(places) - min(places) == len(places) - 1:
            return term
    return ""


def _expanded(builder: Builder, item: str, whole: Shape) -> str:
    """An operand over the whole shape."""
    return item if builder.shape(item) == whole else builder.index("expand", Expanded(), (item,), whole)


def _sizes(builder: Builder, found: Equation, names: Sequence[str]) -> dict[str, Size]:
    """The size of each label. Raises: NotCovered where a dimension of size 1 stands for a larger one."""
    sizes: dict[str, Size] = {}
    for name, term in zip(names, found.terms, strict=True):
        for label, size in zip(term, builder.shape(name), strict=True):
            if sizes.setdefault(label, size) != size:
                raise NotCovered("a sum with sizes that broadcast")
    return sizes


def _spread(builder: Builder, name: str, term: str, labels: str, sizes: dict[str, Size]) -> str:
    """An operand with its dimensions in the order of all labels, and 1 for those it has not."""
    ordered = [label for label in labels if label in term]
    dims = tuple(term.index(label) for label in ordered)
    if dims != tuple(range(len(dims))):
        shape: Shape = tuple(sizes[label] for label in ordered)
        name = builder.index("permute", Permuted(dims), (name,), shape)
    if len(ordered) == len(labels):
        return name
    ones = (1,) * len(builder.graph.variants)
    return builder.view(name, tuple(sizes[label] if label in term else ones for label in labels))
