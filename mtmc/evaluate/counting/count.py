"""The count behind an estimate: what a candidate's forward moves and computes at the task's full shapes.

Jobs in a check worker: the candidate's kernels must be interpreted, see `mtmc.evaluate.counting.traffic`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mtmc.errors import EvaluatorError
from mtmc.evaluate.audit.diagnosis import Failure, diagnose_exception
from mtmc.evaluate.counting.cuda_graph import parted, unfolded
from mtmc.evaluate.counting.distinct import SHARE, distinct_bytes
from mtmc.evaluate.counting.launches import Limits
from mtmc.evaluate.counting.storages import tensors_in
from mtmc.evaluate.counting.tally import LaunchRecord, OpRecord, Record
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

_CLOSER = Limits(programs=4, work=math.inf)
"""Two programs may lie in one row or column of tiles, and tell nothing of what all of them read; four are spread out."""


Records = tuple[OpRecord | LaunchRecord, ...]


@dataclass(frozen=True)
class Counted:
    """What a forward moves and computes.

    records: see `count_traffic`. inputs: bytes of each storage of the inputs. copies: see `cuda_graph.parted`.
    """

    records: Records
    inputs: tuple[int, ...]
    copies: Records | None = None


def count(task: Task, source: str, autotuned: Mapping[str, int], least_bytes: int) -> Counted | Failure:
    """Count a candidate's forward in the present folder.

    autotuned: configuration of each autotuned kernel, as the build chose. least_bytes: see `mtmc.evaluate.counting.floor`.
    Returns: a failure where a kernel fails at the full shapes.
    Raises: TaskError if the reference fails; EvaluatorError if counting itself cannot work.
    """
    from mtmc.evaluate.compiling.autotune import pin_autotuners
    from mtmc.evaluate.counting.traffic import fake_tensors

    pin_autotuners(dict(autotuned))
    with fake_tensors():
        return _count_candidate(task, source, task.full, least_bytes=least_bytes)


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
) -> tuple[list[Record], list[int], Any]:
    """(records, bytes of each storage of the inputs, result) of one forward.

    With fake tensors these storages have the first numbers in the records. log, raises: see `count_traffic`.
    """
    from mtmc.evaluate.counting.traffic import count_traffic

    tensors = tensors_in(inputs)
    results: list[Any] = []

    def forward(*given: Any) -> None:
        for tensor in tensors:
            tensor.data_ptr()  # a storage gets its number when it is first asked for its address
        results.append(model(*given))

    sizes = {tensor.untyped_storage()._cdata: int(tensor.untyped_storage().nbytes()) for tensor in tensors}
    return count_traffic(forward, inputs, limits, exact, log), list(sizes.values()), results[0]


def _count_candidate(
    task: Task, source: str, variant: Variant, exact: bool = False, least_bytes: int = 0
) -> Counted | Failure:
    from mtmc.evaluate.compiling.pretended import pretended_gpu, settle
    from mtmc.evaluate.compiling.pretended_graph import has_graphs

    folder = Path.cwd()
    path = folder / f"mtmc_candidate_{variant.label}.py"
    text = candidate_text(source, variant.constants)
    reference = load_reference(task, variant, folder)
    arguments = init_inputs(reference, variant, 0)
    inputs = draw_inputs(reference, variant, 0)

    def counted(limits: Limits | None) -> tuple[list[Record], list[int]]:
        with pretended_gpu(constructing=True):
            model = construct(module, "ModelNew", arguments, 0, None)
        settle(model)
        return _count_call(model, inputs, has_graphs(text), limits, exact)

    try:
        with pretended_gpu():
            module = load_module(text, path)
        records, sizes = counted(None)
        if distinct_bytes(unfolded(records), sizes) < SHARE * least_bytes and any(map(_too_few, unfolded(records))):
            records, sizes = counted(_CLOSER)
        records, copies = parted(records)
        made, around = cast(Records, tuple(records)), None if copies is None else cast(Records, tuple(copies))
        return Counted(made, tuple(sizes), around)
    except EvaluatorError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        return Failure("crash", diagnose_exception("estimate", error, str(path), text))


def _count_call(
    model: Any, inputs: Sequence[Any], graphs: bool, limits: Limits | None, exact: bool
) -> tuple[list[Record], list[int]]:
    """(records, bytes of each storage of the inputs) of a call of a version that takes itself to be on a GPU.

    graphs: whether it may capture some; its first call, which does, is then made and not counted.
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

    records, sizes, _ = count_forward(forward, inputs, limits, exact, log)
    return records, sizes


def _too_few(record: Record) -> bool:
    """Whether more programs of a launch, which are long ones then, would tell more."""
    return "kernel" in record and 1 < record["sampled"] < min(_CLOSER.programs, record["programs"])
