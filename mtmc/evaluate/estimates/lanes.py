"""Where the 32 lanes of a warp point in shared memory, worked out from NVIDIA machine code: its bank conflicts.

The integer instructions of a kernel are run once each, in the order of the code, for the first warp of a program. Parameters
and block numbers are the same for all lanes and count as 0: they move all lanes alike, and conflicts depend on differences.
What is not worked out (loaded values, rarer instructions) is None, and an access there is taken to be free of conflicts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

WARP = 32
BANKS, BANK_BYTES = 32, 4
Lanes = tuple[int, ...] | None
"""A 32-bit value of each lane, None where it is not known."""

_WORD = 0xFFFFFFFF
_OPERAND = re.compile(r"([-~!]?)\|?(U?R\d+|U?P\d|U?RZ|U?PT|SRZ|SR_\w+(?:\.\w)?|-?0x[0-9a-f]+)")


def wavefronts(addresses: Sequence[int], bits: int) -> int:
    """Clocks that an access of a warp takes of an SM's shared memory, which has 32 banks of 4 bytes.

    addresses: bytes, of each lane. bits: that each lane accesses; 4-byte accesses of all lanes go together, those of 8
    bytes by 16 lanes, those of 16 bytes by 8 lanes. A group takes as many clocks as its busiest bank has different words,
    and nothing if the group before it, of the same half of the warp, takes the same words. Free of conflicts an access
    takes 1, 2 or 4. (CUDA C++ Best Practices Guide, shared memory. The groups of wide accesses are not documented there;
    these meet the times of fp32 products on an H100, whose operands lie along K or across it.)
    """
    words = max(1, bits // 32)
    together = WARP // words
    clocks, before = 0, frozenset[int]()
    for first in range(0, WARP, together):
        asked = frozenset(
            word
            for address in addresses[first : first + together]
            for word in range(address // BANK_BYTES, address // BANK_BYTES + words)
        )
        if first % (WARP // 2) == 0 or asked != before:
            clocks += max(Counter(word % BANKS for word in asked).values())
        before = asked
    return clocks


class LaneValues:
    """Registers and predicates of the lanes, as instructions are passed to `run` in turn."""

    def __init__(self) -> None:
        self._held: dict[str, Lanes] = {}

    def addresses(self, text: str) -> Lanes:
        """Of an operand such as "[R186+UR6+0x8120]", bytes; None where not known."""
        inside = re.search(r"\[([^\]]*)\]", text)
        total: Lanes = _same(0)
        for part in inside[1].split("+") if inside else ["?"]:
            scaled = re.match(r"(U?R\d+|U?RZ)\.X(\d+)", part)
            value = self._value(part)
            if value is not None and scaled:
                value = tuple(lane * int(scaled[2]) for lane in value)
            total = _each(lambda a, b: a + b, total, value)
        return total

    def run(self, opcode: str, operands: Sequence[str], guard: str = "") -> None:
        """Take one instruction: opcode with its modifiers, operands as they stand, and its predicate, as in "!P0"."""
        if not operands:
            return
        if opcode.startswith("STL"):  # a register that is put away, an address among others
            self._held[operands[0]] = self._value(operands[1])
        if opcode == "LOP3.LUT" and re.fullmatch(r"U?P\d", operands[0]):  # also says whether the result is not zero
            found = self._result(opcode, operands[1:])
            self._keep(operands[0], _each(lambda value: int(value != 0), found), guard)
            self._keep(operands[1], found, guard)
        else:
            self._keep(operands[0], self._result(opcode, operands), guard)

    def _keep(self, target: str, result: Lanes, guard: str) -> None:
        target = target.partition(".")[0]
        if not re.fullmatch(r"U?[RP]\d+", target):
            return
        held, when = self._held.get(target), self._value(guard) if guard else None
        if when is not None and result is not None and held is not None:
            result = tuple(new if yes else old for new, old, yes in zip(result, held, when, strict=True))
        self._held[target] = result

    def _value(self, text: str) -> Lanes:
        found = _OPERAND.match(text.strip())
        if text.strip().startswith(("c[", "-c[", "desc[")):
            return _same(0)
        if not found:
            return None
        sign, name = found.groups()
        if name[:2] == "0x" or name[:3] == "-0x":
            value: Lanes = _same(int(name, 16))
        elif name in ("RZ", "URZ", "SRZ", "PT", "UPT"):
            value = _same(int(name.endswith("PT")))
        elif name.startswith("SR_"):
            value = tuple(range(WARP)) if name == "SR_TID.X" else _same(0)
        else:
            value = self._held.get(name)
        changes: dict[str, Callable[[int], int]] = {"-": lambda a: -a, "~": lambda a: ~a, "!": lambda a: int(not a)}
        return _each(changes[sign], value) if sign else value

    def _result(self, opcode: str, operands: Sequence[str]) -> Lanes:
        name, *modifiers = opcode.split(".")
        name = name[1:] if name in ("UMOV", "UIADD3", "UIMAD", "ULOP3", "ULEA", "USHF", "USGXT", "USEL") else name
        if name in ("LDC", "ULDC", "CS2R"):
            return _same(0)
        if name in ("S2R", "S2UR", "MOV"):
            return self._value(operands[1])
        if name == "LDL":
            return self._held.get(operands[1])
        if name in ("SHFL", "R2UR"):  # of values that are the same in all lanes, such as a warp's number
            values = self._value(operands[2 if name == "SHFL" else 1])
            return None if values is None else _same(values[0])
        if name in ("ISETP", "UISETP"):
            found = _compared(modifiers[0], self._value(operands[2]), self._value(operands[3]))
            return _each(lambda a, b: a & b, found, self._value(operands[4])) if "AND" in modifiers else None
        if name == "LOP3":
            a, b, c, table = (self._value(each) for each in operands[1:5])
            return _each(_lookup, a, b, c, table)
        if name == "SEL":
            first, second, which = (self._value(each) for each in operands[1:4])
            return _each(lambda a, b, yes: a if yes else b, first, second, which if which is not None else _same(1))
        if name not in _FORMULAS or {"X", "U64", "S64"} & set(modifiers):
            return None
        numbers = [self._value(each) for each in operands[1:] if not re.match(r"!?U?P(\d|T)", each.strip())]
        return _FORMULAS[name](numbers, modifiers)


def _same(value: int) -> tuple[int, ...]:
    return (value & _WORD,) * WARP


def _each(formula: Callable[..., int], *values: Lanes) -> Lanes:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return tuple(formula(*lane) & _WORD for lane in zip(*known, strict=True))


def _lookup(a: int, b: int, c: int, table: int) -> int:
    """Any function of three bits: bit 4 a + 2 b + c of the table is its value."""
    result = 0
    for bit in range(8):
        if table >> bit & 1:
            result |= (a if bit & 4 else ~a) & (b if bit & 2 else ~b) & (c if bit & 1 else ~c)
    return result & _WORD


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _compared(how: str, a: Lanes, b: Lanes) -> Lanes:
    tests: dict[str, Callable[[int, int], int]] = {
        "EQ": lambda x, y: x == y, "NE": lambda x, y: x != y, "LT": lambda x, y: _signed(x) < _signed(y),
        "LE": lambda x, y: _signed(x) <= _signed(y), "GT": lambda x, y: _signed(x) > _signed(y),
        "GE": lambda x, y: _signed(x) >= _signed(y),
    }  # fmt: skip
    return _each(tests[how], a, b) if how in tests else None


def _lea(numbers: Sequence[Lanes], modifiers: Sequence[str]) -> Lanes:
    if "HI" in modifiers:
        return _each(lambda a, b, c, by: (((c << 32) | a) >> (32 - by)) + b, *numbers) if len(numbers) == 4 else None
    return _each(lambda a, b, by: (a << by) + b, *numbers) if len(numbers) == 3 else None


def _shift(numbers: Sequence[Lanes], modifiers: Sequence[str]) -> Lanes:
    if len(numbers) != 3:
        return None
    if modifiers[0] == "L":
        return None if "HI" in modifiers else _each(lambda low, by, _: low << by, *numbers)
    if "HI" not in modifiers:
        return _each(lambda low, by, high: ((high << 32) | low) >> by, *numbers)
    if "S32" in modifiers:
        return _each(lambda _, by, high: _signed(high) >> by, *numbers)
    return _each(lambda _, by, high: high >> by, *numbers)


def _extended(numbers: Sequence[Lanes], modifiers: Sequence[str]) -> Lanes:
    """The lowest bits of a number, as a signed number unless it says U32."""
    if "U32" in modifiers:
        return _each(lambda a, bits: a & ((1 << bits) - 1), *numbers)
    return _each(lambda a, bits: ((a & ((1 << bits) - 1)) ^ (1 << bits >> 1)) - (1 << bits >> 1), *numbers)


_FORMULAS: dict[str, Callable[[Sequence[Lanes], Sequence[str]], Lanes]] = {
    "IMAD": lambda numbers, how: (
        None if "HI" in how or len(numbers) != 3 else _each(lambda a, b, c: a * b + c, *numbers)
    ),
    "IADD3": lambda numbers, _: _each(lambda *each: sum(each), *numbers),
    "VIADD": lambda numbers, _: _each(lambda a, b: a + b, *numbers),
    "LEA": _lea,
    "SHF": _shift,
    "SGXT": _extended,
}
