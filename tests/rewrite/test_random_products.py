"""Modules put together at random of products, of what moves their operands, and of indices made of places: random legal
actions leave them what they are."""

from __future__ import annotations

import random
from collections.abc import Mapping

from mtmc.optimizations import KINDS, Move, Version
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.breadth import WIDE
from tests.rewrite.interpreting import interpret
from tests.rewrite.stepping import version

PARTS = {  # what is made, and what is done to x [batch, rows, w]; PLACES and `settings` have what stands in braces
    "gram": ("pass", "g = x @ x.mT{scale}; x = ({a} * g + {b} * g @ g{turn}) @ x * 0.01"),
    "covariance": ("pass", "c = x.mT @ x / x.shape[1]; x = torch.tanh(x @ ({a} * c + c * c{turn}))"),
    "sandwich": (
        "self.s{i} = nn.Parameter(torch.randn(w, w))",
        "s = self.s{i} @ self.s{i}.mT; x = x @ (s @ x.mT @ x @ s) * 1e-4",
    ),
    "heads": (
        "self.h{i} = nn.Parameter(torch.randn({heads}, w, w))",
        "x = (x[:, None] @ self.h{i}{turn} * 0.1).{reduce}",
    ),
    "shared": (
        "self.t{i} = nn.Parameter(torch.randn(w, w // 4))",
        "y = {split}.permute({order}) @ (self.t{i}.mT @ self.t{i}) * 0.2; x = y.permute({back}).reshape(x.shape)",
    ),
    "einsum": (
        "self.e{i} = nn.Parameter(torch.randn({e_shape}))",
        "x = torch.einsum('{e_left},{e_right}->{e_out}', {split}.permute({e_order}), self.e{i}); "
        "x = x.permute({e_back}).flatten(2) * 0.2",
    ),
    "pairs": (
        "pass",
        "p = torch.einsum('{p_left},{p_right}->{p_out}', {p_x}, {p_y}).permute({p_back}); x = x + {pairs} @ x * 0.02",
    ),
    "distances": (
        "self.d{i} = nn.Parameter(torch.randn(2 * {far}, w))",
        "n = torch.arange(x.shape[1]); near = ({one} - {other} + {far}).clamp(0, 2 * {far} - 1); "
        "z = x @ x.mT + torch.gather(x @ self.d{i}.mT, 2, near.expand(x.shape[0], -1, -1)){turn}; "
        "x = torch.softmax(z * 0.1, -1) @ x + x",
    ),
    "bias": (
        "self.b{i} = nn.Embedding(2 * {far} + 1, 4)",
        "n = torch.arange(x.shape[1]); q = {split}.transpose(1, 2); near = ({one} - {other}).clamp(-{far}, {far}) + {far}; "
        "z = q @ q.mT * 0.2 + self.b{i}(near).permute(2, 0, 1){turn}; "
        "x = x + (z.softmax(-1) @ q).transpose(1, 2).flatten(2)",
    ),
    "masked": (
        "pass",
        "n = torch.arange(x.shape[1]); m = {one} {compare} {other} + {far}; "
        "x = x + (x @ x.mT).masked_fill(m, 0.0){turn} @ x * 0.02",
    ),
    "picked": ("pass", "n = torch.arange(x.shape[1]); x = x[:, {picked}] + x * 0.5"),
    "groups": ("self.g{i} = nn.GroupNorm({heads}, w)", "x = self.g{i}(x.mT){reordered}.mT + x"),
    "rows": (
        "self.r{i} = nn.LayerNorm(w // 4)",
        "x = self.r{i}({split}.permute({order})).permute({back}).reshape(x.shape) + x",
    ),
    "channels": (
        "self.k{i} = nn.LayerNorm(w)",
        "x = self.k{i}((x.mT * 2).mT)[:, :, torch.arange(x.shape[2] - 1, -1, -1)]",
    ),
    "taps": ("self.c{i} = nn.Conv1d(w, w, 3, padding=1)", "x = torch.relu(self.c{i}(x.mT)).mT + x"),
    "linear": ("self.l{i} = nn.Linear(w, w)", "x = F.gelu(self.l{i}(x){reordered}) + x"),
}
CHOICES = {
    "a": ("3.4445", "-0.5", "1"),
    "b": ("2.0315", "0.1"),
    "heads": ("1", "2", "4"),
    "scale": ("", " * 0.5", " / x.shape[1]", " + 1.0"),
    "turn": ("", "", ".mT"),
    "reduce": ("sum(1)", "amax(1)", "mean(1)", "select(1, 0)"),
    "pairs": ("p", "p.mT", "torch.tanh(p)", "p.softmax(-1)", "(p + p.mT)"),
    "far": ("1", "3", "8", "40"),
    "compare": ("<", ">=", "=="),
    "picked": ("n.flip(0)", "(n + 2).clamp(max=x.shape[1] - 1)", "(n - 3).clamp(min=0)", "(n * 2) % x.shape[1]"),
    "reordered": ("", ".contiguous()", ".mT.contiguous().mT"),
}
SEEDS = (0, 10, 16, 21, 29, 64, 70, 81)
"""Halves of products alone, behind others and before them; scores that read what lies turned; Einstein sums."""
OUTPUTS = ("x", "(x, x @ x.mT)", "(x.mT, x.mean(-1))", "x.mT.contiguous()", "x @ x.mT * 0.1")
FIRST: tuple[str, ...] = ("symmetry", "combine", "algebra", "fuse", "lower", "layout")
LATER = (
    "symmetry",
    "lower",
    "fuse",
    "join",
    "split",
    "tile",
    "precision",
    "descriptors",
    "pack",
    "vectorize",
    "reorder",
)


