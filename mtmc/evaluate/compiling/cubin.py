"""What stands in a cubin: what it keeps between launches, what it calls that it does not have, clocks that it reads.

A cubin is an ELF file. A text can hide from a reader what it does; the machine code that runs cannot.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

_SYMBOL = struct.Struct("<IBBHQQ")
_TABLES = ("__cudart_i2opi_f", "__cudart_i2opi_d", "__cudart_sin_cos_coeffs")
"""What CUDA's sines keep, and only read."""
_KEEPING = (".nv.global", ".nv.global.init")
_CLOCKS = re.compile(r"\bSR_(?:CLOCK\w*|GLOBALTIMER\w*)")
_PTX_CLOCKS = re.compile(r"%(?:clock|globaltimer)\w*")
_SYMBOLS_SECTION = 2


@dataclass(frozen=True)
class Cubin:
    """kept: variables in device memory, which outlive a launch. lacking: functions that the driver would have to supply
    (printf, malloc, launches from the device)."""

    kept: tuple[str, ...]
    lacking: tuple[str, ...]


def read_cubin(binary: bytes) -> Cubin:
    """Read a binary. Raises: ValueError if it is no ELF file of 64 bits."""
    if binary[:5] != b"\x7fELF\x02":
        raise ValueError(f"{len(binary)} bytes are no cubin")
    (start,) = struct.unpack_from("<Q", binary, 40)
    size, count, names_at = struct.unpack_from("<HHH", binary, 58)
    heads = [struct.unpack_from("<IIQQQQII", binary, start + size * at) for at in range(count)]
    names = [_text(binary, heads[names_at][4] + head[0]) for head in heads]
    kept, lacking = list[str](), list[str]()
    for head in heads:
        if head[1] != _SYMBOLS_SECTION:
            continue
        texts = heads[head[6]][4]
        for at in range(head[4], head[4] + head[5], _SYMBOL.size):
            name_at, _, _, section, _, _ = _SYMBOL.unpack_from(binary, at)
            name = _text(binary, texts + name_at)
            if not name:
                continue
            if section == 0 and not name.startswith("."):  # those are the assembler's own
                lacking.append(name)
            elif section < len(names) and names[section] in _KEEPING and name not in _KEEPING:
                kept.append(name)
    filled = any(name in _KEEPING and head[5] for name, head in zip(names, heads, strict=True))
    return Cubin(tuple(kept) or (("?",) if filled else ()), tuple(lacking))


def refusal(cubin: Cubin, machine_code: str, text: str) -> str | None:
    """Why a binary is refused; None where it is not. machine_code: its disassembly. text: what it was compiled from."""
    if cubin.lacking:
        return f"the CUDA text calls {', '.join(cubin.lacking[:3])} on the device"
    clock = _CLOCKS.search(machine_code)
    if clock is not None:
        return f"the CUDA text reads a clock ({clock[0]})"
    own_names = "cudart" in text or "##" in text  # then a table's name may be another thing's
    kept = [name for name in cubin.kept if own_names or name not in _TABLES]
    if kept:
        names = ", ".join(_plain(name) for name in kept[:3])
        return (
            f"the CUDA text keeps {names} in device memory between launches: pass a tensor for scratch, and write constants "
            "as __constant__"
        )
    return None


def clock_in(ptx: str) -> str | None:
    """A register with the time that PTX names, of a kernel in Triton or Gluon; None: there is none. PTX has no macros and no
    spliced lines, so what it does not name it does not read."""
    found = _PTX_CLOCKS.search(ptx)
    return None if found is None else found[0]


def _plain(name: str) -> str:
    """A variable's own name out of the one that the compiler gives it: the last of its parts ("_ZZ1dPfiE5calls")."""
    found = re.findall(r"(\d+)(?=[A-Za-z_])", name) if name.startswith("_Z") else []
    for length in reversed(found):
        at = name.rindex(length) + len(length)
        if at + int(length) <= len(name):
            return name[at : at + int(length)]
    return name


def _text(binary: bytes, at: int) -> str:
    return binary[at : binary.index(b"\0", at)].decode(errors="replace")
