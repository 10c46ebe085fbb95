"""trained: the coder that `mtmc train coder=` makes, as a search needs it, beside those that were not trained.

It stands after the policies because it shares the base models and adapters of theirs.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping

from mtmc.agents import coders
from mtmc.agents.trained.lm_coder import LmCoder
from mtmc.protocols import Coder

CODERS: Mapping[str, Callable[..., Coder]] = ChainMap({"lm": LmCoder}, coders.CODERS)
"""All coders by name."""
