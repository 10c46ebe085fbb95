"""stages: what a stage of a plan computes, from the facts of its task's graph: bytes, flops, the sizes of its product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from mtmc.agents.policies.learned.graphs import GraphFacts, OpFacts
from mtmc.hardware import Hardware

OpClass = Literal["product", "convolution", "norm", "reduction", "window", "scan", "view", "pointwise"]
OP_CLASSES: tuple[OpClass, ...] = ("product", "convolution", "norm", "reduction", "window", "scan", "view", "pointwise")

_PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention")
_NORMS = (
    "softmax",
    "log_softmax",
    "layer_norm",
    "group_norm",
    "instance_norm",
    "rms_norm",
    "batch_norm",
    "native_batch_norm",
)
_REDUCTIONS = (
    *(
        "sum",
        "mean",
        "amax",
        "amin",
        "max",
        "min",
        "argmax",
        "argmin",
        "logsumexp",
        "var",
        "std",
        "var_mean",
        "prod",
        "norm",
    ),
    *("linalg_vector_norm", "cross_entropy_loss", "mse_loss", "l1_loss", "kl_div", "nll_loss_nd"),
)
_WINDOWS = ("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d")
_SCANS = ("cumsum", "cumprod", "flip")
_VIEWS = (
    *("view", "reshape", "flatten", "unsqueeze", "squeeze", "transpose", "permute", "t", "expand", "slice", "select"),
    *("split", "chunk", "unbind", "detach", "alias", "numpy_T", "movedim", "narrow", "diagonal", "contiguous"),
)
_BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_BINARY = ("max", "min")
"""Reductions where they read one value, elementwise where they read two."""


@dataclass(frozen=True)
class StageFacts:
    """What some ops compute together, as one kernel would.

    bytes_read, bytes_written: what stands outside of them. flops. classes: how many ops of each class, as `OP_CLASSES`.
    m, n, k: of its largest product (m counts what is batched; a convolution's n are its filters and its k are taps times
    channels), 0 where there is none. elements: of its largest value; cols: that value's last size. width: bytes of a
    number of its widest floating value.
    """

    bytes_read: int
    bytes_written: int
    flops: float
    classes: tuple[int, ...]
    m: int = 0
    n: int = 0
    k: int = 0
    elements: int = 0
    cols: int = 0
    width: int = 4

    def count(self, name: OpClass) -> int:
        """How many of its ops are of this class."""
        return self.classes[OP_CLASSES.index(name)]

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.bytes_read + self.bytes_written

    def us(self, gpu: Hardware) -> float:
        """Microseconds that it takes at least: a launch, its bytes at the peak, or its flops at the peak."""
        products = self.count("product") + self.count("convolution")
        rate = (gpu.fp16_tflops if self.width == 2 else gpu.fp32_tflops) if products else gpu.fp32_tflops
        return max(gpu.launch_us, self.bytes / gpu.dram_gbs / 1e3, self.flops / rate / 1e6)


def op_class(op: OpFacts) -> OpClass:
    """What kind of work an op is."""
    name = op.target.split(".")[1] if "." in op.target else op.target
    if name in _BINARY and len(op.reads) > 1:
        return "pointwise"
    if name.startswith("conv"):
        return "convolution"
    tables: tuple[tuple[OpClass, Sequence[str]], ...] = (
        *(("product", _PRODUCTS), ("norm", _NORMS), ("reduction", _REDUCTIONS)),
        *(("window", _WINDOWS), ("scan", _SCANS), ("view", _VIEWS)),
    )
    return next((kind for kind, names in tables if name.lstrip("_") in names), "pointwise")


@lru_cache(maxsize=65536)
def stage_facts(graph: GraphFacts, ops: tuple[str, ...]) -> StageFacts:
    """The facts of some ops, by name; names that the graph does not have are left out."""
    inside = [graph.by_name[name] for name in ops if name in graph.by_name]
    made = {at for op in inside for at in op.makes}
    read = {at for op in inside for at in op.reads} - made
    classes = [op_class(op) for op in inside]
    products = [
        _product(graph, op, kind)
        for op, kind in zip(inside, classes, strict=True)
        if kind in ("product", "convolution")
    ]
    m, n, k = max(products, key=math.prod, default=(0, 0, 0))
    touched = [graph.values[at] for at in sorted(read | made)]
    largest = max(touched, key=lambda value: math.prod(value.shape), default=None)
    floats = [_BYTES[value.dtype] for value in touched if "float" in value.dtype and value.dtype in _BYTES]
    return StageFacts(
        bytes_read=sum(value_bytes(graph, at) for at in read),
        bytes_written=sum(value_bytes(graph, at) for at in graph.leaving(ops)),
        flops=sum(2.0 * math.prod(each) for each in products) + sum(_numel(graph, op) for op in inside),
        classes=tuple(classes.count(kind) for kind in OP_CLASSES),
        m=m,
        n=n,
        k=k,
        elements=0 if largest is None else math.prod(largest.shape),
        cols=0 if largest is None or not largest.shape else largest.shape[-1],
        width=max(floats, default=4),
    )


def _product(graph: GraphFacts, op: OpFacts, kind: OpClass) -> tuple[int, int, int]:
    """(m, n, k) of a product or convolution; nothing for one whose operands are not known."""
    if len(op.reads) < 2 or not op.makes:
        return 0, 0, 0
    out = graph.values[op.makes[0]].shape
    left, right = (graph.values[at].shape for at in op.reads[:2])
    if not out or not left or not right:
        return 0, 0, 0
    if kind == "convolution":
        filters = out[1] if len(out) > 1 else 1
        return math.prod(out) // max(1, filters), filters, math.prod(right) // max(1, filters)
    inner = graph.values[op.reads[1]].shape[-1] if op.target.startswith(("aten.addmm", "aten.baddbmm")) else left[-1]
    return math.prod(out) // max(1, out[-1]), out[-1], inner


def _numel(graph: GraphFacts, op: OpFacts) -> int:
    return max((math.prod(graph.values[at].shape) for at in (*op.reads, *op.makes)), default=0)


def value_bytes(graph: GraphFacts, at: int) -> int:
    """Bytes of a value, by its position."""
    value = graph.values[at]
    return math.prod(value.shape) * _BYTES.get(value.dtype, 4)
