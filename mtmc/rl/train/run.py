"""run: a whole training: from folders of recorded trees to a folder with weights, model card, curves and checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtmc.agents.policies.heuristic import Heuristic, Uniform
from mtmc.errors import RunError
from mtmc.protocols import Policy
from mtmc.rl.curves import Row
from mtmc.rl.forest import Batch, Forest
from mtmc.rl.scorer import Scorer, ScorerSettings
from mtmc.rl.train.algorithms import Algorithm
from mtmc.rl.train.card import model_card
from mtmc.rl.train.data import Data, load_data
from mtmc.rl.train.history import write_picture, write_tensorboard
from mtmc.rl.train.settings import TrainSettings
from mtmc.rl.train.table import Table, policy_table
from mtmc.rl.train.trainer import Trainer, TrainResult, Watcher
from mtmc.rl.train.validate import Validation, validate

if TYPE_CHECKING:
    import torch

BEST = "best"
"""Folder of what the policy of a search loads."""


@dataclass(frozen=True)
class Plan:
    """A training as it was asked for. policy, algorithm: their names. command: as it stood on the command line."""

    settings: TrainSettings
    policy: str
    network: ScorerSettings
    algorithm: str
    method: Algorithm
    command: str = ""

    def plain(self) -> dict[str, Any]:
        """All settings as plain data."""
        parts = {"policy": (self.policy, self.network), "algorithm": (self.algorithm, self.method)}
        named = {kind: {"name": name, **asdict(part)} for kind, (name, part) in parts.items()}  # type: ignore[call-overload]
        plain: dict[str, Any] = json.loads(json.dumps({**asdict(self.settings), **named}))
        return plain


@dataclass(frozen=True)
class Trained:
    """files: weights and model card, of the best so far where the time was up. scores: on the validation trees, see
    `model_card`."""

    result: TrainResult
    files: list[Path]
    scores: dict[str, Validation]


def train(plan: Plan, out: Path, watch: Watcher, tell: Callable[[str], None]) -> Trained:
    """Train a policy. The same plan and folder go on with what a training left there that was cut off.

    watch: told of each epoch of the pretraining and each iteration. tell: of what is done before the first.

    Raises: ConfigError for settings or data that cannot be used, RunError where a folder cannot be read or written,
    MtmcError of the network where it cannot be made.
    """
    settings = plan.settings
    tell("reading the recorded trees")
    data = load_data(settings.data, settings.actions, settings.validation_trees, settings.seed)
    trees, transitions = data.about["trees"], data.about["transitions"]["train"]
    tell(f"{trees['train']} trees with {transitions} transitions to learn from, {trees['validation']} to validate")
    scorer = plan.network.open(data.train, settings.seed)
    with _threads(scorer.threads):
        return _train(plan, data, scorer, out, watch)


def _train(plan: Plan, data: Data, scorer: Scorer, out: Path, watch: Watcher) -> Trained:
    settings = plan.settings
    scores = _others(data.validation, scorer, settings)
    try:
        out.mkdir(parents=True, exist_ok=True)
        identity = {
            **{k: v for k, v in plan.plain().items() if k not in ("minutes", "data")},
            "hash": data.about["hash"],
        }
        trainer = Trainer(scorer, plan.method, settings, data.train, data.validation, out, identity)
        result = trainer.run(watch)
        _curves(result.history, out)
        scores["trained"] = _validation(data.validation, policy_table(data.validation, scorer), settings)
        return Trained(result, _export(plan, data, scorer, result, scores, out), scores)
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}): choose another folder with out=") from error


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """So many threads of the CPU for torch; None changes nothing."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _others(forest: Forest, scorer: Scorer, settings: TrainSettings) -> dict[str, Validation]:
    """What a trained policy is compared with."""
    tables = {
        "uniform": fixed_table(forest, Uniform()),
        "heuristic": fixed_table(forest, Heuristic()),
        "start": policy_table(forest, scorer),
    }
    return {name: _validation(forest, table, settings) for name, table in tables.items()}


def _validation(forest: Forest, table: Table, settings: TrainSettings) -> Validation:
    return validate(forest, table, settings.budget, settings.seeds)


def fixed_table(forest: Forest, policy: Policy) -> Table:
    """A policy that is not trained, as a table: the logarithms of its priors."""

    def ask(batch: Batch) -> tuple[torch.Tensor, None]:
        import torch

        logits: list[float] = []
        for node, edges in zip(batch.nodes, np.split(batch.edges, np.cumsum(batch.counts)[:-1]), strict=True):
            if len(edges):
                priors = np.asarray(policy.prior(forest.observation(int(node)), forest.legal(int(node))))
                logits += np.log(priors[edges - forest.start[node]]).tolist()
        return torch.tensor(logits), None

    return Table(forest, ask, 0)


def _curves(history: list[Row], out: Path) -> None:
    write_picture(history, out / "curves.png")
    write_tensorboard(history, out / "tensorboard")


def _export(
    plan: Plan, data: Data, scorer: Scorer, result: TrainResult, scores: Mapping[str, Validation], out: Path
) -> list[Path]:
    folder = out / BEST
    folder.mkdir(exist_ok=True)
    units = plan.settings.pretraining.epochs + plan.settings.iterations
    done = int(result.history[-1]["unit"])
    plain = plan.plain()
    plain["data"] = data.about["folders"]
    return scorer.export(folder, model_card(plan.command, data.about, plain, scores, (result.best_unit, done, units)))
