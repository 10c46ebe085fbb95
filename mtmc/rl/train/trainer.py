"""trainer: the loop. Units of work: the epochs of the pretraining, then the iterations of reinforcement learning.

All that is drawn in a unit follows from the seed and the unit's number, so a training that was cut off and goes on from its
checkpoint ends with the same weights as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtmc.rl.curves import Row
from mtmc.rl.forest import Batch, Forest, Ints
from mtmc.rl.scorer import Scorer
from mtmc.rl.train.algorithms import Algorithm, starts_for
from mtmc.rl.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from mtmc.rl.train.history import write_table
from mtmc.rl.train.loss import Steps, terms_of
from mtmc.rl.train.pretraining import pretraining_terms, targets_of
from mtmc.rl.train.ragged import Doubles
from mtmc.rl.train.rollouts import Rollout, roll
from mtmc.rl.train.settings import TrainSettings
from mtmc.rl.train.table import policy_table, reference_table
from mtmc.rl.train.validate import validate

if TYPE_CHECKING:
    import torch

Watcher = Callable[[int, int, Row], None]
"""Told of each unit: how many are done, of how many, and its row of the history."""
CURVES = "curves.csv"
"""The history, brought up to date with every checkpoint."""
_LAST_LR = 0.1
"""Share of the learning rate that is left at the end of a phase; it falls in a line."""


@dataclass(frozen=True)
class TrainResult:
    """finished: else the time was up, and the same command goes on. best_score, best_unit: of the weights that are kept."""

    finished: bool
    best_score: float
    best_unit: int
    history: list[Row]


class Trainer:
    """One training, in a folder."""

    def __init__(
        self,
        scorer: Scorer,
        algorithm: Algorithm,
        settings: TrainSettings,
        train: Forest,
        validation: Forest,
        folder: Path,
        identity: Mapping[str, Any],
    ) -> None:
        """identity: what makes it this training and no other, see `Checkpoint`; goes on from a checkpoint of the same.

        Raises: ConfigError, RunError as `read_checkpoint`.
        """
        self._scorer, self._algorithm, self._settings = scorer, algorithm, settings
        self._train, self._validation, self._folder = train, validation, folder
        self._pretraining = settings.pretraining.epochs
        self._units = self._pretraining + settings.iterations
        self._starts = np.flatnonzero(train.ok & (train.choices > 1))
        self._optimizer: torch.optim.Optimizer | None = None
        found = read_checkpoint(folder, identity, scorer.device)
        self._state = found or Checkpoint(identity)
        if found is not None:
            scorer.load_state_dict(found.scorer)
            if found.optimizer is not None:
                self._optimizer = self._new_optimizer(found.done)
                self._optimizer.load_state_dict(dict(found.optimizer))
        self._targets = targets_of(train, settings.pretraining) if self._state.done < self._pretraining else None
        self._reference = reference_table(train, scorer)

    def run(self, watch: Watcher) -> TrainResult:
        """Train to the end, or until the time is up. The scorer then has the weights that were best at a validation."""
        deadline = math.inf if self._settings.minutes is None else time.monotonic() + 60 * self._settings.minutes
        state = self._state
        if not state.history:
            self._note(0, "start", {}, watch)
        while state.done < self._units and time.monotonic() < deadline:
            phase = "pretraining" if state.done < self._pretraining else "rl"
            if state.done == self._pretraining:
                self._begin_rl()
            if self._optimizer is None:
                self._optimizer = self._new_optimizer(state.done)
            started = time.monotonic()
            self._set_lr(state.done)
            numbers = self._pretraining_epoch() if phase == "pretraining" else self._iteration()
            state.done += 1
            if state.done in (self._pretraining, self._units):
                self._optimizer = None
            self._note(state.done, phase, {**numbers, "seconds": time.monotonic() - started}, watch)
            if state.done % self._settings.checkpoint_every == 0:
                self._keep()
        self._keep()
        finished = state.done == self._units
        self._scorer.load_state_dict(state.best)
        return TrainResult(finished, state.best_score, state.best_unit, state.history)

    def _begin_rl(self) -> None:
        """From the best weights so far, which become the reference."""
        self._scorer.load_state_dict(self._state.best)
        self._scorer.keep_reference()
        self._reference = reference_table(self._train, self._scorer)

    def _new_optimizer(self, done: int) -> torch.optim.Optimizer:
        import torch

        settings = self._settings.pretraining
        if done < self._pretraining:
            return torch.optim.AdamW(self._scorer.groups(settings.lr), weight_decay=settings.weight_decay)
        return torch.optim.AdamW(self._scorer.groups(self._algorithm.lr), weight_decay=0.0)

    def _set_lr(self, done: int) -> None:
        first, last = (0, self._pretraining) if done < self._pretraining else (self._pretraining, self._units)
        share = 1.0 - (1.0 - _LAST_LR) * (done - first) / max(1, last - first - 1)
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            group.setdefault("whole_lr", group["lr"])
            group["lr"] = group["whole_lr"] * share

    def _pretraining_epoch(self) -> dict[str, float]:
        assert self._targets is not None
        settings, total, errors = self._settings.pretraining, 0.0, 0.0
        nodes = self._starts
        for chosen in _minibatches(len(nodes), settings.minibatch, self._rng("epoch")):
            self._zero()
            for part in self._parts(self._train.batch(nodes[chosen])):
                loss, error = pretraining_terms(self._scorer, part, self._targets, settings.absolute)
                ((loss + 0.5 * error) / len(chosen)).backward()
                total, errors = total + loss.item(), errors + error.item()
            self._step(1.0)
        return {"policy_loss": total / len(nodes), "value_loss": errors / len(nodes)}

    def _iteration(self) -> dict[str, float]:
        settings = self._settings
        table, rng = policy_table(self._train, self._scorer), self._rng("rollout")
        drawn = self._drawn(rng, max(1, settings.episodes // self._algorithm.group_size))
        rollout = roll(self._train, table, starts_for(self._algorithm, drawn), settings.rules, rng)
        advantages, returns = self._algorithm.targets(rollout)
        sums = np.zeros(5)
        steps = np.argwhere(rollout.valid)
        for epoch in range(self._algorithm.epochs):
            for chosen in _minibatches(len(steps), self._algorithm.minibatch, self._rng("steps", epoch)):
                sums += self._learn(rollout, advantages, returns, steps[chosen])
        policy, value, entropy, kl, clipped = (sums / (self._algorithm.epochs * len(steps))).tolist()
        return {
            "reward": float(np.where(rollout.valid, rollout.rewards, 0.0).sum(axis=1).mean()),
            "speedup": float(rollout.best.mean()),
            "entropy": entropy,
            "kl": kl,
            "policy_loss": policy,
            "value_loss": value,
            "clip_fraction": clipped,
        }

    def _drawn(self, rng: np.random.Generator, count: int) -> Ints:
        """Where episodes start: at roots, or at any right version."""
        roots = self._train.roots[rng.integers(len(self._train.roots), size=count)]
        others = self._starts[rng.integers(len(self._starts), size=count)]
        return np.where(rng.random(count) < self._settings.random_start_prob, others, roots)

    def _learn(self, rollout: Rollout, advantages: Doubles, returns: Doubles | None, steps: Ints) -> Doubles:
        """One step of the optimizer. steps: [minibatch, 2], episode and step. Returns the sums of the terms."""
        import torch

        coefficients, sums = self._algorithm.coefficients, np.zeros(5)
        at = steps[:, 0], steps[:, 1]
        nodes = rollout.nodes[at]
        self._reference.need(nodes)
        self._zero()
        for part in _shares(nodes, self._scorer.states_at_once):
            some = (at[0][part], at[1][part])
            batch = self._train.batch(rollout.nodes[some])
            scores = self._scorer.score(batch)
            device = self._scorer.device
            terms = terms_of(
                scores.logits,
                scores.values,
                Steps(
                    state_of=torch.from_numpy(batch.state_of).to(device),
                    chosen=torch.from_numpy(np.cumsum(batch.counts) - batch.counts + rollout.places[some]).to(device),
                    reference=torch.from_numpy(self._reference.logits[batch.edges]).to(device),
                    old=torch.from_numpy(rollout.log_probs[some]).float().to(device),
                    advantages=torch.from_numpy(advantages[some]).float().to(device),
                    returns=None if returns is None else torch.from_numpy(returns[some]).float().to(device),
                ),
                coefficients.clip,
            )
            (coefficients.loss(terms) / len(nodes)).backward()
            sums += [each.item() for each in (terms.policy, terms.value, terms.entropy, terms.kl, terms.clipped)]
        self._step(self._algorithm.max_grad_norm)
        return sums

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        size = self._scorer.states_at_once or len(batch)
        for first in range(0, len(batch), size):
            yield batch.part(first, min(first + size, len(batch)))

    def _zero(self) -> None:
        assert self._optimizer is not None
        self._optimizer.zero_grad(set_to_none=True)

    def _step(self, max_grad_norm: float) -> None:
        import torch

        assert self._optimizer is not None
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        self._optimizer.step()

    def _note(self, unit: int, phase: str, numbers: Mapping[str, float], watch: Watcher) -> None:
        """A row of the history, with a validation where one is due; the best weights are kept."""
        settings = self._settings
        row: dict[str, Any] = {"unit": unit, "phase": phase, **numbers}
        if unit % settings.validate_every == 0 or unit in (self._pretraining, self._units):
            table = policy_table(self._validation, self._scorer)
            found = validate(self._validation, table, settings.budget, settings.seeds)
            row.update(asdict(found))
            if found.score > self._state.best_score:
                self._state.best, self._state.best_score = self._scorer.state_dict(), found.score
                self._state.best_unit = unit
        self._state.history.append(row)
        watch(unit, self._units, row)

    def _keep(self) -> None:
        self._state.scorer = self._scorer.state_dict()
        self._state.optimizer = None if self._optimizer is None else self._optimizer.state_dict()
        write_checkpoint(self._state, self._folder)
        write_table(self._state.history, self._folder / CURVES)

    def _rng(self, what: str, number: int = 0) -> np.random.Generator:
        """Draws of this unit, for one purpose."""
        purpose = int.from_bytes(what.encode()[:4], "big")
        return np.random.default_rng([self._settings.seed, self._state.done, purpose, number])


def _shares(nodes: Ints, most: int) -> Iterator[Ints]:
    """Positions in parts, each of at most so many different nodes; a node that comes several times is in one part, so that a
    scorer can run it once. most: 0 for any number."""
    order = np.argsort(nodes, kind="stable")
    ranked = np.cumsum(np.diff(nodes[order], prepend=nodes[order[:1]]) != 0)
    part_of = ranked // (most or len(nodes))
    yield from np.split(order, np.flatnonzero(np.diff(part_of)) + 1)


def _minibatches(count: int, size: int, rng: np.random.Generator) -> Iterator[Ints]:
    """All of 0 ... count - 1 in a drawn order, `size` at a time."""
    order = rng.permutation(count)
    for first in range(0, count, size):
        yield order[first : first + size]
