"""References made by chance: chains of ops that move elements, reduce and compute, over two or three dimensions.

    python -m tests.rewrite.chains --seed 3 --count 80

compares many of them with torch in Triton's interpreter, after three ways each, and prints what differs. Where the exact
result is 0 (a sum of what was centered), any rounding differs: look at the reference before you look for a fault.
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.rewrite.interpreting import interpret_ways
from tests.rewrite.references import reference

SHAPES = (("n", "k", "m"), ("n", "m"), ("3", "n", "m"), ("n", "2", "k"), ("n", "4", "k"))
WAYS = [["fuse", "lower"], ["lower", "fuse"], ["fuse", "lower", "loop over"]]
MOST_DIMENSIONS = 5
_HALVES = "torch.cat((-{0}[..., {0}.shape[-1] // 2 :], {0}[..., : {0}.shape[-1] // 2]), -1)"

STEPS = {
    "unary": "torch.{unary}({0})",
    "permute": "{0}.permute({order})",
    "narrow": "{0}.narrow({dim}, 1, {0}.shape[{dim}] - 1)",
    "cat": "torch.cat((torch.sin({0}), {0} * 2.0), {dim})",
    "roll": "torch.roll({0}, {shift}, {dim})",
    "pad": "F.pad({0}, ({before}, 1), value=1.5)",
    "flip": "torch.flip({0}, ({dim},))",
    "softmax": "torch.softmax({0}, {dim})",
    "sum": "{0}.sum({dim}, keepdim=True)",
    "norm": "F.layer_norm({0}, ({0}.shape[-1],))",
    "product": "{0} * torch.cos({0})",
    "stack": "torch.stack(({0}, -{0}), {dim})",
    "repeat": "{0}.repeat_interleave(2, {dim})",
    "centered": "{0} - {0}.mean({dim}, keepdim=True)",
    "halves": _HALVES,
    "select": "{0}.select({dim}, -1)",
    "sort": "torch.sort({0}, dim={dim}, stable=True)[0]",
    "few": "torch.topk({0}, 1, {dim}, largest={flag})[0]",
    "scatter": "{0}.scatter_add({dim}, torch.zeros_like({0}, dtype=torch.int64), torch.cos({0}))",
    "rows": "{0}.index_add({dim}, torch.arange({0}.shape[{dim}]) // 2, torch.sin({0}))",
    "lookup": "{0}.index_select({dim}, torch.arange(2) % {0}.shape[{dim}])",
}
"""What a step makes of {0}, by name."""


def chain(seed: int) -> str:
    """The text of a reference of three to seven steps."""
    rng = random.Random(seed)
    shape = rng.choice(SHAPES)
    rank, lines, last = len(shape), list[str](), "x"
    for number in range(rng.randint(3, 7)):
        name = rng.choice(list(STEPS))
        if (name == "select" and rank < 2) or (name == "stack" and rank == MOST_DIMENSIONS):
            continue
        order = rng.sample(range(rank), rank)
        text = STEPS[name].format(
            last,
            dim=rng.randrange(rank),
            order=", ".join(map(str, order)),
            shift=rng.choice((1, -2, 3)),
            before=rng.choice((0, 1, 2)),
            flag=rng.choice((True, False)),
            unary=rng.choice(("tanh", "relu", "sigmoid", "sin")),
        )
        last = f"v{number}"
        lines.append(f"{last} = {text}")
        rank += {"select": -1, "stack": 1}.get(name, 0)
    body = "\n        ".join(lines)
    return reference("RESULT", f"torch.randn({', '.join(shape)})").replace(
        "return RESULT", f"{body}\n        return {last}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    asked = parser.parse_args()
    sources = {f"chain{seed}": chain(seed) for seed in range(asked.seed * 1000, asked.seed * 1000 + asked.count)}
    found = interpret_ways(sources, WAYS)
    wrong = {name: told for name, told in found.items() if told and "was not lowered" not in told}
    for name, told in wrong.items():
        sys.stdout.write(f"{name}: {told}\n{sources[name][sources[name].index('def forward') :]}\n")
    sys.stdout.write(f"{len(found) - len(wrong)} of {len(found)} are as torch has them\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
