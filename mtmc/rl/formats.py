"""formats: runs as examples for others' trainers, as JSON lines.

    sft         {"prompt": [{"role", "content"}, ...], "completion": [...], ...}     a right edit, asked for as live
    preference  {"prompt": [...], "chosen": [...], "rejected": [...], ...}           of two actions the one that did better

The prompts are those of a live search: `agents.editing.prompt` for edits (its answer, the whole file in one fence, is what
`agents.editing.reply` reads) and `agents.ranking` for actions. Each line also says task, node, action and what came of it.
These are the columns that trl and others take ("conversational").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.action import STOP_KIND, Action
from mtmc.chat import Message
from mtmc.errors import RunError
from mtmc.protocols import Observation
from mtmc.reward import log_speedup
from mtmc.rl.edits import RecordedEdit, about_edit, edits_of_run
from mtmc.search.run_state import history
from mtmc.store import Store
from mtmc.task import Task
from mtmc.tree import KernelNode, Tree, source_hash

MARGIN = 0.05
"""Least difference of two actions' log2 speedups that makes a preference: below that it may be noise."""
PAIRS = 8
"""Pairs of one version at most, those that differ most."""

Example = dict[str, Any]


@dataclass(frozen=True)
class _Run:
    """A run as the examples need it."""

    task: Task
    tree: Tree
    legal: dict[int, tuple[Action, ...]]
    hardware: str

    @classmethod
    def read(cls, folder: Path) -> _Run:
        store = Store.read(folder)
        try:
            tree = store.tree()
            return cls(store.task(), tree, {node.id: store.legal(node.id)[0] for node in tree}, store.hardware() or "")
        finally:
            store.close()


def sft_examples(folder: Path, examples: int = 1) -> Iterator[Example]:
    """The right edits of a run: prompt of the coder, completion the whole child.

    examples: of the kind of optimization in the prompt, 0 or 1. Raises: RunError where there is no such run.
    """
    for edit in edits_of_run(folder):
        yield sft_example(edit, examples)


def sft_example(edit: RecordedEdit, examples: int = 1, blocks: bool = False) -> Example:
    """An edit as an example. examples: of the kind of optimization in the prompt, 0 or 1. blocks: whether the answer may be
    SEARCH/REPLACE blocks, where these are shorter than the whole file."""
    from mtmc.agents.coders.editing.differences import difference_text
    from mtmc.agents.coders.editing.fences import fenced
    from mtmc.agents.coders.editing.prompt import edit_messages

    answer = fenced(edit.child)
    changes = difference_text(edit.request.source, edit.child) if blocks else None
    if changes is not None and len(changes) < len(answer):
        answer = changes
    return {
        "prompt": _plain(edit_messages(edit.request, examples)),
        "completion": [{"role": "assistant", "content": answer}],
        **edit.about,
    }


def preferences(folder: Path, steps: int = 4) -> Iterator[Example]:
    """Pairs of actions of one version of which one led to a faster version: prompt of the policy, two rankings.

    A failure has the least value. Pairs that differ by less than `MARGIN` are left out; of the others each version gives
    the `PAIRS` that differ most. steps: of the history in the prompt. Raises: RunError where there is no such run.
    """
    from mtmc.agents.policies.ranking import Ranking, ranking_messages, ranking_to_text

    run = _Run.read(folder)
    for parent in run.tree:
        actions = run.legal[parent.id]
        keys = [action.key for action in actions]
        tried = [
            child for child in run.tree.children(parent.id) if child.action is not None and child.action.key in keys
        ]
        observation = Observation(
            run.task, parent.source, parent.plan, parent.outcome, history(run.tree, parent.id), run.hardware
        )
        for better, worse, margin in _pairs(run, tried):
            answers = [
                ranking_to_text(Ranking((keys.index(node.action.key),)), len(actions))
                for node in (better, worse)
                if node.action is not None
            ]
            yield {
                "prompt": _plain(ranking_messages(observation, actions, 0, steps)),
                "chosen": [{"role": "assistant", "content": answers[0]}],
                "rejected": [{"role": "assistant", "content": answers[1]}],
                **about_edit(run.task.name, source_hash(run.task.source), run.tree.root, parent, better),
                "rejected_action": worse.action.sentence if worse.action else "",
                "rejected_status": worse.outcome.status,
                "margin": margin,
            }


def write_jsonl(examples: Iterable[Example], path: Path) -> int:
    """Write examples, one a line; returns how many. Raises: RunError where the file cannot be written."""
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            for example in examples:
                file.write(json.dumps(example) + "\n")
                count += 1
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): choose another file") from error
    return count


def _pairs(run: _Run, tried: Sequence[KernelNode]) -> list[tuple[KernelNode, KernelNode, float]]:
    """(better, worse, difference of their log2 speedups), the greatest differences first."""
    values = {node.id: log_speedup(node.outcome, run.tree.root.outcome) for node in tried}
    pairs = [
        (better, worse, values[better.id] - values[worse.id])
        for better in tried
        for worse in tried
        if better.outcome.ok and better.action and better.action.kind != STOP_KIND
    ]
    kept = [pair for pair in pairs if pair[2] >= MARGIN]
    return sorted(kept, key=lambda pair: (-pair[2], pair[0].id, pair[1].id))[:PAIRS]


def _plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]
