"""hopper_cases: what `hopper.py` measures, and with which schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.hopper_build import Case, Settings

PRODUCT = """
import torch
from torch import nn

rows, inner, cols = {m}, {k}, {n}
VARIANTS = {{
    "small": {{"rows": 64, "inner": 96, "cols": 32}},
    "odd1": {{"rows": 33, "inner": 40, "cols": 48}},
}}


class Model(nn.Module):
    def forward(self, {names}):
        return {work}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
ROWS = "torch.randn(rows, inner, dtype=torch.{dtype})"
ACROSS = "torch.randn(inner, cols, dtype=torch.{dtype}) / inner**0.5"
WEIGHT = "torch.randn(cols, inner, dtype=torch.{dtype}) / inner**0.5"
GATED = "nn.functional.silu(nn.functional.linear(x, weight)) * nn.functional.linear(x, other)"
BIAS = "torch.randn(cols, dtype=torch.{dtype})"


def product(
    name: str, m: int, k: int, n: int, settings: Mapping[str, Settings], work: str = "nn.functional.linear(x, weight)",
    names: str = "x, weight", dtype: str = "bfloat16", group: str = "products",
) -> Case:  # fmt: skip
    """A product of m x k by k x n, in one of the spellings."""
    kinds = {"x": ROWS, "weight": WEIGHT, "b": ACROSS, "bias": BIAS, "other": WEIGHT}
    inputs = ", ".join(kinds[each].format(dtype=dtype) for each in names.split(", "))
    text = PRODUCT.format(m=m, k=k, n=n, names=names, work=work, inputs=inputs)
    products = 2 if "other" in names else 1
    moved = 2.0 * (m * k + products * n * k + m * n)
    part = "nn.functional.linear(x, weight)" if work != "nn.functional.linear(x, weight)" and "weight" in names else ""
    return Case(name, group, text, settings, 2.0 * products * m * n * k, moved, ("eager", "product"), part)


def tile(m: int, n: int, k: int, warps: int, stages: int, **more: int | str) -> dict[str, int | str]:
    """Settings of a product's tile."""
    return {"block_m": m, "block_n": n, "block_k": k, "num_warps": warps, "num_stages": stages, **more}


HOST = {"operands": "descriptors", "results": "descriptors"}
OWN = {"operands": "own_descriptors", "results": "descriptors"}
TURNS = {"persistent": 132}


def large(*groups: int) -> dict[str, Settings]:
    """Schedules of large products."""
    found: dict[str, Settings] = {
        "start": {},
        "before": tile(128, 256, 64, 8, 3, operands="descriptors"),
        "before_turns": tile(128, 256, 64, 8, 3, operands="descriptors", **TURNS),
        "turns_s3": tile(128, 256, 64, 8, 3, **HOST, **TURNS),
        "turns_s3_e2": tile(128, 256, 64, 8, 3, epilogue=2, **HOST, **TURNS),
        "turns_s4_e2": tile(128, 256, 64, 8, 4, epilogue=2, **HOST, **TURNS),
        "turns_s4_e4": tile(128, 256, 64, 8, 4, epilogue=4, **HOST, **TURNS),
        "once_s3": tile(128, 256, 64, 8, 3, **HOST),
        "once_s4_e2": tile(128, 256, 64, 8, 4, epilogue=2, **HOST),
        "tall_turns_s3": tile(256, 128, 64, 8, 3, **HOST, **TURNS),
        "tall_once_s4_e2": tile(256, 128, 64, 8, 4, epilogue=2, **HOST),
        "own_turns_s3": tile(128, 256, 64, 8, 3, **OWN, **TURNS),
        "special_s3": tile(128, 256, 64, 4, 3, specialized=1, **OWN),
        "special_turns_s3": tile(128, 256, 64, 4, 3, specialized=1, **OWN, **TURNS),
        "special_turns_s4_ptr": tile(128, 256, 64, 4, 4, specialized=1, operands="own_descriptors", **TURNS),
        "special_k128_s2": tile(128, 128, 128, 4, 3, specialized=1, **OWN, **TURNS),
        "special_small_s4": tile(128, 128, 64, 4, 4, specialized=1, **OWN, **TURNS),
        "middle_turns_s4": tile(128, 128, 64, 8, 4, **HOST, **TURNS),
        "middle_once_s4": tile(128, 128, 64, 4, 4, **HOST),
        "middle_once_s3_w8": tile(128, 128, 128, 8, 3, **HOST),
    }
    for group in groups:
        found[f"turns_s4_e2_g{group}"] = tile(128, 256, 64, 8, 4, epilogue=2, group_m=group, **HOST, **TURNS)
        found[f"special_turns_s3_g{group}"] = tile(128, 256, 64, 4, 3, specialized=1, group_m=group, **OWN, **TURNS)
    return found