def settings(rng: random.Random) -> Mapping[str, object]:
    """What stands in the braces of a part."""
    order, e_order, out = [*rng.sample(range(3), 3), 3], rng.sample(range(4), 4), rng.sample("bmhe", 4)
    right = rng.sample(*rng.choice((("de", 2), ("deh", 3))))
    left, other, made = (rng.sample(letters, 3) for letters in ("bnw", "bmw", "bnm"))
    one, second = rng.sample(["n[:, None]", "n[None, :]"], 2)
    return {
        **{name: rng.choice(choices) for name, choices in CHOICES.items()},
        "split": "x.view(x.shape[0], x.shape[1], 4, -1)", "one": one, "other": second,
        "order": order, "back": [order.index(axis) for axis in range(4)],
        "e_order": e_order, "e_left": "".join("bmhd"[axis] for axis in e_order), "e_right": "".join(right),
        "e_shape": ", ".join("4" if label == "h" else "w // 4" for label in right), "e_out": "".join(out),
        "e_back": [out.index(label) for label in "bmhe"],
        "p_left": "".join(left), "p_right": "".join(other), "p_out": "".join(made),
        "p_back": [made.index(label) for label in "bnm"],
        "p_x": f"x.permute({['bnw'.index(label) for label in left]})",
        "p_y": f"{rng.choice(('x', 'x.roll(1, 1)', 'torch.sin(x)'))}.permute({['bmw'.index(label) for label in other]})",
    }  # fmt: skip


def module(seed: int, dtype: str = "") -> str:
    """A reference of two to four parts. dtype: of its weights and inputs, torch's name."""
    rng = random.Random(seed)
    made, done, cast = list[str](), list[str](), f".to(torch.{dtype})" if dtype else ""
    for i, name in enumerate(rng.choices(list(PARTS), k=rng.randint(2, 4))):
        here = settings(rng)
        init, forward = (text.format(i=i, **here) for text in PARTS[name])
        made.append(f"        {init}")
        done += [f"        {line}" for line in forward.split("; ")]
    return "\n".join([
        "import torch",
        "from torch import nn",
        "from torch.nn import functional as F",
        "batch, rows, w = 4, 256, 64",
        'VARIANTS = {"small": {"batch": 2, "rows": 8, "w": 16}, "odd1": {"batch": 1, "rows": 131, "w": 20}, '
        '"odd2": {"batch": 3, "rows": 19, "w": 12}}',
        "class Model(nn.Module):",
        "    def __init__(self, w):",
        "        super().__init__()",
        *made,
        f"        self{cast}",
        "    def forward(self, x):",
        *done,
        f"        return {rng.choice(OUTPUTS)}",
        "def get_inputs():",
        f"    return [torch.randn(batch, rows, w){cast}]",
        "def get_init_inputs():",
        "    return [w]",
        "",
    ])  # fmt: skip


def case(seed: int) -> dict[str, str]:
    """A module after some random legal actions, as `interpreted.py` takes it. done: which these are."""
    task, rng = task_from_source(module(seed), f"seed{seed}"), random.Random(seed)
    reached, done = version(task), list[str]()
    while rng.random() < 0.7 and (fused := next(iter(KINDS["fuse"].legal(reached)), None)) is not None:
        reached = made(reached, fused, done)
    for kinds in [FIRST, LATER, LATER][: rng.randint(1, 3)]:
        halved = kinds[: rng.random() < 0.4]  # half of a product is rarely made by chance
        offers = (list(KINDS[kind].legal(reached)) for kind in (*halved, *rng.sample(kinds, len(kinds))))
        moves = next((moves for moves in offers if moves), None)
        reached = reached if moves is None else made(reached, rng.choice(moves), done)
    source = print_plan(task, reached.graph, reached.plan).source
    return {"name": task.name, "source": task.source, "candidate": source, "done": "; ".join(done)}


def made(start: Version, move: Move, done: list[str]) -> Version:
    """The version after a legal move, which must make one. done: the sentences so far, which the move's is added to."""
    assert move.child is not None, move.action.sentence
    done.append(move.action.sentence)
    return start.made(move.child)


def test_random_products_stay_what_they_are() -> None:
    cases = {each["name"]: each for each in map(case, range(96) if WIDE else SEEDS)}
    found = interpret(list(cases.values()))
    assert not {cases[name]["done"]: told for name, told in found.items() if told}
