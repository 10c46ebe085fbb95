"""Values lie in memory on a GPU as the export says, or as kernels see to: they are written and built for that."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mtmc.bench import blocks
from mtmc.evaluate.loading.modules import candidate_text
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.lying import Lying
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Variant, load_task
from mtmc.task.constants import apply_constants

BLOCKS = sorted(Path(blocks.__file__).parent.glob("*/*.py"))
MOST_BYTES = 2**29
"""Of a block's values together at the full shapes: what is larger is compared at its small shapes alone."""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("path", BLOCKS, ids=lambda path: path.stem)
def test_values_lie_as_exported(path: Path) -> None:
    task = load_task(str(path))
    graph = export_graph(task)
    source = print_plan(task, graph, root_plan(graph)).source
    wrong, loose = {}, _unsettled(graph)
    for variant in [task.small, task.held_out[0], *([task.full] if _bytes(graph) < MOST_BYTES else [])]:
        at = graph.variants.index(variant.label)
        for name, value in _values(source, task.source, variant).items():
            tensor = graph.values.get(name)
            if tensor is None or not isinstance(value, torch.Tensor) or value.is_cpu:
                continue
            shape = tuple(size[at] for size in tensor.shape)
            lying = tuple(size[at] for size in tensor.strides) or torch.empty(shape, device="meta").stride()
            assert shape == tuple(value.shape), name
            if name not in loose and any(
                a != b for size, a, b in zip(shape, lying, value.stride(), strict=True) if size > 1
            ):
                op = graph.by_name.get(graph.producer.get(name, ""))
                wrong[f"{variant.label}: {name} ({op.target if op else 'input'}) {shape}"] = (lying, value.stride())
    assert not wrong


def _values(source: str, reference: str, variant: Variant) -> dict[str, Any]:
    """What the variables of a version's forward hold at its end, on the GPU."""
    own, given, found = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    exec(candidate_text(source, variant.constants), own)
    exec(apply_constants(reference, variant.constants), given)
    model = own["ModelNew"](*given[variant.init_inputs]()).cuda()
    inputs = [item.cuda() if isinstance(item, torch.Tensor) else item for item in given[variant.inputs]()]

    def note(frame: Any, event: str, _: object) -> None:
        if event == "return" and frame.f_code is own["ModelNew"].forward.__code__:
            found.update(frame.f_locals)

    sys.setprofile(note)
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        sys.setprofile(None)
    return found


def _unsettled(graph: Graph) -> set[str]:
    """Values of which kernels are told that they may lie otherwise."""
    lying = Lying(graph)
    for op in graph.ops:
        lying.called(op)
    return lying.unsettled


def _bytes(graph: Graph) -> int:
    return sum(4 * math.prod(size[0] for size in tensor.shape) for tensor in graph.values.values())