def gated() -> dict[str, Settings]:
    """Schedules of two products of one operand, each with a tile of its own in registers."""
    return {
        "start": {},
        "once_128_s3": tile(128, 128, 64, 8, 3, **HOST),
        "once_128_s3_e2": tile(128, 128, 64, 8, 3, epilogue=2, **HOST),
        "turns_128_s3": tile(128, 128, 64, 8, 3, **HOST, **TURNS),
        "turns_128_s4_e2": tile(128, 128, 64, 8, 4, epilogue=2, **HOST, **TURNS),
        "once_256_s3": tile(256, 64, 64, 8, 3, **HOST),
        "turns_256_s3": tile(256, 64, 64, 8, 3, **HOST, **TURNS),
        "once_64_s4": tile(128, 64, 64, 4, 4, **HOST),
    }


def products() -> Iterator[Case]:
    """Products with and without work after them."""
    yield product("square_8192", 8192, 8192, 8192, large(4, 16), "x @ b", "x, b")
    yield product("mlp_up_4096", 4096, 4096, 14336, large(4, 16))
    yield product("mlp_down_4096", 4096, 14336, 4096, large())
    yield product("square_4096", 4096, 4096, 4096, large(), "x @ b", "x, b")
    yield product("gelu_8192", 8192, 8192, 8192, large(), "nn.functional.gelu(nn.functional.linear(x, weight, bias))",
                  "x, weight, bias")  # fmt: skip
    yield product("gated_4096", 4096, 4096, 14336, gated(), GATED, "x, weight, other")


ATTENTION = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

batch, rows, cols = {b}, {s}, {t}
VARIANTS = {{
    "small": {{"batch": 1, "rows": 64, "cols": 64}},
    "odd1": {{"batch": 2, "rows": 33, "cols": 49}},
}}


def seen(q):
    behind = torch.arange(rows, device=q.device)[:, None] - torch.arange(cols, device=q.device)[None, :]
    return (behind >= 0) & (behind < 1024)


class Model(nn.Module):
    def forward(self, q, k, v):
        return {work}


