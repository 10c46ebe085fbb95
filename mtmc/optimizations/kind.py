"""Optimization: what a kind of action is. All that mtmc knows of a kind stands in the one file that derives from this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from mtmc.action import Action
from mtmc.optimizations.move import Move
from mtmc.optimizations.version import Version
from mtmc.protocols import Observation
from mtmc.source.sites import Sites

UNKNOWN_WEIGHT = 0.5
"""Of a kind that says nothing of how promising it is."""


class Optimization(ABC):
    """One kind of action.

    kind: its name. page: its page of the playbook (what it does to the hardware, when it pays, when it harms). weight: for
    the heuristic policy, how promising it is before anything is known of the version; logits are natural logarithms.
    changes: the metrics of an outcome that it should change, which bound what it may pay (`mtmc.agents.facts.gains`).
    """

    kind: ClassVar[str]
    page: ClassVar[str]
    weight: ClassVar[float] = UNKNOWN_WEIGHT
    changes: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def legal(self, version: Version) -> Iterable[Move]:
        """Its moves on a version, in a fixed order."""

    def leading(self, version: Version) -> Iterable[Move]:
        """Those of its moves that change a whole version and are worth making before anything is measured, the best first;
        by default none. See `mtmc.optimizations.combine`."""
        return ()

    def sites(self, sites: Sites) -> Iterable[Action]:
        """Its actions on a version without a plan, for a model to carry out; by default none."""
        return ()

    def logit(self, observation: Observation, action: Action, actions: Sequence[Action]) -> float:
        """What the heuristic policy adds to the logarithm of `weight` for one of its actions, among all legal `actions`."""
        return 0.0
