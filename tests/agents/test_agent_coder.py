from __future__ import annotations

import html.parser
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtmc.action import Action, Region
from mtmc.agents.coders import CODERS
from mtmc.agents.coders.agent import loop
from mtmc.agents.coders.agent.calls import ToolCall, parse_call, render_call
from mtmc.agents.coders.agent.coder import AgentCoder
from mtmc.agents.coders.agent.loop import Limits
from mtmc.agents.coders.agent.prompt import first_messages, system_text
from mtmc.agents.coders.agent.session import opened
from mtmc.agents.coders.agent.tools import TOOLS, perform
from mtmc.agents.coders.agent.transcript import Turn, to_html, to_text, turns_of
from mtmc.agents.coders.editing.unusable import Unusable
from mtmc.agents.coders.model import ModelCoder
from mtmc.chat import ChatReply, ChatRequest, ModelCall
from mtmc.errors import BudgetSpent, CoderError, ConfigError, ModelError
from mtmc.outcome import Cost, Diagnosis, Outcome
from mtmc.protocols import EditRequest, Observation, Step
from mtmc.task import Task, Variant, task_from_source

REFERENCE = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
ROOT = REFERENCE.replace("class Model", "class ModelNew")
PARENT = ROOT.replace("x + 1", "torch.add(x, 1)")
BAD = PARENT.replace("torch.add(x, 1)", "torch.add(x, 2)")
GOOD = PARENT.replace("torch.add(x, 1)", "x.add(1)")
BETTER = PARENT.replace("torch.add(x, 1)", "1 + x")
WRONG = Diagnosis("check", "Mismatch", "off by 1 at [0]", 6, ">   6  return torch.add(x, 2)")
FUSE = Action("fuse", Region("add", 5, 6), (), "fuse the addition, lines 5-6")
PARENT_OUTCOME = Outcome("ok", 2.0, runtime_kind="estimated", metrics={"bytes_moved": 4096.0, "kernels": 2.0})
SWAP = "<<<<<<< SEARCH\n        return torch.add(x, 1)\n=======\n        return {}\n>>>>>>> REPLACE"


def outcome_of(source: str) -> Outcome:
    if source.strip() == BAD.strip():
        return Outcome("wrong_result", diagnosis=WRONG)
    ms = 1.0 if source.strip() == GOOD.strip() else 0.5
    metrics = {"bytes_moved": 2048.0, "registers": 32.0, "occupancy": 0.5, "kernels": 1.0}
    return Outcome("ok", ms, runtime_kind="estimated", metrics=metrics)


@dataclass
class FakeContext:
    """A scripted model, and an evaluator with `allowance` evaluations. Keeps what a run would record."""

    script: list[str | ChatReply | Exception]
    allowance: int = 9
    find: Callable[[str], Outcome] = outcome_of
    calls: list[ModelCall] = field(default_factory=list)
    evaluated: list[str] = field(default_factory=list)

    def complete(self, request: ChatRequest) -> ChatReply:
        said = self.script[len(self.calls)]
        if isinstance(said, Exception):
            raise said
        reply = ChatReply(said, tokens_in=100, tokens_out=10, usd=0.5) if isinstance(said, str) else said
        reply = replace(reply, id=len(self.calls))
        self.calls.append(ModelCall(reply.id, 0, 0, f"key{reply.id}", "fake", request, reply))
        return reply

    def judge(self, reply: ChatReply, verdict: str) -> None:
        assert self.calls[reply.id].verdict == "", "judged twice"
        self.calls[reply.id] = replace(self.calls[reply.id], verdict=verdict)

    def profile(self, source: str, outcome: Outcome) -> Outcome | None:
        return None

    def evaluate(self, source: str) -> Outcome | None:
        if source not in self.evaluated:
            if len(self.evaluated) >= self.allowance:
                return None
            self.evaluated.append(source)
        return self.find(source)

    @property
    def answers(self) -> list[str]:
        """What the model was told after each turn but the last."""
        return [call.request.messages[-1].content for call in self.calls[1:]]

    @property
    def verdicts(self) -> list[str]:
        return [call.verdict for call in self.calls]


