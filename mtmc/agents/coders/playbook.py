"""playbook: what agents read: a page for each kind of action, with a version before and after it, and one for each GPU.

The text of a kind stands in its own file (`mtmc.optimizations`), its versions before and after in
`mtmc/optimizations/examples/`; a test executes every pair. A GPU's page is printed from its record in the hardware
table, so its figures are those that estimates are made with. This file holds what its architecture wants from Triton.
"""

from __future__ import annotations

import difflib
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.action import STOP_KIND
from mtmc.errors import ConfigError

if TYPE_CHECKING:
    from mtmc.hardware import Hardware

EXAMPLES = Path(__file__).parents[2] / "optimizations" / "examples"
"""KIND_task.py (a reference in KernelBench's format), KIND_before.py and KIND_after.py (two versions of it)."""

TEXT_ONLY = (STOP_KIND, "specialize", "combine")
"""Kinds without versions before and after: one changes nothing, Gluon neither runs without a GPU nor fits a prompt, and
steps in a row have examples of their own."""


_WIDTH = 118


@dataclass(frozen=True)
class Page:
    """One kind's page.

    text: what it does to the hardware, when it pays, when it harms (Markdown). before, after: whole candidates for the
    same small task, of which `after` has what the kind does; "" for kinds of `TEXT_ONLY`.
    """

    kind: str
    text: str
    before: str
    after: str


def kinds() -> tuple[str, ...]:
    """All kinds that have a page, in the order of the table of kinds."""
    from mtmc.optimizations import KINDS

    return tuple(KINDS)


