"""The strategies: how a search chooses its next trials. One file each; adding one is a file and a line here."""

from __future__ import annotations

from mtmc.protocols import Strategy
from mtmc.search.strategies.ab_mcts import AbMcts
from mtmc.search.strategies.beam import Beam
from mtmc.search.strategies.best_first import BestFirst
from mtmc.search.strategies.best_of_n import BestOfN
from mtmc.search.strategies.evolution import Evolution
from mtmc.search.strategies.greedy import Greedy
from mtmc.search.strategies.mcts import Mcts
from mtmc.search.strategies.random_search import Random

STRATEGIES: dict[str, type[Strategy]] = {
    "mcts": Mcts,
    "greedy": Greedy,
    "best_of_n": BestOfN,
    "best_first": BestFirst,
    "beam": Beam,
    "evolution": Evolution,
    "random": Random,
    "ab_mcts": AbMcts,
}
"""Name -> class of settings; an instance of it is the strategy."""

__all__ = ["STRATEGIES", "AbMcts", "Beam", "BestFirst", "BestOfN", "Evolution", "Greedy", "Mcts", "Random"]
