"""trainers: supervised fine-tuning and GRPO (arXiv 2402.03300), both through trl, on a base model with an adapter."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.rl.coder.data import Example
from mtmc.rl.coder.rewards import Judge, as_recorded, read_reply
from mtmc.rl.coder.settings import CoderSettings, GrpoSettings, SftSettings

_log = logging.getLogger(__name__)

Row = dict[str, Any]
Watcher = Callable[[Row], None]
"""Told of each step of the optimizer."""

_COMMON = {"loss": "loss", "grad_norm": "grad_norm"}
_SFT = {**_COMMON, "mean_token_accuracy": "accuracy"}
_GRPO = {
    **_COMMON,
    "reward": "reward",
    "rewards/rules/mean": "rules",
    "rewards/execution/mean": "execution",
    "rewards/asked/mean": "asked",
    "kl": "kl",
    "entropy": "entropy",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "clipped_ratio",
}
"""trl's names -> ours."""


@dataclass(frozen=True, eq=False)
class Trainee:
    """model: of peft, on its device. tokenizer: of the base."""

    model: Any
    tokenizer: Any

    @property
    def on_gpu(self) -> bool:
        """Whether it computes on a GPU."""
        return bool(next(self.model.parameters()).is_cuda)

    def make_room(self) -> None:
        """Give back the device memory that is not in use, before an evaluator measures on the same GPU."""
        import torch

        if self.on_gpu:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()


