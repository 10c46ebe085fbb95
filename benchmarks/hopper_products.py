"""hopper_products: the products that `hopper.py` measures, and with which schedules."""

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
RESIDUAL = "torch.randn(rows, cols, dtype=torch.{dtype})"
LINEAR = "nn.functional.linear(x, weight)"
WITH_BIAS = "nn.functional.linear(x, weight, bias)"


def product(
    name: str, m: int, k: int, n: int, settings: Mapping[str, Settings], work: str = LINEAR,
    names: str = "x, weight", dtype: str = "bfloat16", group: str = "products",
) -> Case:  # fmt: skip
    """A product of m x k by k x n, in one of the spellings."""
    kinds = {"x": ROWS, "weight": WEIGHT, "b": ACROSS, "bias": BIAS, "other": WEIGHT, "residual": RESIDUAL}
    inputs = ", ".join(kinds[each].format(dtype=dtype) for each in names.split(", "))
    text = PRODUCT.format(m=m, k=k, n=n, names=names, work=work, inputs=inputs)
    products = 2 if "other" in names else 1
    moved = 2.0 * (m * k + products * n * k + (2 if "residual" in names else 1) * m * n)
    part = LINEAR if work != LINEAR and "weight" in names else ""
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
    for stages, parts in ((4, 2), (3, 1)):
        for turns in (132, 0):
            label = f"gluon_{'turns' if turns else 'once'}_s{stages}_e{parts}"
            found[label] = tile(128, 256, 64, 4, stages, language="gluon", epilogue=parts, persistent=turns)
    for group in groups:
        found[f"gluon_turns_s4_e2_g{group}"] = {**found["gluon_turns_s4_e2"], "group_m": group}
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
        **{
            f"gluon_s{stages}_e{parts}_g{group}": tile(
                128, 128, 64, 4, stages, language="gluon", epilogue=parts, persistent=132, group_m=group
            )
            for stages, parts, group in ((4, 1, 8), (4, 1, 16), (4, 2, 8), (3, 1, 8))
        },
    }


def with_work() -> dict[str, Settings]:
    """Schedules of large products with work behind them: those that came first or second of one of `products`."""
    words = ("start", "before_turns", "turns_s", "once_s", "tall_turns", "own_turns", "gluon")
    return {label: settings for label, settings in large(4).items() if label.startswith(words)}


def products() -> Iterator[Case]:
    """Products with nothing after them."""
    yield product("square_8192", 8192, 8192, 8192, large(4, 16), "x @ b", "x, b")
    yield product("mlp_up_4096", 4096, 4096, 14336, large(4, 16))
    yield product("mlp_down_4096", 4096, 14336, 4096, large())
    yield product("square_4096", 4096, 4096, 4096, large(), "x @ b", "x, b")
    yield product("heads_8192", 8192, 4096, 6144, large())
    yield product("fp16_8192", 8192, 8192, 8192, large(4), "x @ b", "x, b", "float16")


def with_epilogues() -> Iterator[Case]:
    """Products with work after them, which a kernel of a library does not do."""
    gelu, tanh = f"nn.functional.gelu({WITH_BIAS})", f"nn.functional.gelu({WITH_BIAS}, approximate='tanh')"
    capped, gate = f"30.0 * torch.tanh({LINEAR} / 30.0)", f"residual * torch.sigmoid({WITH_BIAS})"
    for name, sizes, work, names in (
        ("gelu_8192", (8192, 8192, 8192), gelu, "x, weight, bias"),
        ("tanh_gelu_4096", (4096, 4096, 16384), tanh, "x, weight, bias"),
        ("squared_relu_4096", (4096, 4096, 16384), f"torch.relu({LINEAR}).square()", "x, weight"),
        ("residual_4096", (4096, 14336, 4096), f"residual + {LINEAR}", "x, weight, residual"),
        ("capped_2048", (2048, 4096, 32000), capped, "x, weight"),
        ("sigmoid_gate_8192", (8192, 4096, 4096), gate, "x, weight, bias, residual"),
    ):
        yield product(name, *sizes, with_work(), work, names, group="epilogues")
    yield product("gated_4096", 4096, 4096, 14336, gated(), GATED, "x, weight, other", group="epilogues")


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


def few() -> Iterator[Case]:
    """Products of at most 16 rows: of layers of 8 and of 70 billion weights, and one over a vocabulary."""
    yield product("rows16_4096x14336", 16, 4096, 14336, few_rows(), group="decode")
    yield product("rows16_14336x4096", 16, 14336, 4096, few_rows(), group="decode")
    yield product("rows1_4096x4096", 1, 4096, 4096, few_rows(), group="decode")
    yield product("rows16_8192x28672", 16, 8192, 28672, few_rows(), group="decode")
    yield product("rows16_28672x8192", 16, 28672, 8192, few_rows(), group="decode")
    yield product("rows8_4096x128256", 8, 4096, 128256, few_rows(), group="decode")
