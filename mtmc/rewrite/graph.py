"""Graph: what was exported of a reference, at several sets of shapes at once.

A number of the graph (a size, a scalar argument) is known at every exported variant of the task. Numbers that are equal
at all variants are constants; the others are `Varying`, and two of them are the same quantity exactly if they are equal
at every variant. That is how generated files come to run at other shapes without symbolic execution of `__init__`; where
they are right is for the guards to say.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Size = tuple[int, ...]
"""One dimension's size at every exported variant, the full shapes first."""

Shape = tuple[Size, ...]


FP8 = {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}
"""Floating types of 8 bits that kernels know: dtype -> Triton's name."""
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}

CONSTANT = "mtmc.constant"
"""Target of an op that makes a tensor of numbers: arguments are the (nested) numbers and the dtype."""


IN_ORDER = "mtmc.in_order"
"""Target of an op that copies a tensor in order because of those who read it: they read it from memory, so no kernel has it
together with them."""


FOURIER = "mtmc.fourier"
"""Target of an op that is a Fourier transform between real numbers, see `mtmc.rewrite.operators.fourier`."""


@dataclass(frozen=True)
class Ref:
    """Stands for a value of the graph among an op's arguments."""

    name: str


@dataclass(frozen=True)
class Current:
    """Stands in forward's result for a tensor that forward changes: it is returned itself, as it is then."""

    name: str


@dataclass(frozen=True)
class Mutation:
    """A change that forward leaves behind: the input or buffer `target` holds what `value` is.

    rebound: whether the module's attribute is another tensor then, instead of the same one with other values.
    """

    target: str
    value: str
    rebound: bool = False