def asked(context: FakeContext | None, **changes: object) -> EditRequest:
    task = Task("plus", REFERENCE, Variant("full"), Variant("small"))
    step = Step(Action("lower", Region("plus", 5, 6), (), "lower plus"), PARENT, PARENT_OUTCOME, 1.5)
    request = EditRequest(task, PARENT, None, PARENT_OUTCOME, FUSE, "H100", (step,), seed=7, context=context)
    return replace(request, **changes)  # type: ignore[arg-type]


def says(name: str, body: str = "", prose: str = "Now this.") -> str:
    return f"{prose}\n\n{render_call(ToolCall(name, body))}\n"


COMMIT = [says("critique", "The mask may be wrong."), says("commit")]


# ---- the form of a call ----

BODIES = st.text(st.sampled_from("`~ab{}\"\n \t<>=#\\'é"), max_size=60).map(lambda text: text.strip("\n"))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(TOOLS)), BODIES, st.sampled_from(["", "I think.", "First:\n\n- a `b`\n- c"]))
def test_a_call_comes_back_as_it_was_written(name: str, body: str, prose: str) -> None:
    body = body if body.strip() else ""
    parsed = parse_call(f"{prose}\n{render_call(ToolCall(name, body))}\nThat is all.", tuple(TOOLS))
    assert parsed.call == ToolCall(name, body)
    assert parsed.prose == f"{prose}\nThat is all.".strip()
    assert parsed.ignored == 0


def test_every_example_of_the_prompt_is_read_as_it_is_meant() -> None:
    for name, tool in TOOLS.items():
        call = ToolCall(name, tool.example)
        assert render_call(call) in system_text()
        assert parse_call(render_call(call), tuple(TOOLS)).call == call


FILE = 'def f():\n    """\n    ```\n    doc\n    ```\n    """'


@pytest.mark.parametrize(
    ("reply", "name", "body"),
    [
        ("```tool\ncheck\n```", "check", ""),
        ("```tool check\n```", "check", ""),
        ("```tool\ncheck()\n```", "check", ""),
        ("```Tool\nCheck:\n```", "check", ""),
        ("```check\n```", "check", ""),
        ("```\ncommit\n```", "commit", ""),
        ('```tool\nlineage {"version": 1}\n```', "lineage", '{"version": 1}'),
        ('~~~tool\nlineage\n{"version": 1}\n~~~', "lineage", '{"version": 1}'),
        ("1. I draft:\n   ```tool\n   draft\n   a = 1\n     b = 2\n   ```", "draft", "a = 1\n  b = 2"),
        ("```tool\ndraft\n```python\na = 1\n```\n```\nDone.", "draft", "```python\na = 1\n```"),
        (f"```tool\ndraft\n{FILE}\n```", "draft", FILE),
        ("```tool\r\ndraft\r\na = 1\r\n```", "draft", "a = 1"),
        ("```tool\ngive_up\nno way", "give_up", "no way"),
        ("<think>\n```tool\ngive_up\nno\n```\n</think>\n```tool\ncheck\n```", "check", ""),
        ("```python\na = 1\n```\nSo:\n```tool\ncheck\n```", "check", ""),
    ],
)
def test_what_models_write_instead_is_read_too(reply: str, name: str, body: str) -> None:
    assert parse_call(reply, tuple(TOOLS)).call == ToolCall(name, body)


@pytest.mark.parametrize(
    ("reply", "truncated", "why"),
    [
        ("", False, "empty"),
        ("I would use larger tiles.", False, "calls no tool"),
        ("```python\na = 1\n```", False, "code block alone"),
        ("```tool\n\n```", False, "names no tool"),
        ("```tool\nrun_shell\nls\n```", False, "no tool 'run_shell'"),
        ("I would use lar", True, "cut off"),
        ("```tool\ncritique\nit may", True, "cut off in the middle of the call of critique"),
        ("<think>so I", False, "cut off"),
    ],
)
def test_what_is_no_call_is_said_to_be_none(reply: str, truncated: bool, why: str) -> None:
    with pytest.raises(Unusable, match=why):
        parse_call(reply, tuple(TOOLS), truncated)


def test_a_draft_that_was_cut_off_is_known_as_such() -> None:
    assert not parse_call("```tool\ndraft\nimport torch", tuple(TOOLS), truncated=True).call.whole
    assert parse_call("```tool\ndraft\nimport torch", tuple(TOOLS)).call.whole


