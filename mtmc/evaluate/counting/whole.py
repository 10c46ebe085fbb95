"""A full draw of a task that has no small one to stand for it: where its reference can be run as it is.

A matrix over its norm, a map that is smoothed in both directions, all pairs of many numbers: none of their rows is that of
a smaller task. Where the reference takes a second or so at the full shapes, it is run there, and spot checks compare with
what it gives, element by element.
"""

from __future__ import annotations

from pathlib import Path

from mtmc.evaluate.counting.tiling import MOST_AS_IT_IS, Tiled, Tiling, output_tensors
from mtmc.task import Task
from mtmc.task.tensors import flat_tensors

MOST_BYTES, MOST_STORAGE, MOST_FLOPS = 8 << 30, 320 << 20, 20e9
"""That all ops of the reference may move, that one of them may write, and that its products may take."""
MOST_ELEMENTS, MOST_WEIGHTS = 8 << 20, 16 << 20
"""Of the draw: numbers in inputs and weights."""
SEED = 5


def whole(task: Task, seed: int) -> Tiling | None:
    """The full draw as a tiling without an axis; None where the reference is too large to run. task: without its weights.

    seed: of the draw. Raises: TaskError if the reference fails without data.
    """
    from mtmc.evaluate.counting.forward import count_forward
    from mtmc.evaluate.counting.traffic import fake_tensors
    from mtmc.evaluate.reference.reference import Reference

    with fake_tensors():
        reference = Reference(task, task.full, Path.cwd(), SEED)
        inputs = reference.draw(SEED)
        outputs = output_tensors(reference.run(inputs, SEED))
        records, _, _ = count_forward(reference.model, inputs)
    weights = sum(each.numel() for each in (*reference.model.parameters(), *reference.model.buffers()))
    drawn, made = (sum(tensor.numel() for tensor in each) for each in (flat_tensors(inputs), outputs))
    if weights > MOST_WEIGHTS or drawn > MOST_ELEMENTS or made > MOST_AS_IT_IS:
        return None
    moved = [[size for _, size in (*record["reads"], *record["writes"])] for record in records]
    written = [size for record in records for _, size in record["writes"]]
    flops = sum(record["dot_flops"] for record in records)
    if sum(map(sum, moved)) > MOST_BYTES or max(written, default=0) > MOST_STORAGE or flops > MOST_FLOPS:
        return None
    ins, outs = (
        tuple(Tiled(tuple(tensor.shape), (-1,) * tensor.dim()) for tensor in each)
        for each in (flat_tensors(inputs), outputs)
    )
    return Tiling(task.full, seed, (), ins, outs)
