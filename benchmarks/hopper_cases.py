"""hopper_cases: the groups of cases that `hopper.py` measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.hopper_attention import attention, attention_with_more, queries
from benchmarks.hopper_build import Case
from benchmarks.hopper_products import few, products, with_epilogues
from benchmarks.hopper_quantized import quantized


def decode() -> Iterator[Case]:
    """Steps of decoding: few rows or one query, which wait for memory."""
    yield from few()
    yield from queries()


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "products": products,
    "epilogues": with_epilogues,
    "attention": attention,
    "more_attention": attention_with_more,
    "decode": decode,
    "quantized": quantized,
}
