"""prompt: a version and its past as text for a small language model, and its answer, which is an action's sentence. They
stand together and change together.

    # GPU                   # Reference         # Plan              # Code
    # Steps                 # Now               # Next optimization

The answer stands on a line of its own after the last heading. A policy does not wait for one: it asks how likely each of
the legal ones is (`mtmc.agents.policies.learned.lm.scoring`); `read_answer` is for a model that speaks freely.

A prompt has at most so many tokens. What is too long is cut in this order, each part from its beginning: Code, Plan,
Reference, Steps. A line "..." stands for what is gone; a part of which nothing is left goes with its heading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from mtmc.action import Action, without_lines
from mtmc.errors import ConfigError
from mtmc.outcome import Outcome
from mtmc.protocols import Observation, Step

QUESTION = "\n# Next optimization\n"
"""How every prompt ends."""
END = "\n"
"""How every answer ends: without it a sentence would never be less likely than a longer one that begins with it."""

CUT = ("Code", "Plan", "Reference", "Steps")
"""Parts that may be cut, in this order."""
_GAP = "..."
_FACTS = ("roofline", "kernels", "occupancy", "registers", "spills", "programs", "achieved_gbs", "achieved_tflops")

Normalize = Literal["none", "token", "word"]
"""What a score of an answer is divided by, so that a long one is not less likely for its length."""
NORMALIZATIONS: tuple[Normalize, ...] = ("none", "token", "word")

Count = Callable[[Sequence[str]], list[int]]
"""How many tokens each of some lines has, its line break included."""


@dataclass(frozen=True)
class PromptSettings:
    """What a prompt shows.

    tokens: of the whole prompt at most. code: of the version's text at most; 0: it is not shown, and not needed. steps: of
    the last steps, how many. lines: whether answers say the lines that they are about.
    """

    tokens: int = 1024
    code: int = 256
    steps: int = 4
    lines: bool = False

    def __post_init__(self) -> None:
        """Raises: ConfigError naming the setting, its value and what it may be."""
        for name, least in (("tokens", 128), ("code", 0), ("steps", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"policy.{name} cannot be {getattr(self, name)}: use {least} or more")


def prompt_text(observation: Observation, settings: PromptSettings, count: Count) -> str:
    """The prompt, ending with `QUESTION`.

    count: of tokens a line. A text that is cut may have a few tokens less than allowed, never more, as long as tokens
    do not grow where lines are joined. Raises: ConfigError for hardware that is not in the table.
    """
    parts = _parts(observation, settings)
    sizes = {name: count(lines) for name, lines in parts.items()}
    if "Code" in parts:
        _cut(parts, sizes, "Code", sum(sizes["Code"]) - settings.code, sum(count([_GAP])))
    heading = sum(count([f"# {name}" for name in parts])) + sum(count(QUESTION.splitlines()))
    for name in CUT:
        over = heading + sum(map(sum, sizes.values())) - settings.tokens
        if name in parts:
            _cut(parts, sizes, name, over, sum(count([_GAP])))
    return "\n".join(f"# {name}\n" + "\n".join(lines) for name, lines in parts.items()) + QUESTION


def answer_text(action: Action, settings: PromptSettings) -> str:
    """An action as the answer that names it, with `END`. `read_answer` is its inverse."""
    sentence = action.sentence if settings.lines else without_lines(action)[0]
    return " ".join(sentence.split()) + END


def read_answer(text: str, actions: Sequence[Action], settings: PromptSettings) -> Action | None:
    """Which of some actions an answer names: its first line that says anything, whatever its case and its last stop.

    None where it names none of them. Of two with the same sentence the first.
    """
    said = next((line for line in text.splitlines() if line.strip()), "")
    known = {_plain(answer_text(action, settings)): action for action in reversed(actions)}
    return known.get(_plain(said))


def _plain(sentence: str) -> str:
    return " ".join(sentence.split()).rstrip(".").lower()


def _parts(observation: Observation, settings: PromptSettings) -> dict[str, list[str]]:
    """Name of each part -> its lines; parts with nothing to say are left out."""
    parts = {
        "GPU": [_gpu(observation.hardware)],
        "Reference": _reference(observation),
        "Plan": _plan(observation.plan),
        "Code": _code(observation.source) if settings.code else [],
        "Steps": [_told(step) for step in observation.history[-settings.steps :]] if settings.steps else [],
        "Now": [_now(observation.outcome, observation.history)],
    }
    return {name: lines for name, lines in parts.items() if lines}


def _cut(parts: dict[str, list[str]], sizes: dict[str, list[int]], name: str, over: int, gap: int) -> None:
    """Take lines from the beginning of a part until `over` tokens are gone, or all of it."""
    if over <= 0:
        return
    lines, counts = parts[name], sizes[name]
    gone, first = -gap, 0
    while first < len(lines) and gone < over:
        gone += counts[first]
        first += 1
    if gone < over or first == len(lines):
        del parts[name], sizes[name]
        return
    parts[name], sizes[name] = [_GAP, *lines[first:]], [gap, *counts[first:]]


def _gpu(name: str) -> str:
    from mtmc.hardware import hardware

    gpu = hardware(name)
    return (
        f"{gpu.name}: {gpu.sms} SMs, {gpu.dram_gbs:g} GB/s, TFLOPS fp32 {gpu.fp32_tflops:g} tf32 {gpu.tf32_tflops:g} "
        f"fp16 {gpu.fp16_tflops:g}"
    )


def _reference(observation: Observation) -> list[str]:
    """The reference at its full shapes, from its first number or class on."""
    from mtmc.agents.coders.editing.task_text import reference_text

    text = reference_text(observation.task)
    start = re.search(r"^(?!import |from )[A-Za-z_]\w* = |^class ", text, re.MULTILINE)
    return _lines(text[start.start() :] if start else text)


def _plan(plan: str | None) -> list[str]:
    """A line for each kernel with its settings; torch calls that follow each other share one."""
    from mtmc.rewrite.plan import plan_from_json

    if plan is None:
        return []
    lines: list[str] = []
    calls: list[str] = []
    parsed = plan_from_json(plan)
    for stage in parsed.stages:
        if stage.is_torch:
            calls.append(stage.name)
            continue
        lines += _calls(calls)
        calls = []
        settings = " ".join(f"{name}={value}" for name, value in stage.schedule)
        lines.append(f"{stage.template} kernel {stage.name}: {settings}")
    return [*lines, *_calls(calls), *(["captured as one CUDA graph"] if parsed.cuda_graph else [])]


def _calls(names: list[str]) -> list[str]:
    return [f"torch: {', '.join(names)}"] if names else []


def _code(source: str) -> list[str]:
    return _lines(source)


def _lines(text: str) -> list[str]:
    """The lines of a text that are not empty."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _told(step: Step) -> str:
    came = step.outcome.status if step.speedup is None else f"{step.speedup:.2f}x"
    return f"{without_lines(step.action)[0]}: {came}"


def _now(outcome: Outcome, history: Sequence[Step]) -> str:
    runtime = "" if outcome.runtime_ms is None else f", {outcome.runtime_ms:.3g} ms"
    speedup = history[-1].speedup if history else None
    facts = [f"{outcome.status}{runtime}" + (f", {speedup:.2f}x of the reference" if speedup is not None else "")]
    facts += [f"{name} {outcome.metrics[name]:.3g}" for name in _FACTS if name in outcome.metrics]
    return ", ".join(facts)
