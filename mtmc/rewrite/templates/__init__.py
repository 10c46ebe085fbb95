"""Kernel templates: what each may cover, its default schedule, how it prints. To add one: a file here and a line below.

A template is asked in order; the first that fits a body takes it.
"""

from __future__ import annotations

from typing import Protocol

from mtmc.rewrite.body import Body, NotCovered
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.plan import Stage
from mtmc.rewrite.templates.attention import Attention
from mtmc.rewrite.templates.bags import Bags
from mtmc.rewrite.templates.convolution import Convolution
from mtmc.rewrite.templates.launcher import Printed
from mtmc.rewrite.templates.matmul import Matmul
from mtmc.rewrite.templates.order import Order
from mtmc.rewrite.templates.pointwise import Pointwise
from mtmc.rewrite.templates.ranks import Ranks
from mtmc.rewrite.templates.rowwise import Rowwise
from mtmc.rewrite.templates.scan import Scan
from mtmc.rewrite.templates.scatter import Scatter
from mtmc.rewrite.templates.windows import Windows


class Template(Protocol):
    """One kind of kernel."""

    name: str

    def matches(self, body: Body) -> bool:
        """Whether a body is of this kind (it may still turn out not to be covered)."""
        ...

    def default(self, graph: Graph, body: Body) -> dict[str, int | str]:
        """A schedule that is right and not foolish."""
        ...

    def emit(self, graph: Graph, body: Body, stage: Stage, name: str) -> Printed:
        """The stage as text. Raises: NotCovered where the body or the schedule is more than the template can do."""
        ...


TEMPLATES: dict[str, Template] = {
    template.name: template
    for template in (
        Scatter(),
        Attention(),
        Convolution(),
        Windows(),
        Scan(),
        Order(),
        Ranks(),
        Bags(),
        Matmul(),
        Rowwise(),
        Pointwise(),
    )
}


def template_of(body: Body) -> Template:
    """The template that takes a body. Raises: NotCovered."""
    for template in TEMPLATES.values():
        if template.matches(body):
            return template
    raise NotCovered("no template takes this body")
