"""Forward arguments that are called as a kernel calls something of its own."""

from __future__ import annotations

import pytest

from tests.breadth import WIDE
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

HEADS = "torch.randn(2, 3, n, m), torch.randn(2, 3, n, m), torch.randn(2, 3, n, m)"
FORMS = {
    "attention": ("torch.softmax({0} @ {1}.transpose(-1, -2) * 0.2 + {3}, -1) @ {2}", f"{HEADS}, torch.randn(n, n)"),
    "scaled": ("F.scaled_dot_product_attention({0} + {3}, {1}, {2}) * {3}", f"{HEADS}, torch.randn(n, m)"),
    "rows": (
        "torch.softmax({0} * {1}, -1) * {2} + {3}",
        "torch.randn(n, 999 * m), torch.randn(n, 999 * m), torch.randn(n, 999 * m), torch.randn(999 * m)",
    ),
    "product": (
        "({0} @ {1}) * {2} + {3}",
        "torch.randn(16 * n, 8 * m), torch.randn(8 * m, 8 * m), torch.randn(8 * m), torch.randn(8 * m)",
    ),
}
SIZES = {"n": (64, 40, 19), "m": (32, 16, 8)}
FEWER = SIZES | {"n": (6, 3, 2)}
"""Sizes of the rows, of which there are few."""
WORDS = {
    "attention": ("columns", "keys", "scale", "chunk", "x1_ptr"),
    "scaled": ("out_mask", "q", "values", "place", "query_tiles"),
    "product": ("transposed", "described", "tile", "down", "x0_tiles", "x0_ptr"),
    "rows": ("turn", "turns", "row", "share", "split", "shares", "block_cols", "x2_ptr"),
}
WAYS = {"rows": ["lower", "fuse", "share each row"]}


def case(form: str, word: str, place: int) -> dict[str, object]:
    """The form with one of its four arguments called so."""
    result, inputs = FORMS[form]
    names = [word if at == place else f"x{at}" for at in range(4)]
    text = reference(result.format(*names), inputs, sizes=FEWER if form == "rows" else SIZES, names=names)
    ways = [WAYS.get(form, ["lower", "fuse"])]
    return {"name": f"{word}_{place}", "source": text, "ways": ways, "waits": form in WAYS}


@pytest.mark.parametrize("form", FORMS)
def test_no_name_of_a_forward_argument_is_in_a_kernels_way(form: str) -> None:
    """Each word at each place; in a quick run each at one of them."""
    places, words = (0, 3) if form == "rows" else range(4), WORDS[form]
    turns = range(len(places) if WIDE else 1)
    cases = [case(form, word, places[(at + by) % len(places)]) for by in turns for at, word in enumerate(words)]
    assert interpret(cases) == {str(each["name"]): None for each in cases}