def page(kind: str) -> Page:
    """The page of a kind. Raises: ConfigError naming the value and the nearest kinds there are."""
    from mtmc.optimizations import KINDS

    if kind not in KINDS:
        near = difflib.get_close_matches(kind.lower(), list(KINDS), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise ConfigError(f"the playbook has no page {kind!r}: {hint}it has {', '.join(KINDS)}")
    before, after = ("", "") if kind in TEXT_ONLY else (_example(kind, when) for when in ("before", "after"))
    return Page(kind, KINDS[kind].page, before, after)


def _example(kind: str, when: str) -> str:
    path = EXAMPLES / f"{kind}_{when}.py"
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the page of {kind} lacks {path.name} ({error}): install mtmc again") from error


def hardware_page(name: str) -> str:
    """What to know of a GPU to write kernels for it (Markdown). name: in the hardware table; case does not matter.

    Raises: ConfigError naming the value and the nearest names there are.
    """
    from mtmc.hardware import hardware

    gpu = hardware(name)
    wants = _WANTS.get(gpu.target, (f"Nothing is known here of what {gpu.target} wants from Triton.",))
    measured = _MEASURED.get(gpu.name, ("Nothing was timed on this GPU: its figures are those of documents.",))
    parts = {"Figures": _figures(gpu), "What it wants from Triton": wants, "What is known by measurement": measured}
    lines = [f"# {gpu.name} ({gpu.target})", ""]
    for heading, sentences in parts.items():
        lines += [f"## {heading}", *(line for sentence in sentences for line in _bullet(sentence)), ""]
    return "\n".join([*lines, *textwrap.wrap(f"Figures: {gpu.source}", _WIDTH), ""])


def _bullet(sentence: str) -> list[str]:
    return textwrap.wrap(f"- {sentence}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _figures(gpu: Hardware) -> tuple[str, ...]:
    """The record in words, and what follows from it by arithmetic. GB/s are bytes a nanosecond."""
    in_flight = gpu.dram_gbs * gpu.latency_ns  # bytes that must be under way to keep DRAM busy (Little's law)
    shared, fp32, fp16 = gpu.shared_per_block // 1024, _slice_kib(4), _slice_kib(2)
    balance = {"fp16 products": gpu.fp16_tflops, "fp32 products": _exact(gpu), "other fp32 work": gpu.fp32_tflops}
    flops = ", ".join(f"{rate * 1e3 / gpu.dram_gbs:.0f} in {what}" for what, rate in balance.items())
    return (
        f"{gpu.sms} multiprocessors (SMs) at {gpu.clock_ghz:g} GHz, warps of {gpu.warp_size} threads. Fewer than "
        f"{gpu.sms} programs leave SMs idle.",
        f"DRAM {gpu.dram_gbs:,.0f} GB/s; last cache {gpu.l2_bytes / 2**20:g} MiB at some {gpu.l2_gbs:,.0f} GB/s. A load "
        f"takes some {gpu.latency_ns:g} ns, so {in_flight / 1e6:.1f} MB must be under way to keep DRAM busy: "
        f"{in_flight / gpu.sms / 1024:.0f} KiB an SM.",
        f"Dense products in TFLOP/s: fp16 and bf16 {gpu.fp16_tflops:,g}, TF32 {gpu.tf32_tflops:,g}, plain fp32 "
        f"{gpu.fp32_tflops:g}. {_thirds(gpu)}",
        f"Memory is the limit where a byte of DRAM has fewer flops than {flops}.",
        f"Shared memory: {gpu.shared_per_sm // 1024} KiB an SM, {shared} KiB for one program. A slice of both operands of "
        f"128 x 64 x 32 takes {fp32} KiB in fp32 and {fp16} KiB in fp16: at most {shared // fp32} and {shared // fp16} "
        "of them at once.",
        f"{gpu.registers_per_sm:,} registers, {gpu.max_threads_per_sm:,} threads and {gpu.max_blocks_per_sm} programs an "
        f"SM; beyond {gpu.registers_per_sm // gpu.max_threads_per_sm} registers a thread there are fewer threads.",
        f"A launch costs some {gpu.launch_us:g} us besides its work: as much as "
        f"{gpu.launch_us * gpu.dram_gbs / 1e3:.0f} MB through DRAM.",
    )


def _exact(gpu: Hardware) -> float:
    """Peak of the fastest fp32 product that is as exact as fp32, TFLOP/s."""
    return max(gpu.fp32_tflops, gpu.tf32_tflops / 3 if gpu.target.startswith("sm_") else 0.0)


def _thirds(gpu: Hardware) -> str:
    """What three TF32 products for one of fp32 are worth."""
    if not gpu.target.startswith("sm_"):
        return "Three TF32 products for one of fp32 are not to be had."
    comparison = "more than" if _exact(gpu) > gpu.fp32_tflops else "not more than"
    return f"Three TF32 products for one of fp32 make {gpu.tf32_tflops / 3:.0f}: {comparison} plain fp32."


def _slice_kib(size: int) -> int:
    """KiB of one slice of both operands of a product in tiles of 128 x 64 with 32 of the inner dimension at a time."""
    return (128 + 64) * 32 * size // 1024


_COPIES = (
    "fp32 copies of a pipelined loop are 16 bytes wide if strides are multiples of 16 elements, otherwise 4: align the "
    "inner dimension of operands."
)
_DESCRIPTORS = (
    "Pipelined loads with pointers become cp.async copies. tl.make_tensor_descriptor gives copies by the tensor memory "
    "accelerator; it needs a 16-byte aligned base, strides that are multiples of 16 bytes, and triton.set_allocator on the "
    "host, so other shapes need a path with pointers."
)
_MMA = (
    "tl.dot becomes mma instructions of single warps, which take operands from registers. Loads of a pipelined loop become "
    "cp.async copies to shared memory; n stages hold n - 1 slices. There is no wgmma, no tensor memory accelerator, no "
    "cluster.",
    _COPIES,
    "Three TF32 products for one of fp32 spill registers in tiles of 128 x 64 with 4 warps, not in tiles of 64 x 64.",
)
_WANTS: dict[str, tuple[str, ...]] = {
    "sm_80": (*_MMA, "128 x 128 x 64 in fp32 in 3 stages takes 128 KiB: one program an SM."),
    "sm_89": (
        *_MMA,
        "Shared memory is less than half of a data center GPU's: tiles and stages of an H100 kernel may not fit.",
        "A large cache over a slow DRAM: what the next kernel reads may still be in the cache.",
        "Whether three TF32 products beat plain fp32 has to be tried: by the peaks they do not.",
    ),
    "sm_90": (
        "tl.dot becomes wgmma, which four warps issue together for 64 rows of the tile, and which takes at least its second "
        "operand from shared memory: 4 warps for each 64 rows, so 8 for 128 x 128. Tiles of fewer than 64 rows get the "
        "older mma. n stages hold n slices.",
        _COPIES,
        _DESCRIPTORS,
        "fp32 products: input_precision='tf32x3'; two programs of 128 x 64 x 32 in 4 stages share an SM.",
    ),
    "sm_100": (
        "tl.dot becomes tcgen05, issued once for the whole program; the sum lies in tensor memory (512 columns for one "
        "program), not in registers. Tiles of fewer than 64 rows get the older mma. n stages hold n slices.",
        _COPIES,
        _DESCRIPTORS,
        "Products are faster than on Hopper and shared memory is the same: feed them with large tiles.",
    ),
    "gfx942": (
        "tl.dot becomes mfma on wavefronts of 64 threads: num_warps=4 are 256 threads. 'tf32x3' is refused; 'ieee' runs on "
        "the matrix cores.",
        "A pipelined loop loads through registers, not by asynchronous copies; n stages hold n - 1 slices. num_stages=2 is "
        "Triton's default.",
        "Shared memory is small: 128 x 64 x 32 in fp32 fits in 3 stages, in 4 it is refused.",
        "Eight compute dies, each with its own L2 cache of 4 MB; programs are dealt to them in turn, so neighbours do not "
        "share an L2. The cache above is the one that all dies share. AMD advises at least 1024 programs.",
    ),
}
"""By target. What tl.dot and loads become was read from kernels compiled with triton 3.9 for that target. Documents: PTX
ISA (mma, wgmma, tcgen05); Triton's reference of `make_tensor_descriptor`; AMD, "Optimizing Triton kernels" and the CDNA 3
white paper."""

_HOPPER = "gelu(linear) of 2048 x 4096 x 2048 in fp32:"
_MEASURED: dict[str, tuple[str, ...]] = {
    "H100": (
        "Streams reach 0.84 to 0.88 of the DRAM's peak with 4 to 16 elements a thread.",
        f"{_HOPPER} 128 x 64 x 32 tf32x3 in 4 stages 0.498 ms with 4 warps, 0.479 with 8; ieee 1.636; library 0.691.",
        "fp16 product of 4096 cubed: the library 0.182 ms, the best Triton tile (128 x 256 x 64, 8 warps) 0.259.",
    ),
    "H200": (
        "The same multiprocessors as an H100: products take the same time, streams 0.72 to 0.74 of it.",
        f"{_HOPPER} 128 x 64 x 32 tf32x3 in 4 stages 0.498 ms with 4 warps, 0.482 with 8; ieee 1.648; library 0.687.",
        "gelu(x + bias) of 16384 x 4096: 0.133 ms with blocks of 1024 and 4 warps, 0.252 with 256 and 8.",
    ),
}
"""Milliseconds, from results/estimate_h100.json and results/estimate_h200.json."""