@dataclass(frozen=True)
class Varying:
    """A number argument that differs between variants."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class Tensor:
    """What is known of a value: shape at every variant, dtype ("float32"), whether it is contiguous at all of them.

    strides: one entry a dimension, as of `shape`; () where it is contiguous.
    """

    shape: Shape
    dtype: str
    contiguous: bool
    strides: Shape = field(default=(), compare=False)

    @property
    def lying(self) -> Shape:
        """Its strides, also where it is contiguous."""
        return self.strides or dense_strides(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether kernels compute on it in fp32."""
        return self.dtype in _BYTES or self.dtype in FP8

    @property
    def is_fp8(self) -> bool:
        """Whether an element is floating and of 8 bits, in a type that kernels know."""
        return self.dtype in FP8

    @property
    def float_bytes(self) -> int:
        """Bytes of an element of a floating type."""
        return _BYTES.get(self.dtype, 1)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of any type: its name has the bits."""
        bits = re.search(r"\d+", self.dtype)
        return int(bits[0]) // 8 if bits else 1

    def numel(self, variant: int = 0) -> int:
        """Number of elements at one variant (0: the full shapes)."""
        return math.prod(size[variant] for size in self.shape)


@dataclass(frozen=True)
class Op:
    """One ATen call. target: "aten.linear.default"; outputs: names of the values it makes; line: in the reference."""

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[str, ...]
    line: int | None

    def refs(self) -> tuple[str, ...]:
        """Names of the values it reads, in order, repeats included."""
        return self._read

    @cached_property
    def _read(self) -> tuple[str, ...]:
        return (*_refs(self.args), *_refs(tuple(self.kwargs.values())))


def _refs(item: Any) -> Iterator[str]:
    if isinstance(item, Ref):
        yield item.name
    elif isinstance(item, dict):
        yield from _refs(tuple(item.values()))
    elif isinstance(item, (tuple, list)):
        for part in item:
            yield from _refs(part)


@dataclass(frozen=True, eq=False)
class Graph:
    """An exported reference. Compared by identity: there is one a task (see `exported.export_graph`).

    inputs: names of forward's tensor arguments; argument_of: what forward calls them.
    parameters: value name -> attribute path ("fc.weight"). registered: of those that the module itself has, under which of
    its dictionaries, "_parameters" or "_buffers".
    attributes: numbers found on the module, attribute path -> value at every variant ("attention.heads" -> (8, 2)).
    output: forward's result: a Ref or Current, or tuples, lists and dicts of them.
    mutations: what forward changes, each input or buffer once. shared: values of the result that share memory with what
    forward changes, in the reference.
    variants: labels, the full shapes first.
    placed: values that a kernel writes where a tensor lies that it reads, and that tensor (see `write_back`).
    fixed: forward's arguments that are no tensors, by the names that `argument_of` would give: the value at every variant.
    applied_rules: how algebra changed it (see `mtmc.rewrite.algebra`), a sentence each; () as exported.
    by_name: the ops by name. producer: the name of the op that makes a value. reads: what an op reads, by its name.
    """

    inputs: tuple[str, ...]
    argument_of: Mapping[str, str]
    parameters: Mapping[str, str]
    ops: tuple[Op, ...]
    values: Mapping[str, Tensor]
    output: Any
    attributes: Mapping[str, tuple[float, ...]]
    variants: tuple[str, ...]
    found: tuple[str, ...] = ()
    registered: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    mutations: tuple[Mutation, ...] = ()
    shared: frozenset[str] = frozenset()
    placed: tuple[tuple[str, str], ...] = ()
    by_name: Mapping[str, Op] = field(init=False, repr=False, compare=False)
    producer: Mapping[str, str] = field(init=False, repr=False, compare=False)
    reads: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)
    _readers: Mapping[str, Sequence[str]] = field(init=False, repr=False, compare=False)
    _results: frozenset[str] = field(init=False, repr=False, compare=False)
    _place: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {op.name: op for op in self.ops})
        object.__setattr__(self, "producer", {out: op.name for op in self.ops for out in op.outputs})
        reads = {op.name: frozenset(op.refs()) for op in self.ops}
        readers: dict[str, list[str]] = {}
        for op in self.ops:
            for ref in reads[op.name]:
                readers.setdefault(ref, []).append(op.name)
        object.__setattr__(self, "reads", reads)
        object.__setattr__(self, "_readers", readers)
        written = frozenset(mutation.value for mutation in self.mutations)
        object.__setattr__(self, "_results", written.union(_refs((self.output,))))
        object.__setattr__(self, "_place", {value: at for at, value in enumerate(self.values)})

    def knowing(self, values: Mapping[str, Tensor]) -> Graph:
        """The same graph with other shapes or places in memory of some values. Who reads and makes what is not found out
        anew, which takes long in a large graph."""
        known = copy.copy(self)
        object.__setattr__(known, "values", {**self.values, **values})
        if not values.keys() <= self.values.keys():
            object.__setattr__(known, "_place", {value: at for at, value in enumerate(known.values)})
        if not values.keys().isdisjoint(self.parameters):
            known.__dict__.pop("own_sizes", None)
        return known

    @cached_property
    def own_sizes(self) -> frozenset[Size]:
        """The sizes and whole numbers that a module has, as far as they vary among the variants."""
        sizes = [size for value in self.parameters for size in self.values[value].shape]
        for values in self.attributes.values():
            if all(isinstance(value, int) for value in values):
                sizes.append(tuple(int(value) for value in values))
        return frozenset(size for size in sizes if len(set(size)) > 1 and min(size) > 0)

    def results(self) -> frozenset[str]:
        """Names of the values that forward returns, or leaves in what it changes."""
        return self._results

    @cached_property
    def op_places(self) -> Mapping[str, int]:
        """Where each op stands among the others."""
        return {op.name: at for at, op in enumerate(self.ops)}

    @cached_property
    def given(self) -> frozenset[str]:
        """The values that ops read and none makes."""
        return frozenset().union(*self.reads.values()) - self.producer.keys()

    @cached_property
    def _flows(self) -> dict[tuple[str, ...], tuple[frozenset[str], frozenset[str]]]:
        return {}

    def flow(self, ops: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
        """The values that some ops make, and those that they read, their own among them. Kept: plans share most stages."""
        found = self._flows.get(ops)
        if found is None:
            made = frozenset(out for name in ops for out in self.by_name[name].outputs)
            found = self._flows[ops] = made, frozenset().union(*(self.reads[name] for name in ops))
        return found

    @cached_property
    def _flowing(self) -> dict[tuple[str, ...], frozenset[str]]:
        return {}

    def flowing(self, ops: tuple[str, ...]) -> frozenset[str]:
        """The values that some ops read, but for parameters. Kept, as `flow`."""
        found = self._flowing.get(ops)
        if found is None:
            found = self._flowing[ops] = self.flow(ops)[1].difference(self.parameters)
        return found

    @cached_property
    def used(self) -> frozenset[str]:
        """The values that an op reads or forward gives or leaves behind."""
        return self._results.union(*self.reads.values())

    @cached_property
    def of_numbers(self) -> frozenset[str]:
        """Names of the ops that read no tensor but what such ops make."""
        found = set[str]()
        for op in self.ops:
            if all(self.producer.get(ref) in found for ref in op.refs()):
                found.add(op.name)
        return frozenset(found)

    def readers(self, value: str) -> Sequence[str]:
        """Names of the ops that read a value, in graph order."""
        return self._readers.get(value, ())

    @cached_property
    def returned(self) -> frozenset[str]:
        """Names of the values that forward returns as they were made."""
        return frozenset(_refs((self.output,)))

    def leaving(self, ops: Collection[str]) -> list[str]:
        """The values that some ops make and another op or forward's result reads, in the order of `values`."""
        made = {out for name in ops for out in self.by_name[name].outputs if out in self._place}
        read = [out for out in made if out in self._results or any(by not in ops for by in self.readers(out))]
        return sorted(read, key=self._place.__getitem__)