def test_only_the_first_of_two_calls_counts() -> None:
    parsed = parse_call(says("check") + says("commit"), tuple(TOOLS))
    assert (parsed.call.name, parsed.ignored) == ("check", 1)
    unclosed = parse_call("```tool\ncritique\nIt may be slow.\n```tool\ncommit\n```", tuple(TOOLS))
    assert (unclosed.call, unclosed.ignored) == (ToolCall("critique", "It may be slow."), 1)


# ---- whole edits ----


def test_an_edit_uses_every_tool_recovers_and_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Fixed:
        source: str
        what: str

    def fix(source: str, diagnosis: Diagnosis, hardware: str) -> Fixed:
        assert (source.strip(), diagnosis, hardware) == (BAD.strip(), WRONG, "H100")
        return Fixed(GOOD, "2 is 1")

    monkeypatch.setattr("mtmc.agents.coders.repair.fix", fix)
    script = [
        says("lineage"),
        says("lineage", '{"version": 0}'),
        says("playbook"),
        says("playbook", '{"kind": "fuse"}'),
        says("playbook", '{"kind": "hardware"}'),
        says("draft", SWAP.format("torch.add(x, 2)")),
        says("check"),
        says("fix"),
        says("check"),
        says("profile"),
        says("draft", BETTER),
        says("diff"),
        says("check"),
        says("back", '{"to": "d2"}'),
        *COMMIT,
    ]
    assert {parse_call(str(each), tuple(TOOLS)).call.name for each in script} == set(TOOLS) - {"give_up"}
    context = FakeContext(list(script))
    edit = AgentCoder().edit(asked(context))
    assert edit.source.strip() == GOOD.strip() and edit.plan is None
    assert edit.cost == Cost(0.0, 0.5 * len(script), 100 * len(script), 10 * len(script), len(script))
    assert context.verdicts == ["usable"] * len(script)
    assert [source.strip() for source in context.evaluated] == [each.strip() for each in (BAD, GOOD, BETTER)]
    told = context.answers
    assert "lower plus" in told[0] and "1.50x the root's speed (the parent)" in told[0]
    assert REFERENCE in told[1]
    assert "fuse" in told[2] and "hardware" in told[2]
    assert "off by 1 at [0]" in told[6] and "line 6" in told[6]
    assert "2 is 1" in told[7]
    assert "ok, 1 ms estimated, 2.00x the parent's speed" in told[8]
    assert [line.split()[:1] for line in told[9].split("\n")[:3]] == [["metric"], ["runtime"], ["kernels"]]
    assert "-        return torch.add(x, 1)\n+        return 1 + x" in told[11]
    assert "[14 turns" not in told[0] and "[15 turns and 59,890 tokens are left.]" in told[0]


def test_a_conversation_only_grows_and_repeats_itself() -> None:
    script = [says("draft", GOOD), says("check"), *COMMIT]
    first, second = FakeContext(list(script)), FakeContext(list(script))
    assert AgentCoder().edit(asked(first)) == AgentCoder().edit(asked(second))
    assert [call.request for call in first.calls] == [call.request for call in second.calls]
    for before, after in zip(first.calls, first.calls[1:], strict=False):
        assert after.request.messages[: len(before.request.messages)] == before.request.messages
        assert [each.role for each in after.request.messages[-2:]] == ["assistant", "user"]
    assert {(call.request.purpose, call.request.seed) for call in first.calls} == {("agent", 7)}


def test_the_first_messages_say_what_is_to_be_done() -> None:
    system, user = first_messages(asked(None), 16, 60_000)
    assert (system.role, user.role) == ("system", "user")
    for text in ("# Optimization Type: fuse", "# Code Region: add, lines 5-6", PARENT, REFERENCE, "H100", "16 turns"):
        assert text in user.content
    assert "   6          return torch.add(x, 1)" in user.content
    assert "has been made already" not in user.content


