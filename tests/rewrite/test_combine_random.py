"""Modules put together at random of what networks have: all first steps at once, and more, leave them what they are."""

from __future__ import annotations

import random

from mtmc.optimizations import KINDS
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret_ways
from tests.rewrite.stepping import version

PARTS = {
    "joined": (
        "self.q{i}, self.k{i}, self.v{i} = (nn.Linear(w, w, bias=bias) for bias in ({one}, {other}, True))",
        "x = self.q{i}(x) * torch.sigmoid(self.k{i}(x)) + self.v{i}(x)",
    ),
    "gated": (
        "self.g{i}, self.u{i}, self.d{i} = nn.Linear(w, 2 * w), nn.Linear(w, 2 * w), nn.Linear(2 * w, w)",
        "x = x + self.d{i}(F.silu(self.g{i}(x)) * self.u{i}(x))",
    ),
    "norm": ("self.n{i} = nn.LayerNorm(w)", "x = self.n{i}(x * 1.5 + 0.5)"),
    "rms": (
        "self.s{i} = nn.Parameter(torch.rand(w) + 0.5)",
        "x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.s{i}",
    ),
    "attention": (
        "self.a{i} = nn.Linear(w, 3 * w)",
        "q, k, v = self.a{i}(x).view(x.shape[0], 4, -1).transpose(0, 1)[None].chunk(3, -1); n = torch.arange(x.shape[0]); "
        "x = x + F.scaled_dot_product_attention(q, k, v, attn_mask={mask})[0].transpose(0, 1).reshape(x.shape[0], -1)",
    ),
    "counter": ('self.register_buffer("c{i}", torch.zeros(w))', "self.c{i}.add_(1); x = x + self.c{i}.cos()"),
    "weights": (
        "self.w{i} = nn.Parameter(torch.randn(w, w))",
        "x = x @ (self.w{i} * torch.tanh(self.w{i}).sum(0, keepdim=True)).t() * 0.05",
    ),
    "angles": (
        'self.register_buffer("f{i}", torch.rand(w))',
        "x = x * torch.outer(torch.arange(x.shape[0]), self.f{i}).cos() + x.roll(1, -1)",
    ),
    "in place": ("pass", "x.mul_(0.5); x = x.tanh() + 1"),
    "choice": (
        "self.e{i} = nn.Linear(w, w)",
        "y = self.e{i}(x); x = torch.where(y > 0, y, x * 0.1) - x.amax(-1, keepdim=True)",
    ),
    "dropout": ("self.r{i} = nn.Dropout(0.1).eval()", "x = self.r{i}(F.gelu(x)) + x"),
    "join": ("self.l{i} = nn.Linear(2 * w, w)", "x = self.l{i}(torch.cat((x, x.flip(-1)), -1))"),
}
MASKS = (
    "n[None] <= n[:, None]",
    "(n[None] <= n[:, None])[None, None]",
    "None",
    "(n[None] < n[:, None] + 1) & (n[:, None] >= 0)",
)
OUTPUTS = ("x", "(x, x.sum(-1))", "(x, x.argmax(-1))", "[x[..., :4], x]")


def module(seed: int) -> str:
    """A reference of four to eight parts."""
    rng = random.Random(seed)
    made, done = list[str](), list[str]()
    for i, name in enumerate(["norm", *rng.choices(list(PARTS), k=rng.randint(3, 7))]):
        settings = {"i": i, "one": rng.random() < 0.5, "other": rng.random() < 0.5, "mask": rng.choice(MASKS)}
        init, forward = (text.format(**settings) for text in PARTS[name])
        made.append(f"        {init}")
        done.append(f"        {forward}")
    return "\n".join([
        "import torch",
        "from torch import nn",
        "from torch.nn import functional as F",
        "rows = 24",
        'VARIANTS = {"small": {"rows": 8}, "odd1": {"rows": 5}, "odd2": {"rows": 11}}',
        "class Model(nn.Module):",
        "    def __init__(self, w):",
        "        super().__init__()",
        *made,
        "    def forward(self, x):",
        *done,
        f"        return {rng.choice(OUTPUTS)}",
        "def get_inputs():",
        "    return [torch.randn(rows, 16)]",
        "def get_init_inputs():",
        "    return [16]",
        "",
    ])  # fmt: skip


def test_random_modules_stay_what_they_are() -> None:
    sources = {f"seed{seed}": module(seed) for seed in share(range(48), 8)}
    offered = {
        name: source
        for name, source in sources.items()
        if list(KINDS["combine"].legal(version(task_from_source(source, name))))
    }
    assert len(offered) > len(sources) // 2  # in most of them there is something to combine
    found = interpret_ways(offered, [["combine"], ["combine", "lower", "fuse"]])
    assert not {name: told for name, told in found.items() if told}
