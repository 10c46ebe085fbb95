"""seen: the moves of the version that a policy or a coder is shown.

The same few versions are asked for again and again: when their actions are listed, when a policy looks at the children that
the actions make, and when one of them is edited. So the moves of the last versions are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from mtmc.hardware import hardware
from mtmc.optimizations import KINDS, Move, Optimization, Version, legal_moves
from mtmc.optimizations.version import CallTimes
from mtmc.outcome import LIBRARY_TF32, REFERENCE_ERROR
from mtmc.protocols import EditRequest, Observation
from mtmc.rewrite.plan import Plan, plan_from_json
from mtmc.task import Task

KEPT = 128
"""Versions whose moves are kept."""
TF32_ERROR = 1e-5
"""Norm-wise error above which a reference of fp32 numbers does not compute in fp32, for outcomes that do not say so: TF32 is
off by 1e-4 and more, fp32 by 1e-6 and less."""


def moves_on(seen: Observation | EditRequest) -> Mapping[str, Move]:
    """The legal moves of a version by the keys of their actions, in order; none for a version without a plan.

    Raises: TaskError where the task does not export, ConfigError for hardware that is not in the table.
    """
    if seen.plan is None:
        return {}
    return _moves(seen.task, seen.plan, seen.hardware, *_known(seen), tuple(KINDS.values()))


def moves_ahead(task: Task, plan: str, gpu: str) -> None:
    """List the moves of a version of which nothing has been seen yet. Raises: as `moves_on`."""
    _moves(task, plan, gpu, False, None, tuple(KINDS.values()))


def with_plan(seen: Observation | EditRequest, plan: Plan) -> Version:
    """What a plan makes of the task, with what was seen of the version that is shown. Raises: as `moves_on`."""
    return Version.of(seen.task, plan, hardware(seen.hardware), *_known(seen))


def _known(seen: Observation | EditRequest) -> tuple[bool, CallTimes | None]:
    """`Version.tf32_reference` and its times."""
    metrics = seen.outcome.metrics
    tf32_reference = LIBRARY_TF32 in metrics or metrics.get(REFERENCE_ERROR, 0.0) > TF32_ERROR
    device_ms, call_ms = metrics.get("device_ms"), metrics.get("call_ms")
    return tf32_reference, CallTimes(device_ms, call_ms) if device_ms and call_ms else None


@lru_cache(maxsize=KEPT)
def _moves(
    task: Task,
    plan: str,
    gpu: str,
    tf32_reference: bool,
    times: CallTimes | None,
    kinds: tuple[Optimization, ...],
) -> dict[str, Move]:
    """kinds: those that are known at the time, for one may be added, or another take its name."""
    version = Version.of(task, plan_from_json(plan), hardware(gpu), tf32_reference, times)
    return {move.action.key: move for move in legal_moves(version)}
