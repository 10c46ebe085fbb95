"""scorer: a language model as the training wants it (`mtmc.rl.scorer.Scorer`): LoRA on a frozen base, a value on top.

The reference that the policy is kept close to is the base itself, with the adapter switched off, or the adapter as it was
after the pretraining.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from mtmc.agents.policies.learned.lm.adapter import (
    About,
    adapter_weights,
    check_mark,
    check_scores,
    read_about,
    read_weights,
    set_adapter_weights,
    with_adapter,
    write_adapter,
)
from mtmc.agents.policies.learned.lm.base import PACKAGED, Base, device_of, load_base
from mtmc.agents.policies.learned.lm.packing import Pack, pack
from mtmc.agents.policies.learned.lm.prompt import Normalize, PromptSettings
from mtmc.agents.policies.learned.lm.scoring import PRECISIONS, Precision, answer_scores
from mtmc.agents.policies.learned.lm.tokens import Texts
from mtmc.errors import ConfigError, RunError
from mtmc.rl.bounds import at_least, from_0_to_1
from mtmc.rl.forest import Batch, Forest
from mtmc.rl.scorer import Scorer, Scores
from mtmc.rl.train.card import CARD, earlier_text

_VALUE_WIDTH = 128


@dataclass(frozen=True)
class LmSettings:
    """A language model that is trained.

    base: see `mtmc.agents.policies.learned.lm.base`. adapter: folder of an earlier training, to begin with its weights;
    empty: a fresh one, which changes nothing. rank, alpha: of LoRA. normalize: of an answer's score, by none, token or word.
    scale: what scores are multiplied with: larger is a sharper policy. heuristic_weight: of the logarithm of the heuristic's
    prior, which is added to them: with 1 the model learns to correct the heuristic, as the compact network does.
    tokens, code, steps, lines: see `PromptSettings`.
    reference: base, or start: see above. value_gradient: share of the value's gradient that reaches the adapter, 0 to 1.
    states: at once, which takes memory. precision: auto is bfloat16 on a GPU. device: auto, cpu, cuda or cuda:1.
    """

    base: str = PACKAGED
    adapter: str = ""
    rank: int = 8
    alpha: int = 16
    normalize: Normalize = "token"
    scale: float = 1.0
    heuristic_weight: float = 0.0
    tokens: int = 1024
    code: int = 256
    steps: int = 4
    lines: bool = False
    reference: Literal["base", "start"] = "base"
    value_gradient: float = 0.1
    states: int = 8
    precision: Precision = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        check_scores(self.normalize, self.scale, self.heuristic_weight)
        at_least(self, "policy.", rank=1, states=1)
        from_0_to_1(self, "value_gradient", prefix="policy.")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"policy.precision cannot be {self.precision!r}: use one of {', '.join(PRECISIONS)}")
        if self.reference not in ("base", "start"):
            raise ConfigError(f"policy.reference cannot be {self.reference!r}: use base or start")
        _ = self.prompt

    @property
    def prompt(self) -> PromptSettings:
        """What the model is shown."""
        return PromptSettings(self.tokens, self.code, self.steps, self.lines)

    def open(self, forest: Forest, seed: int) -> LmScorer:
        """The base with its adapter, see `mtmc.rl.scorer.ScorerSettings`. forest: not used.

        Raises: ModelError where a package or the base is missing, ConfigError for a device that is not there, RunError for
        an adapter that is not there or was made with another base or rank.
        """
        return LmScorer(self, load_base(self.base), seed)


class LmScorer(Scorer):
    """See `mtmc.rl.scorer.Scorer`."""

    def __init__(self, settings: LmSettings, base: Base, seed: int) -> None:
        """base: its layers get the adapter in place. seed: of the adapter and the value.

        Raises: RunError for an adapter that is not there or was made with another base or rank.
        """
        self._settings = settings
        self.device = device_of(settings.device)
        self._about = About(
            base.name, base.mark, settings.prompt, settings.normalize, settings.scale, settings.heuristic_weight
        )
        self._model = with_adapter(base, settings.rank, settings.alpha, seed).to(self.device).eval()
        self._began = self._begin(Path(settings.adapter).expanduser()) if settings.adapter else ""
        self._value = _value_head(base.model.config.hidden_size, seed).to(self.device)
        self._texts = Texts(base.tokenizer, settings.prompt)
        self._prompts: WeakKeyDictionary[Forest, dict[int, tuple[int, ...]]] = WeakKeyDictionary()
        self._start: dict[str, torch.Tensor] | None = None

    @property
    def states_at_once(self) -> int:
        """See `Scorer`."""
        return self._settings.states

    @property
    def model(self) -> Any:
        """The base with the adapter, of peft."""
        return self._model

    def score(self, batch: Batch) -> Scores:
        """See `Scorer`. Without gradients any number of states, in parts."""
        if not torch.is_grad_enabled():
            return self._in_parts(batch)
        found = self._read(batch, range(len(batch)))
        return replace(found, logits=found.logits + self._heuristic_logits(batch))

    def reference(self, batch: Batch) -> torch.Tensor:
        """See `Scorer`: what the base says, or the adapter as it was at the start."""
        with torch.no_grad():
            if self._start is None:
                with self._model.disable_adapter():
                    return self._in_parts(batch).logits
            now = self._adapter()
            set_adapter_weights(self._model, self._start)
            try:
                return self._in_parts(batch).logits
            finally:
                set_adapter_weights(self._model, now)

    def keep_reference(self) -> None:
        """See `Scorer`: the base is frozen, so nothing is to be kept of it."""
        if self._settings.reference == "start":
            self._start = self._adapter()

    def groups(self, lr: float) -> list[dict[str, Any]]:
        """See `Scorer`."""
        adapter = [weight for weight in self._model.parameters() if weight.requires_grad]
        return [{"params": adapter, "lr": lr}, {"params": list(self._value.parameters()), "lr": lr}]

    def state_dict(self) -> dict[str, Any]:
        """See `Scorer`: the adapter and the value; the base is left out."""
        value = copy.deepcopy(self._value.state_dict())
        return {"adapter": self._adapter(), "value": value, "start": self._start, "mark": self._about.mark}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Scorer`. Raises: RunError for the state of another base or rank."""
        if state["mark"] != self._about.mark:
            raise RunError(
                f"this training ran on another base than {self._about.base!r}: go on with that (mark {state['mark']})"
            )
        set_adapter_weights(self._model, state["adapter"])
        self._value.load_state_dict(state["value"])
        self._start = state["start"]

    def export(self, folder: Path, card: str) -> list[Path]:
        """See `Scorer`: what `mtmc.agents.policies.learned.lm.adapter.read_adapter` reads."""
        files = write_adapter(self._model, self._about, folder)
        count = sum(weight.numel() for weight in adapter_weights(self._model).values())
        config = self._model.config
        shape = f"{config.model_type}, {config.num_hidden_layers} layers of width {config.hidden_size}"
        more = (
            f"\nAn adapter (LoRA, rank {self._settings.rank}, {count} weights in 16 bits) for the base model "
            f"{self._about.base} ({shape}; mark of its weights {self._about.mark}).\n\n"
            "It reads a prompt (`mtmc.agents.policies.learned.lm.prompt`) with "
            f"{json.dumps(vars(self._about.prompt))}; scores are normalized by {self._about.normalize} and multiplied with "
            f"{self._about.scale:g}; added is {self._about.heuristic_weight:g} times the logarithm of the heuristic's "
            "prior.\n"
        )
        (folder / CARD).write_text(card + more + self._began, encoding="utf-8")
        return [*files, folder / CARD]

    def _begin(self, folder: Path) -> str:
        """Take over an earlier training's adapter; what the model card says of that. Raises: RunError as `__init__`."""
        check_mark(read_about(folder), folder, self._about.base, self._about.mark)
        set_adapter_weights(self._model, read_weights(folder))
        card = folder / CARD
        return earlier_text(card.read_text(encoding="utf-8")) if card.is_file() else ""

    def _adapter(self) -> dict[str, torch.Tensor]:
        """A copy of the adapter as it is."""
        return {name: tensor.detach().clone() for name, tensor in adapter_weights(self._model).items()}

    def _in_parts(self, batch: Batch) -> Scores:
        """States of like length together, so that little is filled up; the result in the batch's order."""
        lengths = [len(self._prompt(batch.forest, int(node))) for node in batch.nodes]
        order = np.argsort(lengths, kind="stable")
        ends = np.concatenate(([0], np.cumsum(batch.counts)))
        logits = self._heuristic_logits(batch)
        values = torch.zeros(len(batch), device=self.device)
        for first in range(0, len(order), self._settings.states):
            some = order[first : first + self._settings.states]
            found = self._read(batch, some.tolist())
            values[torch.from_numpy(some).to(self.device)] = found.values
            places = np.concatenate([np.arange(ends[at], ends[at + 1]) for at in some])
            logits[torch.from_numpy(places).to(self.device)] += found.logits
        return Scores(logits, values)

    def _heuristic_logits(self, batch: Batch) -> torch.Tensor:
        """What is added to the model's scores, [all actions]."""
        if not self._settings.heuristic_weight:
            return torch.zeros(len(batch.edges), device=self.device)
        return self._settings.heuristic_weight * torch.from_numpy(batch.opinions).to(self.device)

    def _read(self, batch: Batch, states: Sequence[int]) -> Scores:
        """What the model says of some states of a batch, in the order given, in one run. A state that comes twice is run
        once."""
        if not states:
            return Scores(torch.zeros(0, device=self.device), torch.zeros(0, device=self.device))
        ends = np.concatenate(([0], np.cumsum(batch.counts)))
        keys = [(int(batch.nodes[at]), tuple(batch.edges[ends[at] : ends[at + 1]].tolist())) for at in states]
        once = list(dict.fromkeys(keys))
        packs: list[Pack] = []
        divisors: list[float] = []
        for node, edges in once:
            actions = [batch.forest.action(edge) for edge in edges]
            packs.append(pack(self._prompt(batch.forest, node), list(map(self._texts.answer, actions))))
            divisors += [self._texts.length(action, self._settings.normalize) for action in actions]
        found = answer_scores(self._model, packs, self._settings.precision)
        logits = found.scores * self._settings.scale / torch.tensor(divisors, device=self.device)
        values = self._valued(found.ends)
        if len(once) == len(keys):
            return Scores(logits, values)
        place = {key: at for at, key in enumerate(once)}
        parts = logits.split([len(edges) for _, edges in once])
        chosen = [place[key] for key in keys]
        return Scores(torch.cat([parts[at] for at in chosen]), values[torch.tensor(chosen, device=self.device)])

    def _valued(self, ends: torch.Tensor) -> torch.Tensor:
        share = self._settings.value_gradient
        seen = ends.detach() if share == 0 else share * ends + (1 - share) * ends.detach()
        values: torch.Tensor = self._value(functional.layer_norm(seen, seen.shape[-1:]))
        return values.squeeze(-1)

    def _prompt(self, forest: Forest, node: int) -> tuple[int, ...]:
        """The tokens of a state's prompt, kept as long as there is the forest."""
        prompts = self._prompts.setdefault(forest, {})
        if node not in prompts:
            observation = forest.observation(node)
            if self._settings.code and observation.plan is not None:
                observation = replace(observation, source=forest.version_text(node))
            prompts[node] = self._texts.prompt(observation)
        return prompts[node]


def _value_head(width: int, seed: int) -> nn.Sequential:
    """Two layers that say 0 before they are trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        last = nn.Linear(_VALUE_WIDTH, 1)
        head = nn.Sequential(nn.Linear(width, _VALUE_WIDTH), nn.ReLU(), last)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return head
