"""data: the edits that a coder learns from, and those that it is asked to make afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mtmc.errors import ConfigError, RunError
from mtmc.rl.coder.printing import printed
from mtmc.rl.coder.settings import CoderSettings
from mtmc.rl.edits import RecordedEdit, edited, edits_of_run
from mtmc.rl.formats import sft_example
from mtmc.rl.schema import Split, split_of
from mtmc.search.strategies.common import derived_random

T = TypeVar("T")
_SPLITS: tuple[Split, ...] = ("train", "test")
"""Those that are used."""


@dataclass(frozen=True, eq=False)
class Example:
    """An edit as a conversation. prompt, completion: messages {"role", "content"}."""

    edit: RecordedEdit
    prompt: list[dict[str, str]]
    completion: list[dict[str, str]]


@dataclass(frozen=True, eq=False)
class CoderData:
    """train: to learn from. test: of tasks that are never learned from. about: counts, for the report."""

    train: list[Example]
    test: list[Example]
    about: dict[str, Any]


def load_coder_data(settings: CoderSettings, tokenizer: Any) -> CoderData:
    """The edits of some folders, those of one task drawn where there are too many, without those that are too long.

    Raises: ConfigError where no folder is given or nothing is left to learn from, RunError where a folder holds neither
    recorded trees nor a run.
    """
    if not settings.data:
        raise ConfigError(
            "data is missing: give data=FOLDER of recorded trees (mtmc collect) or of a run (mtmc search)"
        )
    found: dict[str, list[Example]] = {split: [] for split in _SPLITS}
    tasks: dict[str, set[str]] = {split: set() for split in _SPLITS}
    edits = long = 0
    for edit in _drawn(settings):
        split = split_of(edit.about["task_hash"])
        if split not in found:
            continue
        edits += 1
        made = sft_example(edit, settings.examples, settings.blocks)
        example = Example(edit, made["prompt"], made["completion"])
        if _fits(example, settings, tokenizer):
            found[split].append(example)
            tasks[split].add(edit.about["task_hash"])
        else:
            long += 1
    if not found["train"]:
        raise ConfigError(
            f"of {edits} edits for training and test in {', '.join(settings.data)}, {long} are too long and none is left to "
            "learn from: record more tasks, or raise prompt and reply"
        )
    counts = {split: {"tasks": len(tasks[split]), "edits": len(found[split])} for split in found}
    return CoderData(found["train"], found["test"], {**counts, "too_long": long, "folders": list(settings.data)})


def shortest_requests(examples: Sequence[Example], count: int) -> list[Example]:
    """Some examples, one of each task and kind in turn, the shortest prompts first: the same ones every time."""
    ordered = sorted(examples, key=lambda each: (sum(len(message["content"]) for message in each.prompt), _name(each)))
    chosen: list[Example] = []
    while ordered and len(chosen) < count:
        seen: set[tuple[str, str]] = set()
        rest: list[Example] = []
        for each in ordered:
            key = (each.edit.about["task_hash"], each.edit.about["kind"])
            (rest if key in seen else chosen).append(each)
            seen.add(key)
        ordered = rest
    return chosen[:count]


def _name(example: Example) -> tuple[str, int]:
    return example.edit.about["task_hash"], example.edit.about["child"]


def _drawn(settings: CoderSettings) -> Iterator[RecordedEdit]:
    """`per_task` edits of each task at most."""
    from mtmc.rl.trees import load_trees

    for folder in (Path(each).expanduser() for each in settings.data):
        if (folder / "tasks.parquet").is_file():
            trees = [tree for split in _SPLITS for tree in load_trees(folder, split)]
            yield from printed([(tree, _some(settings, tree.key, edited(tree))) for tree in trees])
            continue
        try:
            edits = list(edits_of_run(folder))
        except RunError as error:
            raise RunError(
                f"{folder} has neither recorded trees nor a run: name a folder of mtmc collect or mtmc search"
            ) from error
        yield from _some(settings, edits[0].about["task_hash"], edits) if edits else ()


def _some(settings: CoderSettings, task: str, every: Sequence[T]) -> Sequence[T]:
    """`per_task` at most, drawn, in their order."""
    if len(every) <= settings.per_task:
        return every
    drawn = derived_random(settings.seed, "edits", task).sample(range(len(every)), settings.per_task)
    return [every[at] for at in sorted(drawn)]


def _fits(example: Example, settings: CoderSettings, tokenizer: Any) -> bool:
    prompt = _length(tokenizer, "".join(message["content"] for message in example.prompt))
    reply = _length(tokenizer, example.completion[0]["content"])
    return prompt + 64 <= settings.prompt and reply + 8 <= settings.reply  # with the marks of the conversation


def _length(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])
