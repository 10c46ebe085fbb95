"""Forward arguments that are called as a kernel calls something of its own."""

from __future__ import annotations

import pytest

from tests.rewrite.interpreting import interpret

TEXT = """
import torch
import torch.nn.functional as F
from torch import nn

n, m = 64, 32
VARIANTS = {{"small": {{"n": 40, "m": 16}}, "odd1": {{"n": 19, "m": 8}}}}


class Model(nn.Module):
    def forward(self, {arguments}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
HEADS = "torch.randn(2, 3, n, m), torch.randn(2, 3, n, m), torch.randn(2, 3, n, m)"
FORMS = {
    "attention": ("torch.softmax({0} @ {1}.transpose(-1, -2) * 0.2 + {3}, -1) @ {2}", f"{HEADS}, torch.randn(n, n)"),
    "scaled": ("F.scaled_dot_product_attention({0} + {3}, {1}, {2}) * {3}", f"{HEADS}, torch.randn(n, m)"),
    "rows": (
        "torch.softmax({0} * {1}, -1) * {2} + {3}",
        "torch.randn(n, 999 * m), torch.randn(n, 999 * m), torch.randn(n, 999 * m), torch.randn(999 * m)",
    ),
}
FEWER = {"n, m = 64": "n, m = 6000", '"n": 40': '"n": 3', '"n": 19': '"n": 2'}
"""Sizes of the rows: more at the full shapes than the cache holds, and few at the small ones."""
WORDS = {
    "attention": ("columns", "keys", "scale", "chunk"),
    "scaled": ("out_mask", "q", "values", "place"),
    "rows": ("turn", "turns", "part", "split", "behind", "n_shares", "block_cols"),
}
WAYS = {"rows": ["lower", "fuse", "reduce and use"]}


def case(form: str, word: str, place: int) -> dict[str, object]:
    """The form with one of its four arguments called so."""
    result, inputs = FORMS[form]
    names = [word if at == place else f"x{at}" for at in range(4)]
    text = TEXT.format(arguments=", ".join(names), result=result.format(*names), inputs=inputs)
    for full, other in FEWER.items() if form == "rows" else ():
        text = text.replace(full, other)
    ways = [WAYS.get(form, ["lower", "fuse"])]
    return {"name": f"{word}_{place}", "source": text, "ways": ways, "waits": form in WAYS}


@pytest.mark.parametrize("form", FORMS)
def test_no_name_of_a_forward_argument_is_in_a_kernels_way(form: str) -> None:
    cases = [case(form, word, place) for word in WORDS[form] for place in ((0, 3) if form == "rows" else range(4))]
    assert interpret(cases) == {str(each["name"]): None for each in cases}
