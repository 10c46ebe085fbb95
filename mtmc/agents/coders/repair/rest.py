"""The rest: what the lanes outside of a load's mask hold, followed through a kernel's arithmetic.

`tl.load(p, mask=m, other=0.0)` has 0 there, without `other` anything at all; `x - mean` then has an unknown number. A
sum must not take it, nor a maximum: each reduction has a number that changes nothing, its neutral one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

from mtmc.agents.coders.repair.accesses import accesses
from mtmc.agents.coders.repair.program import Program, number

UNSURE = "?"
"""In place of a mask: of several loads, or of other iterations of a loop."""
NEUTRAL = {"sum": 0.0, "max": -math.inf, "argmax": -math.inf, "min": math.inf, "argmin": math.inf, "dot": 0.0}
"""Reduction -> the number that changes nothing in it."""
_AT: dict[str, Callable[[float], float]] = {
    "exp": lambda x: math.exp(min(x, 700.0)),
    "exp2": lambda x: 2.0 ** min(x, 1000.0),
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(min(-x, 700.0))),
    "abs": abs,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "tanh": math.tanh,
    "sin": lambda x: math.sin(x) if math.isfinite(x) else math.nan,
    "erf": math.erf,
}
_NOT_NEGATIVE = ("exp", "exp2", "abs", "sqrt", "sigmoid")
_LANEWISE = {
    *_AT,
    "where",
    "maximum",
    "minimum",
    "clamp",
    "fma",
    "log",
    "log2",
    "rsqrt",
    "cos",
    "floor",
    "ceil",
    "div_rn",
}
"""Functions whose results lie where their arguments do, so that a mask of those is one of these. Others may move lanes."""
_PASS = ("cast", "broadcast_to", "max_contiguous", "multiple_of")


@dataclass(frozen=True)
class Rest:
    """mask: text of the mask outside of which this is; None where there is no mask, `UNSURE` where it cannot be told.

    value: what is there; None: unknown. load: the `tl.load` that it is the result of, unchanged.
    positive: whether no lane holds less than 0.
    """

    mask: str | None = None
    value: float | None = None
    load: cst.Call | None = None
    positive: bool = False


@dataclass(frozen=True)
class Sink:
    """A reduction, and what it takes from lanes outside of a mask. argument: the node that it reduces."""

    kind: str
    argument: cst.BaseExpression
    rest: Rest

    @property
    def poisoned(self) -> bool:
        """Whether it takes something that it should not, as far as can be told."""
        if self.rest.mask in (None, UNSURE) or self.rest.value == NEUTRAL[self.kind]:
            return False
        return not (NEUTRAL[self.kind] < 0 and self.rest.positive and self.rest.value == 0.0)


def sinks(program: Program, kernel: cst.FunctionDef) -> list[Sink]:
    """All reductions of a kernel, in the order of the text."""
    reader = _Reader(program, kernel)
    reader.block(kernel.body)
    return reader.sinks


class _Reader:
    """Goes through a kernel once, from the first statement to the last."""

    def __init__(self, program: Program, kernel: cst.FunctionDef) -> None:
        self._program, self._kernel = program, kernel
        self._known: dict[str, Rest] = {}
        self._accesses = {access.call: access for access in accesses(program, kernel)}
        self._masks = {self._text(access.mask) for access in self._accesses.values() if access.mask is not None}
        self.sinks: list[Sink] = []

    def block(self, node: cst.CSTNode) -> None:
        for part in node.children:
            if isinstance(part, cst.For | cst.While):
                again = {name for name, _ in self._program.bindings(part.body)} & self._known.keys()
                self._known.update((name, Rest(UNSURE)) for name in again)  # of an earlier turn
                self.block(part.body)
                self._known.update((name, Rest(UNSURE)) for name in again)
            elif isinstance(part, cst.Assign):
                self._assign(part)
            elif isinstance(part, cst.AugAssign):
                self._gather("+" if isinstance(part.operator, cst.AddAssign) else "", part.target, part.value)
            elif isinstance(part, cst.Expr):
                self._read(part.value)
            elif not isinstance(part, cst.FunctionDef):
                self.block(part)

    def _assign(self, node: cst.Assign) -> None:
        target, value = node.targets[0].target, node.value
        if isinstance(target, cst.Name) and self._known.get(target.value) == Rest(UNSURE):
            if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
                pair = (value.left, value.right)
            elif isinstance(value, cst.Call) and len(value.args) == 2:
                pair = (value.args[0].value, value.args[1].value)
            else:
                pair = None
            if pair is not None:
                kind = "+" if isinstance(value, cst.BinaryOperation) else self._name(value)
                own = [isinstance(side, cst.Name) and side.value == target.value for side in pair]
                if own in ([True, False], [False, True]):
                    self._gather(kind, target, pair[own.index(False)])
                    return
        rest = self._read(value)
        for name, given in self._program.bindings(node):
            single = given if given is not None and given is not value else None
            self._known[name] = rest if given is value else self._read(single) if single is not None else Rest(UNSURE)

    def _gather(self, way: str, target: cst.CSTNode, value: cst.BaseExpression) -> None:
        """An accumulation; of lanes, if what it gathers is reduced later."""
        rest = self._read(value)
        kind = {"+": "sum", "maximum": "max", "minimum": "min"}.get(way)
        if kind is not None and isinstance(target, cst.Name):
            later = self._program.calls(f"triton.language.{kind}", self._kernel)
            if any(
                isinstance(c.args[0].value, cst.Name) and c.args[0].value.value == target.value for c in later if c.args
            ):
                self.sinks.append(Sink(kind, value, rest))
        if isinstance(target, cst.Name):
            self._known[target.value] = Rest(UNSURE)

    def _read(self, node: cst.BaseExpression) -> Rest:
        """What an expression leaves outside of masks; notes the reductions in it."""
        if (value := number(node)) is not None:
            return Rest(None, value, positive=value >= 0)
        if isinstance(node, cst.Name):
            return self._known.get(node.value, Rest())
        if isinstance(node, cst.UnaryOperation):
            inner = self._read(node.expression)
            minus = isinstance(node.operator, cst.Minus) and inner.value is not None
            return Rest(inner.mask, -inner.value if minus and inner.value is not None else None)
        if isinstance(node, cst.BinaryOperation):
            return self._binary(node)
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.Subscript):
            inner = self._read(node.value)
            return Rest(None if inner.mask is None else UNSURE, inner.value)
        parts = [self._read(part) for part in node.children if isinstance(part, cst.BaseExpression)]
        return Rest(_together(parts))

    def _binary(self, node: cst.BinaryOperation) -> Rest:
        left, right = self._read(node.left), self._read(node.right)
        mask = _together([left, right])
        square = isinstance(node.operator, cst.Multiply) and node.left.deep_equals(node.right)
        return Rest(mask, _combined(node.operator, left.value, right.value), positive=square)

    def _call(self, node: cst.Call) -> Rest:
        name = self._name(node)
        if name == "load":
            return self._load(node)
        given = [self._read(arg.value) for arg in node.args]
        if name in NEUTRAL and given:
            for arg, rest in list(zip(node.args, given, strict=True))[: 2 if name == "dot" else 1]:
                if self._reduced(node, name, rest):
                    self.sinks.append(Sink(name, arg.value, rest))
            return Rest()
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "to":
            return self._read(node.func.value)
        if name in _PASS and given:
            return given[0]
        if name == "where" and len(given) == 3 and self._text(node.args[0].value) in self._masks:
            return Rest(self._mask(node.args[0].value), given[2].value, positive=given[1].positive)
        mask = _together(given)
        if mask is not None and name not in _LANEWISE:
            mask = UNSURE
        return Rest(mask, self._value(name, [rest.value for rest in given]), positive=name in _NOT_NEGATIVE)

    def _load(self, node: cst.Call) -> Rest:
        access = self._accesses.get(node)
        if access is None or access.mask is None:
            return Rest()
        return Rest(self._mask(access.mask), None if access.other is None else number(access.other), node)

    def _value(self, name: str, values: list[float | None]) -> float | None:
        if name == "where" and len(values) == 3:
            return values[1] if values[1] == values[2] else None
        known = [value for value in values if value is not None]
        if len(known) < len(values) or not known:
            return None
        if name in ("maximum", "minimum"):
            return max(known) if name == "maximum" else min(known)
        return _AT[name](known[0]) if name in _AT and len(known) == 1 else None

    def _reduced(self, node: cst.Call, name: str, rest: Rest) -> bool:
        """Whether lanes that a mask may leave out are reduced: those along another axis are only carried along."""
        axis = next((arg.value for arg in node.args if arg.keyword is not None and arg.keyword.value == "axis"), None)
        if name == "dot" or rest.mask in (None, UNSURE) or rest.mask is None or number(axis) not in (0.0, 1.0):
            return True
        along, across = ("[:, None]", "[None, :]") if number(axis) == 0.0 else ("[None, :]", "[:, None]")
        return not (across in rest.mask and along not in rest.mask)

    def _name(self, node: cst.BaseExpression) -> str:
        """ "exp" of a call of `tl.exp`, `tl.math.exp` or `libdevice.exp`; "" of what is not triton's."""
        path = self._program.path(node.func) if isinstance(node, cst.Call) else None
        return path.rpartition(".")[2] if path is not None and path.startswith("triton.language.") else ""

    def _text(self, mask: cst.BaseExpression) -> str:
        """A mask's text; of a name that is bound once, the text of its value."""
        value = self._program.value(mask.value, self._kernel) if isinstance(mask, cst.Name) else None
        return self._program.code(value if value is not None else mask)

    def _mask(self, mask: cst.BaseExpression) -> str:
        """How to write a mask later in the kernel, in full; `UNSURE` where a name in it changes."""
        names = {name.value for name in self._program.find(cst.Name, mask)}
        if any(len(self._program.values(name, self._kernel)) > 1 for name in names):
            return UNSURE
        return self._text(mask)


def _together(rests: list[Rest]) -> str | None:
    masks = {rest.mask for rest in rests if rest.mask is not None}
    return masks.pop() if len(masks) == 1 else UNSURE if masks else None


def _combined(operator: cst.BaseBinaryOp, left: float | None, right: float | None) -> float | None:
    """The operation on one lane; what is unknown is taken to be finite and not 0."""
    if isinstance(operator, cst.Multiply):
        if 0.0 in (left, right):
            return 0.0
        return None if left is None or right is None else left * right
    if isinstance(operator, cst.Add | cst.Subtract):
        if right is not None and isinstance(operator, cst.Subtract):
            right = -right
        infinite = [value for value in (left, right) if value is not None and math.isinf(value)]
        if infinite:
            return infinite[0] if len(set(infinite)) == 1 else None
        return None if left is None or right is None else left + right
    if isinstance(operator, cst.Divide):
        return 0.0 if left == 0.0 and right != 0.0 else None
    return None
