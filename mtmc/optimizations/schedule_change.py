"""ScheduleChange: what the kinds that only change kernels' schedules have in common: they offer settings, and set them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial

from mtmc.action import Action, make_action
from mtmc.optimizations.kind import Optimization
from mtmc.optimizations.move import Move
from mtmc.optimizations.resources import elements_a_thread, most_elements, shared_bytes
from mtmc.optimizations.version import Version, also
from mtmc.protocols import Observation
from mtmc.rewrite.plan import Plan, Setting, Stage, plan_from_json

Choice = Mapping[str, Setting]
"""Settings to change, with their new values."""
KEPT = 64
"""Plans whose stages are kept: policies ask for each action of a version."""


class ScheduleChange(Optimization):
    """A kind that changes kernels' schedules and nothing else."""

    @abstractmethod
    def offer(self, version: Version, stage: Stage) -> Sequence[tuple[Choice, str]]:
        """For a kernel: settings to change, and the sentence that says so."""

    def legal(self, version: Version) -> Iterator[Move]:
        """One move for each offered choice that changes something and can be written.

        Kernels that are alike have one move, which changes all of them.
        """
        for stage, others in version.isomorphic(version.kernels()):
            for choice, sentence in self.offer(version, stage):
                changed = stage.scheduled(choice)
                if changed == stage or not _fits(version, changed):
                    continue
                action = make_action(self.kind, version.region(stage), sentence + also(others), **choice)
                yield Move(action, partial(_rescheduled, version.plan, (stage, *others), choice), changed)


def kernel_of(observation: Observation, action: Action) -> Stage | None:
    """The kernel that an action changes; None for a version without a plan of ours, and for actions on several stages."""
    return None if observation.plan is None else _stages(observation.plan).get(action.region.name)


@lru_cache(maxsize=KEPT)
def _stages(plan: str) -> Mapping[str, Stage]:
    try:
        stages = plan_from_json(plan).stages
    except (ValueError, TypeError, KeyError, AttributeError):  # other coders' plans are texts of their own
        return {}
    return {stage.name: stage for stage in stages if not stage.is_torch}


def _rescheduled(plan: Plan, stages: Sequence[Stage], choice: Choice) -> Plan:
    """The plan with some stages' schedules changed."""
    return plan.with_stages({stage: stage.scheduled(choice) for stage in stages})


def _fits(version: Version, stage: Stage) -> bool:
    if shared_bytes(version.graph, stage) > version.hardware.shared_per_block:
        return False
    return elements_a_thread(version.graph, stage) <= most_elements(stage) and version.prints(stage)
