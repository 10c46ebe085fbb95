"""guard_derivation: Task -> Guards.

The captured variants say which sizes a version's text cannot tell apart, and a symbolic export says which of these are
sure to be the same. What neither shows to be free is guarded: as constant, as tied to another size, or as one of the
captured sets of sizes.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mtmc.rewrite.export import export_open
from mtmc.rewrite.exported import LOCK, export_graph, full_export
from mtmc.rewrite.graph import Graph, Shape, Size, Tensor, in_tuple
from mtmc.rewrite.guard_origins import memory_order, place_of, varies_outside_of_inputs
from mtmc.rewrite.guard_sizes import Relations
from mtmc.rewrite.guards import Dimension, FixedGuard, Guards, NumberGuard, TensorGuard
from mtmc.rewrite.sizes import NoExpression, Scope
from mtmc.rewrite.symbolic import Expression, read_symbolic
from mtmc.task import Task

if TYPE_CHECKING:
    from torch.nn import Module

log = logging.getLogger(__name__)

FREE_FROM = 3
"""Different sizes that a dimension must have had among the captured variants to be left free."""


@lru_cache(maxsize=32)
def derive_guards(task: Task) -> Guards:
    """What the kernel versions of a task hold for; exports the reference at the full shapes
    again, with open dimensions and in its other mode. May be called from any thread.

    Raises: TaskError where the task cannot be exported.
    """
    graph = export_graph(task)
    with LOCK:
        symbolic = read_symbolic(task, graph)
        model, modes = _modes(task)
    return _Deriver(task, graph, Relations(symbolic) if symbolic is not None else None, model).guards(modes)


def _modes(task: Task) -> tuple[Module, tuple[tuple[str, bool], ...]]:
    """The reference without data, and its modules' training modes where its graph is another one in the other mode."""
    program, model, _ = full_export(task)
    try:
        other = export_open(task, task.full, None, toggled=True).written()
        same = _calls(program) == _calls(other)
    except Exception as error:  # whatever tracing can raise: in the other mode it cannot be what was captured
        log.debug("task %s does not export in its other mode: %s", task.name, error)
        same = False
    return model, () if same else tuple((path, module.training) for path, module in model.named_modules())


def _calls(program: Any) -> list[str]:
    return [f"{node.op} {node.target} {node.args} {node.kwargs}" for node in program.graph.nodes]


