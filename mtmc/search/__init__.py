"""Searches: `search` a task, `stream` its events, `resume` a run, `load` what a run has found; `build_graph` for LangGraph.

Importing this loads neither torch, triton nor LangGraph; they load on first use.
"""

from __future__ import annotations

from mtmc.search.agent_settings import AgentSettings
from mtmc.search.budget import Budget
from mtmc.search.build_graph import build_graph
from mtmc.search.events import Event, Finished, NewBest, TrialAsked, TrialCoded, TrialEvaluated, TrialVerified
from mtmc.search.graph_state import SearchInput, SearchOutput, SearchState
from mtmc.search.result import SearchResult, Version
from mtmc.search.run import load, resume, search
from mtmc.search.run_state import Progress
from mtmc.search.stream import stream

__all__ = [
    "AgentSettings",
    "Budget",
    "Event",
    "Finished",
    "NewBest",
    "Progress",
    "SearchInput",
    "SearchOutput",
    "SearchResult",
    "SearchState",
    "TrialAsked",
    "TrialCoded",
    "TrialEvaluated",
    "TrialVerified",
    "Version",
    "build_graph",
    "load",
    "resume",
    "search",
    "stream",
]
