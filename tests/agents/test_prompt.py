"""What a model is told, and that a reply in each of the forms it is asked for is read as exactly that file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtmc.action import Action, Region
from mtmc.agents.coders.agent.prompt import first_messages
from mtmc.agents.coders.agent.session import opened, version
from mtmc.agents.coders.editing.patches import DIVIDER, REPLACE, SEARCH
from mtmc.agents.coders.editing.prompt import (
    FORMATS,
    QUOTED,
    edit_messages,
    feedback_messages,
    numbered,
)
from mtmc.agents.coders.editing.reply import Unusable, parse_reply
from mtmc.agents.coders.editing.task_text import reference_text, task_text
from mtmc.agents.coders.playbook import page
from mtmc.agents.policies.ranking import ranking_messages
from mtmc.errors import ConfigError
from mtmc.freeform import freeform_action
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import Observation, Step
from mtmc.task import Variant
from tests.agents.versions import CHILD, FUSE, PARENT, edit_request, small_task

DIAGNOSIS = Diagnosis("build", "CompilationError", "undefined name", 5, "> 5 | import triton")


def user(**changes: object) -> str:
    system, message = edit_messages(edit_request(**changes))  # type: ignore[arg-type]
    assert (system.role, message.role) == ("system", "user")
    return message.content


def form(number: int) -> str:
    """The sample of one of the two forms, as FORMATS shows it."""
    return FORMATS.split(f"\n{number}. ")[1].split(":\n\n", 1)[1].split("\n\n2. ")[0].split("\n\nBlocks are")[0]


def test_the_form_of_a_whole_file_is_read_as_that_file() -> None:
    sample = form(1)
    body = sample.split("\n", 1)[1].rsplit("\n", 1)[0]
    assert parse_reply(sample.replace(body, CHILD.rstrip("\n")), PARENT).source == CHILD


def test_the_form_of_blocks_is_read_as_the_file_they_make() -> None:
    sample = form(2)
    search, replacement = sample.split("\n")[1], sample.split("\n")[3]
    assert sample == "\n".join([SEARCH, search, DIVIDER, replacement, REPLACE])
    changes = [
        ("        y = torch.relu(x)", "        y = x.relu()"),
        ("        return y * 2.0", "        return y + y"),
    ]
    reply = "\n".join(sample.replace(search, old).replace(replacement, new) for old, new in changes)
    assert parse_reply(reply, PARENT).source == PARENT.replace(*changes[0]).replace(*changes[1])


@pytest.mark.parametrize(("number", "why"), [(1, "abbreviated"), (2, "no match")])
def test_a_form_sent_back_as_it_stands_is_no_edit(number: int, why: str) -> None:
    with pytest.raises(Unusable) as raised:
        parse_reply(form(number), PARENT)
    assert raised.value.why == why


def test_an_edit_is_asked_for_as_the_paper_does() -> None:
    text = user()
    previous, order = text.split("# Previous Code\n")[1].split("# Optimization Type: fuse\n")
    assert f"```python\n{PARENT}```" in previous
    assert "0.5 ms a call, measured (H100)" in previous and "the task's inputs, outputs and products alone" in previous
    assert "bytes_moved 1e+06" not in previous
    assert order.startswith(
        "fuse relu and mul, lines 8-9\nIt should change kernels and bytes_moved. At best a call then "
    )
    assert (
        "# Code Region: relu and mul, lines 8-9\n```\n8 |         y = torch.relu(x)\n9 |         return y * 2.0\n```"
        in order
    )
    assert (
        text.index("# Example of fuse: before") < text.index("# Example of fuse: after") < text.index("# Previous Code")
    )
    assert page("fuse").before.rstrip() in text and page("fuse").after.rstrip() in text
    assert "# Failed Attempt" not in text and "# Diagnosis" not in text


def test_the_contract_is_told() -> None:
    system = edit_messages(edit_request())[0].content
    for word in ("ModelNew", "`__init__`", "torch and triton", "any shape", "Precision is not lowered", "tf32x3"):
        assert word in system
    assert system.endswith(FORMATS)
    assert "tf32x3" not in edit_messages(edit_request(hardware="MI300X"))[0].content


def test_the_hardware_is_told() -> None:
    assert "132 multiprocessors" in user() and "304 multiprocessors" in user(hardware="MI300X")
    with pytest.raises(ConfigError, match="H1000"):
        edit_messages(edit_request(hardware="H1000"))


def test_the_other_shapes_of_the_reference_are_not_told() -> None:
    assert "VARIANTS" in small_task().source
    shown = reference_text(small_task())
    assert "VARIANTS" not in shown and "rows = 64" in shown and "def get_inputs" in shown and shown in user()
    smaller = replace(small_task(), full=Variant("full", (("rows", 32),)))
    assert "rows = 32" in reference_text(smaller)
    small = replace(small_task(), source=small_task().source + "\n\ndef get_small_inputs():\n    return [1]\n")
    assert reference_text(small) == shown
    annotated = replace(small_task(), source=small_task().source.replace("VARIANTS =", "VARIANTS: dict ="))
    assert reference_text(annotated) == shown
    own = replace(small_task(), held_out=(Variant("odd1", inputs="get_odd"),))
    assert reference_text(replace(own, source=own.source + "\n\ndef get_odd():\n    return [3]\n")) == shown


HELD_OUT = ("VARIANTS", "odd1", "rows = 3", "(3, 5)", "3 x 5", "4 x 8")


def told_by_each(history: tuple[Step, ...]) -> dict[str, str]:
    """What each agent is told of a version at the root, or below it."""
    request = edit_request(history=history)
    observation = Observation(request.task, request.source, None, request.outcome, history, request.hardware)
    asked = {
        "llm": edit_messages(request),
        "agent": first_messages(request, 16, 60_000),
        "policy": ranking_messages(observation, [request.action], 2, 4),
    }
    return {name: "\n".join(message.content for message in messages) for name, messages in asked.items()}


@pytest.mark.parametrize("steps", [0, 2])
def test_every_agent_is_told_the_same_of_the_task_at_the_root_and_below_it_and_nothing_that_is_held_out(
    steps: int,
) -> None:
    text = task_text(small_task())
    for part in ("def get_inputs", "x: float32 of 64 x 48", "Results:\n- float32 of 64 x 48", "tolerance: default"):
        assert part in text
    for agent, told in told_by_each((Step(FUSE, PARENT, Outcome("ok", 1.0), 2.0),) * steps).items():
        assert text in told, agent
        assert not [each for each in HELD_OUT if each in told], agent


def test_an_agent_that_asks_for_the_reference_is_not_shown_what_is_held_out() -> None:
    label, source = version(opened(edit_request(history=(Step(FUSE, PARENT, Outcome("ok"), 2.0),))), 0)
    assert label == "version 0" and source == reference_text(small_task())


def test_a_task_that_does_not_export_is_told_without_shapes() -> None:
    branching = replace(small_task(), source=small_task().source.replace("torch.relu(x)", "(x if x.sum() > 0 else -x)"))
    assert "Arguments of forward" not in task_text(branching) and "def get_inputs" in task_text(branching)


def test_a_tolerance_of_its_own_is_told() -> None:
    loose = replace(small_task(), source='TOLERANCE = {"atol": 0.5}\n' + small_task().source)
    assert "the task's own: 0.5 + KernelBench's |reference|" in task_text(loose)


def test_the_last_steps_are_told_with_what_they_gave() -> None:
    steps = tuple(
        Step(replace(FUSE, sentence=f"step {number}"), "", Outcome("ok" if number else "crash"), number or None)
        for number in (1, 2, 3, 4.25, 0)
    )
    text = user(history=steps)
    assert "2. step 2: 2x\n3. step 3: 3x\n4. step 4.25: 4.25x\n5. step 0: crash\n" in text
    assert "step 1:" not in text
    assert "times as fast as the reference" not in text
    assert "4.25 times as fast as the reference" in user(history=steps[:4])
    assert "# What was done before" not in edit_messages(edit_request(history=steps), steps=0)[1].content


def test_parameters_of_an_action_are_told() -> None:
    tile = Action("tile", Region("mm", 8, 9), (("block_m", 128), ("num_warps", 4)), "retile the mm kernel, lines 8-9")
    assert "retile the mm kernel, lines 8-9 (block_m = 128, num_warps = 4)\n" in user(action=tile)


def test_an_idea_in_words_is_asked_for_as_it_stands() -> None:
    text = user(action=freeform_action(PARENT, "keep y in registers", 8, 9))
    order = text.split("# Optimization Type: freeform\n")[1]
    bound = "At best a call then takes 0.125 ms instead of 0.5 ms, 4x by the roofs."
    assert order.startswith(f"keep y in registers, lines 8-9\n{bound}\nApply")
    assert "# About this optimization type" not in text and "# Example of" not in text


def test_without_examples_the_page_alone_is_told() -> None:
    text = edit_messages(edit_request(), examples=0)[1].content
    assert "# About this optimization type" in text and "# Example of" not in text


def test_a_repair_is_told_what_failed_and_why() -> None:
    text = user(failed_source=CHILD, feedback=DIAGNOSIS)
    attempt, why = text.split("# Failed Attempt\n")[1].split("# Diagnosis\n")
    assert CHILD in attempt
    assert why.startswith("Stage: build\nKind: CompilationError\nMessage: undefined name\n")
    assert f"Line 5: {CHILD.splitlines()[4]}\n" in why and DIAGNOSIS.excerpt in why
    assert "apply to the failed attempt" in why
    assert PARENT in text and "# Optimization Type: fuse" in text and "# Example of" not in text


def test_a_repair_without_a_diagnosis_says_so() -> None:
    text = user(failed_source=CHILD)
    assert "nothing more is known" in text and "# Diagnosis" not in text


def test_a_line_that_the_file_does_not_have_is_left_out() -> None:
    text = user(failed_source=CHILD, feedback=replace(DIAGNOSIS, line=999, excerpt=""))
    assert "Line 999" not in text and "Message: undefined name" in text


def test_a_file_with_fences_in_it_is_fenced_with_more() -> None:
    source = PARENT.replace("doubled.", "doubled. ```y```")
    assert f"````python\n{source}````" in user(source=source)


def test_numbered_lines_are_those_of_the_file() -> None:
    assert numbered("a\nb\nc\n", 2, 3) == "2 | b\n3 | c"
    assert numbered("\n".join("abcdefghijk"), 9, 99) == " 9 | i\n10 | j\n11 | k"
    assert numbered("a\n\x0cb\nc", 2, 2) == "2 | \x0cb"


def test_what_cannot_be_used_goes_back_with_the_reason() -> None:
    said, asked = feedback_messages("<think>hm</think>Use fewer kernels.", Unusable("no code", "the reply has no code"))
    assert (said.role, said.content, asked.role) == ("assistant", "Use fewer kernels.", "user")
    assert "no code" in asked.content and "the reply has no code" in asked.content and FORMATS in asked.content


def test_an_empty_or_huge_reply_goes_back_as_a_message_that_can_be_sent() -> None:
    empty, _ = feedback_messages(" \n", Unusable("empty", "the reply is empty"))
    assert empty.content.strip()
    huge, _ = feedback_messages("a" * 10**6 + "z", Unusable("too long", "it is too long"))
    assert len(huge.content) < QUOTED + 100 and huge.content.endswith("z")
