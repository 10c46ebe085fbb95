"""The coder `lm`: a language model that `mtmc train coder=` has taught to make edits, in this process and with no server.

It is asked as it was trained: one question for an edit, one reply, the likeliest token at each step. A version that fails is
repaired by rules alone, for it has never seen a repair.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mtmc.action import Action
from mtmc.agents.coders.model import AskingCoder, fixed_by_rule, model_actions, source_of
from mtmc.agents.trained.about import TEMPLATE, CoderAbout, folder_of, read_about
from mtmc.chat import ChatReply, Message
from mtmc.errors import CoderError, ConfigError, RunError
from mtmc.outcome import Cost, Outcome
from mtmc.protocols import Edit, EditRequest, Observation


@dataclass(frozen=True)
class LmCoder(AskingCoder):
    """adapter: folder of a training of a coder. base: the base model; empty: the one that it was trained on. reply: tokens,
    at most; 0: as in the training. device: auto (a GPU where there is one), cpu, cuda or cuda:1."""

    adapter: str = ""
    base: str = ""
    reply: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        """Raises: ConfigError for a setting out of its range."""
        if isinstance(self.reply, bool) or not isinstance(self.reply, int) or self.reply < 0:
            raise ConfigError(
                f"coder.reply cannot be {self.reply!r}: use a number of tokens, or 0 for that of the training"
            )

    @property
    def asks_model(self) -> bool:
        """It has its own, and asks for no other."""
        return False

    @property
    def deterministic(self) -> bool:
        """The likeliest tokens are the same each time."""
        return True

    @property
    def refines(self) -> bool:
        """It was trained on edits alone."""
        return False

    def check(self) -> None:
        """Whether it can be used at all; the model is not loaded for it.

        Raises: ConfigError where no training is named, RunError where there is none, ModelError where a package or the base
        is missing.
        """
        from mtmc.agents.policies.learned.lm.base import check_base, needed

        if not self.adapter:
            raise ConfigError(
                "coder=lm needs a training: set coder.adapter to the folder that mtmc train coder=... wrote"
            )
        about = read_about(folder_of(self.adapter))
        needed(("transformers", "peft"))
        check_base(self.base or about.base)

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        """As of the coder `auto`: what it was trained on."""
        return model_actions(observation, failures, wider=False)

    def edit(self, request: EditRequest) -> Edit:
        """The child's source, without a plan.

        Raises: Unusable where the reply gives no whole new file, CoderError for a repair that no rule can do and for a
        prompt that is too long; as `check`; RunError for an adapter that does not fit its base.
        """
        from mtmc.agents.coders.editing.prompt import edit_messages

        fixed = fixed_by_rule(request)
        if fixed is not None:
            return fixed
        if request.failed_source is not None:
            raise CoderError("no rule repairs this, and a trained coder makes edits only")
        self.check()
        writer = _writer(self.adapter, self.base, self.device)
        reply = writer.reply(edit_messages(request, writer.about.examples), self.reply or writer.about.reply)
        return Edit(source_of(request, reply), None, Cost(tokens_in=reply.tokens_in, tokens_out=reply.tokens_out))


@dataclass(frozen=True, eq=False)
class Writer:
    """A loaded model with its adapter. lock: one reply at a time."""

    model: Any
    tokenizer: Any
    about: CoderAbout
    lock: threading.Lock

    def reply(self, messages: Sequence[Message], limit: int) -> ChatReply:
        """The likeliest reply, of `limit` tokens at most. Raises: CoderError where the prompt leaves no room for it."""
        import torch

        plain = [{"role": message.role, "content": message.content} for message in messages]
        text = self.tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
        given = self.tokenizer(text, return_tensors="pt", add_special_tokens=False).to(self.model.device)
        length = int(given["input_ids"].shape[1])
        room = getattr(self.model.config, "max_position_embeddings", length + limit) - length
        if room < 1:
            raise CoderError(
                f"the question has {length} tokens, more than the model reads: take a base with a longer context"
            )
        on_gpu = self.model.device.type == "cuda"
        with self.lock, torch.no_grad(), torch.autocast(self.model.device.type, torch.bfloat16, enabled=on_gpu):
            found = self.model.generate(
                input_ids=given["input_ids"],
                attention_mask=given["attention_mask"],
                max_new_tokens=min(limit, room),
                do_sample=False,
                pad_token_id=self.tokenizer.eos_token_id,
                use_cache=True,
            )
        new = found[0, length:].tolist()
        cut = self.tokenizer.eos_token_id not in new
        end = len(new) if cut else new.index(self.tokenizer.eos_token_id)
        said = self.tokenizer.decode(new[:end], skip_special_tokens=True)
        return ChatReply(said, length, len(new), truncated=cut, tries=0)


@lru_cache(maxsize=2)
def _writer(adapter: str, base: str, device: str) -> Writer:
    from mtmc.agents.policies.learned.lm.adapter import attached
    from mtmc.agents.policies.learned.lm.base import device_of, load_base

    folder = folder_of(adapter)
    about = read_about(folder)
    loaded = load_base(base or about.base)
    if loaded.mark != about.mark:
        raise RunError(
            f"the coder in {folder} was trained on other weights than those of {loaded.name!r}: give those of "
            f"{about.base!r} (mark {about.mark}) as coder.base"
        )
    if loaded.tokenizer.chat_template is None:
        loaded.tokenizer.chat_template = TEMPLATE
    return Writer(attached(loaded, folder).to(device_of(device)), loaded.tokenizer, about, threading.Lock())
