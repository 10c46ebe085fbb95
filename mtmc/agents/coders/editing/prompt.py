"""prompt: how a model is asked for an edit or a repair.

After MTMC's Micro Coding: the previous code, an example of that kind of optimization, `# Optimization Type` and
`# Code Region` with the numbered lines; and besides what the hardware is, what is known of the parent, and what was done
before. `mtmc.agents.coders.editing.reply` reads the answer; the two forms of it that are asked for are in `FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mtmc.agents.coders.cuda_page import cuda_parts, in_cuda
from mtmc.agents.coders.editing.fences import fenced
from mtmc.agents.coders.editing.patches import DIVIDER, REPLACE, SEARCH
from mtmc.agents.coders.editing.refinement import refinement_text
from mtmc.agents.coders.editing.reply import without_reasoning
from mtmc.agents.coders.editing.task_text import task_text
from mtmc.agents.coders.editing.unusable import Unusable
from mtmc.agents.facts.memory import memory_text
from mtmc.agents.facts.text import action_text, version_text
from mtmc.chat import Message
from mtmc.freeform import is_freeform
from mtmc.outcome import Diagnosis
from mtmc.protocols import EditRequest, Step

QUOTED = 16_000
"""Characters of an unusable reply that are kept in the conversation."""

FORMATS = f"""\
Answer in one of two forms.

1. The whole new file in one code fence:

```python
import torch
import triton
import triton.language as tl


class ModelNew(torch.nn.Module):
    ...
```

2. Or only what changes, as one or more blocks:

{SEARCH}
lines copied from the file, enough of them to stand there only once
{DIVIDER}
the lines to stand there instead
{REPLACE}

Blocks are applied one after the other. Line numbers are no part of the file."""

_SYSTEM = """\
You write GPU kernels in Triton. You are given a version of a PyTorch module and one optimization to apply to it. You \
answer with a version that has this optimization and computes the same.

