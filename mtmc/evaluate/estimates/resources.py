"""What a compiled kernel takes of a multiprocessor: registers, spills, shared memory, and its instructions by kind.

Read from the machine code itself: a cubin through the `cuobjdump` that the triton wheel carries, an AMD kernel from the
metadata in its assembly text (`amdgcn`) or object (`hsaco`). Needs no GPU, no CUDA toolkit and no import of triton.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mtmc.errors import EvaluatorError
from mtmc.evaluate.compiling.cuobjdump import disassembled, usage_of
from mtmc.evaluate.estimates.machine_code import LocalWords, Loop, local_words, product_loop
from mtmc.hardware import Hardware


@dataclass(frozen=True)
class Resources:
    """Of one kernel.

    registers: 32-bit registers a thread. spill_bytes: bytes of local memory a thread (registers that did not fit).
    shared_bytes: shared memory a block, static and dynamic.
    instruction_mix: how often each opcode stands in the code (not how often it runs), without modifiers; memory opcodes
        keep their width in bits, e.g. {"FFMA": 56, "LDG.128": 4, "HGMMA": 24}.
    loop: that multiplies tiles; None without one, or where the machine code was not read. local: what threads spill;
        None where nothing was, or the machine code was not read.
    straight: instructions that a thread goes through in a kernel without loops, by its PTX, moves left out; 0 with a loop,
        or where it was not read.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int
    instruction_mix: Mapping[str, int] = field(default_factory=dict)
    loop: Loop | None = None
    local: LocalWords | None = None
    straight: int = 0


def tensor_kind(resources: Resources, gpu: Hardware) -> str:
    """Which instructions use the tensor cores: "wgmma", "mma" or "mma on wgmma hardware"."""
    if gpu.target not in ("sm_90", "sm_100"):
        return "mma"
    mix = resources.instruction_mix
    return "mma on wgmma hardware" if mix.get("HMMA", 0) and not mix.get("HGMMA", 0) else "wgmma"


def read_resources(
    binary: bytes, target: str, shared_bytes: int | None = None, mix: bool = True, function: str = ""
) -> Resources:
    """Resources of a compiled kernel.

    binary: a cubin for targets "sm_*"; assembly text or a code object for "gfx*".
    shared_bytes: of a launch, as Triton's compiled kernel states it (`metadata.shared`): no binary holds its dynamic
        shared memory. None: the static part, which the binary states.
    mix: whether to disassemble too (a cubin: 0.3 s; the rest takes milliseconds). A cubin whose registers ran out is
        disassembled in any case; a code object never is.
    function: of a cubin that has several; "": its only one.
    Raises: EvaluatorError for an unknown target, a binary that is not a kernel, or a missing or failing cuobjdump.
    """
    if target.startswith("sm_"):
        return _read_cubin(binary, shared_bytes, mix, function)
    if target.startswith("gfx"):
        return _read_amd(binary, shared_bytes, mix)
    raise EvaluatorError(f"no way to read resources of target {target!r}; targets are sm_* and gfx*")


# --- NVIDIA ----------------------------------------------------------------------------------------------------------

_SASS = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_]*)((?:\.[A-Z0-9_]+)*)", re.MULTILINE)
_MEMORY = ("LDG", "STG", "LDS", "STS", "LDL", "STL", "LDGSTS", "ATOMG", "ATOM", "RED", "REDG")


def _read_cubin(cubin: bytes, shared_bytes: int | None, mix: bool, function: str) -> Resources:
    with tempfile.TemporaryDirectory(prefix="mtmc-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        registers, stack, static = usage_of(path, function)
        code = disassembled(path, function) if mix or stack else ""
    held = static if shared_bytes is None else shared_bytes
    local = local_words(code) if stack else None
    return Resources(registers, stack, held, count_sass(code), product_loop(code) if code else None, local)


def count_sass(code: str) -> dict[str, int]:
    """Opcodes of a disassembly of NVIDIA machine code, as in `Resources.instruction_mix`."""
    counts: Counter[str] = Counter()
    for opcode, modifiers in _SASS.findall(code):
        if opcode in _MEMORY:
            widths = [part for part in modifiers.split(".") if part.lstrip("US") in ("8", "16", "32", "64", "128")]
            opcode = f"{opcode}.{widths[-1].lstrip('US') if widths else '32'}"
        counts[opcode] += 1
    counts.pop("NOP", None)
    return dict(sorted(counts.items()))


_LABEL = re.compile(r"^(\$[\w.]+):")
_BRANCH = re.compile(r"^\s+(?:@!?%p\d+ )?bra(?:\.uni)?\s+(\$[\w.]+);")
_PTX = re.compile(r"^\s+(?:@!?%p\d+ )?([a-z]\w*)(?:\.|\s|;)")
_NO_WORK = ("mov", "bra", "ret")
"""Instructions of PTX of which next to nothing is left in machine code."""


def straight_instructions(ptx: str) -> int:
    """Of a kernel of one function, as in `Resources.straight`."""
    passed, count = set[str](), 0
    for line in ptx.splitlines():
        if label := _LABEL.match(line):
            passed.add(label[1])
        elif (branch := _BRANCH.match(line)) and branch[1] in passed:
            return 0
        elif (found := _PTX.match(line)) and found[1] not in _NO_WORK:
            count += 1
    return count


# --- AMD -------------------------------------------------------------------------------------------------------------

_GCN = re.compile(r"^\t([a-z][a-z0-9_]+)\b", re.MULTILINE)
_AMD_FIELDS = {"registers": "vgpr_count", "spill_bytes": "private_segment_fixed_size",
               "shared_bytes": "group_segment_fixed_size"}  # fmt: skip


def _read_amd(binary: bytes, shared_bytes: int | None, mix: bool) -> Resources:
    is_object = binary[:4] == b"\x7fELF"
    text = "" if is_object else binary.decode("utf-8", errors="replace")
    values: dict[str, int] = {}
    for name, key in _AMD_FIELDS.items():
        value = _msgpack_number(binary, key) if is_object else _yaml_number(text, key)
        if value is None:
            raise EvaluatorError(f"no .{key} in {len(binary)} bytes; the amdgcn text or hsaco of a kernel is needed")
        values[name] = value
    if shared_bytes is not None:
        values["shared_bytes"] = shared_bytes
    return Resources(**values, instruction_mix=count_gcn(text) if mix else {}, loop=None, local=None)


def count_gcn(code: str) -> dict[str, int]:
    """Mnemonics of AMD assembly text; memory operations keep the width that is part of their name."""
    return dict(sorted(Counter(_GCN.findall(code)).items()))


def _yaml_number(text: str, key: str) -> int | None:
    found = re.search(rf"^\s*(?:- )?\.{key}:\s+(\d+)\s*$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _msgpack_number(binary: bytes, key: str) -> int | None:
    """Unsigned integer that follows a string key in the object's note, which is MessagePack."""
    at = binary.find(b"." + key.encode())
    if at < 0:
        return None
    at += len(key) + 1
    first = binary[at]
    width = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(first)
    if width is None:
        return first if first < 0x80 else None
    return int.from_bytes(binary[at + 1 : at + 1 + width], "big")
