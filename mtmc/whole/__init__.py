"""A whole network: kernels for the submodules that take its time, kept only where the whole gets faster.

optimize.py          optimize(): the way in, for a single module too; settings.py, live.py: what it is given
backend.py, regions.py    the backend "mtmc" of torch.compile: the same for a captured graph
site.py, calls.py    the tree of calls of a model, and where its time goes
signature.py         what a call is apart from the values of its tensors
trace.py, timing.py  the same without a GPU, estimated, and on one, measured
examples.py          example calls of submodules
pieces.py            which submodules get a search: equal ones are one piece
allocate.py          how the budget goes to the pieces
campaign.py, piece_search.py    the searches, a slice of the budget at a time
patch.py             a copy of a model with other submodules in some places
judge.py, settle.py  how long the whole takes; which patches stay, and which model is handed back
record.py, summary.py    what came of it, as data and as a table
"""

from __future__ import annotations

from mtmc.whole.optimize import optimize
from mtmc.whole.record import Record, Row
from mtmc.whole.settings import WholeSettings

__all__ = ["Record", "Row", "WholeSettings", "optimize"]
