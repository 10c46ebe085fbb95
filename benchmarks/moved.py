"""What the calls and kernels of a version move, counted without running it: bytes, and copies that calls make unasked.

torch copies a tensor that `reshape` cannot view in its new shape, and so does a product of batches whose operands' batches
do not lie as one. Kernels of ours read such tensors as they lie. The library's attention on a GPU leaves heads behind
rows, so what puts them there copies nothing.
"""

from __future__ import annotations

import math

from mtmc.optimizations import Version
from mtmc.rewrite.algebra.laid_out import without_data
from mtmc.rewrite.graph import Ref, Tensor
from mtmc.rewrite.operators.attention import ATTENTION
from mtmc.rewrite.operators.table import FREE
from mtmc.rewrite.packing import packed_stages
from mtmc.rewrite.plan import Stage

SHAPED = ("aten.reshape.default", "aten.flatten.using_ints", "aten.unflatten.int", "aten.view.default")
_BYTES = {"float64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8}


def moved(version: Version) -> tuple[int, int]:
    """Bytes that all calls and kernels read and write at the full shapes, each tensor once a kernel, and the number of
    copies that nobody asked for, whose bytes are among them. Without what is kept from one call to the next."""
    total, count, packed = 0, 0, kept(version)
    for stage in version.plan.stages:
        if stage in packed:
            continue
        found = copies(version, stage)
        total, count = total + 2 * sum(found), count + len(found)
        if not version.is_free(stage):
            total += _own(version, stage)
    return total, count


def kept(version: Version) -> list[Stage]:
    """The stages whose results stay from one call to the next."""
    return packed_stages(version.graph, version.plan) if version.plan.packed else []


def copies(version: Version, stage: Stage) -> list[int]:
    """Bytes of the copies that a torch call makes of its operands, each."""
    if not stage.is_torch or stage not in version.regions:
        return []
    op = version.graph.by_name[stage.ops[0]]
    values = dict(version.graph.values)
    if not all(isinstance(item, Ref) and item.name in values for item in op.args[:1]):
        return []
    if op.target in SHAPED and not _of_attention(version, op.args[0].name):
        made = [op.outputs[0]] if _copies(op.args[0], values, version.graph.values[op.outputs[0]]) else []
        return [_bytes(values[name]) for name in made]
    if op.target != "aten.matmul.default":
        return []
    shape = values[op.outputs[0]].shape
    batches = [item for item in op.args if isinstance(item, Ref) and len(values[item.name].shape) == len(shape) > 3]
    return [_bytes(values[item.name]) for item in batches if _copies(item, values, _folded(values[item.name]))]


def _of_attention(version: Version, value: str) -> bool:
    """Whether a value is what the library's attention gives, with rows before heads."""
    graph = version.graph
    maker = graph.by_name.get(graph.producer.get(value, ""))
    if maker is None or maker.target not in ("aten.transpose.int", "aten.permute.default"):
        return False
    source = graph.by_name.get(graph.producer.get(maker.refs()[0], ""))
    return source is not None and source.target in ATTENTION and version.plan.stage_of(source.name).is_torch


def _folded(tensor: Tensor) -> Tensor:
    """A tensor of batches as one batch."""
    lead = math.prod(size[0] for size in tensor.shape[:-2])
    return Tensor(((lead,), *tensor.shape[-2:]), tensor.dtype, True)


def _copies(item: Ref, values: dict[str, Tensor], wanted: Tensor) -> bool:
    """Whether torch copies a tensor to give it a shape, at the full shapes."""
    given = without_data(item, values, 0)
    shaped = given.reshape([size[0] for size in wanted.shape])
    return shaped.untyped_storage()._cdata != given.untyped_storage()._cdata


def _own(version: Version, stage: Stage) -> int:
    """Bytes of what a stage reads from outside, of each tensor no more than it has, and of what leaves the stage."""
    graph = version.graph
    made = {value for name in stage.ops for value in graph.by_name[name].outputs}
    reads = {ref for name in stage.ops for ref in graph.by_name[name].refs()} - made
    by_source: dict[str, int] = {}
    for name in reads & graph.values.keys():
        source = _source(version, name)
        by_source[source] = min(by_source.get(source, 0) + _bytes(graph.values[name]), _bytes(graph.values[source]))
    return sum(by_source.values()) + sum(_bytes(graph.values[name]) for name in graph.leaving(stage.ops))


def _source(version: Version, value: str) -> str:
    """What a value is a view of."""
    graph = version.graph
    while (maker := graph.by_name.get(graph.producer.get(value, ""))) is not None and maker.target in FREE:
        if maker.refs()[0] not in graph.values:
            break
        value = maker.refs()[0]
    return value


def _bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements, those that it repeats (stride 0) once."""
    strides = [size[0] for size in tensor.strides] or [1] * len(tensor.shape)
    elements = math.prod(size[0] for size, stride in zip(tensor.shape, strides, strict=True) if stride)
    return elements * (tensor.float_bytes if tensor.is_float else _BYTES.get(tensor.dtype, 4))
