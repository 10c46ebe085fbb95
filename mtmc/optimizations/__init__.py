"""Optimization kinds. To add one: a file here with its legality, sentence, rewrite and page, and a line in `KINDS`."""

from __future__ import annotations

from typing import Protocol

from mtmc.action import Action
from mtmc.optimizations.capture import Capture
from mtmc.optimizations.descriptors import Descriptors
from mtmc.optimizations.fuse import Fuse
from mtmc.optimizations.layout import Layout
from mtmc.optimizations.lower import Lower
from mtmc.optimizations.persist import Persist
from mtmc.optimizations.pipeline import Pipeline
from mtmc.optimizations.precision import Precision
from mtmc.optimizations.reorder import Reorder
from mtmc.optimizations.simplify import Simplify
from mtmc.optimizations.split import Split
from mtmc.optimizations.stop import Stop
from mtmc.optimizations.tile import Tile
from mtmc.optimizations.vectorize import Vectorize
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Plan


class Optimization(Protocol):
    """One kind of action.

    page: its page of the playbook (what it does to the hardware, when it pays, when it harms).
    """

    kind: str
    page: str

    def legal(self, version: Version) -> list[Action]:
        """Its actions on a version, in a fixed order."""
        ...

    def rewrite(self, version: Version, action: Action) -> Plan | None:
        """The child's plan; None where the action makes no child. Raises: CoderError for an action of another version."""
        ...


KINDS: dict[str, Optimization] = {
    optimization.kind: optimization
    for optimization in (
        Fuse(),
        Lower(),
        Precision,
        Tile,
        Pipeline,
        Reorder,
        Vectorize,
        Split,
        Persist,
        Descriptors,
        Layout(),
        Simplify(),
        Capture(),
        Stop(),
    )
}


def legal_actions(version: Version) -> list[Action]:
    """All legal actions of a version, kind by kind, `STOP` last; keys are unique."""
    return [action for optimization in KINDS.values() for action in optimization.legal(version)]