def run_sft(
    trainee: Trainee, examples: Sequence[Example], settings: CoderSettings, folder: Path, watch: Watcher
) -> None:
    """Fine-tune on edits: the loss is that of the replies alone. folder: where trl may write."""
    from trl import SFTConfig, SFTTrainer

    chosen = settings.sft
    _run(
        SFTTrainer,
        model=trainee.model,
        args=SFTConfig(
            **_common(trainee, settings, folder, chosen),
            per_device_train_batch_size=min(chosen.batch, chosen.at_once),
            gradient_accumulation_steps=max(1, chosen.batch // chosen.at_once),
            max_length=settings.prompt + settings.reply,
            completion_only_loss=True,
        ),
        train_dataset=_dataset([{"prompt": each.prompt, "completion": each.completion} for each in examples]),
        processing_class=trainee.tokenizer,
        callbacks=[_callback("sft", _SFT, chosen.minutes, watch)],
    )


def run_grpo(
    trainee: Trainee, examples: Sequence[Example], settings: CoderSettings, judge: Judge, folder: Path, watch: Watcher
) -> None:
    """GRPO: several replies to each request, each as good as it is better than the others. Raises: EvaluatorError."""
    from trl import GRPOConfig, GRPOTrainer

    chosen = settings.grpo
    many = chosen.requests * chosen.replies
    scored = _RewardFunctions(judge, examples, trainee)
    _run(
        GRPOTrainer,
        model=trainee.model,
        reward_funcs=[scored.rules, scored.execution, scored.asked],
        args=GRPOConfig(
            **_common(trainee, settings, folder, chosen),
            per_device_train_batch_size=chosen.at_once,
            gradient_accumulation_steps=many // chosen.at_once,
            num_generations=chosen.replies,
            max_completion_length=settings.reply,
            temperature=chosen.temperature,
            beta=chosen.kl_coef,
            reward_weights=[chosen.rules, chosen.execution, chosen.asked],
            # a reply from logits that are no numbers is a bad one; drawing from them would end the process on a GPU
            generation_kwargs={"remove_invalid_values": True},
        ),
        train_dataset=_dataset([{"prompt": each.prompt, "example": at} for at, each in enumerate(examples)]),
        processing_class=trainee.tokenizer,
        callbacks=[_callback("grpo", _GRPO, chosen.minutes, watch)],
    )


class _RewardFunctions:
    """The rewards as trl asks for them: one after the other, for the same replies, which are evaluated once. trl names its
    curves after the methods."""

    def __init__(self, judge: Judge, examples: Sequence[Example], trainee: Trainee) -> None:
        self._judge, self._examples, self._trainee = judge, examples, trainee
        self._last: tuple[Any, list[tuple[float, float]]] | None = None

    def rules(self, completions: Sequence[Any], example: Sequence[int], **more: Any) -> list[float | None]:
        """The reward by rules, see `mtmc.rl.coder.rewards`."""
        return [rules for rules, _ in self._rewards(completions, example, more)]

    def execution(self, completions: Sequence[Any], example: Sequence[int], **more: Any) -> list[float | None]:
        """The reward by execution."""
        return [execution for _, execution in self._rewards(completions, example, more)]

    def asked(self, completions: Sequence[Any], example: Sequence[int], **more: Any) -> list[float | None]:
        """The reward for what was asked for."""
        edits = [self._examples[at].edit for at in example]
        return [
            as_recorded(read_reply(text, edit.request, cut), edit.child)
            for (text, cut), edit in zip(self._replies(completions, more), edits, strict=True)
        ]

    def _replies(self, completions: Sequence[Any], more: Any) -> list[tuple[str, bool]]:
        """Each reply, and whether it was cut."""
        texts = [each[-1]["content"] for each in completions]
        ends = [bool(len(ids)) and ids[-1] == self._trainee.tokenizer.eos_token_id for ids in more["completion_ids"]]
        return [(text, not ended) for text, ended in zip(texts, ends, strict=True)]

    def _rewards(self, completions: Sequence[Any], example: Sequence[int], more: Any) -> list[tuple[float, float]]:
        replies = self._replies(completions, more)
        key = (replies, list(example))
        if self._last is None or self._last[0] != key:
            self._trainee.make_room()
            requests = [self._examples[at].edit.request for at in example]
            self._last = key, self._judge.rewards(replies, requests)
        return self._last[1]


def _run(kind: Any, **arguments: Any) -> None:
    """Make a trainer of trl and run it, without what it prints itself."""
    import datasets
    from transformers import PrinterCallback

    from mtmc.agents.policies.learned.lm.quiet import quiet

    bars = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with quiet():
            trainer = kind(**arguments)
            trainer.remove_callback(PrinterCallback)
            trainer.train()
    finally:
        if not bars:
            datasets.enable_progress_bars()


def _common(
    trainee: Trainee, settings: CoderSettings, folder: Path, chosen: SftSettings | GrpoSettings
) -> dict[str, Any]:
    return {
        "max_steps": chosen.steps,
        "learning_rate": chosen.lr,
        "warmup_steps": min(5, chosen.steps // 10),
        "output_dir": str(folder),
        "seed": settings.seed,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "lr_scheduler_type": "cosine",
        "use_cpu": not trainee.on_gpu,
        "bf16": trainee.on_gpu,
        "gradient_checkpointing": trainee.on_gpu,
        "dataloader_pin_memory": trainee.on_gpu,
    }


def _dataset(rows: Sequence[Row]) -> Any:
    from datasets import Dataset

    return Dataset.from_list(list(rows))


def _callback(phase: str, names: dict[str, str], minutes: float | None, watch: Watcher) -> Any:
    """Reports each step under our names, leaves out steps whose gradient is no number, which would be the end of all
    weights, and ends the training when its time is up."""
    from transformers import TrainerCallback

    deadline = None if minutes is None else time.monotonic() + 60 * minutes

    class Steps(TrainerCallback):
        skipped = 0

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            row = {ours: float(logs[name]) for name, ours in names.items() if name in (logs or {})}
            if row and "train_runtime" not in logs:
                watch({"phase": phase, "step": state.global_step, **row, "skipped_steps": self.skipped})

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **more: Any) -> None:
            if not _is_finite(model):
                self.skipped += 1
                _log.warning(
                    "%s, step %d: the gradient is not finite; the step is left out", phase, state.global_step + 1
                )
                model.zero_grad(set_to_none=True)

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if deadline is not None and time.monotonic() > deadline:
                control.should_training_stop = True

    return Steps()


def _is_finite(model: Any) -> bool:
    """Whether all gradients are numbers."""
    import torch

    found = [each.grad.isfinite().all() for each in model.parameters() if each.grad is not None]
    return not found or bool(torch.stack(found).all())
