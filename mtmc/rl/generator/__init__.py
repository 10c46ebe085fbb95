"""Training tasks, composed at random: (seed, index) -> the text of a task in mtmc's own format.

    table.py     the ops, a row each
    program.py   a task before it is text
    draft.py     one in the making
    groups.py    draws one step from the table
    compose.py   draws a program: of all ops, or of one of the kinds below
    image.py     a convolution and what follows it
    blocks.py    the same block several times
    spare.py     work that algebra can leave out
    large.py     over a middle or several dimensions, scans, losses, pools with overlap
    sizes.py     draws its sizes
    text.py      prints it

Nothing here loads torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from mtmc.errors import TaskError
from mtmc.rl.generator.compose import compose
from mtmc.rl.generator.program import Program
from mtmc.rl.generator.sizes import Work, full_sizes, variants, work_of
from mtmc.rl.generator.text import task_text_of
from mtmc.search.strategies.common import derived_random
from mtmc.task import Task, task_from_source

__all__ = ["Generated", "distinct", "generate", "task_of", "task_text"]

_DRAWS = 200


@dataclass(frozen=True)
class Generated:
    """One generated task. name: "g<seed>_<index>". work: what it was drawn to take, an estimate. trusted: its shapes are
    tried before they are taken."""

    trusted: ClassVar[bool] = False

    seed: int
    index: int
    name: str
    text: str
    program: Program
    work: Work


def generate(seed: int, index: int) -> Generated:
    """The task number `index` (from 0) of `seed`: the same on every machine.

    Raises: TaskError for a negative index.
    """
    if index < 0:
        raise TaskError(f"there is no training task {index}: use an index of 0 or more")
    for draw in range(_DRAWS):  # some programs fit no sizes: then the next
        rng = derived_random(seed, "task", index, draw)
        program = compose(rng)
        full = full_sizes(program, rng)
        if full is not None:
            text = task_text_of(program, full, variants(program, rng))
            return Generated(seed, index, f"g{seed}_{index:05d}", text, program, work_of(program, full))
    raise TaskError(f"no sizes fit training task {index} of seed {seed}: use another index")


def task_text(seed: int, index: int) -> str:
    """The text of `generate(seed, index)`."""
    return generate(seed, index).text


def task_of(generated: Generated) -> Task:
    """The loaded task. Raises: TaskError as `mtmc.task.task_from_source`."""
    return task_from_source(generated.text, generated.name)


def distinct(seed: int, first: int = 0) -> Iterator[Generated]:
    """The tasks of a seed in order from number `first`, without those that are the same as an earlier one.

    Compared by their texts without the small shapes; `mtmc.agents.policies.learned.graphs` compares exported graphs.
    """
    seen: set[str] = set()
    for index in count(first):
        made = generate(seed, index)
        body = made.text.partition("VARIANTS")[0] + made.text.partition("class Model")[2]
        if body not in seen:
            seen.add(body)
            yield made