def get_inputs():
    return [
        torch.randn(batch, {h}, rows, {d}, dtype=torch.bfloat16),
        torch.randn(batch, {g}, cols, {d}, dtype=torch.bfloat16),
        torch.randn(batch, {g}, cols, {d}, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []
"""
PLAIN = "scaled_dot_product_attention(q, k, v)"
CAUSAL = "scaled_dot_product_attention(q, k, v, is_causal=True)"
WRITTEN = "torch.softmax((q @ k.transpose(-2, -1)) * {d}**-0.5, dim=-1) @ v"
WINDOW = "scaled_dot_product_attention(q, k, v, attn_mask=seen(q))"
"""Of which each row sees 1024 columns."""
GROUPED = "scaled_dot_product_attention(q, k, v, enable_gqa=True)"


def attention_case(
    name: str, b: int, h: int, s: int, d: int, settings: Mapping[str, Settings], work: str = PLAIN, g: int = 0, t: int = 0,
    group: str = "attention",
) -> Case:  # fmt: skip
    """Attention of b batches, h heads of queries and g of keys, s queries, t keys, heads of d."""
    g, t = g or h, t or s
    text = ATTENTION.format(b=b, h=h, s=s, t=t, d=d, g=g, work=work.format(d=d))
    fused = PLAIN if work == WRITTEN else work
    flops = 4.0 * b * h * s * min(t, 1024 if work == WINDOW else t) * d / (2 if "causal" in work else 1)
    library = ("eager", "flash3") if work == WINDOW else ("eager", "cudnn", "flash", "flash3")
    return Case(name, group, text, settings, flops, 2.0 * b * d * (2 * h * s + 2 * g * t), library, fused)


def heads(m: int, n: int, warps: int, stages: int, **more: int | str) -> dict[str, int | str]:
    """Settings of attention's tiles."""
    return {"block_m": m, "block_n": n, "num_warps": warps, "num_stages": stages, **more}


def attentions() -> dict[str, Settings]:
    """Schedules of attention over many queries."""
    own = {"operands": "own_descriptors"}
    special = {**own, "masks": "all", "specialized": 1}
    return {
        "start": {},
        "before": heads(128, 64, 8, 3, masks="all", order="forward"),
        "ptr_128x64_w8_s3": heads(128, 64, 8, 3),
        "ptr_128x128_w8_s2": heads(128, 128, 8, 2),
        "ptr_64x64_w4_s3": heads(64, 64, 4, 3),
        **{
            f"tma_{m}x{n}_w{w}_s{s}": heads(m, n, w, s, operands="descriptors")
            for m, n, w, s in ((128, 128, 8, 2), (128, 128, 8, 3), (128, 64, 8, 3), (128, 64, 8, 4), (128, 64, 4, 3),
                               (64, 128, 4, 2), (64, 64, 4, 3), (256, 64, 8, 2), (128, 256, 8, 2))
        },
        **{
            f"special_{m}x{n}_s{s}": heads(m, n, 4, s, **special)
            for m, n, s in ((128, 128, 2), (128, 64, 2), (128, 64, 3), (128, 64, 4), (64, 128, 2))
        },
        "own_128x128_w8_s2": heads(128, 128, 8, 2, **own),
    }  # fmt: skip


GLUON: dict[str, Settings] = {"gluon": {}, "turns": {"turns": 1}, "late": {"rescale": "late"}}
"""Whether groups take turns, and when they scale earlier sums; scores scaled and shifted at once; persistent programs."""
GLUON |= {f"joined_{word}": {**settings, "scaling": "joined"} for word, settings in GLUON.items()}
GLUON |= {f"several_{word}": {**settings, "persistent": 132} for word, settings in GLUON.items()}


BACKWARD = {f"back_{word}": {**settings, "keys": "backward"} for word, settings in GLUON.items() if "joined" in word}
"""Keys from the last to the first, of causal attention."""
OVERLAP = {f"over_{word}": {**settings, "overlap": 1} for word, settings in GLUON.items() if "several" in word}
OVER_BACK = {f"over_{word}": {**settings, "overlap": 1} for word, settings in BACKWARD.items() if "several" in word}
"""Blocks of queries of persistent programs as one pipeline, the latter of causal attention with keys backward."""
OVERLAPPED = ((128, 128, 2), (128, 128, 3), (192, 128, 2))
"""Tiles that are tried so."""


def gluon(width: int, causal: bool) -> dict[str, Settings]:
    """Schedules of attention in Gluon: rows and columns, blocks in shared memory, and ways of each."""
    tiles: tuple[tuple[int, int, int], ...] = ((128, 64, 2), (128, 64, 3), (128, 128, 2), (192, 64, 2))
    if width <= 64:
        tiles += ((128, 128, 3), (192, 64, 3), (192, 128, 2), (192, 128, 3), (256, 64, 2), (256, 64, 3), (128, 256, 2))
    found: dict[str, Settings] = {}
    for m, n, stages in tiles:
        ways = GLUON | BACKWARD if causal and n >= 128 else GLUON
        if (m, n, stages) in OVERLAPPED:
            ways = ways | OVERLAP | (OVER_BACK if causal else {})
        for word, more in ways.items():
            found[f"{word}_{m}x{n}_s{stages}"] = heads(m, n, 4, stages, language="gluon", **more)
    return found


def many_queries(width: int, causal: bool = False) -> dict[str, Settings]:
    """All schedules of attention over many queries."""
    return {**attentions(), **gluon(width, causal)}


def attention() -> Iterator[Case]:
    """Attention over many queries."""
    yield attention_case("full_4096_d128", 4, 16, 4096, 128, many_queries(128))
    yield attention_case("causal_4096_d128", 4, 16, 4096, 128, many_queries(128, True), CAUSAL)
    yield attention_case("full_4096_d64", 4, 32, 4096, 64, many_queries(64))
    yield attention_case("causal_4096_d64", 4, 32, 4096, 64, many_queries(64, True), CAUSAL)
    yield attention_case("causal_16384_d128", 1, 16, 16384, 128, many_queries(128, True), CAUSAL)
    yield attention_case("causal_16384_d64", 1, 32, 16384, 64, many_queries(64, True), CAUSAL)
    yield attention_case("grouped_4096_d128", 4, 32, 4096, 128, many_queries(128), GROUPED, g=8)
    yield attention_case("window_16384_d128", 1, 16, 16384, 128, many_queries(128), WINDOW)
    yield attention_case("written_2048_d128", 4, 16, 2048, 128, many_queries(128), WRITTEN)


def few_rows() -> dict[str, Settings]:
    """Schedules of products of at most 16 rows, which wait for memory."""
    found: dict[str, Settings] = {"start": {}, "before": tile(16, 64, 64, 4, 3, split_k=4)}
    for n, k, warps, stages in (
        (32, 128, 4, 4), (32, 256, 4, 3), (64, 128, 4, 4), (64, 64, 4, 6), (64, 256, 4, 3), (128, 64, 4, 5),
        (128, 128, 8, 4), (16, 256, 4, 4), (16, 512, 4, 3),
    ):  # fmt: skip
        name = f"{n}x{k}_s{stages}"
        found[f"tma_{name}"] = tile(16, n, k, warps, stages, operands="descriptors", split_k=1)
        found[f"ptr_{name}"] = tile(16, n, k, warps, stages, operands="pointers", split_k=1)
        if n >= 64:
            found[f"swapped_{name}"] = tile(16, n, k, warps, stages, operands="descriptors", split_k=1, swapped=1)
            found[f"swapped_{name}_split2"] = tile(
                16, n, k, warps, stages, operands="descriptors", split_k=2, swapped=1
            )
    for n, k, stages in ((64, 128, 4), (64, 256, 3), (128, 64, 5), (128, 128, 4)):
        for split in (2, 4, 8):
            found[f"tma_{n}x{k}_s{stages}_split{split}"] = tile(
                16, n, k, 4, stages, operands="descriptors", split_k=split
            )
        for programs in (132, 264, 396):
            found[f"tma_{n}x{k}_s{stages}_stream{programs}"] = tile(
                16, n, k, 4, stages, operands="descriptors", split_k=1, stream_k=programs
            )
    return found


def one_query() -> dict[str, Settings]:
    """Schedules of attention of one query over many keys."""
    found: dict[str, Settings] = {"start": {}, "before": heads(64, 32, 4, 2, masks="all", packed=0, split_keys=1)}
    for n, warps, stages in ((64, 4, 3), (128, 4, 2), (128, 4, 3), (32, 4, 4), (64, 2, 3), (128, 8, 3)):
        for split in (1, 4, 8, 16, 32):
            found[f"packed_{n}_w{warps}_s{stages}_split{split}"] = heads(
                16, n, warps, stages, packed=1, split_keys=split
            )
    return found


def decode() -> Iterator[Case]:
    """Steps of decoding: few rows, which wait for memory."""
    yield product("rows16_4096x14336", 16, 4096, 14336, few_rows(), group="decode")
    yield product("rows16_14336x4096", 16, 14336, 4096, few_rows(), group="decode")
    yield product("rows1_4096x4096", 1, 4096, 4096, few_rows(), group="decode")
    yield attention_case("query_b16_t4096", 16, 32, 1, 128, one_query(), GROUPED, g=8, t=4096, group="decode")
    yield attention_case("query_b1_t32768", 1, 32, 1, 128, one_query(), GROUPED, g=8, t=32768, group="decode")


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


def fp8_case(name: str, m: int, k: int, n: int, blocks: bool = False) -> Case:
    """A product of 8-bit floats, with a scale for each row and column, or for each block."""
    work, sx, sw = (BY_ROW, "rows, 1", "cols, 1") if not blocks else (
        BY_BLOCK, "rows, inner // 128", "cols // 128, inner // 128")  # fmt: skip
    text = FP8.format(m=m, k=k, n=n, work=work, sx=sx, sw=sw)
    also = {} if blocks else {"scaled_mm": SCALED.format(False), "scaled_mm_fast": SCALED.format(True)}
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
    yield fp8_case("fp8_rows16_4096x14336", 16, 4096, 14336)
    yield fp8_case("fp8_blocks_4096", 4096, 7168, 4096, blocks=True)
    yield quantized_case("int8_rows16_4096x14336", 16, 4096, 14336, 8, few_bits(16))
    yield quantized_case("int4_rows16_4096x14336", 16, 4096, 14336, 4, few_bits(16))
    yield quantized_case("int8_rows1_4096x14336", 1, 4096, 14336, 8, few_bits(1))
    yield quantized_case("int4_rows1_4096x14336", 1, 4096, 14336, 4, few_bits(1))
    yield quantized_case("int8_rows2048_4096x14336", 2048, 4096, 14336, 8, few_bits(2048))
