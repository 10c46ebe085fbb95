"""transforms: work on complex numbers between real ones, as work on pairs of real numbers.

Proof. A complex tensor is its real and imaginary parts, side by side along one more dimension, as `torch.view_as_real` has
them; each op on complex numbers that is listed here is written out in these. A Fourier transform of several dimensions is
one of each, one after the other, and one along a dimension is one along the last of the transposed tensor.

What it is for: no kernel computes on complex numbers, so a transform, a product of spectra and the transform back were
calls that nothing is joined with. Transforms of up to 512 numbers can be kernels then (`operators.fourier`), and what is
between them is elementwise work. A rule looks at an op that gives real numbers, and follows its operand back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mtmc.rewrite.algebra.edit import Editor, Finding, Rule, sizes
from mtmc.rewrite.algebra.laid_out import laid_out
from mtmc.rewrite.algebra.transform_calls import Wall, Wanted, wanted
from mtmc.rewrite.graph import FOURIER, Graph, Op, Ref, Shape, Size, Varying, product


class _Pairs:
    """Writes out what makes a complex value. Each is a tensor with one more dimension, of 2, at the end."""

    def __init__(self, graph: Graph, op: Op) -> None:
        self.graph, self.edit = graph, Editor(graph, op)
        self.ops = [op.name]
        self._known: dict[str, Ref] = {}
        self._copied: dict[str, Ref] = {}
        self.two: Size = (2,) * len(graph.variants)

    # -- ops that are written out ----------------------------------------------------------------------------------
    def pair(self, item: Any) -> Ref:
        """A complex value as pairs. Raises: Wall."""
        if not isinstance(item, Ref):
            raise Wall(f"{item!r}")
        if item.name not in self._known:
            self._known[item.name] = self._made(item)
        return self._known[item.name]

    def _made(self, item: Ref) -> Ref:
        op = self.graph.by_name.get(self.graph.producer.get(item.name, ""))
        shape = self.graph.values[item.name].shape
        if self.graph.values[item.name].dtype != "complex64":
            raise Wall(self.graph.values[item.name].dtype)
        if op is None:  # it comes from outside
            return self.edit.add("aten.view_as_real.default", (item,), (*shape, self.two), "pairs")
        self.ops.append(op.name)
        found = wanted(self.graph, op)
        if found is not None:
            return self.transformed(op, found)
        name = op.target.split(".")[1]
        if name == "view_as_complex":
            return self._contiguous(op.args[0])
        if name in ("conj", "_conj", "conj_physical", "resolve_conj"):
            pairs = self.pair(op.args[0])
            return (
                pairs
                if name == "resolve_conj"
                else self.joined(self.part(pairs, 0), self._negative(self.part(pairs, 1)))
            )
        if name in ("add", "sub") and not op.kwargs:
            return self._both(op, shape)
        if name in ("mul", "div"):
            return self._product(op, name, shape)
        if name == "complex":
            return self.joined(*(self._spread(each, shape) for each in op.args))
        raise Wall(op.target)

    def _complex(self, item: Any) -> bool:
        return isinstance(item, Ref) and self.graph.values[item.name].dtype.startswith("complex")

    def _both(self, op: Op, shape: Shape) -> Ref:
        if not all(map(self._complex, op.args[:2])):
            raise Wall(f"{op.target} of a real operand")
        return self.edit.add(op.target, (self.pair(op.args[0]), self.pair(op.args[1])), (*shape, self.two), "both")

    def _product(self, op: Op, name: str, shape: Shape) -> Ref:
        one, other = op.args[:2]
        if self._complex(one) and self._complex(other) and name == "mul":
            a, b = self.pair(one), self.pair(other)
            (p, q), (r, s) = ((self.part(each, 0), self.part(each, 1)) for each in (a, b))
            real = self._minus(self._times(p, r, shape), self._times(q, s, shape), shape)
            imaginary = self._plus(self._times(p, s, shape), self._times(q, r, shape), shape)
            return self.joined(real, imaginary)
        if self._complex(other) and name == "mul":
            one, other = other, one
        if self._complex(other) or isinstance(other, complex) or not self._complex(one):
            raise Wall(f"{op.target} by {other!r}")
        if isinstance(other, Ref):
            known = self.graph.values[other.name]
            if known.dtype != "float32":
                raise Wall(f"{op.target} by {known.dtype}")
            ones = (1,) * len(self.graph.variants)
            strides = (*known.strides, ones) if known.strides else ()
            other = self.edit.add(
                "aten.unsqueeze.default", (other, len(known.shape)), (*known.shape, ones), "each", strides=strides
            )
        return self.edit.add(f"aten.{name}.Tensor", (self.pair(one), other), (*shape, self.two), "scaled")

    # -- transforms ------------------------------------------------------------------------------------------------
    def transformed(self, op: Op, found: Wanted, part: str = "both") -> Ref:
        """A transform's result: pairs, or numbers where they are real or only a part of them is asked for. Raises: Wall."""
        if found.inverse and found.real and not self._complex(op.args[0]):
            raise Wall(f"{op.target} of real numbers")
        plain = found.real and not found.inverse
        value = self._contiguous(op.args[0]) if plain else self.pair(op.args[0])
        if plain and self.edit.tensor(value).dtype != "float32":
            raise Wall(f"{op.target} of {self.edit.tensor(value).dtype}")
        order = list(zip(found.dims, found.lengths, strict=True))
        order = order if found.inverse and found.real else order[::-1]
        full = self.graph.values[op.outputs[0]].shape
        for at, (dim, length) in enumerate(order):
            last = at == len(order) - 1
            real_now = plain and at == 0
            if found.inverse and found.real and last:
                kind = "irfft"
            elif real_now and found.half:
                kind = "rfft"
            else:
                kind = "ifft" if found.inverse else "fft"
            value = self._along(
                value, dim, kind, length, full[dim], found.norm, part if last and kind != "irfft" else "both", real_now
            )
        return value

    def _along(self, value: Ref, dim: int, kind: str, length: Any, size: Size, norm: str, part: str, real: bool) -> Ref:
        """A transform along a dimension. size: how many numbers there are along it afterwards."""
        shape = self.edit.tensor(value).shape
        rank = len(shape) - (0 if real else 1)
        own = shape[dim]
        if kind == "irfft":
            needed: Size = tuple(each // 2 + 1 for each in size)
            total = size
        else:
            total = own if length is None else self._size(length)
            needed = total
        own = tuple(min(a, b) for a, b in zip(own, needed, strict=True))
        if own != shape[dim]:
            if any(a != b for a, b in zip(own, needed, strict=True)):
                raise Wall("a transform that is longer than its operand at some shapes, and shorter at others")
            value = self._sliced(value, dim, own)
        moved = self._swapped(value, dim, rank - 1) if dim != rank - 1 else value
        shape = self.edit.tensor(moved).shape
        lead = shape[: rank - 1]
        inner = own if real else tuple(2 * each for each in own)
        rows: Shape = lead or ((1,) * len(own),)
        moved = self.edit.shaped(moved, (*rows, inner))
        pairs = kind != "irfft" and part == "both"
        outer = tuple(2 * each for each in size) if pairs else size
        number = size if kind == "irfft" else total
        args = (moved, kind, sizes((number,))[0], norm, part, real)
        made = self.edit.add(FOURIER, args, (*rows, outer), "transform")
        made = self.edit.shaped(made, (*lead, size, self.two) if pairs else (*lead, size))
        return self._swapped(made, dim, rank - 1) if dim != rank - 1 else made

    def _size(self, length: Any) -> Size:
        if isinstance(length, Varying):
            return tuple(int(value) for value in length.values)
        return (int(length),) * len(self.graph.variants)

    # -- small parts -----------------------------------------------------------------------------------------------
    def part(self, pairs: Ref, which: int) -> Ref:
        """The real parts (0), or the imaginary ones."""
        known = self.edit.tensor(pairs)
        strides = (known.strides or contiguous_strides(known.shape))[:-1]
        return self.edit.add(
            "aten.select.int", (pairs, len(known.shape) - 1, which), known.shape[:-1], "part", strides=strides
        )

    def joined(self, real: Ref, imaginary: Ref) -> Ref:
        shape = self.edit.tensor(real).shape
        return self.edit.add("aten.stack.default", ((real, imaginary), -1), (*shape, self.two), "pairs")

    def _times(self, one: Ref, other: Ref, shape: Shape) -> Ref:
        return self.edit.add("aten.mul.Tensor", (one, other), shape, "times")

    def _plus(self, one: Ref, other: Ref, shape: Shape) -> Ref:
        return self.edit.add("aten.add.Tensor", (one, other), shape, "plus")

    def _minus(self, one: Ref, other: Ref, shape: Shape) -> Ref:
        return self.edit.add("aten.sub.Tensor", (one, other), shape, "minus")

    def _negative(self, item: Ref) -> Ref:
        return self.edit.add("aten.neg.default", (item,), self.edit.tensor(item).shape, "negative")

    def _spread(self, item: Any, shape: Shape) -> Ref:
        if not isinstance(item, Ref) or self.graph.values[item.name].shape != shape:
            raise Wall("parts that broadcast")
        return item

    def _contiguous(self, item: Any) -> Ref:
        if not isinstance(item, Ref):
            raise Wall(f"{item!r}")
        known = self.edit.tensor(item)
        if known.contiguous:
            return item
        made = self.edit.add("aten.contiguous.default", (item,), known.shape, "in_order")
        self._copied[made.name] = item
        return made

    def as_made(self, item: Ref) -> Ref:
        """A value as it lay before it was put in order, as torch leaves what it transforms along another dimension."""
        return self._copied.get(item.name, item)

    def _sliced(self, value: Ref, dim: int, size: Size) -> Ref:
        shape = self.edit.tensor(value).shape
        cut = (*shape[:dim], size, *shape[dim + 1 :])
        strides = self.edit.tensor(value).strides or contiguous_strides(shape)
        (end,) = sizes((size,))
        made = self.edit.add("aten.slice.Tensor", (value, dim, 0, end), cut, "cut", strides=strides)
        return self._contiguous(made)

    def _swapped(self, value: Ref, one: int, other: int) -> Ref:
        """Two dimensions exchanged, in order in memory."""
        known = self.edit.tensor(value)
        shape, strides = list(known.shape), list(known.strides or contiguous_strides(known.shape))
        for each in (shape, strides):
            each[one], each[other] = each[other], each[one]
        turned = self.edit.add(
            "aten.transpose.int", (value, one, other), tuple(shape), "turned", strides=tuple(strides)
        )
        return self._contiguous(turned)


def contiguous_strides(shape: Shape) -> Shape:
    """Those of a contiguous tensor."""
    return tuple(product(shape[axis + 1 :]) or (1,) * len(size) for axis, size in enumerate(shape))


def _real_end(graph: Graph, op: Op) -> Finding | None:
    """An op that gives real numbers of complex ones."""
    make = _ENDS.get(op.target.split(".")[1]) if op.target.startswith("aten.") else None
    if make is None or not op.args or not isinstance(op.args[0], Ref):
        return None
    known, result = graph.values.get(op.args[0].name), graph.values.get(op.outputs[0])
    if (
        known is None
        or known.dtype != "complex64"
        or result is None
        or result.dtype != "float32"
        or len(graph.variants) < 1
    ):
        return None
    pairs = _Pairs(graph, op)
    try:
        by = make(pairs, op)
    except Wall:
        return None
    if all(name == op.name for name in pairs.ops) and op.target.split(".")[1] in ("real", "imag", "view_as_real"):
        return None  # what comes from outside is taken apart by it
    by = by if result.contiguous else pairs.as_made(by)
    sentence = f"{op.name} is work on pairs of real numbers"
    names = tuple(dict.fromkeys(pairs.ops))
    made = pairs.edit.tensor(by)
    if (made.contiguous, made.strides) == (result.contiguous, result.strides):
        return pairs.edit.finish(sentence, names, by)
    found = pairs.edit.replaced(sentence, names, {op.outputs[0]: by})
    lying = laid_out(found.graph, [by.name])
    return None if lying is None else Finding(found.sentence, found.ops, lying)


def _part_of(which: int, word: str) -> Callable[[_Pairs, Op], Ref]:
    def make(pairs: _Pairs, op: Op) -> Ref:
        item = op.args[0]
        made = pairs.graph.by_name.get(pairs.graph.producer.get(item.name, ""))
        found = None if made is None else wanted(pairs.graph, made)
        shared = len(pairs.graph.readers(item.name)) > 1 or op.outputs[0] in pairs.graph.results()
        if made is None or found is None or shared:
            whole = pairs.pair(item)
            return pairs.part(whole if pairs.graph.values[item.name].contiguous else pairs.as_made(whole), which)
        pairs.ops.append(made.name)
        return pairs.transformed(made, found, word)

    return make


def _inverse(pairs: _Pairs, op: Op) -> Ref:
    found = wanted(pairs.graph, op)
    if found is None or not (found.inverse and found.real and found.half):
        raise Wall(op.target)
    return pairs.transformed(op, found)


_ENDS: dict[str, Callable[[_Pairs, Op], Ref]] = {
    "real": _part_of(0, "real"),
    "imag": _part_of(1, "imag"),
    "view_as_real": lambda pairs, op: pairs.pair(op.args[0]),
    **dict.fromkeys(("fft_irfft", "fft_irfft2", "fft_irfftn", "_fft_c2r"), _inverse),
}

TRANSFORMS: tuple[Rule, ...] = (_real_end,)
