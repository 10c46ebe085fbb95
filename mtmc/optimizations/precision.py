"""precision: how the tensor cores are used for products of fp32 numbers."""

from __future__ import annotations

from mtmc.optimizations.settings import Choice, Settings
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage

PAGE = """\
# precision

What it does: an fp32 product is made of three TF32 products on the tensor cores (each operand is cut into a high and a low
part; the product of the low parts is left out). It is as exact as fp32 on the ordinary cores: error against float64 2.4e-7
where the library's fp32 product has 1.1e-6, measured on an H100.

When it pays: every fp32 product large enough to be limited by arithmetic: 1.4 to 1.7 times faster than the library.
When it harms: products limited by memory gain nothing. Plain TF32 (one product) is five times faster and seven hundred times
less exact; it is not offered for fp32 products, and the check refuses it.
"""


def _offer(version: Version, stage: Stage) -> list[tuple[Choice, str]]:
    if stage.family != "matmul" or stage.setting("precision") == "input":
        return []
    words = {"tf32x3": "in three TF32 products", "ieee": "in plain fp32"}
    return [
        ({"precision": way}, f"compute the {stage.name} kernel's product {words[way]}") for way in version.fp32_products
    ]


Precision = Settings("precision", PAGE, _offer)
