"""samples: the same requests, answered by the model as it is before, between and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mtmc.rl.coder.data import Example
from mtmc.rl.coder.rewards import Judge, as_recorded, read_reply
from mtmc.rl.coder.trainers import Trainee

AT_ONCE = 8
"""Requests that are answered at once."""


@dataclass(frozen=True)
class Sample:
    """stage: base, sft or grpo. task, kind, action: of the request. cut: whether the reply reached its limit. why: which
    rule it breaks, or what evaluation found. rules, execution, asked: its rewards."""

    stage: str
    task: str
    kind: str
    action: str
    reply: str
    cut: bool
    why: str
    rules: float
    execution: float
    asked: float


def take_samples(trainee: Trainee, examples: Sequence[Example], judge: Judge, stage: str, limit: int) -> list[Sample]:
    """One reply to each request, the likeliest token at each step. limit: tokens of a reply. Raises: EvaluatorError."""
    replies = list(_replies(trainee, examples, limit))
    requests = [example.edit.request for example in examples]
    trainee.make_room()
    rewards = judge.rewards(replies, requests)
    samples = []
    for example, (text, cut), (rules, execution) in zip(examples, replies, rewards, strict=True):
        request, about = example.edit.request, example.edit.about
        outcome = judge.outcome(text, request, cut)
        read = read_reply(text, request, cut)
        why, asked = read.why, as_recorded(read, example.edit.child)
        if outcome is not None:
            why = outcome.status + (f": {outcome.diagnosis.kind}" if outcome.diagnosis is not None else "")
        named = about["task"], about["kind"], about["action"]
        samples.append(Sample(stage, *named, text, cut, why, rules, execution, asked))
    return samples


def _replies(trainee: Trainee, examples: Sequence[Example], limit: int) -> Iterator[tuple[str, bool]]:
    """Each reply, and whether it was cut at the limit."""
    import torch

    model, tokenizer = trainee.model, trainee.tokenizer
    was_training, side = model.training, tokenizer.padding_side
    model.eval()
    tokenizer.padding_side = "left"
    texts = [
        tokenizer.apply_chat_template(example.prompt, tokenize=False, add_generation_prompt=True)
        for example in examples
    ]
    for first in range(0, len(texts), AT_ONCE):
        some = texts[first : first + AT_ONCE]
        given = tokenizer(some, return_tensors="pt", add_special_tokens=False, padding=True).to(model.device)
        with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=trainee.on_gpu):
            found = model.generate(
                input_ids=given["input_ids"],
                attention_mask=given["attention_mask"],
                max_new_tokens=limit,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
                use_cache=True,
            )
        for new in found[:, given["input_ids"].shape[1] :].tolist():
            cut = tokenizer.eos_token_id not in new
            end = len(new) if cut else new.index(tokenizer.eos_token_id)
            yield tokenizer.decode(new[:end], skip_special_tokens=True), cut
    model.train(was_training)
    tokenizer.padding_side = side


def samples_text(samples: Sequence[Sample]) -> str:
    """All samples as markdown, those of one request together."""
    parts = ["# The same requests before and after\n"]
    requests = list(dict.fromkeys((each.task, each.action) for each in samples))
    for number, (task, action) in enumerate(requests, 1):
        parts.append(f"## {number}. {task}: {action}\n")
        for each in samples:
            if (each.task, each.action) == (task, action):
                head = (
                    f"**{each.stage}**: rules {each.rules:.2f}, execution {each.execution:+.2f}; {each.why or 'kept'}"
                )
                marks = f"{', as asked' if each.asked else ''}{' (cut)' if each.cut else ''}"
                parts.append(f"{head}{marks}\n\n{_quoted(each.reply)}\n")
    return "\n".join(parts)


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()) or "    (nothing)"


def means(samples: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    """Stage -> mean rewards of its samples, how many keep all rules (`kept`), how many are right, and how many
    are what was asked for."""
    found: dict[str, dict[str, Any]] = {}
    for stage in dict.fromkeys(each.stage for each in samples):
        some = [each for each in samples if each.stage == stage]
        found[stage] = {
            "samples": len(some),
            "rules": sum(each.rules for each in some) / len(some),
            "execution": sum(each.execution for each in some) / len(some),
            "kept": sum(each.rules > 0.99 for each in some),
            "right": sum(each.why == "ok" for each in some),
            "asked": sum(each.asked > 0 for each in some),
        }
    return found
