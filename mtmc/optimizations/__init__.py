"""Optimization kinds. To add one: a file here with a class that derives from `Optimization`, and a line in `KINDS`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mtmc.action import Action
from mtmc.optimizations.algebra import Algebra
from mtmc.optimizations.combine import Combine
from mtmc.optimizations.cuda_graph import CudaGraph
from mtmc.optimizations.descriptors import Descriptors
from mtmc.optimizations.direct_launch import DirectLaunch
from mtmc.optimizations.fuse import Fuse
from mtmc.optimizations.join import Join
from mtmc.optimizations.kind import UNKNOWN_WEIGHT, Optimization
from mtmc.optimizations.layout import Layout
from mtmc.optimizations.lower import Lower
from mtmc.optimizations.move import Move
from mtmc.optimizations.pack import Pack
from mtmc.optimizations.persist import Persist
from mtmc.optimizations.pipeline import Pipeline
from mtmc.optimizations.precision import Precision
from mtmc.optimizations.reorder import Reorder
from mtmc.optimizations.resources import asks_as_much
from mtmc.optimizations.specialize import Specialize
from mtmc.optimizations.split import Split
from mtmc.optimizations.stop import Stop
from mtmc.optimizations.symmetry import Symmetry
from mtmc.optimizations.tile import Tile
from mtmc.optimizations.vectorize import Vectorize
from mtmc.optimizations.version import Version
from mtmc.rewrite.plan import Stage
from mtmc.source.sites import Sites

__all__ = ["KINDS", "UNKNOWN_WEIGHT", "Move", "Optimization", "Version", "legal_moves", "possible", "site_actions"]

KINDS: dict[str, Optimization] = {
    optimization.kind: optimization
    for optimization in (
        Fuse(),
        Join(),
        Lower(),
        Precision(),
        Tile(),
        Pipeline(),
        Reorder(),
        Vectorize(),
        Split(),
        Symmetry(),
        Persist(),
        Descriptors(),
        Specialize(),
        Layout(),
        Algebra(),
        Pack(),
        DirectLaunch(),
        CudaGraph(),
        Combine((Algebra(), Fuse(), Layout(), Pack()), CudaGraph()),
        Stop(),
    )
}


def legal_moves(version: Version) -> list[Move]:
    """All legal moves of a version, kind by kind, `STOP` last; their actions' keys are unique."""
    return [move for kind in _stop_last() for move in kind.legal(version)]


def possible(moves: Iterable[Move], failed: Sequence[Stage]) -> list[Move]:
    """The moves that are not known to ask for more than the GPU has.

    failed: stages that asked for too much (`resources.blamed`). A schedule that asks for as much as one of them is left out.
    """
    return [move for move in moves if move.stage is None or not asks_as_much(move.stage, failed)]


def site_actions(source: str) -> list[Action]:
    """Actions on a version without a plan, kind by kind, `STOP` last, keys unique.

    The order depends on the text alone. Only `STOP` for a text that does not parse.
    """
    sites = Sites.of(source)
    unique: dict[str, Action] = {}
    for kind in _stop_last():
        for action in kind.sites(sites):
            unique.setdefault(action.key, action)
    return list(unique.values())


def _stop_last() -> list[Optimization]:
    """The kinds in their order; one that was added later still comes before `Stop`."""
    return sorted(KINDS.values(), key=lambda kind: isinstance(kind, Stop))
