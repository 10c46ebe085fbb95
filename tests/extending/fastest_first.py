"""fastest_first: always the likeliest untried action of the fastest version that has one."""

from __future__ import annotations

from dataclasses import dataclass

from mtmc.search.strategies.base import Edge, PlainState, StrategyNode, TreeStrategy
from mtmc.search.strategies.common import check_setting


@dataclass(frozen=True)
class FastestFirst(TreeStrategy[PlainState]):
    """Settings of the search.

    width: how many actions of one version are tried at most.
    """

    width: int = 8

    def __post_init__(self) -> None:
        """Raises: ConfigError for a width below 1."""
        check_setting(self.width >= 1, "fastest_first.width", self.width, "use 1 or more")

    def next_edge(self, state: PlainState) -> Edge | None:
        """Of equally fast versions the first one."""
        node = max(filter(self._open, state.nodes.values()), key=lambda node: (node.value, -node.id), default=None)
        return None if node is None else (node.id, node.untried[0])

    def _open(self, node: StrategyNode) -> bool:
        return bool(node.untried) and node.tried < self.width