def test_a_repair_begins_with_the_failed_source() -> None:
    context = FakeContext([says("lineage"), says("draft", GOOD), says("check"), *COMMIT])
    edit = AgentCoder().edit(asked(context, feedback=WRONG, failed_source=BAD))
    assert edit.source.strip() == GOOD.strip()
    begun = context.calls[0].request.messages[1].content
    assert BAD.strip() in begun and "off by 1 at [0]" in begun
    assert "d1: failed in check, line 6: Mismatch: off by 1 at [0] (the present draft)" in context.answers[0]


def test_blocks_change_the_failed_draft_and_not_the_parent() -> None:
    swap = "<<<<<<< SEARCH\n        return torch.add(x, 2)\n=======\n        return x.add(1)\n>>>>>>> REPLACE"
    context = FakeContext([says("draft", swap), says("check"), *COMMIT])
    assert AgentCoder().edit(asked(context, feedback=WRONG, failed_source=BAD)).source.strip() == GOOD.strip()


# ---- what is refused ----


@pytest.mark.parametrize(
    ("before", "call", "why"),
    [
        ([], ("commit", ""), "no draft yet"),
        ([], ("check", ""), "no draft yet"),
        ([("draft", GOOD)], ("commit", ""), "has not been checked"),
        ([("draft", GOOD), ("check", "")], ("commit", ""), "has no critique"),
        ([("draft", GOOD), ("critique", "hm.")], ("commit", ""), "has not been checked"),
        ([("draft", BAD), ("check", ""), ("critique", "hm.")], ("commit", ""), "off by 1 at"),
        ([("draft", GOOD), ("check", ""), ("critique", "hm."), ("draft", BETTER)], ("commit", ""), "not been checked"),
        (
            [("draft", GOOD), ("check", ""), ("critique", "hm."), ("draft", BETTER), ("check", "")],
            ("commit", ""),
            "d2 has",
        ),
        ([("draft", GOOD)], ("profile", ""), "not checked yet"),
        ([("draft", GOOD), ("check", "")], ("fix", ""), "nothing is known to be wrong"),
        ([("draft", GOOD)], ("critique", " .\n"), "critique is empty"),
        ([], ("critique", "hm."), "no draft yet"),
        ([], ("give_up", ""), "say why"),
        ([], ("draft", ""), "no code"),
        ([], ("draft", PARENT), "the one that was to be changed"),
        ([("draft", GOOD)], ("draft", PARENT + "# faster\n"), "parent, unchanged"),
        ([("draft", GOOD)], ("draft", GOOD), "the one that was to be changed"),
        ([], ("lineage", '{"version": 4}'), "no version '4': there are 0 to 1, no draft yet"),
        ([("draft", GOOD)], ("lineage", '{"version": "d2"}'), "0 to 1, drafts d1 to d1"),
        ([], ("lineage", "version 1"), "JSON object with version"),
        ([], ("lineage", "[1]"), "not list"),
        ([], ("lineage", '{"node": 1}'), "not 'node'"),
        ([], ("lineage", '{"version": true}'), "cannot be True"),
        ([], ("playbook", '{"kind": "alchemy"}'), "no page 'alchemy'"),
        ([], ("diff", '{"to": "draft"}'), "no version 'draft'"),
        ([], ("back", ""), "say which version"),
        ([], ("back", '{"to": 0}'), "defines no ModelNew"),
    ],
)
def test_a_tool_says_why_it_does_nothing(before: Sequence[tuple[str, str]], call: tuple[str, str], why: str) -> None:
    context = FakeContext([])
    session = opened(asked(context))
    for name, body in before:
        done = perform(session, ToolCall(name, body), context)
        assert not done.refused
        session = done.session
    done = perform(session, ToolCall(*call), context)
    assert done.refused and done.text.startswith(f"{call[0]} refused: ") and why in done.text
    assert done.session == session


def test_where_no_rule_fixes_a_draft_it_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtmc.agents.coders.repair.fix", lambda source, diagnosis, hardware: None)
    session = opened(asked(None, feedback=WRONG, failed_source=BAD))
    done = perform(session, ToolCall("fix"), FakeContext([]))
    assert "No rule fixes this (Mismatch in check)" in done.text
    assert (done.session, done.refused) == (session, "")


