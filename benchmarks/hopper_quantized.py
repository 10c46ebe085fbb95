"""hopper_quantized: the quantized products that `hopper.py` measures, and with which schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.hopper_build import Case, Settings
from benchmarks.hopper_products import HOST, TURNS, tile

QUANTIZED = """
import torch
from torch import nn

rows, inner, cols = {m}, {k}, {n}
VARIANTS = {{
    "small": {{"rows": 8, "inner": 128, "cols": 32}},
    "odd1": {{"rows": 5, "inner": 256, "cols": 48}},
}}


class Model(nn.Module):
    def forward(self, x, weight, scale):
        return nn.functional.linear(x, {work})


def get_inputs():
    return [torch.randn(rows, inner, dtype=torch.bfloat16), {weight}, {scale}]


def get_init_inputs():
    return []
"""
BYTES = "torch.randint(-127, 128, (cols, inner), dtype=torch.int8)"
NIBBLES = "torch.randint(0, 256, (cols, inner // 2), dtype=torch.uint8)"
CHANNEL = "torch.rand(cols, dtype=torch.bfloat16) / 4096"
GROUPS = "torch.rand(cols, inner // 128, dtype=torch.bfloat16) / 4096"
INT8 = "weight.to(x.dtype) * scale[:, None]"
GROUPED8 = "(weight.view(weight.shape[0], -1, 128).to(x.dtype) * scale[:, :, None]).view(weight.shape[0], -1)"
INT4 = (
    "(torch.stack([(weight & 15).to(torch.int8) - 8, (weight >> 4).to(torch.int8) - 8], -1)"
    ".view(weight.shape[0], -1, 128).to(x.dtype) * scale[:, :, None]).view(weight.shape[0], -1)"
)


def quantized_case(name: str, m: int, k: int, n: int, bits: int, settings: Mapping[str, Settings]) -> Case:
    """A product with weights of 8 bits a channel or of 4 bits a group, against one of 16 bits, too."""
    work, weight, scale = (INT8, BYTES, CHANNEL) if bits == 8 else (INT4, NIBBLES, GROUPS)
    text = QUANTIZED.format(m=m, k=k, n=n, work=work, weight=weight, scale=scale)
    moved = 2.0 * (m * k + m * n) + n * k * bits / 8
    wide = f"torch.randn({n}, {k}, dtype=torch.bfloat16, device='cuda')"
    part = "nn.functional.linear(x, wide)"
    return Case(name, "quantized", text, settings, 2.0 * m * n * k, moved, ("eager", "product"), part, wide=wide)


def few_bits(m: int) -> dict[str, Settings]:
    """Schedules of products with weights of few bits."""
    found: dict[str, Settings] = {"start": {}}
    rows = 16 if m <= 16 else 64 if m <= 64 else 128
    for n, k, warps, stages in (
        (64, 128, 4, 3), (64, 128, 4, 4), (32, 128, 4, 4), (128, 128, 4, 3), (128, 128, 8, 4), (128, 64, 4, 4),
        (64, 64, 4, 5), (64, 128, 8, 4), (32, 128, 2, 4), (256, 64, 8, 3),
    ):  # fmt: skip
        for split in (1, 2, 4) if m <= 64 else (1,):
            for swapped in (0, 1):
                label = f"{'swapped' if swapped else 'plain'}_{n}x{k}_w{warps}_s{stages}_split{split}"
                found[label] = tile(rows, n, k, warps, stages, split_k=split, swapped=swapped)
    return found


FP8 = """
import torch
from torch import nn

rows, inner, cols = {m}, {k}, {n}
VARIANTS = {{
    "small": {{"rows": 8, "inner": 256, "cols": 128}},
    "odd1": {{"rows": 5, "inner": 384, "cols": 256}},
}}
FP8 = torch.float8_e4m3fn


class Model(nn.Module):
    def forward(self, x, weight, sx, sw):
        return {work}


def get_inputs():
    x, weight = torch.randn(rows, inner).to(FP8), torch.randn(cols, inner).to(FP8)
    return [x, weight, torch.rand({sx}) + 0.5, (torch.rand({sw}) + 0.5) / inner**0.5]


def get_init_inputs():
    return []