# Contract
- The file defines `ModelNew`, a torch.nn.Module with the same `__init__` as in the file you are given: the same arguments, \
and the same parameters made in the same order, so that equal seeds give equal weights.
- `forward` takes the same arguments and returns the same tensors: shapes, dtypes and values. It changes no input and keeps \
no result for a later call.
- The file needs only torch and triton (and Python's own math and typing). It reads no files, no environment, no network.
- It is right for any shape: sizes come from the tensors at run time, and loads and stores are masked at the edges.
- Precision is not lowered: results are compared with float64. Sums are kept in fp32. {products}
- The answer is complete. Nothing is left out, abbreviated, or left to be filled in.

# Answer
{formats}"""

_TF32 = 'Products of fp32 numbers need `tl.dot(..., input_precision="tf32x3")` or `"ieee"`: the default is TF32.'
_IEEE = 'Products of fp32 numbers need `tl.dot(..., input_precision="ieee")`.'


def edit_messages(
    request: EditRequest, examples: int = 1, steps: int = 4, language: str = "triton"
) -> tuple[Message, ...]:
    """The conversation that asks for an edit; for a repair where the request has a failed source, and for a refinement
    where it has a right one.

    examples: of the kind of optimization, 0 or 1. steps: of the parent's history, the last ones. language: that the kernels
    are to be written in, of `cuda_page.LANGUAGES`.

    Raises: ConfigError where the hardware is not in the table.
    """
    from mtmc.hardware import hardware

    products = _TF32 if hardware(request.hardware).target.startswith("sm_") else _IEEE
    parts = [
        f"# Task\n{task_text(request.task)}",
        _hardware(request.hardware),
        *_guide(request.action.kind, examples if request.failed_source is None and language == "triton" else 0),
        *(cuda_parts() if language == "cuda" else []),
        *_history(request.history, steps),
        *_memory(request),
        f"# Previous Code\n{_facts(request)}\n{fenced(request.source)}",
        _order(request),
    ]
    if request.failed_source is not None:
        parts.append(_failure(request.failed_source, request.feedback))
    elif request.right_source is not None and request.right_outcome is not None:
        parts.append(refinement_text(request, request.right_source, request.right_outcome))
    elif request.feedback is not None:
        parts.append(_diagnosis(request.feedback, ""))
    system = _SYSTEM.format(products=products, formats=FORMATS)
    system = in_cuda(system) if language == "cuda" else system
    return Message("system", system), Message("user", "\n\n".join(parts))


def feedback_messages(reply: str, problem: Unusable) -> tuple[Message, Message]:
    """What follows an unusable reply in the conversation: the reply, without reasoning and not too long, and the reason."""
    said = without_reasoning(reply)[0].strip() or "(no answer)"
    if len(said) > QUOTED:
        said = f"{said[: QUOTED // 2]}\n[...]\n{said[-QUOTED // 2 :]}"
    ask = f"This answer cannot be used ({problem.why}): {problem}.\n\n{FORMATS}"
    return Message("assistant", said), Message("user", ask)


def numbered(source: str, first: int, last: int) -> str:
    """Lines of a file with their numbers, 1-based and inclusive, cut to those that there are."""
    lines = source.split("\n")
    first, last = max(1, first), min(len(lines), last)
    width = len(str(last))
    return "\n".join(f"{number:>{width}} | {lines[number - 1]}" for number in range(first, last + 1))


def _order(request: EditRequest) -> str:
    """Optimization type, what it should change and may pay, and code region."""
    action, source = request.action, request.source
    params = "" if is_freeform(action) else ", ".join(f"{name} = {value}" for name, value in action.params)
    region = action.region
    return "\n".join(
        [
            f"# Optimization Type: {action.kind}",
            f"{action.sentence}{f' ({params})' if params else ''}",
            *(each for each in [action_text(request, action)] if each),
            "Apply this and nothing else.",
            "",
            f"# Code Region: {region}",
            fenced(numbered(source, region.first_line, region.last_line), ""),
        ]
    )


def _failure(failed_source: str, feedback: Diagnosis | None) -> str:
    """The attempt that failed, and why."""
    why = "It failed; nothing more is known." if feedback is None else _diagnosis(feedback, failed_source)
    ask = (
        "Fix the failed attempt so that it does what was asked for. SEARCH/REPLACE blocks apply to the failed attempt."
    )
    return f"# Failed Attempt\nThis was the answer:\n{fenced(failed_source)}\n\n{why}\n\n{ask}"


def _diagnosis(diagnosis: Diagnosis, source: str) -> str:
    lines = [f"# Diagnosis\nStage: {diagnosis.stage}\nKind: {diagnosis.kind}\nMessage: {diagnosis.message}"]
    text = source.split("\n")
    if diagnosis.line is not None and 1 <= diagnosis.line <= len(text):
        lines.append(f"Line {diagnosis.line}: {text[diagnosis.line - 1].strip()}")
    if diagnosis.excerpt:
        lines.append(fenced(diagnosis.excerpt, ""))
    return "\n".join(lines)


def _guide(kind: str, examples: int) -> list[str]:
    """The playbook's page of a kind and its example; nothing for a kind without a page."""
    from mtmc.agents.coders.playbook import kinds, page

    if kind not in kinds():
        return []
    found = page(kind)
    parts = [f"# About this optimization type\n{_demoted(found.text)}"]
    if examples and found.before and found.after:
        parts.append(f"# Example of {kind}: before\n{fenced(found.before)}")
        parts.append(f"# Example of {kind}: after\n{fenced(found.after)}")
    return parts


def _hardware(name: str) -> str:
    """The GPU's page of the playbook: its figures from the hardware table, and what it wants."""
    from mtmc.agents.coders.playbook import hardware_page

    return f"# Hardware\n{_demoted(hardware_page(name))}"


def _demoted(page: str) -> str:
    """A page's text with its headings a level lower."""
    return re.sub(r"^#", "##", page.strip(), flags=re.MULTILINE)


def _facts(request: EditRequest) -> str:
    """What is known of the parent: how fast it is beside the reference, and what limits it."""
    faster = request.history[-1].speedup if request.history else None
    head = [] if faster is None else [f"This version is {faster:.3g} times as fast as the reference."]
    return "\n".join([*head, version_text(request.outcome, request.hardware, request.task, request.run)])


def _history(history: Sequence[Step], steps: int) -> list[str]:
    """The last steps that led here, with the speedup over the reference that each gave."""
    shown = list(enumerate(history, 1))[-steps:] if steps else []
    if not shown:
        return []
    lines = [f"{number}. {step.action.sentence}: {_gave(step)}" for number, step in shown]
    return ["# What was done before\n" + "\n".join(lines)]


def _memory(request: EditRequest) -> list[str]:
    """What is known besides the ancestors; nothing for a repair, which is about one attempt."""
    told = "" if request.failed_source is not None else memory_text(request, request.action.kind)
    return [told] if told else []


def _gave(step: Step) -> str:
    return f"{step.speedup:.3g}x" if step.speedup is not None else step.outcome.status