def test_an_ancestor_is_no_new_version() -> None:
    context = FakeContext([])
    older = Step(FUSE, GOOD, outcome_of(GOOD), 2.0)
    request = asked(context, history=(older, *asked(context).history))
    session = opened(request)
    for name, body in (("back", '{"to": 1}'), ("check", ""), ("critique", "hm.")):
        session = perform(session, ToolCall(name, body), context).session
    assert "earlier version of the lineage" in perform(session, ToolCall("commit"), context).text


def test_going_back_to_the_parent_starts_over() -> None:
    context = FakeContext([])
    session = perform(opened(asked(context)), ToolCall("draft", BAD), context).session
    session = perform(session, ToolCall("back", '{"to": "parent"}'), context).session
    done = perform(session, ToolCall("draft", SWAP.format("x.add(1)")), context)
    assert done.session.draft.source.strip() == GOOD.strip() and done.session.present == 2


def test_a_commit_without_check_or_critique_is_answered_and_the_loop_goes_on() -> None:
    context = FakeContext([says("draft", GOOD), says("commit"), says("check"), says("commit"), *COMMIT])
    assert AgentCoder().edit(asked(context)).source.strip() == GOOD.strip()
    assert "commit refused: d1 has not been checked" in context.answers[1]
    assert "commit refused: d1 has no critique" in context.answers[3]
    refused = "unusable: commit refused"
    assert context.verdicts == ["usable", refused, "usable", refused, "usable", "usable"]


def test_turns_that_cannot_be_read_are_answered_and_counted() -> None:
    context = FakeContext(["Larger tiles.", "", says("shell", "ls"), says("draft", GOOD), says("check"), *COMMIT])
    assert AgentCoder(turns=7).edit(asked(context)).source.strip() == GOOD.strip()
    assert context.answers[0].startswith("Not understood: the reply calls no tool")
    assert context.calls[2].request.messages[-2].content == "(nothing)"
    assert "no tool 'shell'" in context.answers[2] and context.verdicts[2] == "unusable: unknown tool"
    assert context.answers[-1].endswith("This is the last turn.]")
    with pytest.raises(CoderError, match="6 turns were used up before any draft passed") as found:
        AgentCoder(turns=6).edit(asked(FakeContext(["Larger tiles."] * 6)))
    assert not isinstance(found.value, BudgetSpent)


def test_code_that_cannot_be_used_is_answered() -> None:
    missing = "<<<<<<< SEARCH\n        return x * 31337\n=======\n        return x\n>>>>>>> REPLACE"
    context = FakeContext([says("draft", missing), says("draft", GOOD), says("check"), *COMMIT])
    assert AgentCoder().edit(asked(context)).source.strip() == GOOD.strip()
    assert context.answers[0].startswith("draft refused: ") and context.verdicts[0] == "unusable: no match"


# ---- budgets and ends ----


def test_at_the_last_turn_the_last_draft_that_passed_is_taken() -> None:
    context = FakeContext([says("draft", GOOD), says("check"), says("draft", BAD), says("check"), says("lineage")])
    edit = AgentCoder(turns=5).edit(asked(context))
    assert edit.source.strip() == GOOD.strip() and edit.cost.calls == 5


def test_at_the_last_turn_without_a_draft_that_passed_the_failure_is_the_reason() -> None:
    context = FakeContext([says("draft", BAD), says("check"), says("lineage")])
    with pytest.raises(CoderError, match=r"3 turns were used up before any draft passed; .*off by 1 at \[0\]"):
        AgentCoder(turns=3).edit(asked(context))


@pytest.mark.parametrize(("tokens", "turns"), [(220, 2), (221, 3), (330, 3)])
def test_the_turn_that_reaches_the_tokens_is_the_last(tokens: int, turns: int) -> None:
    context = FakeContext([says("draft", GOOD), says("check"), *[says("lineage")] * 9])
    assert AgentCoder(tokens=tokens).edit(asked(context)).source.strip() == GOOD.strip()
    assert len(context.calls) == turns
    with pytest.raises(CoderError, match="tokens were used up"):
        AgentCoder(tokens=tokens).edit(asked(FakeContext([says("lineage")] * 9)))


