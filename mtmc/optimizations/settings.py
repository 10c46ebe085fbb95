"""settings: what the kinds that only change a schedule have in common: they offer values and set them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mtmc.action import Action
from mtmc.optimizations.resources import MAX_ELEMENTS_A_THREAD, asks_as_much, elements_a_thread, shared_bytes
from mtmc.optimizations.version import Version, also, make_action
from mtmc.rewrite.plan import Plan, Setting, Stage

Choice = Mapping[str, Setting]
Offer = Callable[[Version, Stage], Sequence[tuple[Choice, str]]]
"""For a kernel: settings to change, and the sentence that says so."""


class Settings:
    """A kind that changes a kernel's schedule and nothing else."""

    def __init__(self, kind: str, page: str, offer: Offer) -> None:
        self.kind = kind
        self.page = page
        self._offer = offer

    def legal(self, version: Version) -> list[Action]:
        """One action for each offered choice that changes something, can be written and is not known to ask too much.

        Kernels that are alike have one action, which changes all of them.
        """
        actions = []
        for stage, others in version.by_form(version.kernels()):
            for choice, sentence in self._offer(version, stage):
                changed = stage.scheduled(choice)
                if changed == stage or not self._fits(version, changed):
                    continue
                actions.append(make_action(self.kind, version.region(stage), sentence + also(others), **choice))
        return actions

    def _fits(self, version: Version, stage: Stage) -> bool:
        if shared_bytes(version.graph, stage) > version.hardware.shared_per_block or asks_as_much(
            stage, version.excluded
        ):
            return False
        if elements_a_thread(version.graph, stage) > MAX_ELEMENTS_A_THREAD:
            return False
        return version.prints(stage)

    def rewrite(self, version: Version, action: Action) -> Plan | None:
        """The plan with that kernel's schedule changed, and that of those like it."""
        plan = version.plan
        for stage in version.like(version.stage(action.region.name)):
            plan = plan.with_stage(stage, stage.scheduled(dict(action.params)))  # type: ignore[arg-type]
        return plan
