"""SearchConfig: all settings of one search, and what Hydra calls them."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtmc.chat import ModelSettings
from mtmc.conf.schema import Part
from mtmc.search.agent_settings import AgentSettings
from mtmc.search.budget import Budget
from mtmc.search.components import Kind

GROUPS: tuple[Kind, ...] = ("strategy", "policy", "coder", "evaluator")
MODULE = "mtmc.conf"
CONFIG_NAME = "config"
VERSION_BASE = "1.3"
RUN_DIR = "hydra.run.dir"
"""Hydra's name of a single run's folder; mtmc calls it out."""
NAME = "name"
"""Key under which a group's config keeps which of its options was chosen."""


@dataclass(frozen=True)
class SearchConfig:
    """All settings of one search, as `mtmc.search.search` takes them. The defaults are those of config.yaml.

    task: a built-in name or a path. out: the run's folder; None: one is made under runs/. store: PostgreSQL
    server that keeps the record; empty: SQLite in the folder. seed: of everything drawn.
    batch: versions tried at once. asynchronous: whether the next begins as soon as one ends. repairs: rounds of repair of
    one version at most. dumps: whether the tree's files and the report are written at the end. model: of a coder or a
    policy that asks one. agents: what such a one is told besides and may do.
    """

    task: str
    strategy: Part
    policy: Part
    coder: Part
    evaluator: Part
    out: str | None = None
    store: str = ""
    seed: int = 0
    batch: int = 1
    asynchronous: bool = False
    repairs: int = 2
    dumps: bool = True
    budget: Budget = field(default_factory=Budget)
    model: ModelSettings = field(default_factory=ModelSettings)
    agents: AgentSettings = field(default_factory=AgentSettings)
