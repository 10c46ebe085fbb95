"""The coders `llm` and `auto`: which edits are whose, what is asked, what becomes of each reply, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mtmc.action import STOP, Action
from mtmc.agents.coders import CODERS, Rewriter
from mtmc.agents.coders.auto import AutoCoder
from mtmc.agents.coders.editing.reply import Unusable
from mtmc.agents.coders.model import ModelCoder
from mtmc.chat import ChatReply
from mtmc.errors import BudgetSpent, CoderError, ConfigError, ModelError
from mtmc.freeform import freeform_action
from mtmc.optimizations import site_actions
from mtmc.outcome import RESOURCE_ERROR, Cost, Diagnosis, Outcome
from mtmc.protocols import EditRequest, Observation
from mtmc.task import load_task, task_from_source
from tests.agents.versions import BLOCKS, CHILD, FENCED, PARENT, REFERENCE, FakeContext, edit_request, small_task

ONE = Cost(2.0, 0.5, 100, 10, 1)
WRONG = Diagnosis("check", "Mismatch", "3 of 9 elements differ", None)
UNEXPORTABLE = REFERENCE.replace("return torch.relu(x) * 2.0", "return torch.relu(x) * (2.0 if x.sum() > 0 else 3.0)")
BOTH = pytest.mark.parametrize("coder", [ModelCoder(), AutoCoder()])


def planned(context: FakeContext | None = None, action: Action | None = None) -> EditRequest:
    """A request on a root with a plan; without an action for the first that the rewriter has."""
    root = Rewriter().root(small_task())
    outcome = Outcome("ok", 0.5)
    seen = Observation(small_task(), root.source, root.plan, outcome, (), "H100")
    chosen = action or Rewriter().actions(seen, ())[0]
    return EditRequest(small_task(), root.source, root.plan, outcome, chosen, "H100", context=context)


@BOTH
@pytest.mark.parametrize("reply", [FENCED, BLOCKS])
def test_a_reply_becomes_the_child(coder: ModelCoder, reply: str) -> None:
    context = FakeContext([reply])
    edit = coder.edit(edit_request(context))
    assert (edit.source, edit.plan, edit.cost) == (CHILD, None, ONE)
    assert context.verdicts == [(0, "usable")]
    [asked] = context.asked
    assert (asked.purpose, asked.seed) == ("edit", 7)
    assert [message.role for message in asked.messages] == ["system", "user"]


def test_what_cannot_be_used_is_asked_for_once_more_in_the_same_conversation() -> None:
    context = FakeContext(["I would fuse them.", FENCED])
    edit = ModelCoder().edit(edit_request(context))
    assert edit.source == CHILD and edit.cost == ONE + ONE
    first, second = (asked.messages for asked in context.asked)
    assert second[: len(first)] == first
    assert [message.role for message in second] == ["system", "user", "assistant", "user"]
    assert second[2].content == "I would fuse them." and "no code" in second[3].content
    assert context.verdicts == [(0, "unusable: no code"), (1, "usable"), (0, "repaired")]


def test_after_the_last_retry_the_edit_has_failed() -> None:
    context = FakeContext(["", f"```python\n{PARENT}```", "unasked"])
    with pytest.raises(Unusable, match="in 2 replies") as raised:
        ModelCoder(retries=1).edit(edit_request(context))
    assert isinstance(raised.value, CoderError) and raised.value.why == "unchanged"
    assert context.verdicts == [(0, "unusable: empty"), (1, "unusable: unchanged")]


@pytest.mark.parametrize("retries", [0, 3])
def test_retries_are_counted(retries: int) -> None:
    context = FakeContext(["?"] * 9)
    with pytest.raises(CoderError):
        ModelCoder(retries=retries).edit(edit_request(context))
    assert len(context.asked) == retries + 1
    assert (
        len({asked.messages for asked in context.asked}) == retries + 1
    )  # or the record would give the old reply again


def test_a_reply_that_was_cut_is_no_child() -> None:
    context = FakeContext([ChatReply(CHILD, truncated=True), FENCED])
    assert ModelCoder().edit(edit_request(context)).source == CHILD
    assert context.verdicts[0] == (0, "unusable: truncated")


@BOTH
@pytest.mark.parametrize("error", [BudgetSpent("spent"), CoderError("no reply"), ModelError("set model.name")])
def test_what_the_model_cannot_do_goes_on_as_it_is(coder: ModelCoder, error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        coder.edit(edit_request(FakeContext([error])))
    assert raised.value is error


@BOTH
def test_without_a_model_the_hint_is_told(coder: ModelCoder) -> None:
    with pytest.raises(ConfigError, match=r"set model\.name"):
        coder.edit(edit_request())


@BOTH
def test_a_repair_shows_the_failure_and_builds_on_the_failed_file(coder: ModelCoder) -> None:
    failed = CHILD.replace("* 2.0", "* 3.0")
    block = "<<<<<<< SEARCH\n{0}, mask=index < size)\n=======\n{1}, mask=index < size)\n>>>>>>> REPLACE"
    line = "    tl.store(out_ptr + index, tl.maximum(x, 0.0) * "
    context = FakeContext([block.format(f"{line}3.0", f"{line}2.0")])
    edit = coder.edit(edit_request(context, feedback=WRONG, failed_source=failed))
    assert edit.source == CHILD
    assert context.asked[0].purpose == "repair" and "3 of 9 elements differ" in context.asked[0].messages[1].content


@BOTH
@pytest.mark.parametrize("given_back", [PARENT, CHILD])
def test_a_repair_that_gives_back_what_was_there_is_none(coder: ModelCoder, given_back: str) -> None:
    context = FakeContext([f"```python\n{given_back}```"] * 2)
    with pytest.raises(Unusable) as raised:
        coder.edit(edit_request(context, feedback=WRONG, failed_source=CHILD))
    assert raised.value.why == "unchanged"


@BOTH
def test_a_repair_without_a_diagnosis_is_for_the_model(coder: ModelCoder) -> None:
    context = FakeContext([FENCED])
    request = replace(planned(context), failed_source=CHILD.replace("1024", "512"))
    assert coder.edit(request).source == CHILD


@BOTH
def test_a_rule_repairs_before_the_model_is_asked(coder: ModelCoder) -> None:
    failed = CHILD.replace("tl.arange(0, BLOCK)", "tl.arange(0, 1000)")
    line = next(number for number, text in enumerate(failed.splitlines(), 1) if "arange" in text)
    feedback = Diagnosis("build", "ValueError", "arange's range must be a power of 2", line)
    edit = coder.edit(edit_request(None, feedback=feedback, failed_source=failed))
    assert "tl.arange(0, 1024)" in edit.source and edit.plan is None and edit.cost == Cost()


def test_settings_reach_the_prompt() -> None:
    context = FakeContext([FENCED, FENCED])
    ModelCoder().edit(edit_request(context))
    ModelCoder(examples=0).edit(edit_request(context))
    with_one, without = (asked.messages[1].content for asked in context.asked)
    assert "# Example of fuse" in with_one and "# Example of" not in without


@pytest.mark.parametrize("coder", [ModelCoder, AutoCoder])
@pytest.mark.parametrize("settings", [{"examples": 2}, {"examples": -1}, {"retries": -1}, {"steps": -1}])
def test_settings_that_cannot_be_are_refused(coder: type[ModelCoder], settings: dict[str, int]) -> None:
    [name] = settings
    with pytest.raises(ConfigError, match=f"{name} cannot be {settings[name]}"):
        coder(**settings)


@BOTH
def test_the_root_has_a_plan_where_the_rewriter_can_make_one(coder: ModelCoder) -> None:
    assert coder.root(small_task()) == Rewriter().root(small_task())


@BOTH
def test_a_task_that_does_not_export_has_a_root_and_actions(coder: ModelCoder) -> None:
    task = task_from_source(UNEXPORTABLE, "branching")
    root = coder.root(task)
    assert root.plan is None and "class ModelNew" in root.source and "get_inputs" not in root.source
    actions = coder.actions(Observation(task, root.source, root.plan, Outcome("ok", 1.0), (), "H100"), ())
    assert {"fuse", "lower"} <= {action.kind for action in actions} and actions[-1] is STOP


@BOTH
def test_actions_are_the_rewriters_where_there_is_a_plan(coder: ModelCoder) -> None:
    root = Rewriter().root(small_task())
    seen = Observation(small_task(), root.source, root.plan, Outcome("ok", 1.0), (), "H100")
    planned, found = Rewriter().actions(seen, ()), coder.actions(seen, ())
    assert [action for action in found if action in planned] == planned and found[-1] is STOP
    wider = [action for action in found if action not in planned]
    assert all(action.kind == "fuse" for action in wider)
    if isinstance(coder, AutoCoder):
        assert wider == []  # what it lists with a plan, the rewriter can do
    assert coder.actions(replace(seen, plan=None), ()) == site_actions(root.source)


def test_a_model_may_fuse_more_than_the_rewriter_takes_at_once() -> None:
    task = load_task(Path(__file__).parent / "attention" / "task.py")
    root = Rewriter().root(task)
    seen = Observation(task, root.source, root.plan, Outcome("ok", 1.0), (), "H100")
    planned = Rewriter().actions(seen, ())
    found = ModelCoder().actions(seen, ())
    assert len({action.sentence for action in found}) == len({action.key for action in found}) == len(found)
    wider = [action for action in found if action not in planned]
    assert any("matmul, mul, softmax and matmul" in action.sentence for action in wider), wider


def test_three_tf32_products_are_offered_where_there_are_any() -> None:
    dot = CHILD.replace("tl.maximum(x, 0.0) * 2.0", 'tl.dot(x, x, input_precision="ieee")')
    seen = Observation(small_task(), dot, None, Outcome("ok", 1.0), (), "H100")
    on = {name: ModelCoder().actions(replace(seen, hardware=name), ()) for name in ("H100", "MI300X")}
    assert [each for each in on["H100"] if each.kind != "precision"] == on["MI300X"] != on["H100"]


def test_auto_leaves_to_the_rewriter_what_it_can_do() -> None:
    context = FakeContext([])
    edit = AutoCoder().edit(planned(context))
    assert edit == Rewriter().edit(planned()) and edit.plan is not None
    assert AutoCoder().edit(planned(None)) == edit
    assert context.asked == []


def test_llm_asks_the_model_for_what_the_rewriter_could_do() -> None:
    context = FakeContext([FENCED])
    assert ModelCoder().edit(planned(context)).source == CHILD


@BOTH
def test_an_idea_in_words_is_for_the_model(coder: ModelCoder) -> None:
    assert coder.freeform
    context = FakeContext([FENCED])
    idea = freeform_action(PARENT, "keep y in registers", 8, 9)
    assert coder.edit(planned(context, idea)).source == CHILD
    assert "keep y in registers" in context.asked[0].messages[1].content


def test_auto_says_why_it_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="no plan") as raised:
        AutoCoder().edit(edit_request())
    assert "model.name" in str(raised.value)
    with pytest.raises(ConfigError, match="no rule for the kind 'freeform'"):
        AutoCoder().edit(planned(None, freeform_action(PARENT, "keep y in registers", 8, 9)))
    with pytest.raises(ConfigError, match="a repair that no rule can do"):
        AutoCoder().edit(replace(planned(None), feedback=WRONG, failed_source=CHILD))


def test_auto_repairs_what_the_rewriter_wrote_with_the_model() -> None:
    context = FakeContext([FENCED])
    failed = Rewriter().edit(planned()).source
    too_large = Diagnosis("build", RESOURCE_ERROR, "nobody knows what", None)
    assert AutoCoder().edit(replace(planned(context), feedback=too_large, failed_source=failed)).source == CHILD


@BOTH
def test_a_model_may_answer_in_another_way_the_next_time(coder: ModelCoder) -> None:
    assert not coder.deterministic


def test_both_are_registered_and_load_nothing_heavy() -> None:
    assert CODERS["llm"] is ModelCoder and CODERS["auto"] is AutoCoder
    heavy = ("torch", "triton", "litellm", "langgraph", "libcst", "httpx", "mtmc.agents.coders.editing")
    code = f"import sys, mtmc.agents.coders; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
