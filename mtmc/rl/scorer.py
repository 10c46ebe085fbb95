"""scorer: what the training needs of a policy's network. The trainer (`mtmc.rl.train`) knows nothing else of it.

A scorer gives every action of a batch of states a logit, and every state a value. The policy is the softmax of the logits
of a state's actions. The compact network reads the features of states and actions, a language model their texts: a `Batch`
has both.

    batch.observations, batch.actions           features, float32 numpy [states, ...], [all actions, ...]
    batch.forest.observation(batch.nodes[i])    state i as a live search shows it (`protocols.Observation`), but for its
                                                text, which `batch.forest.version_text(batch.nodes[i])` prints
    batch.forest.action(edge)                   the `Action` behind one of `batch.edges`; its `sentence` says it in words

Ragged batches: a state's actions are those in `batch.edges` that are its own: the first `counts[0]` edges are state 0's, and
so on. Which they are is the trainer's affair (those that can be replayed, or all legal ones), so that the logit of an action
must depend on the state and that action alone, never on what else is in the batch. A state may have no actions; it still
has a value. Within one forest the number of a node or an edge never changes, which makes it, together with the forest, a
key for whatever an implementor keeps (tokens, for one); training and validation trees are two forests.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mtmc.rl.forest import Batch, Forest

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Scores:
    """What a scorer says of a batch.

    logits: float32 [all actions], in the order of `batch.edges`. values: float32 [states]. Both on the scorer's device,
    with a gradient unless it is switched off around the call.
    """

    logits: torch.Tensor
    values: torch.Tensor


class Scorer(Protocol):
    """A network that is trained.

    It has the same logits for the same weights: no dropout, or the ratios of PPO mean nothing. It may compute in any dtype
    and on any device (autocast is its own affair); what it returns is float32 on `device`.

    device: where `score` returns its tensors; the trainer makes its own there.
    threads: of the CPU, for torch, while it is trained; None: torch uses what it likes.
    anchored: True where a logit means something by itself, so that the pretraining may have a target for it; else only
        differences within a state have one.
    """

    device: torch.device
    threads: int | None = None
    anchored: bool = False

    @property
    @abstractmethod
    def states_at_once(self) -> int:
        """How many different states `score` takes in one call at most, with a gradient; 0: any number. The trainer splits
        its minibatches to that and adds up the gradients, which is the same step; the same state may come several times."""

    @abstractmethod
    def score(self, batch: Batch) -> Scores:
        """Logits and values. Called under `torch.no_grad` where only numbers are wanted."""

    @abstractmethod
    def reference(self, batch: Batch) -> torch.Tensor:
        """Logits of the policy that training is to stay close to, without gradient, [all actions]. They never change after
        `keep_reference`, so the trainer asks once for each edge and keeps them."""

    @abstractmethod
    def keep_reference(self) -> None:
        """Called once, after the pretraining and before the first step of reinforcement learning (a resumed training loads
        the state instead). Copy the weights if the reference is the policy as it is now; do nothing if it is a base model
        that is frozen anyway."""

    @abstractmethod
    def groups(self, lr: float) -> list[dict[str, Any]]:
        """What is trained, as parameter groups of a torch optimizer: [{"params": [...], "lr": lr, ...}]. lr: of the
        settings; a group may have a multiple of it."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that training changes, and the reference where it was copied: tensors by name, nested dicts allowed. Written
        with `torch.save`. What can be loaded again from elsewhere (a frozen base) is left out."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse; afterwards `score` and `reference` give the same numbers as before `state_dict`."""

    @abstractmethod
    def export(self, folder: Path, card: str) -> list[Path]:
        """Write what the policy of a search loads (weights or adapter) into a folder that exists, with the model card as
        `model_card.md`; returns the files. card: markdown; an implementor may add to it what it alone knows."""


class ScorerSettings(Protocol):
    """Settings of a scorer, a frozen data class; its fields are what `mtmc train policy.NAME=VALUE` takes."""

    @abstractmethod
    def open(self, forest: Forest, seed: int) -> Scorer:
        """A fresh scorer. forest: the training trees, e.g. for the mean and spread of features. seed: of its weights; the
        caller's generators of random numbers are left as they were.

        Raises: MtmcError where it cannot be made: a package or a model that is not there.
        """
