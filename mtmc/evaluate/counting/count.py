"""The count behind an estimate: what a candidate's forward moves and computes at the task's full shapes.

`count` is a job in a check worker, where kernels are interpreted, see `mtmc.evaluate.counting.traffic`. It is given the
journal of a forward (`mtmc.evaluate.counting.noting`), which another process has noted, and runs kernels alone: nothing of a
version's host code is ever in the process that counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mtmc.errors import EvaluatorError
from mtmc.evaluate.audit.diagnosis import Failure, diagnose_exception
from mtmc.evaluate.counting.axes import Tiling
from mtmc.evaluate.counting.compared import Found
from mtmc.evaluate.counting.cuda_graph import parted, unfolded
from mtmc.evaluate.counting.distinct import SHARE, distinct_bytes
from mtmc.evaluate.counting.journal import Journal
from mtmc.evaluate.counting.launches import Limits
from mtmc.evaluate.counting.redrawn import draw_redrawn
from mtmc.evaluate.counting.tally import LaunchRecord, OpRecord, Record
from mtmc.evaluate.loading.modules import candidate_text, draw_inputs, load_reference
from mtmc.evaluate.plain import MalformedError
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.outcome import Diagnosis
from mtmc.task import Task, Variant
from mtmc.task.tensors import flat_tensors

if TYPE_CHECKING:
    from mtmc.evaluate.counting.spots import Spots

_CLOSER = Limits(programs=4, work=math.inf)
"""Two programs may lie in one row or column of tiles, and tell nothing of what all of them read; four are spread out."""


Records = tuple[OpRecord | LaunchRecord, ...]


@dataclass(frozen=True)
class Counted:
    """What a forward moves and computes.

    records: see `count_traffic`. inputs: bytes of each storage of the inputs. copies: see `cuda_graph.parted`.
    found: what spot checks saw. others: what those with other inputs saw, in order.
    outputs: the storage of each tensor of the result. kept: of what the model keeps, see `Journal`.
    left_out: sentences on what was not looked at, and why: the same on every machine.
    """

    records: Records
    inputs: tuple[int, ...]
    copies: Records | None = None
    found: Found = field(default_factory=Found)
    others: tuple[Found, ...] = ()
    outputs: tuple[int, ...] = ()
    kept: tuple[tuple[str, int], ...] = ()
    left_out: tuple[str, ...] = ()


def count(
    task: Task,
    source: str,
    variant: Variant,
    journal: Journal,
    least_bytes: int = 0,
    secret: int | None = None,
    tiling: Tiling | None = None,
    budget: float = 0.0,
    others: tuple[Tiling, ...] = (),
    thorough: bool = False,
) -> Counted | Failure:
    """Count a candidate's forward from its journal, whose data lies in the present folder.

    variant: of the task, at which it was noted. least_bytes: see `mtmc.evaluate.counting.floor`. secret: for spot checks,
    None for none of them. tiling, budget, thorough: see `mtmc.evaluate.counting.spots`. others: with other inputs.
    Returns: a failure where a kernel fails, or the journal is none of such a forward.
    Raises: TaskError if the reference fails; EvaluatorError if counting itself cannot work.
    """
    from mtmc.evaluate.counting.replay import Replay
    from mtmc.evaluate.counting.traffic import fake_tensors

    spots: list[Spots] = []
    left_out: dict[str, None] = {}
    for each in (tiling, *others):
        if secret is None:
            break
        small, told = _small_inputs(task, each, secret)
        spots.append(_spots(each, small, secret, budget / (1 + len(others)), thorough))
        left_out |= {told: None} if told else {}
    with fake_tensors() as mode:
        inputs = flat_tensors(draw_inputs(load_reference(task, variant, Path.cwd()), variant, 0))
    path = Path.cwd() / f"mtmc_candidate_{variant.label}.py"
    text = candidate_text(source, variant.constants)
    sizes = {tensor.untyped_storage()._cdata: int(tensor.untyped_storage().nbytes()) for tensor in inputs}
    try:
        replay = Replay(journal, text, path, inputs, mode)
        records, found = replay.counted(Limits(), spots)
        if distinct_bytes(unfolded(records), [*sizes.values()]) < SHARE * least_bytes and any(
            map(_too_few, unfolded(records))
        ):
            records, found = replay.counted(_CLOSER, spots)
        own, copies = parted(records)
        made, around = cast(Records, tuple(own)), None if copies is None else cast(Records, tuple(copies))
        seen, others_seen = (found[0], tuple(found[1:])) if found else (Found(), ())
        outputs = tuple(place.storage for place in journal.outputs)
        told_of = tuple(left_out)
        return Counted(made, tuple(sizes.values()), around, seen, others_seen, outputs, journal.kept, told_of)
    except EvaluatorError:
        raise
    except MalformedError as error:
        message = f"the process of the version tells of a forward that cannot be: {error}"
        return Failure("crash", Diagnosis("estimate", "BadAnswer", message[:1000]))
    except Exception as error:
        if out_of_memory(error):
            raise
        return Failure("crash", diagnose_exception("estimate", error, str(path), text))


def _spots(tiling: Tiling | None, small: list[Any], secret: int, budget: float, thorough: bool) -> Spots:
    """Spot checks with one draw of inputs."""
    from mtmc.evaluate.counting.spots import Spots

    return Spots(secret, tiling, flat_tensors(small), budget, thorough)


def _small_inputs(task: Task, tiling: Tiling | None, secret: int) -> tuple[list[Any], str]:
    """The inputs of the small draw; without a tiling those of the small shapes, but for integers: those of the full ones.
    And which are not, see `with_whole_numbers`. Raises: TaskError."""
    if tiling is not None:
        return draw_redrawn(task, tiling.variant, tiling.seed, tiling.alike, tiling.distribution), ""
    from mtmc.evaluate.counting.whole_numbers import with_whole_numbers

    drawn = flat_tensors(draw_redrawn(task, task.small, secret, ()))
    return with_whole_numbers(task, drawn, secret)


def _too_few(record: Record) -> bool:
    """Whether more programs of a launch, which are long ones then, would tell more."""
    return "kernel" in record and 1 < record["sampled"] < min(_CLOSER.programs, record["programs"])
