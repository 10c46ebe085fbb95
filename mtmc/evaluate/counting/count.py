"""The count behind an estimate: what a candidate's forward moves and computes at the task's full shapes.

Jobs in a check worker: the candidate's kernels must be interpreted, see `mtmc.evaluate.counting.traffic`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mtmc.errors import EvaluatorError
from mtmc.evaluate.audit.diagnosis import Failure, diagnose_exception
from mtmc.evaluate.counting.compared import Found
from mtmc.evaluate.counting.cuda_graph import parted, unfolded
from mtmc.evaluate.counting.distinct import SHARE, distinct_bytes
from mtmc.evaluate.counting.launches import Launches, Limits
from mtmc.evaluate.counting.tally import LaunchRecord, OpRecord, Record
from mtmc.evaluate.counting.tiling import Tiling, output_tensors
from mtmc.evaluate.loading.modules import (
    candidate_text,
    construct,
    draw_inputs,
    init_inputs,
    load_module,
    load_reference,
)
from mtmc.evaluate.pool.server import out_of_memory
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
    found: what spot checks saw.
    """

    records: Records
    inputs: tuple[int, ...]
    copies: Records | None = None
    found: Found = field(default_factory=Found)


def count(
    task: Task,
    source: str,
    autotuned: Mapping[str, int],
    least_bytes: int,
    secret: int | None = None,
    tiling: Tiling | None = None,
    budget: float = 0.0,
) -> Counted | Failure:
    """Count a candidate's forward in the present folder.

    autotuned: configuration of each autotuned kernel, as the build chose. least_bytes: see `mtmc.evaluate.counting.floor`.
    secret: for spot checks, None for none of them. tiling, budget: see `mtmc.evaluate.counting.spots`.
    Returns: a failure where a kernel fails at the full shapes.
    Raises: TaskError if the reference fails; EvaluatorError if counting itself cannot work.
    """
    from mtmc.evaluate.compiling.autotune import pin_autotuners
    from mtmc.evaluate.counting.spots import Spots
    from mtmc.evaluate.counting.traffic import fake_tensors

    pin_autotuners(dict(autotuned))
    small = [] if secret is None else _small_inputs(task, tiling, secret)
    spots = None if secret is None else Spots(secret, tiling, flat_tensors(small), budget)
    with fake_tensors():
        return _count_candidate(task, source, task.full, least_bytes=least_bytes, spots=spots)


def count_small(
    task: Task, source: str, autotuned: Mapping[str, int], variants: Sequence[Variant]
) -> Records | Failure:
    """The records of a candidate's forwards at small shapes, run whole on real inputs, as the check runs them.

    Returns, raises: as `count` does.
    """
    from mtmc.evaluate.compiling.autotune import pin_autotuners

    pin_autotuners(dict(autotuned))
    records: Records = ()
    for variant in variants:
        counted = _count_candidate(task, source, variant, exact=True)
        if isinstance(counted, Failure):
            return counted
        records += counted.records
    return records


def count_forward(
    model: Any,
    inputs: Sequence[Any],
    limits: Limits | None = None,
    exact: bool = False,
    log: list[Record] | None = None,
    after: Callable[[Launches, Any], None] | None = None,
) -> tuple[list[Record], list[int], Any]:
    """(records, bytes of each storage of the inputs, result) of one forward.

    With fake tensors these storages have the first numbers in the records. after: see `count_traffic`; it is given the
    result too. log, raises: see `count_traffic`.
    """
    from mtmc.evaluate.counting.traffic import count_traffic

    tensors = flat_tensors(inputs)
    results: list[Any] = []

    def forward(*given: Any) -> None:
        for tensor in tensors:
            tensor.data_ptr()  # a storage gets its number when it is first asked for its address
        results.append(model(*given))

    sizes = {tensor.untyped_storage()._cdata: int(tensor.untyped_storage().nbytes()) for tensor in tensors}
    look = None if after is None else lambda launches: after(launches, results[0])
    return count_traffic(forward, inputs, limits, exact, log, look), list(sizes.values()), results[0]


def _small_inputs(task: Task, tiling: Tiling | None, secret: int) -> list[Any]:
    """The inputs of the small draw; without a tiling those of the small shapes. Raises: TaskError."""
    variant, seed = (task.small, secret) if tiling is None else (tiling.variant, tiling.seed)
    return draw_inputs(load_reference(task, variant, Path.cwd()), variant, seed)


def _count_candidate(
    task: Task,
    source: str,
    variant: Variant,
    exact: bool = False,
    least_bytes: int = 0,
    spots: Spots | None = None,
) -> Counted | Failure:
    from mtmc.evaluate.compiling.pretended import pretended_gpu, settle
    from mtmc.evaluate.compiling.pretended_graph import has_graphs

    folder = Path.cwd()
    path = folder / f"mtmc_candidate_{variant.label}.py"
    text = candidate_text(source, variant.constants)
    reference = load_reference(task, variant, folder)
    arguments = init_inputs(reference, variant, 0)
    inputs = draw_inputs(reference, variant, 0)

    seen: list[Found] = []
    weights = _with_data if spots is not None and spots.compares else contextlib.nullcontext
    state = task.state if spots is not None and spots.compares else None

    def look(launches: Launches, result: Any) -> None:
        if spots is not None:
            seen[:] = [spots.look(launches, flat_tensors(inputs), output_tensors(result))]

    def counted(limits: Limits | None) -> tuple[list[Record], list[int]]:
        with weights(), pretended_gpu(constructing=True):
            model = construct(module, "ModelNew", arguments, 0, state)
        settle(model)
        return _count_call(model, inputs, has_graphs(text), limits, exact, look)

    try:
        with weights(), pretended_gpu():
            module = load_module(text, path)
        records, sizes = counted(None)
        if distinct_bytes(unfolded(records), sizes) < SHARE * least_bytes and any(map(_too_few, unfolded(records))):
            records, sizes = counted(_CLOSER)
        records, copies = parted(records)
        made, around = cast(Records, tuple(records)), None if copies is None else cast(Records, tuple(copies))
        return Counted(made, tuple(sizes), around, *seen)
    except EvaluatorError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        return Failure("crash", diagnose_exception("estimate", error, str(path), text))


def _with_data() -> Any:
    """What is made in here has memory, also where other tensors are fake."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    return unset_fake_temporarily()


def _count_call(
    model: Any,
    inputs: Sequence[Any],
    graphs: bool,
    limits: Limits | None,
    exact: bool,
    after: Callable[[Launches, Any], None],
) -> tuple[list[Record], list[int]]:
    """(records, bytes of each storage of the inputs) of a call of a version that takes itself to be on a GPU.

    graphs: whether it may capture some; its first call, which does, is then made and not counted.
    after: see `count_forward`.
    """
    from mtmc.evaluate.compiling.pretended import pretended_gpu
    from mtmc.evaluate.compiling.pretended_graph import Journal

    log: list[Record] = []
    journal = Journal(log, lambda noted, graph: noted.append({"graph": graph}))

    def forward(*given: Any) -> Any:
        with pretended_gpu(journal=journal):
            if graphs:
                model(*given)
                log.clear()
            return model(*given)

    records, sizes, _ = count_forward(forward, inputs, limits, exact, log, after)
    return records, sizes


def _too_few(record: Record) -> bool:
    """Whether more programs of a launch, which are long ones then, would tell more."""
    return "kernel" in record and 1 < record["sampled"] < min(_CLOSER.programs, record["programs"])
