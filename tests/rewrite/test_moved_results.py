"""Results of products that torch copies into another order, written so by the product's kernel."""

from __future__ import annotations

import re

import pytest

from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import text_after
from tests.rewrite.references import reference

SIZES = {"b": (16, 2, 3), "t": (32, 6, 9), "h": (4, 4, 4), "n": (32, 4, 7)}
HEADS = "torch.randn(b, h, t, n), torch.randn(b, h, n, n)"


def of(result: str, inputs: str = HEADS) -> str:
    return reference(result, inputs, sizes=SIZES)


WRITTEN = {
    "heads_side_by_side": of("(x @ y).relu().transpose(1, 2).reshape(b, t, h * n)"),
    "what_is_added_to_heads_side_by_side": of(
        "((x @ y).transpose(1, 2) + z).reshape(b, t, h * n)", f"{HEADS}, torch.randn(b, t, h, n)"
    ),
    "chunks_one_behind_the_other": of("((x @ y) * 2).transpose(1, 2).reshape(b * t, h, n)"),
    "heads_of_columns": of("(x @ y[0, 0] + 1).permute(2, 1, 0, 3).reshape(t, h * b, n)"),
    "copied_in_order": of("(x @ y).sigmoid().transpose(1, 2).contiguous()"),
}  # fmt: skip
OTHERS = {
    "a_view": of("(x @ y).relu().reshape(b * h, t, n)"),
    "that_is_read_twice": of("(lambda r: (r.reshape(b, t, h * n), r))((x @ y).relu().transpose(1, 2))"),
    "halves": of("(lambda a, b: (a.transpose(1, 2).reshape(b.shape[0], -1), b))(*(x @ y).relu().split(2, 1))"),
    "that_is_repeated": of("(x @ y).relu()[:, :, None].expand(b, h, 2, t, n).transpose(1, 2).reshape(b, 2 * h, t, n)"),
    "columns_that_end_apart": of("(x @ y).relu().mT.reshape(b, h, n * t)"),
}
WAYS = [["lower matmul", "fuse all", "lower"], ["lower matmul", "fuse", "fuse"]]


def forward_of(source: str) -> str:
    return text_after(source, ["lower matmul", "fuse"]).rpartition("def forward")[2]


@pytest.mark.parametrize("name", WRITTEN)
def test_no_copy_is_left(name: str) -> None:
    forward = forward_of(WRITTEN[name])
    assert not re.search(r"\b(torch\.)?(reshape|contiguous)\(", forward), forward


@pytest.mark.parametrize("name", ["that_is_read_twice", "halves", "that_is_repeated", "columns_that_end_apart"])
def test_other_copies_stay(name: str) -> None:
    assert "reshape(" in forward_of(OTHERS[name])


def test_they_are_right() -> None:
    cases = [{"name": name, "source": source, "ways": WAYS} for name, source in {**WRITTEN, **OTHERS}.items()]
    assert interpret(cases) == dict.fromkeys({**WRITTEN, **OTHERS})


def test_products_that_are_split_are_put_together_in_that_order() -> None:
    source = of("(x @ y).relu().transpose(1, 2).reshape(b, t, h * n)")
    ways = [["lower matmul", "fuse", "split"], ["lower matmul", "fuse", "persist"], ["lower matmul", "fuse", "tile"]]
    assert interpret([{"name": "split", "source": source, "ways": ways}]) == {"split": None}
