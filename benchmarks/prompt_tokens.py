"""Tokens of each prompt, and of what in it is derived from the parent's metrics.

    PYTHONPATH=. python benchmarks/prompt_tokens.py --out results/prompt_tokens

Each task is searched by the rewriter in the lab, and its best version is the parent: a prompt for an edit, for a repair of
its source, for an agent's first turn, and for a policy's ranking. Tokens as litellm counts them for OpenAI's models.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.common import Report
from benchmarks.figures import header, row
from mtmc.action import STOP_KIND
from mtmc.agents.coders.agent.prompt import first_messages
from mtmc.agents.coders.editing.prompt import edit_messages
from mtmc.agents.coders.editing.task_text import task_text
from mtmc.agents.coders.model import model_actions
from mtmc.agents.facts.text import action_text, version_text
from mtmc.agents.llm.litellm_api import load_litellm
from mtmc.agents.llm.prices import tokens_of
from mtmc.agents.policies.ranking import ranking_messages
from mtmc.chat import Message
from mtmc.outcome import Diagnosis
from mtmc.protocols import EditRequest, Observation, RunFacts, Step
from mtmc.search import search
from mtmc.search.opening import versions
from mtmc.task import load_task

MODEL = "openai/gpt-5-mini"
"""Whose tokens are counted."""
TASKS = ("softmax_gelu", "linear_gelu", "mlp", "transformer_block")
FAILED = Diagnosis("build", "CompilationError", "name 'tl' is not defined", 5)


def observed(name: str, evaluations: int) -> Observation:
    """The best version that a short search finds, as agents are shown it."""
    result = search(name, budget=evaluations, progress=False)
    tree = result.tree
    best = tree.best
    steps = tuple(
        Step(node.action, node.source, node.outcome, tree.speedup(node.id))
        for node in tree.path(best.id)
        if node.action is not None
    )
    compiled = replace(tree.root.outcome, runtime_kind="measured")
    run = RunFacts({"torch.compile": compiled}, versions())
    return Observation(load_task(name), best.source, best.plan, best.outcome, steps, "H100", run=run)


def prompts(seen: Observation) -> dict[str, tuple[Message, ...]]:
    """Each prompt by its name, of the first action."""
    actions = model_actions(seen, [])
    action = next((each for each in actions if each.kind != STOP_KIND), actions[0])
    request = EditRequest(
        seen.task, seen.source, seen.plan, seen.outcome, action, seen.hardware, seen.history, run=seen.run
    )
    repair = replace(request, feedback=FAILED, failed_source=seen.source)
    return {
        "edit": edit_messages(request),
        "repair": edit_messages(repair),
        "agent": first_messages(request, 16, 60_000),
        "policy": ranking_messages(seen, actions, 2, 4),
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--evaluations", type=int, default=6)
    arguments = parser.parse_args()
    litellm = load_litellm()

    def count(text: str) -> int:
        return tokens_of(litellm, MODEL, text)

    with Report("Tokens of prompts", arguments.out) as report:
        report.say(header("task", "prompt", "tokens", "of the task", "of what limits the parent", "of the action"))
        for name in arguments.tasks:
            seen = observed(name, arguments.evaluations)
            facts = count(version_text(seen.outcome, seen.hardware, seen.task, seen.run))
            task = count(task_text(seen.task))
            first = model_actions(seen, [])[0]
            for kind, messages in prompts(seen).items():
                total = sum(count(message.content) for message in messages)
                of_action = count(action_text(seen, first)) if kind != "policy" else 0
                report.say(row(name, kind, f"{total:,}", task, facts, of_action or "-"))
                report.data.setdefault("rows", []).append(
                    {"task": name, "prompt": kind, "tokens": total, "task_tokens": task, "facts": facts}
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
