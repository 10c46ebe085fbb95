"""A full draw of a task that has no small one to stand for it: where its reference can be run as it is.

A matrix over its norm, a map that is smoothed in both directions, all pairs of many numbers: none of their rows is that of
a smaller task. Where the reference takes a second or so at the full shapes, it is run there, and spot checks compare with
what it gives, element by element.
"""

from __future__ import annotations

from pathlib import Path

from mtmc.task import Task
from mtmc.task.tensors import flat_tensors

MOST_BYTES, MOST_STORAGE, MOST_FLOPS = 8 << 30, 320 << 20, 20e9
"""That all ops of the reference may move, that one of them may write, and that its products may take."""
MOST_ELEMENTS, MOST_AS_IT_IS, MOST_WEIGHTS = 8 << 20, 4 << 20, 16 << 20
"""Of the draw: numbers in inputs, outputs and weights."""
SEED = 5


def whole_shapes(task: Task) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]] | str:
    """Shapes of inputs and outputs at the full shapes; or what is too large of a reference to run there.

    task: without its weights. Raises: TaskError if the reference fails without data.
    """
    from mtmc.evaluate.counting.forward import count_forward
    from mtmc.evaluate.counting.traffic import fake_tensors
    from mtmc.evaluate.reference.reference import Reference
    from mtmc.evaluate.reference.returned import flatten

    with fake_tensors():
        reference = Reference(task, task.full, Path.cwd(), SEED)
        inputs = reference.draw(SEED)
        outputs = flat_tensors(flatten(reference.run(inputs, SEED))[0])
        records, _, _ = count_forward(reference.model, inputs)
    weights = sum(each.numel() for each in (*reference.model.parameters(), *reference.model.buffers()))
    drawn, made = (sum(tensor.numel() for tensor in each) for each in (flat_tensors(inputs), outputs))
    moved = [[size for _, size in (*record["reads"], *record["writes"])] for record in records]
    written = [size for record in records for _, size in record["writes"]]
    flops = sum(record["dot_flops"] for record in records)
    sizes = (
        ("numbers in weights", weights, MOST_WEIGHTS),
        ("numbers in inputs", drawn, MOST_ELEMENTS),
        ("numbers in outputs", made, MOST_AS_IT_IS),
        ("bytes moved by its ops", sum(map(sum, moved)), MOST_BYTES),
        ("bytes written by one op", max(written, default=0), MOST_STORAGE),
        ("flops of products", flops, MOST_FLOPS),
    )
    for what, size, most in sizes:
        if size > most:
            return f"{size:.3g} {what}, of at most {most:.3g}"
    return [tuple(t.shape) for t in flat_tensors(inputs)], [tuple(t.shape) for t in outputs]