@dataclass(eq=False)
class _Deriver:
    """Collects the guards, tensor by tensor: the module's first, which inputs are then tied to."""

    task: Task
    graph: Graph
    relations: Relations | None
    model: Module
    numbers: dict[str, str] = field(default_factory=dict)
    """Variables of the module's numbers that a guard mentions, and their attribute paths."""
    sizes: dict[Size, str] = field(default_factory=dict)
    """Sizes met so far, and the first place that has each."""
    meanings: dict[Size, Expression] = field(default_factory=dict)
    """What they are in the symbolic export."""
    texts: dict[str, str] = field(default_factory=dict)
    """Symbols of free dimensions, by name, and where they stand."""
    listed: dict[str, Size] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers_of_file = varies_outside_of_inputs(self.task)
        self.kinds = dict.fromkeys(self.model.state_dict(keep_vars=True), "buffer")
        """What the module holds its tensors as, by path."""
        self.kinds |= {path: "parameter" for path, _ in self.model.named_parameters(remove_duplicate=False)}
        self.attributes = {}
        taken = set(self.graph.values)
        for path, values in self.graph.attributes.items():
            name = path.replace(".", "_")
            while name in taken:
                name += "_"
            taken.add(name)
            self.attributes[name] = (path, values)
        self.varying = {
            name: tuple(int(value) for value in values)
            for name, (path, values) in self.attributes.items()
            if len(set(values)) > 1 and all(isinstance(value, int) for value in values) and not in_tuple(path)
        }

    def guards(self, modes: tuple[tuple[str, bool], ...]) -> Guards:
        """All of it."""
        state = [
            self._state(value, path) for value, path in self.graph.parameters.items() if value in self.graph.values
        ]
        inputs = [self._input(value) for value in self.graph.inputs]
        conditions: list[str] = []
        if self.relations is not None:
            if not self.relations.compare(self.graph, self._scope()):
                inputs = [self._listed(tensor) for tensor in inputs]
            conditions = self._conditions()
        fixed = [self._fixed(argument, values) for argument, values in self.graph.fixed.items()]
        rows = tuple(dict.fromkeys(zip(*self.listed.values(), strict=True))) if self.listed else ()
        rows = rows[:1] if self.numbers_of_file else rows
        return Guards(
            tensors=(*inputs, *state),
            given=1 + max([each.argument or 0 for each in inputs] + [each.argument for each in fixed], default=-1),
            fixed=tuple(fixed),
            numbers=tuple(NumberGuard(name, path) for name, path in self.numbers.items()),
            listed=(tuple(self.listed), rows),
            conditions=tuple(conditions),
            modes=modes,
            changed=tuple(mutation.target for mutation in self.graph.mutations),
        )

    def _scope(self) -> Scope:
        """All values, and the numbers of the module that vary."""
        assert self.relations is not None
        shapes = dict[Shape, str]()
        for name in (*self.graph.parameters, *self.graph.inputs, *self.graph.values):
            if name in self.relations.symbolic.sizes:
                shapes.setdefault(self.graph.values[name].shape, name)
        return Scope(tuple((name, self.graph.values[name]) for name in shapes.values()), self.varying)

    def _state(self, value: str, path: str) -> TensorGuard:
        kind = self.kinds.get(path, "attribute")
        return self._tensor(value, TensorGuard(value, path, (), "", None, held_as=kind))  # type: ignore[arg-type]

    def _input(self, value: str) -> TensorGuard:
        argument, item, label = place_of(self.task, self.graph.argument_of[value])
        return self._tensor(value, TensorGuard(value, label, (), "", None, argument=argument, item=item))

    def _tensor(self, value: str, guard: TensorGuard) -> TensorGuard:
        tensor = self.graph.values[value]
        order = memory_order(tensor)
        known = self.relations.symbolic.sizes.get(value) if self.relations is not None else None
        dimensions = []
        for axis, size in enumerate(tensor.shape):
            text = f"{value}.shape[{axis}]"
            symbol = None if known is None else known[axis]
            if order is None:
                dimensions.append(self._constant(size, symbol))
            else:
                dimensions.append(self._dimension(text, size, symbol, guard.argument is None))
            self.sizes.setdefault(size, text)
            self.meanings.setdefault(size, size[0] if symbol is None else symbol)
        strides = tuple(stride[0] for stride in tensor.strides)
        return replace(guard, dimensions=tuple(dimensions), dtype=tensor.dtype, order=order, strides=strides)

    def _constant(self, size: Size, symbol: Expression) -> Dimension:
        self._settle(symbol, size[0])
        return Dimension("constant", size, size[0])

    def _settle(self, symbol: Expression, meaning: Expression) -> None:
        """Let a symbol stand for something else, if it is one that is not settled yet."""
        if self.relations is None or not getattr(symbol, "is_Symbol", False) or symbol in self.relations.fixed:
            return
        if meaning != symbol and symbol.name not in self.texts:
            self.relations.fixed[symbol] = meaning

    def _dimension(self, text: str, size: Size, symbol: Expression, of_module: bool) -> Dimension:
        """A dimension by what it was at the captured variants and is in the symbolic export."""
        if len(set(size)) == 1:
            return self._constant(size, symbol)
        if size in self.sizes and not (of_module and self.numbers_of_file):
            meaning = self.meanings[size]
            circular = symbol in getattr(
                meaning, "free_symbols", ()
            )  # two dimensions whose sum is fixed: s and 640 - s
            self._settle(symbol, size[0] if circular else meaning)
            return Dimension("tied", size, text=self.sizes[size])
        number = next((name for name, values in self.varying.items() if values == size), None)
        if number is not None and not of_module:
            self.numbers[number] = self.attributes[number][0]
            self._settle(symbol, size[0])
            return Dimension("tied", size, text=number)
        if of_module:
            return self._of_module(text, size)
        if getattr(symbol, "is_Symbol", False) and symbol.name not in self.texts:
            return self._free(text, size, symbol)
        if getattr(symbol, "free_symbols", None) and all(s.name in self.texts for s in symbol.free_symbols):
            tied = self._python(symbol, lambda found: found == size)
            if tied is not None:
                return Dimension("tied", size, text=tied)
        self._settle(symbol, size[0])
        try:  # one that the module's tensors or numbers determine
            return self._written(Scope(self._known(), self.varying), size)
        except NoExpression:
            self.listed[text] = size
            return Dimension("listed", size)

    def _known(self, before: str = "") -> tuple[tuple[str, Tensor], ...]:
        """The module's tensors. before: those that come before this one."""
        names = [name for name in self.graph.parameters if name in self.graph.values]
        names = names[: names.index(before)] if before else names
        return tuple((name, self.graph.values[name]) for name in names)

    def _of_module(self, text: str, size: Size) -> Dimension:
        """A dimension of a tensor of the module, of whose sizes a symbolic export says nothing."""
        if self.numbers_of_file:
            return self._constant(size, None)
        try:
            return self._written(Scope(self._known(text.partition(".shape")[0])), size)
        except NoExpression:
            if len(set(size)) >= FREE_FROM:
                return Dimension("free", size, low=min(2, *size))
        self.listed[text] = size
        return Dimension("listed", size)

    def _written(self, scope: Scope, size: Size) -> Dimension:
        """Tied to what gives it. Raises: NoExpression."""
        text = scope.size(size)
        self.numbers |= {name: path for name, (path, _) in self.attributes.items() if name in _words(text)}
        return Dimension("tied", size, text=text)

    def _free(self, text: str, size: Size, symbol: Expression) -> Dimension:
        assert self.relations is not None
        if len(set(size)) < FREE_FROM:
            self.listed[text] = size
            self._settle(symbol, size[0])
            return Dimension("listed", size)
        self.texts[symbol.name] = text
        low = self.relations.symbolic.low.get(symbol, 2)
        return Dimension(
            "free", size, low=min(low, *size) if low == 2 else low, high=self.relations.symbolic.high.get(symbol)
        )

    def _listed(self, tensor: TensorGuard) -> TensorGuard:
        """The same with all that was free as it was captured."""
        dimensions = []
        for axis, dimension in enumerate(tensor.dimensions):
            if dimension.kind == "free":
                self.listed[f"{tensor.variable}.shape[{axis}]"] = dimension.captured
                dimension = Dimension("listed", dimension.captured)
            dimensions.append(dimension)
        return replace(tensor, dimensions=tuple(dimensions))

    def _conditions(self) -> list[str]:
        """What has to hold besides, in Python. Numbers that may come from the module are written as its own."""
        assert self.relations is not None
        return [
            self._python(condition, all) or self._printed(condition, {})
            for condition in self.relations.open_conditions()
        ]

    def _python(self, expression: Expression, right: Callable[[tuple[int, ...]], bool]) -> str | None:
        """An expression in Python, as it is or with the module's numbers for its own: the first of these whose values at the
        captured variants are right. None where neither is: it is known as it is at the full shapes alone."""
        import sympy

        varying = {number: self._varying_text(int(number)) for number in expression.atoms(sympy.Integer)}
        for numbers in ({}, {number: text for number, text in varying.items() if text}):
            text = self._printed(expression, numbers)
            values = self._at_variants(text)
            if values is not None and right(values):
                self.numbers |= {name: path for name, (path, _) in self.attributes.items() if name in _words(text)}
                return text
        return None

    def _printed(self, expression: Expression, numbers: Mapping[Expression, str]) -> str:
        import sympy
        from torch.utils._sympy.printers import PythonPrinter

        texts = {s: self.texts[s.name] for s in expression.free_symbols} | dict(numbers)
        symbols = {part: sympy.Symbol(text, integer=True, positive=True) for part, text in texts.items()}
        text: str = PythonPrinter().doprint(expression.xreplace(symbols))
        return text

    def _at_variants(self, text: str) -> tuple[int, ...] | None:
        """What a text gives at each captured variant; None where it divides by zero at one."""
        import torch

        found = []
        for names in self._names:
            try:
                found.append(eval(text, {"math": math, "torch": torch}, names))
            except ZeroDivisionError:
                return None
        return tuple(found)

    @cached_property
    def _names(self) -> list[dict[str, Any]]:
        """What the names in a text are at each captured variant."""
        found = []
        for variant in range(len(self.graph.variants)):
            names: dict[str, Any] = {name: values[variant] for name, values in self.varying.items()}
            for name in (*self.graph.inputs, *self.graph.parameters):
                sizes = self.graph.values[name].shape if name in self.graph.values else ()
                names[name] = SimpleNamespace(shape=[size[variant] for size in sizes])
            found.append(names)
        return found

    def _varying_text(self, number: int) -> str:
        """What of the module a number of a condition comes from, if it is one that another module would have another of;
        a condition is only known as it is at the full shapes."""
        if number <= 2:
            return ""
        sizes = {size[0]: text for size, text in self.sizes.items() if len(set(size)) > 1 and self._is_of_module(text)}
        names = {values[0]: name for name, values in self.varying.items()}
        return names.get(number) or sizes.get(number, "")

    def _is_of_module(self, text: str) -> bool:
        return text.partition(".shape")[0] in self.graph.parameters

    def _fixed(self, argument: str, values: tuple[Any, ...]) -> FixedGuard:
        place, item, _ = place_of(self.task, argument)
        return FixedGuard(place, repr(values[0]), item)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