def test_a_commit_in_the_reply_that_reaches_the_tokens_still_counts() -> None:
    context = FakeContext([says("draft", GOOD), says("check"), says("draft", BETTER), says("check"), *COMMIT])
    assert AgentCoder(tokens=660).edit(asked(context)).source.strip() == BETTER.strip()


def test_giving_up_is_an_error_with_the_reason() -> None:
    with pytest.raises(CoderError, match=r"^the agent gave up: It is one copy\.$"):
        AgentCoder().edit(asked(FakeContext([says("give_up", "It is one copy.")])))


def test_without_an_evaluation_left_the_loop_ends_unless_a_draft_passed() -> None:
    context = FakeContext([says("draft", GOOD), says("check")], allowance=0)
    with pytest.raises(CoderError, match="evaluations were used up before any draft passed"):
        AgentCoder().edit(asked(context))
    script = [says("draft", GOOD), says("check"), says("draft", BETTER), says("check"), says("back", '{"to": "d1"}')]
    context = FakeContext([*script, *COMMIT], allowance=1)
    assert AgentCoder().edit(asked(context)).source.strip() == GOOD.strip()
    assert "no evaluation left" in context.answers[3] and "d1, which passed" in context.answers[3]


@pytest.mark.parametrize("error", [BudgetSpent("spent"), ModelError("no key")])
def test_a_spent_budget_and_a_missing_model_pass_through(error: Exception) -> None:
    context = FakeContext([says("draft", GOOD), says("check"), error])
    with pytest.raises(type(error)) as found:
        AgentCoder().edit(asked(context))
    assert found.value is error


def test_a_reply_that_does_not_come_ends_the_loop() -> None:
    context = FakeContext([says("draft", GOOD), says("check"), CoderError("the server hung")])
    assert AgentCoder().edit(asked(context)).source.strip() == GOOD.strip()
    with pytest.raises(CoderError, match="the server hung"):
        AgentCoder().edit(asked(FakeContext([says("draft", GOOD), CoderError("the server hung")])))


def test_more_turns_than_langgraph_goes_by_default() -> None:
    context = FakeContext([*[says("lineage")] * 60, says("give_up", "bored")])
    with pytest.raises(CoderError, match="gave up: bored"):
        AgentCoder(turns=61, tokens=10**6).edit(asked(context))


def test_a_graph_around_it_keeps_nothing_of_it() -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, StateGraph

    context = FakeContext([says("draft", GOOD), says("check"), *COMMIT])
    builder = StateGraph(dict)
    builder.add_node("code", lambda state: {"lines": AgentCoder().edit(asked(context)).source.count("\n")})
    builder.add_edge(START, "code")
    builder.add_edge("code", END)
    saver = InMemorySaver()
    config = {"configurable": {"thread_id": "run"}}
    end = builder.compile(checkpointer=saver).invoke({"lines": 0}, config)
    assert end == {"lines": GOOD.count("\n")}
    kept = list(saver.list(None))
    assert kept and {each.config["configurable"]["checkpoint_ns"] for each in kept} == {""}


def test_settings_and_registry() -> None:
    assert CODERS["agent"] is AgentCoder and not AgentCoder().deterministic
    with pytest.raises(ConfigError, match=r"coder\.turns cannot be 0"):
        AgentCoder(turns=0)
    with pytest.raises(ConfigError, match=r"coder\.tokens cannot be -1"):
        AgentCoder(tokens=-1)
    with pytest.raises(ModelError, match=r"model\.name"):
        AgentCoder().edit(asked(None))


def test_root_and_actions_are_those_of_the_coder_with_one_reply() -> None:
    inputs = "\n\ndef get_inputs():\n    return [torch.ones(8)]\n\n\ndef get_init_inputs():\n    return []\n"
    task = task_from_source(REFERENCE + inputs, "plus")
    root = AgentCoder().root(task)
    assert root == ModelCoder().root(task) and "class ModelNew" in root.source
    for plan in (root.plan, None):
        seen = Observation(task, root.source, plan, PARENT_OUTCOME, (), "H100")
        assert AgentCoder().actions(seen, ()) == ModelCoder().actions(seen, ())


def test_the_registry_loads_nothing_heavy() -> None:
    heavy = ("torch", "triton", "langgraph", "litellm", "libcst", "httpx")
    code = f"import sys, mtmc.agents.coders; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- steps without the graph ----


