"""gluon_text: lines of Triton's language in Gluon's words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mtmc.rewrite.body import NotCovered
from mtmc.rewrite.folding import INDENT
from mtmc.rewrite.plan import Stage

LANGUAGE = "gluon"
"""What the setting "language" says of a kernel in Gluon."""
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
MADE = "made"
"""The launcher's variable of the memory that a kernel writes."""
ALIGNED = 8
"""Numbers of 16 bits in 16 bytes, at multiples of which the rows of a descriptor's matrices begin."""
LOADING = 24
"""Registers of each thread of the warp that has tiles loaded."""

_TILES = """\
{0}_load = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared  # up to Triton 3.6
{0}_store = getattr(hopper.tma, "async_store", None) or hopper.tma.async_copy_shared_to_global"""
_DESCRIBE = '''\
def {0}_aligned(x):
    """Memory for a tensor whose rows begin at multiples of 16 bytes."""
    width = x.shape[-1]
    return x.new_empty((*x.shape[:-1], width + -width % {2}))[..., :width]


def {0}_tiles(x, rows, columns):
    """Tiles of a tensor's matrices, through a descriptor. Rows must begin at multiples of 16 bytes: others are copied."""
    steps = [step * x.element_size() for step in x.stride()[:-1]]
    if x.data_ptr() % 16 or x.stride(-1) != 1 or any(step <= 0 or step % 16 for step in steps):
        x = {0}_aligned(x).copy_(x)
    block = [1] * (x.dim() - 2) + [rows, columns]
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.{1})
    return TileDescriptor(x, list(x.shape), list(x.stride()), block, layout)'''
_GUARD = """\
if {0}.is_cuda and torch.cuda.get_device_capability({0}.device) != (9, 0):
    name = torch.cuda.get_device_name({0}.device)
    raise RuntimeError(f"this kernel is made for Hopper GPUs (compute capability 9.0), not for {{name}}")"""


def is_gluon(stage: Stage) -> bool:
    """Whether a stage's kernel is written in Gluon."""
    return dict(stage.schedule).get("language") == LANGUAGE


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


def guard_lines(value: str) -> list[str]:
    """The launcher's lines that refuse a GPU that is no Hopper. value: a tensor that lies on it."""
    return [INDENT + line for line in _GUARD.format(value).splitlines()]


def result_lines(name: str, value: str) -> list[str]:
    """The launcher's lines that say where a kernel writes a result: to it or, where its rows begin at other addresses than
    multiples of 16 bytes, to memory that is copied. name: of the kernel. value: expression of the result."""
    return [f"{INDENT}{MADE} = {value} if {value}.shape[-1] % {ALIGNED} == 0 else {name}_aligned({value})"]


def copy_lines(value: str) -> list[str]:
    """The launcher's lines behind a launch, see `result_lines`."""
    return [f"{INDENT}if {value}.shape[-1] % {ALIGNED}:", f"{INDENT * 2}{value}.copy_({MADE})"]


def tile_functions(name: str, dtype: str) -> tuple[str, str]:
    """What a kernel's file says before it (how tiles come and go), and after it (descriptors).

    name: of the kernel. dtype: of the elements.
    """
    return _TILES.format(name), _DESCRIBE.format(name, dtype, ALIGNED)
