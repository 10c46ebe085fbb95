"""Attention of one token, written as sums over products: one kernel, which reads keys and values in their pages."""

from __future__ import annotations

import pytest

from mtmc.bench.suites.blocks import FOLDER
from tests.rewrite.interpreting import interpret

BEGINS = "rewrite by algebra: sum_2 is the attention of one token"
WAYS = {"alone": [BEGINS, "lower"], "paged": [BEGINS, "fuse index and sum", "fuse index", "lower"]}


@pytest.mark.parametrize("way", WAYS)
def test_a_token_over_pages_is_one_kernel(way: str) -> None:
    [path] = FOLDER.rglob("paged_decode.py")
    source = path.read_text().replace("float16", "float32")
    assert interpret([{"name": way, "source": source, "ways": [WAYS[way]]}]) == {way: None}
