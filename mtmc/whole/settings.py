"""What a whole model takes besides what a search takes, and the settings of a search that are divided among pieces."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.dropin.compiled import MODES
from mtmc.errors import ConfigError
from mtmc.protocols import Evaluator, EvaluatorSettings
from mtmc.search import Budget, search
from mtmc.whole.judge import Judge
from mtmc.whole.piece_search import check_budget
from mtmc.whole.pieces import Limits

DEFAULT_BUDGET = 64
"""Evaluations, of all pieces together."""


@dataclass(frozen=True)
class WholeSettings:
    """What a whole model takes besides what a search takes.

    limits: of a piece; None: those that fit the machine (`Limits.where`). modes: of torch.compile that the whole is compared
    with (`MODES`). compare_seconds: wall time of one comparison of whole models on a GPU. judge: instead of the one that
    fits the machine.
    """

    limits: Limits | None = None
    modes: tuple[str, ...] = tuple(MODES)
    compare_seconds: float = 20.0
    judge: Judge | None = None

    def __post_init__(self) -> None:
        """Raises: ConfigError for a mode that does not exist."""
        for mode in self.modes:
            if mode not in MODES:
                raise ConfigError(f"there is no {mode!r} to compare a whole model with: use {', '.join(MODES)}")


def hardware_of(evaluator: Evaluator | EvaluatorSettings) -> str:
    """Name of the GPU that an evaluator's runtimes are for. Raises: EvaluatorError or ConfigError where it cannot be opened,
    which is done where its settings alone do not tell."""
    if not isinstance(evaluator, EvaluatorSettings):
        return evaluator.hardware
    known = evaluator.known_hardware()
    if known:
        return known
    opened = evaluator.open()
    opened.close()
    return opened.hardware


def checked(settings: Mapping[str, Any]) -> tuple[Budget, Path | None, dict[str, Any]]:
    """The whole budget, the folder, and what each search is given. Raises: ConfigError for a setting there is not."""
    known = [name for name in inspect.signature(search).parameters if name != "task"]
    for name in settings:
        if name not in known:
            raise ConfigError(f"there is no setting {name!r} of a search: use {', '.join(known)}")
    budget = settings.get("budget", DEFAULT_BUDGET)
    budget = budget if isinstance(budget, Budget) else Budget(evaluations=budget)
    check_budget(budget)
    out = settings.get("out")
    rest = {name: value for name, value in settings.items() if name not in ("budget", "out", "evaluator")}
    return budget, None if out is None else Path(out), rest
