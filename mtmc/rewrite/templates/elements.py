"""elements: the value of any node of a kernel at any place, written where it is needed.

A kernel goes over an iteration space, and most nodes are computed at the place at hand. What only moves elements (slices,
permutations, joins, lookups: the nodes of kind "index") asks for its operand at another place. That is computed there
anew: loads go to the other place, elementwise work is done again, and nothing is written to memory in between. What a
reduction, product or scan makes is known at its own place alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mtmc.rewrite.body import Index, Node, NotCovered, Operand, Trailing
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.graph import Shape, Size, is_one, product, same
from mtmc.rewrite.index_maps import Asked, At, Condition, IndexMap, Piece, Reshaped, broadcast_at
from mtmc.rewrite.places import Digit, Place, digits, linear, number_place, one
from mtmc.rewrite.space import Group, bare, flat, split
from mtmc.rewrite.templates.index_places import place_of
from mtmc.rewrite.templates.taps import windowed
from mtmc.rewrite.templates.writer import Writer

_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"( *)(\w+) = ")
MOST_ELSEWHERE = 256
"""Values that a kernel computes at other places: what moves elements again and again asks for twice as many each time."""

WITH_NAN = ("float32", "bfloat16", "float16")
"""Types of which a load may give NaN where it is masked."""

Variables = dict[object, str]
"""What stands in which variable: a node by its name, an operand from outside by (operand, logical shape), what is computed
at another place by (operand, place, conditions), and parts of indices by their text."""


def home(writer: Writer, shape: Shape, groups: tuple[Group, ...]) -> At | None:
    """The place at hand, in a shape with as many elements as the iteration space; None for another one."""
    if not same(product(shape), product(tuple(group.size for group in groups if group.size))):
        return None
    ones = (1,) * len(writer.graph.variants)
    ranges = split(shape, groups)
    indices = [one(Digit(bare(group.index), ones, group.size or ones, True)) for group in groups]
    if ranges is None:  # a dimension that runs over parts of several groups
        whole = linear(indices, [group.size or ones for group in groups], len(ones))
        indices, ranges = [whole], [(0, len(shape))]
    found: list[Place] = []
    for index, (start, stop) in zip(indices, ranges, strict=True):
        found += digits(index, shape[start:stop])
    return (*found, *(number_place((0,) * len(ones)) for _ in shape[len(found) :]))


@dataclass
class Elements:
    """Writes values at places. groups: the iteration space, of which values of rows lie over the part with that mask.
    in_window: whether the taps of a window are at hand."""

    writer: Writer
    groups: tuple[Group, ...]
    variables: Variables
    in_window: bool = False
    _homes: dict[Shape, tuple[At | None, At | None]] = field(default_factory=dict)

    def value(self, operand: Operand, at: At, conditions: tuple[Condition, ...] = ()) -> str:
        """The text of an operand at a place of its own shape, where the conditions hold. Raises: NotCovered."""
        if isinstance(operand, Index):
            return self.text(at[len(at) - operand.axis])
        if not isinstance(operand, (str, Trailing)):
            return self.writer.text_of(operand)
        node = self.writer.body.node(operand) if isinstance(operand, str) else None
        if node is not None and node.name in self.variables and self.is_home(node.shape, at):
            return self.variables[node.name]
        key = (operand, at, conditions)
        if key not in self.variables:
            self.writer.elsewhere += 1
            if self.writer.elsewhere > MOST_ELSEWHERE:
                raise NotCovered(f"more than {MOST_ELSEWHERE} values at other places in one kernel")
            made = self._load(operand, at, conditions) if node is None else self._node(node, at, conditions)
            self.variables[key] = made
        return self.variables[key]

    def is_home(self, shape: Shape, at: At) -> bool:
        """Whether a place is the one at hand."""
        if shape not in self._homes:
            rows = tuple(group for group in self.groups if group.mask == "row_mask" or group.index == "outer")
            self._homes[shape] = home(self.writer, shape, self.groups), home(self.writer, shape, rows)
        return at in self._homes[shape]

    def shape(self, operand: Operand) -> Shape:
        """The shape of an operand; () of a number."""
        if isinstance(operand, Trailing):
            ones = (1,) * len(self.writer.graph.variants)
            return (*self.writer.tensor(operand.value).shape, *(ones for _ in range(operand.ones)))
        if not isinstance(operand, str):
            return ()
        node = self.writer.body.node(operand)
        return self.writer.tensor(operand).shape if node is None else node.shape

    # -- texts ---------------------------------------------------------------------------------------------------
    def text(self, place: Place) -> str:
        """A place as text."""
        return place.text(self)

    def number(self, number: Size) -> str:
        """A whole number inside a place: written out where it is constant, else an argument."""
        if any(each < 0 for each in number):
            raise NotCovered(f"an offset of {number}, below 0 at some shapes")
        return str(number[0]) if len(set(number)) == 1 else self.writer.size(number)

    def digit(self, text: str) -> str:
        """The variable of a digit of an index."""
        if text not in self.variables:
            self.variables[text] = self.fresh("place")
            self.writer.line(f"{self.variables[text]} = {text}")
        return self.variables[text]

    def condition(self, condition: Condition) -> str:
        """The variable that says whether a condition holds."""
        if condition not in self.variables:
            place = self.text(condition.place)
            if not self.hangs((condition.place,)):
                place = f"{place} + tl.zeros([1], tl.int64)"  # a comparison of numbers is no mask
            place = place if place.isidentifier() else f"({place})"
            bounds = []
            if condition.low is not None and any(
                a < b for a, b in zip(condition.place.least, condition.low, strict=True)
            ):
                bounds.append(f"({place} >= {self.number(condition.low)})")
            if condition.high is not None and any(
                a >= b for a, b in zip(condition.place.most, condition.high, strict=True)
            ):
                bounds.append(f"({place} < {self.number(condition.high)})")
            self.variables[condition] = self.fresh("inside")
            self.writer.line(f"{self.variables[condition]} = {bare(' & '.join(bounds))}")
        return self.variables[condition]

    def fresh(self, base: str) -> str:
        """A name that nothing in the kernel has."""
        taken = {*self.variables.values(), *self.writer.graph.values, *(node.name for node in self.writer.body.nodes)}
        taken |= self._outside() | self._space()
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        return name

    def _space(self) -> set[str]:
        """The names by which the kernel says where it is."""
        return set(_NAME.findall(" ".join(f"{group.index} {group.mask}" for group in self.groups)))

    def _outside(self) -> set[str]:
        """The names that stand before the loop or condition at hand, and would be carried into it."""
        depth = len(INDENT) * self.writer.level
        found = (_ASSIGNED.match(line) for line in self.writer.lines)
        return {match[2] for match in found if match and len(match[1]) < depth}

    # -- values --------------------------------------------------------------------------------------------------
    def hangs(self, places: Iterable[Place]) -> frozenset[str]:
        """The running indices that places hang on, through indices that were loaded too."""
        found = frozenset[str]()
        for place in places:
            for index in place.indices:
                found |= self.writer.hangs.get(index, frozenset((index,)))
        return found

    def _mask(self, hangs: frozenset[str], conditions: tuple[Condition, ...]) -> str:
        """What must hold where something is loaded whose address hangs on some indices."""
        both = flat(self.groups, self.writer.size) if len(self.groups) > 1 else None
        if both is not None and bare(both.index) in hangs:
            masks = [both.mask]
        else:
            masks = [group.mask for group in self.groups if bare(group.index) in hangs and group.mask]
        reached = hangs if both is None or bare(both.index) not in hangs else None
        for condition in conditions:
            if reached is None or self.hangs((condition.place,)) <= reached:
                masks.append(self.condition(condition))
        return " & ".join(dict.fromkeys(masks))

    def _load(self, operand: Operand, at: At, conditions: tuple[Condition, ...], other: str = "") -> str:
        assert isinstance(operand, (str, Trailing))
        value = operand.value if isinstance(operand, Trailing) else operand
        tensor, writer = self.writer.tensor(value), self.writer
        at = at[: len(tensor.shape)]
        if tensor.contiguous:
            writer.contiguous.add(value)
            offset = self.text(linear(at, tensor.shape, len(writer.graph.variants)))
        else:
            texts = [(self.text(place), axis) for axis, place in enumerate(at) if not is_one(tensor.shape[axis])]
            parts = [(text if text.isidentifier() else f"({text})", axis) for text, axis in texts if text != "0"]
            offset = " + ".join(f"{text} * {writer.stride(value, axis)}" for text, axis in parts)
        mask = self._mask(self.hangs(at), conditions)
        variable = self.fresh(f"{value}_at")
        writer.load_from(value, "" if offset == "0" else offset, mask, variable, other)
        writer.moved.add(value)
        return variable

    def _node(self, node: Node, at: At, conditions: tuple[Condition, ...]) -> str:
        if node.kind == "view":
            return self._moved(node, Reshaped(node.shape), at, conditions)
        if node.kind == "index":
            assert node.index is not None
            return self._moved(node, node.index, at, conditions)
        if node.kind == "window":
            return windowed(self, node, at, conditions)
        if node.kind != "map" or "{rows}" in node.operation or "{cols}" in node.operation:
            raise NotCovered(f"{node.name} is needed at another place than the one at hand")
        parts = [
            self.text(at[len(at) - item.axis])
            if isinstance(item, Index)
            else self.value(item, broadcast_at(at, self.shape(item)), conditions)
            for item in node.operands
        ]
        variable = self.fresh(f"{node.name}_at")
        self.writer.line(f"{variable} = " + node.operation.format(*parts))
        self.writer.note_made(variable, node.operation, parts)
        return variable

    def _moved(self, node: Node, index: IndexMap, at: At, conditions: tuple[Condition, ...]) -> str:
        """The element of its operands that an element of a node is: the first piece whose conditions hold."""
        variants = len(self.writer.graph.variants)
        shapes = tuple(self.shape(item) for item in node.operands)

        def load(number: int, place: At, wrap: Size | None) -> str:
            return self._index(node.operands[number], place, wrap, conditions)

        def known(number: int, place: At) -> Place | None:
            return place_of(self.writer.body, self.shape, variants, node.operands[number], place)

        arms: list[tuple[str, tuple[Condition, ...]]] = []
        pieces = index.pieces(Asked(at, shapes, variants, load, known))
        for piece in pieces:
            if any(condition.never for condition in piece.conditions):
                continue
            live = tuple(condition for condition in piece.conditions if not condition.always)
            under = tuple(dict.fromkeys((*conditions, *live)))
            filled = self._filled(node, piece, live, under) if len(pieces) == 1 and live else ""
            if filled:
                return filled
            arms.append((self.value(node.operands[piece.operand], piece.at, under), live))
            if not live:
                break
        if not arms:
            dtype = {"float": "tl.float32", "int": "tl.int64", "bool": "tl.int1"}[node.compute]
            return f"tl.full([1], {_fill(node)}, {dtype})"
        default = arms.pop()[0] if not arms[-1][1] or node.fill is None else _fill(node)
        if not arms:
            return default
        for number, (text, live) in enumerate(reversed(arms), start=1):
            last = number == len(arms) and self.is_home(node.shape, at) and node.name not in self.variables.values()
            variable = node.name if last else self.fresh(f"{node.name}_at")
            self.writer.line(f"{variable} = tl.where({' & '.join(map(self.condition, live))}, {text}, {default})")
            default = self.variables[(node.name, at, conditions, number)] = variable
        return default

    def _filled(self, node: Node, piece: Piece, live: tuple[Condition, ...], under: tuple[Condition, ...]) -> str:
        """The variable of the only piece of a node, loaded with what stands where its conditions do not hold: nothing is
        chosen for each element then. "" where that is not what a masked load gives."""
        operand, fill = node.operands[piece.operand], node.fill
        if fill is None or not isinstance(operand, str) or self.writer.body.node(operand) is not None:
            return ""
        hangs, decide = self.hangs(piece.at), self.hangs(condition.place for condition in live)
        if not decide <= hangs:
            return ""
        if fill == 0 or (math.isnan(fill) and node.compute == "int"):
            return self.value(operand, piece.at, under)
        # where no column is, an index that is made of what was loaded there may be out of range
        columns = {bare(group.index) for group in self.groups if "col_mask" in group.mask}
        known = self.writer.tensor(operand).dtype in WITH_NAN
        if not math.isnan(fill) or decide == hangs or decide & columns or not known:
            return ""
        key = (operand, piece.at, under, "filled")
        if key not in self.variables:
            other = f'tl.where({" & ".join(map(self.condition, live))}, 0.0, float("nan"))'
            self.variables[key] = self._load(operand, piece.at, under, other)
        return self.variables[key]

    def inside(self, at: At) -> str:
        """What must hold for a place to be one of the iteration space: a block of the shape that values there have."""
        return self._mask(self.hangs(at), ()) or "tl.full([1], True, tl.int1)"

    def target(self, node: Node, at: At) -> tuple[At, tuple[Condition, ...]]:
        """Where an element of a scatter's space goes in its base, and under which conditions."""
        assert node.index is not None
        base, _, *places = node.operands

        def load(number: int, place: At, wrap: Size | None) -> str:
            return self._index(places[number - 1], place, wrap, ())

        shapes = (self.shape(base), *(self.shape(each) for each in places))
        (piece,) = node.index.pieces(Asked(at, shapes, len(self.writer.graph.variants), load))
        return piece.at, tuple(condition for condition in piece.conditions if not condition.always)

    def masked(self, conditions: tuple[Condition, ...]) -> str:
        """What must hold at an element of the iteration space for some conditions to do so inside of it."""
        masks = [group.mask for group in self.groups if group.mask]
        return " & ".join(dict.fromkeys((*masks, *map(self.condition, conditions))))

    def _is_one_number(self, operand: Operand) -> bool:
        """Whether an operand is the same number everywhere, and so no block of them."""
        node = self.writer.body.node(operand) if isinstance(operand, str) else None
        if node is None:
            return not isinstance(operand, (str, Trailing, Index))
        used = [item for at, item in enumerate(node.operands) if f"{{{at}}}" in node.operation]
        return node.kind == "map" and all(map(self._is_one_number, used))

    def _index(self, operand: Operand, at: At, wrap: Size | None, conditions: tuple[Condition, ...]) -> str:
        """The variable with an index that stands in an operand."""
        text = self.value(operand, at, conditions)
        key = ("index", text, wrap)
        if key not in self.variables:
            name = self.variables[key] = self.fresh(f"{text}_index" if text.isidentifier() else "index")
            hangs = frozenset[str]() if self._is_one_number(operand) else self.hangs(at)
            whole = f"{text}.to(tl.int64)" if hangs else f"{text} + tl.zeros([1], tl.int64)"
            self.writer.line(f"{name} = {whole}")
            if wrap is not None:
                self.writer.line(f"{name} = tl.where({name} < 0, {name} + {self.number(wrap)}, {name})")
            self.writer.hangs[name] = hangs
        return self.variables[key]


def _fill(node: Node) -> str:
    """What stands where no piece of a node applies."""
    assert node.fill is not None
    if node.compute == "bool":
        return str(bool(node.fill))
    if node.compute == "int":
        return "0" if math.isnan(node.fill) else str(int(node.fill))
    return f'float("{node.fill}")' if not math.isfinite(node.fill) else repr(float(node.fill))
