"""settings: what `mtmc train coder=NAME` takes besides the base model and an evaluator."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtmc.errors import ConfigError
from mtmc.rl.bounds import above_zero, at_least


@dataclass(frozen=True)
class SftSettings:
    """Supervised fine-tuning. steps: of the optimizer; 0: none. lr: learning rate. batch: edits a step. at_once: of them on
    the device. minutes: after which it ends where it stands; null: no limit."""

    steps: int = 200
    lr: float = 3e-4
    batch: int = 16
    at_once: int = 4
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        at_least(self, "sft.", steps=0, batch=1, at_once=1)
        above_zero(self, "lr", "minutes", prefix="sft.")


@dataclass(frozen=True)
class GrpoSettings:
    """GRPO. steps: of the optimizer; 0: none. lr: learning rate. requests, replies: in a step, and to each request. at_once:
    replies on the device. kl_coef: weight of the KL divergence from the model before. temperature: of the replies.
    rules, execution, asked: weights of the rewards, see `mtmc.rl.coder.rewards`. minutes: as of supervised fine-tuning."""

    steps: int = 40
    lr: float = 2e-5
    requests: int = 4
    replies: int = 8
    at_once: int = 8
    kl_coef: float = 0.02
    temperature: float = 0.8
    rules: float = 1.0
    execution: float = 1.0
    asked: float = 1.0
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        at_least(self, "grpo.", steps=0, requests=1, replies=2, at_once=1, kl_coef=0, rules=0, execution=0, asked=0)
        above_zero(self, "lr", "temperature", "minutes", prefix="grpo.")
        if self.requests * self.replies % self.at_once:
            many = self.requests * self.replies
            raise ConfigError(
                f"grpo.at_once cannot be {self.at_once}: the {many} replies of a step must be a multiple of it"
            )


@dataclass(frozen=True)
class CoderSettings:
    """How a coder is trained.

    data: folders of recorded trees or of runs. seed: of the adapter and of all that is drawn. adapter: folder of an earlier
    training, to begin with its weights; empty: a fresh one. rank, alpha: of LoRA.
    prompt, reply: tokens at most; longer edits are left out. examples: of the kind of optimization in a prompt, 0 or 1.
    blocks: whether an edit that is shorter as SEARCH/REPLACE blocks is learned as these, not as a whole file; both are read.
    per_task: edits of a task at most, drawn. samples: requests of the test split that are answered before and after.
    device: auto, cpu, cuda or cuda:1.
    """

    data: tuple[str, ...] = ()
    seed: int = 0
    adapter: str = ""
    rank: int = 16
    alpha: int = 32
    prompt: int = 4096
    reply: int = 768
    examples: int = 0
    blocks: bool = True
    per_task: int = 16
    samples: int = 8
    device: str = "auto"
    sft: SftSettings = field(default_factory=SftSettings)
    grpo: GrpoSettings = field(default_factory=GrpoSettings)

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        at_least(self, rank=1, prompt=64, reply=8, per_task=1, samples=0)
        if self.examples not in (0, 1):
            raise ConfigError(f"examples cannot be {self.examples}: use 0 or 1")
