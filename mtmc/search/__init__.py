"""The search: `search` a task, `resume` a run, `load` what a run has found.

Importing this loads neither torch, triton nor LangGraph; they load on first use.
"""

from __future__ import annotations

from mtmc.search.budget import Budget
from mtmc.search.result import SearchResult, Version
from mtmc.search.run import load, resume, search
from mtmc.search.run_state import Progress

__all__ = ["Budget", "Progress", "SearchResult", "Version", "load", "resume", "search"]
