"""paired: an Einstein sum of several tensors as sums of two at a time, in the order in which that is least work.

Proof. Multiplication is associative and commutative, and a factor without a label goes in front of the sum over it: with
the labels k of A and B alone, sum_kl A B C = sum_l (sum_k A B) C. Two factors of which each label is needed later are
multiplied element by element.

What it is for: a sum of many tensors is a call that no kernel covers. Of two it is a product of matrices
(`algebra.einsums`) or elementwise work, which a kernel of the product before or behind it takes in: the decay of a state
space model between the product of queries and keys and that with the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule
from mtmc.rewrite.algebra.einsums import equation_with, extents_of, in_order_of_matrices, permuted
from mtmc.rewrite.graph import Graph, Op, Ref
from mtmc.rewrite.operators.einsums import Equation

MOST = 6
"""Operands of a sum that is taken apart: there are 945 ways for so many, ten times as many for one more."""
ELEMENT = 32
"""Multiply-adds that writing and reading an element costs as much as."""


def _paired(graph: Graph, op: Op) -> Finding | None:
    found = next((each for count in range(3, MOST + 1) if (each := equation_with(op, count)) is not None), None)
    extents = None if found is None else extents_of(graph, op, found)
    if found is None or extents is None:
        return None
    full = tuple((label, size[0]) for label, size in sorted(extents.items()))
    first, second = _cheapest(found.terms, found.out, full)[1]
    edit, items = Editor(graph, op), op.args[1]
    pair = _pair(found, first, second)
    made = _both(edit, pair, (items[first], items[second]), extents)
    if made is None:
        return None
    item, term = made
    rest = [number for number in range(len(items)) if number not in (first, second)]
    terms, others = (term, *(found.terms[number] for number in rest)), (item, *(items[number] for number in rest))
    if len(others) == 2 and not Equation(terms, found.out).summed:
        last = _both(edit, Equation(terms, found.out), others, extents)
        by = None if last is None else permuted(edit, last[0], last[1], found.out)
    else:
        by = edit.called(op.target, (f"{','.join(terms)}->{found.out}", others), "rest")
    words = f"{op.name} is a sum of two tensors at a time"
    return None if by is None else edit.relaid(words, (op.name,), by)


def _pair(found: Equation, first: int, second: int) -> Equation:
    """What two operands come to: with the labels that are needed later, in the order of the result, then as they come."""
    pair = (found.terms[first], found.terms[second])
    others = "".join(term for number, term in enumerate(found.terms) if number not in (first, second))
    needed = [label for label in dict.fromkeys(found.out + "".join(pair)) if label in "".join(pair)]
    return Equation(pair, "".join(label for label in needed if label in found.out + others))


def _both(
    edit: Editor, pair: Equation, items: Sequence[Ref], extents: Mapping[str, tuple[int, ...]]
) -> tuple[Ref, str] | None:
    """What two operands come to, and its labels in order; None where torch refuses that."""
    if pair.summed:
        labels = in_order_of_matrices(pair)
        made = edit.called("aten.einsum.default", (f"{','.join(pair.terms)}->{labels}", tuple(items)), "of_two")
        return None if made is None else (made, labels)
    labels = next((term for term in pair.terms if set(term) == set(pair.out)), pair.out)
    aligned = []
    for item, term in zip(items, pair.terms, strict=True):
        own = "".join(label for label in labels if label in term)
        ones = (1,) * len(edit.graph.variants)
        shape = tuple(extents[label] if label in own else ones for label in labels)
        aligned.append(edit.shaped(permuted(edit, item, term, own), shape))
    made = edit.called("aten.mul.Tensor", tuple(aligned), "scaled")
    return None if made is None else (made, labels)


@lru_cache(maxsize=256)
def _cheapest(terms: tuple[str, ...], out: str, full: tuple[tuple[str, int], ...]) -> tuple[float, tuple[int, int]]:
    """What the cheapest way costs, in multiply-adds, and which two operands come first in it (of equal ones, the first).
    full: the size of each label."""
    sizes, best = dict(full), (float("inf"), (0, 1))
    for first, second in combinations(range(len(terms)), 2):
        pair = _pair(Equation(terms, out), first, second)
        rest = (pair.out, *(term for number, term in enumerate(terms) if number not in (first, second)))
        cost = _elements("".join(pair.terms), sizes) + ELEMENT * _elements(pair.out, sizes)
        if len(rest) > 1:
            cost += _cheapest(rest, out, full)[0]
        best = min(best, (cost, (first, second)))
    return best


def _elements(labels: str, sizes: Mapping[str, int]) -> float:
    """Elements of a tensor with these labels."""
    number = 1.0
    for label in set(labels):
        number *= sizes[label]
    return number


PAIRED: tuple[Rule, ...] = (_paired,)