"""
BY_ROW = "((x.float() * sx) @ (weight.float() * sw).t()).to(torch.bfloat16)"
BY_BLOCK = (
    "((x.view(x.shape[0], -1, 128).float() * sx[:, :, None]).view(x.shape[0], -1)"
    " @ (weight.float() * sw.repeat_interleave(128, 0).repeat_interleave(128, 1)).t()).to(torch.bfloat16)"
)
SCALED = "torch._scaled_mm(x, weight.t(), sx, sw.t(), out_dtype=torch.bfloat16, use_fast_accum={})"


def fp8_case(name: str, m: int, k: int, n: int, blocks: bool = False, behind: str = "{}") -> Case:
    """A product of 8-bit floats, with a scale for each row and column, or for each block. behind: what is done to it."""
    work, sx, sw = (BY_ROW, "rows, 1", "cols, 1") if not blocks else (
        BY_BLOCK, "rows, inner // 128", "cols // 128, inner // 128")  # fmt: skip
    text = FP8.format(m=m, k=k, n=n, work=behind.format(work), sx=sx, sw=sw)
    fast, exact = (behind.format(SCALED.format(quick)) for quick in (True, False))
    also = {} if blocks else {"scaled_mm": exact, "scaled_mm_fast": fast}
    wide = f"(torch.randn({m}, {k}, dtype=torch.bfloat16, device='cuda'), torch.randn({n}, {k}, dtype=torch.bfloat16,"
    wide += " device='cuda'))"
    settings = few_8_bits() if m <= 16 else many_8_bits(blocks)
    return Case(name, "quantized", text, settings, 2.0 * m * n * k, m * k + n * k + 2.0 * m * n, ("eager", "product"),
                "nn.functional.linear(*wide)", wide, also=also)  # fmt: skip


def many_8_bits(blocks: bool) -> dict[str, Settings]:
    """Schedules of large products of 8-bit floats."""
    found: dict[str, Settings] = {"start": {}}
    for sums in ("fp32",) if blocks else ("fp32", "fast"):
        more: dict[str, int | str] = {} if blocks else {"sums": sums}
        found |= {
            f"{sums}_256_turns_s3_e2": tile(128, 256, 128, 8, 3, epilogue=2, **HOST, **TURNS, **more),
            f"{sums}_256_turns_s4_e2": tile(128, 256, 128, 8, 4, epilogue=2, **HOST, **TURNS, **more),
            f"{sums}_256_once_s3": tile(128, 256, 128, 8, 3, **HOST, **more),
            f"{sums}_256_k64_turns_s6_e2": tile(128, 256, 64, 8, 6, epilogue=2, **HOST, **TURNS, **more),
            f"{sums}_tall_turns_s3_e2": tile(256, 128, 128, 8, 3, epilogue=2, **HOST, **TURNS, **more),
            f"{sums}_128_turns_s4": tile(128, 128, 128, 8, 4, **HOST, **TURNS, **more),
            f"{sums}_128_once_w4_s4": tile(128, 128, 128, 4, 4, **HOST, **more),
            f"{sums}_128_once_w8_s4": tile(128, 128, 128, 8, 4, **HOST, **more),
            f"{sums}_128_ptr_s4": tile(
                128, 128, 128, 8, 4, operands="pointers", results="pointers", epilogue=1, persistent=0, **more
            ),
            f"{sums}_64_once_w4_s4": tile(64, 128, 128, 4, 4, **HOST, **more),
        }
    return found


def few_8_bits() -> dict[str, Settings]:
    """Schedules of products of 8-bit floats with few rows, which wait for memory."""
    found: dict[str, Settings] = {"start": {}}
    for n, k, warps, stages in ((64, 256, 4, 4), (64, 128, 4, 6), (32, 256, 4, 5), (128, 128, 4, 5), (64, 512, 4, 3)):
        name = f"{n}x{k}_s{stages}"
        found[f"tma_{name}"] = tile(16, n, k, warps, stages, operands="descriptors", split_k=1, sums="fast")
        found[f"ptr_{name}"] = tile(16, n, k, warps, stages, operands="pointers", split_k=1, sums="fast")
        if n >= 64:
            for split in (1, 2):
                found[f"swapped_{name}_split{split}"] = tile(
                    16, n, k, warps, stages, operands="descriptors", split_k=split, swapped=1, sums="fast"
                )
    return found


def quantized() -> Iterator[Case]:
    """Products of 8-bit floats, and with weights of 8 and 4 bits that are made wide on their way to the tensor cores."""
    yield fp8_case("fp8_8192", 8192, 8192, 8192)
    yield fp8_case("fp8_mlp_up_4096", 4096, 4096, 14336)
    yield fp8_case("fp8_mlp_down_4096", 4096, 14336, 4096)
    yield fp8_case("fp8_square_4096", 4096, 4096, 4096)
    yield fp8_case("fp8_heads_8192", 8192, 4096, 6144)
    yield fp8_case("fp8_rows16_4096x14336", 16, 4096, 14336)
    for name, sizes, behind in (
        ("fp8_gelu_8192", (8192, 8192, 8192), "nn.functional.gelu({})"),
        ("fp8_tanh_gelu_4096", (4096, 4096, 16384), "nn.functional.gelu({}, approximate='tanh')"),
        ("fp8_squared_relu_4096", (4096, 4096, 16384), "torch.relu({}).square()"),
        ("fp8_capped_2048", (2048, 4096, 32000), "30.0 * torch.tanh({} / 30.0)"),
        ("fp8_silu_4096", (4096, 14336, 4096), "nn.functional.silu({})"),
        ("fp8_sigmoid_8192", (8192, 4096, 4096), "torch.sigmoid({})"),
    ):
        yield fp8_case(name, *sizes, behind=behind)
    yield fp8_case("fp8_blocks_4096", 4096, 7168, 4096, blocks=True)
    yield quantized_case("int8_rows16_4096x14336", 16, 4096, 14336, 8, few_bits(16))
    yield quantized_case("int4_rows16_4096x14336", 16, 4096, 14336, 4, few_bits(16))
    yield quantized_case("int8_rows1_4096x14336", 1, 4096, 14336, 8, few_bits(1))
    yield quantized_case("int4_rows1_4096x14336", 1, 4096, 14336, 4, few_bits(1))
    yield quantized_case("int8_rows2048_4096x14336", 2048, 4096, 14336, 8, few_bits(2048))