def product(sizes: Shape) -> Size:
    """Elementwise product of sizes. The empty product is the empty tuple, which `same` treats as 1."""
    if not sizes:
        return ()
    return tuple(math.prod(column) for column in zip(*sizes, strict=True))


def is_number(op: Op) -> bool:
    """Whether an op makes a tensor of a single number, which a kernel may hold and a device can fill."""
    return op.target == CONSTANT and isinstance(op.args[0], (int, float))


def in_tuple(path: str) -> bool:
    """Whether a path to a number of a module leads into a tuple or list ("conv.padding.0")."""
    return path.rpartition(".")[2].isdigit()


def is_one(size: Size) -> bool:
    """Whether a size is 1 at every variant."""
    return all(value == 1 for value in size)


def dense_strides(shape: Shape) -> Shape:
    """Strides of elements in row-major order, one entry a dimension as of the shape."""
    ones = (1,) * (len(shape[0]) if shape else 1)
    return tuple(product(shape[axis + 1 :]) or ones for axis in range(len(shape)))


def same_steps(size: Size, one: Size, other: Size) -> bool:
    """Whether two strides of a dimension are the same, which of a single element say nothing."""
    return all(count == 1 or a == b for count, a, b in zip(size, one, other, strict=True))


def is_dense(shape: Shape, strides: Shape) -> bool:
    """Whether elements lie one behind the other in row-major order."""
    return all(map(same_steps, shape, strides, dense_strides(shape)))


def lie_alike(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape have their elements at the same places."""
    if not one.strides or not other.strides:
        return one.strides == other.strides
    return all(map(same_steps, one.shape, one.strides, other.strides))


def last_channels(rank: int) -> tuple[int, ...]:
    """The dimensions of a batch of maps, `rank` in all, in the order that puts the channels last."""
    return (0, *range(2, rank), 1)


def lies_channels_last(tensor: Tensor) -> bool:
    """Whether all elements lie one behind the other in that order; no for what is no batch of maps."""
    if len(tensor.shape) < 3:
        return False
    order = last_channels(len(tensor.shape))
    return is_dense(*(tuple(each[dim] for dim in order) for each in (tensor.shape, tensor.lying)))


def memory_order(tensor: Tensor) -> tuple[int, ...] | None:
    """A tensor's dimensions in the order in which they lie in memory, the outermost first; None for one that lies as its
    dimensions say, or has gaps."""
    if tensor.contiguous or not tensor.strides:
        return None
    large = [dim for dim, size in enumerate(tensor.shape) if not is_one(size)]
    order = sorted(large, key=lambda dim: -tensor.strides[dim][0])
    shape, strides = (tuple(each[dim] for dim in order) for each in (tensor.shape, tensor.strides))
    if order == large or not is_dense(shape, strides):
        return None
    return (*(dim for dim in range(len(tensor.shape)) if dim not in order), *order)


def same(left: Size, right: Size) -> bool:
    """Whether two sizes are the same quantity: equal at every variant; the empty product counts as 1."""
    if not left or not right:
        return is_one(left) and is_one(right)
    return left == right


def power_of_two_below(number: int) -> int:
    """The largest power of two that is at most a number above 0."""
    return 1 << (number.bit_length() - 1)


def power_of_two_above(number: int) -> int:
    """The smallest power of two that is at least a number above 0."""
    return 1 << (number - 1).bit_length()
