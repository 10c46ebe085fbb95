"""guards: what the kernel versions of a task hold for, as data.

Kernels print the numbers of an export as expressions that were right at the few captured variants. What else they may be
called with is said here: for every tensor that forward reads its rank, its dimensions, dtype and layout; conditions
between sizes; arguments that are no tensors; the training mode where it matters. All versions of a task share them.

guards.py            the data, to and from JSON
guard_derivation.py  Task -> Guards
guard_sizes.py       which sizes are tied, by a symbolic export
guard_text.py        a version's text and its guards -> the text that is handed out
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Dimension:
    """What a dimension may be.

    constant: `value`. tied: the expression `text` of other tensors' sizes and the module's numbers. free: `low` or more,
    up to `high` if that is not None. listed: what `Guards.listed` says of it together with others. captured: what it was at
    the captured variants.
    """

    kind: Literal["constant", "tied", "free", "listed"]
    captured: tuple[int, ...]
    value: int = 0
    text: str = ""
    low: int = 0
    high: int | None = None


@dataclass(frozen=True)
class TensorGuard:
    """One tensor that forward reads.

    variable: its name in expressions. label: its name in messages ("fc.weight"). argument: which of forward's arguments it
    is, and which item of it where that is a list; None for a tensor of the module, whose attribute path `label` is then.
    held_as: where the module keeps it. order: the dimensions from the outermost in memory to the innermost, which lie
    dense; None where only the captured strides will do.
    """

    variable: str
    label: str
    dimensions: tuple[Dimension, ...]
    dtype: str
    order: tuple[int, ...] | None
    strides: tuple[int, ...] = ()
    argument: int | None = None
    item: int | None = None
    held_as: Literal["", "parameter", "buffer", "attribute"] = ""

    @property
    def contiguous(self) -> bool:
        """Whether it lies in memory in the order of its dimensions."""
        return self.order == tuple(range(len(self.dimensions)))


@dataclass(frozen=True)
class FixedGuard:
    """An argument that is no tensor: `value` is its literal. item: of a list."""

    argument: int
    value: str
    item: int | None = None


@dataclass(frozen=True)
class NumberGuard:
    """A number of the module by its attribute path. value: None where sizes are tied to it, else what it has to be."""

    variable: str
    path: str
    value: float | None = None


@dataclass(frozen=True)
class Guards:
    """What the versions of a task hold for.

    given: how many arguments forward was given at capture; the others have their defaults.
    listed: expressions of sizes, and the tuples of values that they may have together.
    conditions: Python expressions over the tensors' variables and the numbers'.
    modes: module paths ("" for the module itself) -> training mode; empty where forward does not depend on it.
    changed: variables of the tensors that forward changes, which may share memory with none of the others.
    """

    tensors: tuple[TensorGuard, ...]
    given: int
    fixed: tuple[FixedGuard, ...] = ()
    numbers: tuple[NumberGuard, ...] = ()
    listed: tuple[tuple[str, ...], tuple[tuple[int, ...], ...]] = ((), ())
    conditions: tuple[str, ...] = ()
    modes: tuple[tuple[str, bool], ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[TensorGuard, ...]:
        """The tensors that forward is given."""
        return tuple(tensor for tensor in self.tensors if tensor.argument is not None)

    @property
    def state(self) -> tuple[TensorGuard, ...]:
        """The tensors of the module."""
        return tuple(tensor for tensor in self.tensors if tensor.argument is None)

    def to_json(self) -> str:
        """As text that `guards_from_json` reads."""
        return json.dumps(asdict(self), sort_keys=True)

    def of_inputs(self) -> Guards:
        """What is left for a version that keeps the module's tensors in a way of its own: sizes that depend on these have to
        be as at the full shapes."""
        mine = {tensor.variable for tensor in self.state} | {number.variable for number in self.numbers}
        conditions = tuple(text for text in self.conditions if not mine & _words(text))
        fixed = conditions != self.conditions or any(mine & _words(name) for name in self.listed[0])

        def own(dimension: Dimension) -> Dimension:
            if dimension.kind == "constant" or not (fixed or mine & _words(dimension.text)):
                return dimension
            return Dimension("constant", dimension.captured, dimension.captured[0])

        inputs = tuple(replace(each, dimensions=tuple(map(own, each.dimensions))) for each in self.inputs)
        listed = ((), ()) if fixed else self.listed
        changed = tuple(variable for variable in self.changed if variable not in mine)
        return replace(self, tensors=inputs, numbers=(), listed=listed, conditions=conditions, changed=changed)

    def spoken(self, text: str) -> str:
        """An expression with what a reader calls the tensors and numbers: "fc.weight.shape[0]" for "fc_weight.shape[0]"."""
        names = {tensor.variable: tensor.label for tensor in self.tensors}
        names |= {number.variable: number.path for number in self.numbers}
        return renamed(text, names)

    def sentences(self) -> Iterator[str]:
        """What the versions hold for, as a reader wants to know it: a line a tensor, then the conditions."""
        for tensor in self.tensors:
            sizes = [self._size(tensor, at) for at in range(len(tensor.dimensions))]
            layout = "" if tensor.contiguous else f", with its dimensions {tensor.order} from the outermost in memory"
            if tensor.order is None:
                layout = f", with the strides {tensor.strides}"
            yield f"{tensor.label}: {tensor.dtype} ({', '.join(sizes)}{',' * (len(sizes) == 1)}){layout}"
        yield from (f"argument {each.argument + 1} of forward is {each.value}" for each in self.fixed)
        names, rows = self.listed
        if names:
            yield f"({', '.join(map(self.spoken, names))}) is one of {', '.join(map(str, rows))}"
        yield from map(self.spoken, self.conditions)
        if self.changed:
            yield f"{', '.join(map(self.spoken, self.changed))}: changed, and in memory of its own"
        if self.modes:
            yield f"{'training' if self.modes[0][1] else 'evaluation'} mode"

    def _size(self, tensor: TensorGuard, at: int) -> str:
        dimension = tensor.dimensions[at]
        if dimension.kind == "constant":
            return str(dimension.value)
        if dimension.kind == "tied":
            return self.spoken(dimension.text)
        if dimension.kind == "listed":
            return "listed"
        return f"{dimension.low} or more" if dimension.high is None else f"{dimension.low} to {dimension.high}"


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A text with other words for some of its words."""
    return re.sub(r"\b[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def guards_from_json(text: str) -> Guards:
    """The guards that `Guards.to_json` wrote."""
    data: dict[str, Any] = json.loads(text)
    tensors = [
        TensorGuard(
            **{
                **each,
                "dimensions": tuple(Dimension(**{**d, "captured": tuple(d["captured"])}) for d in each["dimensions"]),
                "order": None if each["order"] is None else tuple(each["order"]),
                "strides": tuple(each["strides"]),
            }
        )
        for each in data["tensors"]
    ]
    names, rows = data["listed"]
    return Guards(
        tensors=tuple(tensors),
        given=data["given"],
        fixed=tuple(FixedGuard(**each) for each in data["fixed"]),
        numbers=tuple(NumberGuard(**each) for each in data["numbers"]),
        listed=(tuple(names), tuple(tuple(row) for row in rows)),
        conditions=tuple(data["conditions"]),
        modes=tuple((path, mode) for path, mode in data["modes"]),
        changed=tuple(data["changed"]),
    )