def test_the_steps_are_plain_functions() -> None:
    context, limits = FakeContext([says("draft", GOOD), "what?"]), Limits(2, 1000)
    progress = loop.begin(asked(context), limits)
    thought = loop.think(progress, context)
    assert thought.reply is not None and (thought.turns, thought.tokens) == (1, 110) and not thought.over
    assert thought.messages == progress.messages
    acted = loop.act(thought, context, limits)
    assert acted.reply is None and acted.session.present == 1 and len(acted.messages) == 4 and not acted.over
    over = loop.act(loop.think(acted, context), context, limits)
    assert over.over == "the agent's 2 turns were used up" and over.session == acted.session
    with pytest.raises(CoderError):
        loop.result(over)


def test_a_reply_of_megabytes_does_not_stay_in_the_conversation() -> None:
    context = FakeContext([says("draft", GOOD, prose="x" * 5_000_000), says("check"), *COMMIT])
    assert AgentCoder().edit(asked(context)).source.strip() == GOOD.strip()
    assert sum(len(message.content) for message in context.calls[-1].request.messages) < 100_000


# ---- the transcript ----

HOSTILE = '<script>alert(1)</script> & "q" \x1b[31m'


def recorded() -> list[ModelCall]:
    context = FakeContext(
        [says("draft", BAD, prose=HOSTILE), "Larger tiles.", says("check"), says("draft", GOOD), says("check"), *COMMIT]
    )
    AgentCoder().edit(asked(context))
    return context.calls


def test_turns_of_a_trial() -> None:
    turns = turns_of(recorded())
    assert [(turn.role, turn.tool) for turn in turns] == [
        ("brief", ""),
        ("agent", "draft"),
        ("tool", "draft"),
        ("agent", ""),
        ("tool", ""),
        ("agent", "check"),
        ("tool", "check"),
        ("agent", "draft"),
        ("tool", "draft"),
        ("agent", "check"),
        ("tool", "check"),
        ("agent", "critique"),
        ("tool", "critique"),
        ("agent", "commit"),
    ]
    assert turns[1] == Turn("agent", "draft", BAD.strip("\n"), HOSTILE, "usable")
    assert turns[3].text == "Larger tiles." and turns[3].verdict == "unusable: no call"
    assert "off by 1 at [0]" in turns[6].text
    assert turns[-3].arguments == "The mask may be wrong."


def test_repairs_repeated_questions_and_other_purposes() -> None:
    first = recorded()
    context = FakeContext([says("give_up", "no.")])
    with pytest.raises(CoderError):
        AgentCoder().edit(asked(context, feedback=WRONG, failed_source=BAD, seed=8))
    repeated = [*first[:2], *first[:2], *first[2:]]
    other = replace(first[0], request=replace(first[0].request, purpose="policy"))
    turns = turns_of([other, *repeated, *context.calls])
    assert turns == turns_of(first) + turns_of(context.calls)
    assert [turn.role for turn in turns].count("brief") == 2


def test_a_call_without_a_reply_says_why() -> None:
    first = recorded()
    failed = replace(first[2], reply=None, error="timeout", verdict="")
    assert turns_of([*first[:2], failed])[-1] == Turn("agent", "", "", "", "no reply: timeout")
    assert turns_of([*first[:2], failed, *first[2:]]) == turns_of(first)
    assert turns_of([]) == [] and to_text([]) == ""


def test_text_of_a_transcript() -> None:
    text = to_text(turns_of(recorded()))
    assert "--- 1. the task ---" in text and "--- 14. agent: commit ---" in text
    assert "--- 4. agent: no call (unusable: no call) ---" in text
    assert BAD.strip() in text and "\x1b" not in text


class Page(html.parser.HTMLParser):
    """Elements by name, what is not closed, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_of_a_transcript_is_escaped_and_whole() -> None:
    turns = turns_of(recorded())
    page = Page()
    page.feed(to_html(turns))
    assert page.open == []
    assert set(page.seen) == {"section", "details", "summary", "pre"} and page.attributes == {"class", "open"}
    assert page.seen.count("details") == len(turns)
    assert '<script>alert(1)</script> & "q"' in page.text and BAD.strip() in page.text
