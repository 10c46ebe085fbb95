"""hopper_attention: the attention that `hopper.py` measures, and with which schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.hopper_build import Case, Settings

ATTENTION = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

batch, rows, cols = {b}, {s}, {t}
VARIANTS = {{
    "small": {{"batch": 1, "rows": 64, "cols": 64}},
    "odd1": {{"batch": 2, "rows": 33, "cols": {odd}}},
}}


def alibi(q):
    behind = torch.arange(cols, device=q.device)[None, :] - torch.arange(rows, device=q.device)[:, None]
    slopes = torch.exp2(-8.0 * torch.arange(1, {h} + 1, device=q.device) / {h})
    return (slopes[:, None, None] * behind).to(q.dtype)


def turned(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def seen(q):
    behind = torch.arange(rows, device=q.device)[:, None] - torch.arange(cols, device=q.device)[None, :]
    return (behind >= 0) & (behind < 1024)


class Model(nn.Module):
    def forward(self, {names}):
        return {work}


def get_inputs():
    return [
        torch.randn(batch, {h}, rows, {d}, dtype=torch.bfloat16),
        torch.randn(batch, {g}, cols, {d}, dtype=torch.bfloat16),
        torch.randn(batch, {g}, cols, {d}, dtype=torch.bfloat16),
        {more}
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
ALIBI = "scaled_dot_product_attention(q, k, v, attn_mask=alibi(q))"
BIASED = "scaled_dot_product_attention(q, k, v, attn_mask=bias)"
ROTARY = "scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)"
CAPPED = "torch.softmax(30.0 * torch.tanh((q @ k.transpose(-2, -1)) * {d}**-0.5 / 30.0), dim=-1) @ v"
MORE = {
    BIASED: ("bias", "torch.randn({h}, rows, cols, dtype=torch.bfloat16)"),
    ROTARY: ("cos, sin", "*(torch.randn(2, rows, {d}, dtype=torch.bfloat16).unbind())"),
}
"""Names and tensors that a case takes beside queries, keys and values."""
FLEX = (
    "(lambda flex, mod: lambda *qkv: flex(*qkv, score_mod=mod))(torch.compile(__import__("
    "'torch.nn.attention.flex_attention', fromlist=['flex_attention']).flex_attention), {})"
)
"""Torch's compiled attention with a change of the scores of its own."""
CHANGES = {
    ALIBI: "lambda score, b, h, i, j: score + torch.exp2(-8.0 * (h + 1) / {h}) * (j - i)",
    CAPPED: "lambda score, b, h, i, j: 30.0 * torch.tanh(score / 30.0)",
}


def attention_case(
    name: str, b: int, h: int, s: int, d: int, settings: Mapping[str, Settings], work: str = PLAIN, g: int = 0, t: int = 0,
    group: str = "attention",
) -> Case:  # fmt: skip
    """Attention of b batches, h heads of queries and g of keys, s queries, t keys, heads of d."""
    g, t = g or h, t or s
    names, more = MORE.get(work, ("", ""))
    text = ATTENTION.format(
        b=b, h=h, s=s, t=t, d=d, g=g, work=work.format(d=d), names=", ".join(("q, k, v", *filter(None, [names]))),
        more=more.format(h=h, d=d), odd=33 if work == ROTARY else 49,
    )  # fmt: skip
    fused = PLAIN if work == WRITTEN else work
    flops = 4.0 * b * h * s * min(t, 1024 if work == WINDOW else t) * d / (2 if "causal" in work else 1)
    library: tuple[str, ...] = ("eager", "cudnn", "flash", "flash3")
    if work in (WINDOW, *MORE, *CHANGES):
        library = ("eager", "flash3") if work == WINDOW else ("eager",)
    wide, also = (FLEX.format(CHANGES[work].format(h=h)), {"flex": "wide(q, k, v)"}) if work in CHANGES else ("", {})
    if work in MORE:
        also = {"cudnn": f"by_cudnn(lambda: {work})"}
    moved = 2.0 * b * d * (2 * h * s + 2 * g * t) + (2.0 * h * s * t if work == BIASED else 0.0)
    return Case(name, group, text, settings, flops, moved, library, fused, wide, also=also)


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
    yield attention_case("written_2048_d128", 4, 16, 2048, 128, many_queries(128), WRITTEN)


def attention_with_more() -> Iterator[Case]:
    """Attention with something that the libraries' kernels do not take, or take from memory alone."""
    for name, h, d, work in (
        ("alibi", 16, 128, ALIBI),
        ("alibi", 32, 64, ALIBI),
        ("biased", 16, 128, BIASED),
        ("capped", 16, 128, CAPPED),
        ("rotary", 16, 128, ROTARY),
        ("rotary", 32, 64, ROTARY),
    ):
        settings = many_queries(d, causal=work == ROTARY)
        yield attention_case(f"{name}_4096_d{d}", 2, h, 4096, d, settings, work, group="more_attention")
    yield attention_case("window_16384_d128", 1, 16, 16384, 128, many_queries(128), WINDOW, group="more_attention")


def one_query() -> dict[str, Settings]:
    """Schedules of attention of one query over many keys."""
    found: dict[str, Settings] = {"start": {}, "before": heads(64, 32, 4, 2, masks="all", packed=0, split_keys=1)}
    for n, warps, stages in ((64, 4, 3), (128, 4, 2), (128, 4, 3), (32, 4, 4), (64, 2, 3), (128, 8, 3)):
        for split in (1, 4, 8, 16, 32):
            found[f"packed_{n}_w{warps}_s{stages}_split{split}"] = heads(
                16, n, warps, stages, packed=1, split_keys=split
            )
    return found


def queries() -> Iterator[Case]:
    """One query over many keys."""
    for name, b, keys in (("query_b16_t4096", 16, 4096), ("query_b1_t32768", 1, 32768), ("query_b64_t4096", 64, 4096),
                          ("query_b8_t32768", 8, 32768)):  # fmt: skip
        yield attention_case(name, b, 32, 1, 128, one_query(), GROUPED, g=8, t=keys, group="decode")
