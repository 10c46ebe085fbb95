"""Move: an action together with the plan of the child that it makes. An action is an edit of the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from mtmc.action import Action
from mtmc.rewrite.plan import Plan, Stage


@dataclass(frozen=True, eq=False)
class Move:
    """One legal action on a version.

    make: the child's plan, made when it is first asked for; None where the action makes no child.
    stage: of an action that only changes a kernel's schedule, the kernel as it is afterwards.
    """

    action: Action
    make: Callable[[], Plan | None] = field(repr=False)
    stage: Stage | None = None

    @cached_property
    def child(self) -> Plan | None:
        """The child's plan, None where there is no child."""
        return self.make()
