"""The strategies: how a search chooses its next trials. One file each; adding one is a file and a line here."""

from __future__ import annotations

from mtmc.protocols import Strategy
from mtmc.search.strategies.best_of_n import BestOfN
from mtmc.search.strategies.greedy import Greedy
from mtmc.search.strategies.mcts import Mcts

STRATEGIES: dict[str, type[Strategy]] = {"mcts": Mcts, "greedy": Greedy, "best_of_n": BestOfN}
"""Name -> class of settings; an instance of it is the strategy."""

__all__ = ["STRATEGIES", "BestOfN", "Greedy", "Mcts"]
