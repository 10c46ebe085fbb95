"""Kernel families: what each may cover, its default schedule, how it prints. To add one: a file here and a line below.

A family is asked in order; the first that fits a body takes it.
"""

from __future__ import annotations

from typing import Protocol

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.families.attention import Attention
from mtmc.rewrite.families.convolution import Convolution
from mtmc.rewrite.families.matmul import Matmul
from mtmc.rewrite.families.pointwise import Pointwise
from mtmc.rewrite.families.rowwise import Rowwise
from mtmc.rewrite.families.scan import Scan
from mtmc.rewrite.families.windows import Windows
from mtmc.rewrite.families.writer import Printed
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Stage


class Family(Protocol):
    """One kind of kernel."""

    name: str

    def takes(self, body: Body) -> bool:
        """Whether a body is of this kind (it may still turn out not to be covered)."""
        ...

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """A schedule that is right and not foolish."""
        ...

    def print(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """The stage as text. Raises: NotCovered where the body or the schedule is more than the family can do."""
        ...


FAMILIES: dict[str, Family] = {
    family.name: family for family in (Attention(), Convolution(), Windows(), Scan(), Matmul(), Rowwise(), Pointwise())
}


def family_of(body: Body) -> Family:
    """The family that takes a body. Raises: NotCovered."""
    for family in FAMILIES.values():
        if family.takes(body):
            return family
    raise NotCovered("no family takes this body")
