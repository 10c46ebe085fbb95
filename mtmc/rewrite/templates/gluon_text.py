"""gluon_text: lines of Triton's language in Gluon's words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mtmc.rewrite.body import NotCovered

_SAME = (
    "DotOperandLayout NVMMADistributedLayout SliceLayout abs allocate_shared_memory arange cast cdiv ceil constexpr "
    "convert_layout cos div_rn erf exp exp2 expand_dims fdiv float16 bfloat16 float32 float64 floor fma full int1 int16 "
    "int32 int64 int8 load log log2 max maximum minimum num_programs program_id rsqrt sin sqrt sqrt_rn static_range sum "
    "uint8 warp_specialize where zeros zeros_like"
)
SAME = frozenset(_SAME.split())
"""What is called the same in both from Triton 3.6 on."""
_NAME, _LIBRARY = re.compile(r"\btl\.(\w+)(\.?)"), re.compile(r"\b(?:libdevice|triton)\.")
SIGMOID = "tl.sigmoid("
CONSUMERS = {2: (240,), 3: (160, 160), 4: (112, 112, 112)}
"""Registers of each thread of the groups but the first, which gets what is left, by the number of groups."""
LOADING = 24
"""Registers of each thread of the warp that has tiles loaded."""


def written_out(line: str) -> str:
    """A line with what Gluon has no function for in terms of those that it has, as Triton's own library does."""
    while (at := line.find(SIGMOID)) >= 0:
        begin = end = at + len(SIGMOID)
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        line = f"{line[:at]}(1.0 / (1.0 + tl.exp(-({line[begin : end - 1]})))){line[end:]}"
    return line


def in_gluon(lines: Sequence[str]) -> list[str]:
    """The lines in Gluon. Raises: NotCovered where there is no such word."""
    lines = [written_out(line) for line in lines]
    for line in lines:
        for name, more in _NAME.findall(line):
            if name not in SAME or more:
                raise NotCovered(f"tl.{name} in Gluon")
        if _LIBRARY.search(line):
            raise NotCovered("a function of a library in Gluon")
    return [_NAME.sub(r"gl.\1\2", line) for line in lines]


def needed_registers(groups: int) -> tuple[int, ...]:
    """What each thread asks for: of the groups but the first, and of the warp that has tiles loaded."""
    return (*CONSUMERS[groups], LOADING)
