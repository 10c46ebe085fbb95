"""The policy that asks a model: its question, the reader of its answer, the formula of its prior, and what it does where no
usable answer comes."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from mtmc.action import STOP, Action, Region, action_from_json, action_to_json
from mtmc.agents.policies import POLICIES
from mtmc.agents.policies.heuristic import Heuristic
from mtmc.agents.policies.model import ModelPolicy, ranked_prior
from mtmc.agents.policies.ranking import MAX_TEXT, Proposal, Ranking, parse_ranking, ranking_messages, ranking_to_text
from mtmc.chat import ChatReply, ChatRequest, ModelSettings, request_key
from mtmc.errors import BudgetSpent, CoderError, ConfigError, ModelError
from mtmc.freeform import FREEFORM_KIND, freeform_action, is_freeform
from mtmc.outcome import Outcome
from mtmc.protocols import Observation, Step
from mtmc.task import Task, Variant

SOURCE = """\
import torch


@torch.no_grad()
def helper(x):
    return x * 2


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return helper(x)
"""
LINES = len(SOURCE.splitlines())
TASK = Task("double", "class Model: ...  # the reference", Variant("full"), Variant("small"))
IDEA = "read the row once and keep it in registers"


def action(kind: str, region: str = "linear", **params: object) -> Action:
    given = tuple(sorted(params.items()))
    return Action(kind, Region(region, 1, 2), given, f"{kind} {region} {params}")  # type: ignore[arg-type]


ACTIONS = [
    action("fuse", "linear and gelu"),
    action("lower"),
    action("tile", block_m=128, block_n=128, block_k=32),
    STOP,
]


@dataclass
class FakeContext:
    """Answers by a function, remembers every question and verdict, and gives a known question its old reply."""

    answer: Callable[[ChatRequest], str]
    truncated: bool = False
    asked: list[ChatRequest] = field(default_factory=list)
    verdicts: list[tuple[int, str]] = field(default_factory=list)
    known: dict[str, ChatReply] = field(default_factory=dict)

    def complete(self, request: ChatRequest) -> ChatReply:
        key = request_key(request, ModelSettings(name="a/b"))
        if key not in self.known:
            self.asked.append(request)
            self.known[key] = ChatReply(self.answer(request), truncated=self.truncated, id=len(self.asked))
        return self.known[key]

    def judge(self, reply: ChatReply, verdict: str) -> None:
        self.verdicts.append((reply.id, verdict))

    def evaluate(self, source: str) -> Outcome | None:
        raise AssertionError("a policy evaluates nothing")


def bench_saying(text: str, truncated: bool = False) -> FakeContext:
    return FakeContext(lambda _: text, truncated)


def bench_raising(error: Exception) -> FakeContext:
    def answer(_: ChatRequest) -> str:
        raise error

    return FakeContext(answer)


def seen(context: FakeContext | None, history: tuple[Step, ...] = (), **metrics: float) -> Observation:
    outcome = Outcome("ok", 1.25, runtime_kind="estimated", metrics={"roofline": 0.2, **metrics})
    return Observation(TASK, SOURCE, None, outcome, history, "H100", context)


def question(observation: Observation, actions: Sequence[Action] = ACTIONS, proposals: int = 2, steps: int = 4) -> str:
    return ranking_messages(observation, actions, proposals, steps)[1].content


# the formula


def test_prior_by_hand() -> None:
    # n = 4, ranked: 2 then 0; temperature 1; unranked 1 and 3 share exp(-2) as 0.1 : 0.3
    weights = [math.exp(-1), math.exp(-2) * 0.25, 1.0, math.exp(-2) * 0.75]
    total = 1 + math.exp(-1) + math.exp(-2)
    expected = [0.05 + 0.8 * weight / total for weight in weights]
    assert ranked_prior([2, 0], [0.4, 0.1, 0.2, 0.3], temperature=1.0, floor=0.2) == pytest.approx(expected)
    assert expected == pytest.approx([0.24578, 0.06801, 0.58219, 0.10402], abs=1e-4)


def test_where_nothing_is_ranked_the_others_count_and_where_all_is_they_do_not() -> None:
    others = [0.7, 0.2, 0.1]
    assert ranked_prior([], others, 2.0, 0.3) == pytest.approx([0.1 + 0.7 * other for other in others])
    assert ranked_prior([2, 1, 0], others, 2.0, 0.3) == ranked_prior([2, 1, 0], [0.1, 0.1, 0.8], 2.0, 0.3)


@pytest.mark.parametrize("temperature", [1e-3, 0.5, 2.0, 1e6])
@pytest.mark.parametrize("ranked", [[], [3], list(range(50)), list(range(49, -1, -2))])
def test_priors_are_probabilities_and_none_is_below_its_floor(temperature: float, ranked: list[int]) -> None:
    priors = ranked_prior(ranked, [1 / 50] * 50, temperature, 0.1)
    assert math.isclose(sum(priors), 1.0)
    assert min(priors) >= 0.1 / 50
    assert all(priors[first] >= priors[second] for first, second in pairwise(ranked))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("temperature", 0.0), ("temperature", math.nan), ("floor", 0.0), ("floor", 1.0), ("proposals", -1), ("steps", -1)],
)
def test_a_setting_that_cannot_be_is_named(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"policy.{setting} cannot be {value}"):
        ModelPolicy(**{setting: value})  # type: ignore[arg-type]


# question and answer


@pytest.mark.parametrize(
    "ranking",
    [
        Ranking((2, 0)),
        Ranking((0, 1, 2, 3)),
        Ranking((4, 1, 5), (Proposal(IDEA, 5, 6), Proposal("split the rows: two programs each", 9, 9))),
        Ranking((4,), (Proposal(IDEA, 1, LINES),)),
    ],
)
def test_a_reply_in_the_form_asked_for_says_what_was_meant(ranking: Ranking) -> None:
    assert parse_ranking(ranking_to_text(ranking, 4), 4, LINES, 2) == ranking


def test_the_form_that_the_question_shows_is_the_one_that_is_read() -> None:
    shown = question(seen(None))
    assert "RANKING: <number>, <number>, ..." in shown
    assert "PROPOSAL P1 lines <first>-<last>: <what to do, in one sentence>" in shown
    filled = shown.replace("<number>, <number>, ...", "3, P1").replace("<first>-<last>", "5-6")
    answered = parse_ranking(filled.replace("<what to do, in one sentence>", IDEA), 4, LINES, 2)
    assert answered == Ranking((2, 4), (Proposal(IDEA, 5, 6),))


def test_a_question_given_back_as_it_is_says_nothing() -> None:
    with pytest.raises(CoderError, match="no line RANKING"):
        parse_ranking(question(seen(None)), 4, LINES, 2)


def test_the_question_shows_all_that_is_known() -> None:
    step = Step(action("fuse", "a and b"), "", Outcome("ok", 2.0), 1.6)
    shown = question(seen(None, (step,), registers=64.0, build_s=1.7))
    assert "double" in shown and "class Model: ...  # the reference" in shown
    assert "   5 def helper(x):\n   6     return x * 2" in shown
    assert "It is 1.60x as fast as the root.\n1.25 ms a call, estimated (H100)." in shown
    assert "64 registers a thread" in shown and "alone take 0.25 ms: 5 times faster" in shown
    assert "- fuse a and b {}: 1.60x of the root" in shown
    assert "H100: 132 SMs, 3350 GB/s" in shown
    assert f"4. {STOP.sentence}" in shown


def test_what_differs_from_run_to_run_is_not_in_the_question() -> None:
    assert question(seen(None, build_s=1.0)) == question(seen(None, build_s=2.0))


def test_only_the_last_steps_are_told_and_proposals_only_asked_for_where_wanted() -> None:
    steps = tuple(Step(action("tile", f"r{number}"), "", Outcome("ok", 1.0), 1.0) for number in range(6))
    shown = question(seen(None, steps), steps=2)
    assert "tile r4" in shown and "tile r5" in shown and "tile r3" not in shown
    assert "Steps so far" not in question(seen(None, steps), steps=0)
    assert "PROPOSAL" not in question(seen(None), proposals=0)


def test_a_plan_is_told() -> None:
    assert "has no plan" in question(seen(None))
    assert "has a plan" in question(replace(seen(None), plan="[]"))


@pytest.mark.parametrize(
    ("text", "order", "notes"),
    [
        ("Sure! Here it is.\n\n**RANKING:** 3, 1\n\nI hope this helps.", (2, 0), 0),
        ("ranking (best first): [3, 1]", (2, 0), 0),
        ("- Ranking = 3 > 1", (2, 0), 0),
        ("RANKING: 3 1 2", (2, 0, 1), 0),
        ("RANKING:\n3, 1", (2, 0), 0),
        ("RANKING: 3. fuse linear and gelu, 1. tile", (2, 0), 0),
        ("RANKING: action 3 (tile 128, 2 warps), #1", (2, 0), 0),
        ("RANKING: 1\nno, wait\nRANKING: 3, 1", (2, 0), 0),
        ("<think>RANKING: 4</think>RANKING: 3, 1", (2, 0), 0),
        ("```\nRANKING: 3, 1\n```", (2, 0), 0),
        ("RANKING: 3, 3, 1, 0, 5, 99", (2, 0), 4),
        ("RANKING: 3, the first one", (2,), 1),
        ("RANKING: 3, P1", (2,), 1),
        ("3, 1", (2, 0), 1),
        ("```\n[3, 1]\n```", (2, 0), 1),
        ("RANKING: 3, 1\n2, 4", (2, 0), 0),
    ],
)
def test_rankings_as_models_write_them(text: str, order: tuple[int, ...], notes: int) -> None:
    ranking = parse_ranking(text, 4, LINES, 2)
    assert ranking.order == order
    assert len(ranking.notes) == notes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the reply is empty"),
        (" \n\t", "the reply is empty"),
        ("I'm sorry, but I can't help with that.", "no line RANKING"),
        ("RANKING: 17, 2024", "no line RANKING: ... with numbers of the list .17 is not on the list"),
        ("RANKING: <number>, <number>, ...", "no line RANKING"),
        ("I count the lines:\n1\n2, 3\nand so on", "no line RANKING"),
        ("1. fuse linear and gelu\n2. tile", "no line RANKING"),
        ("RANKING: " + "9" * 5000, "no line RANKING"),
        ("import torch\nclass ModelNew: ...", "no line RANKING"),
    ],
)
def test_what_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(CoderError, match=why):
        parse_ranking(text, 4, LINES, 2)


@pytest.mark.parametrize(
    ("line", "proposal"),
    [
        (f"PROPOSAL P1 lines 5-6: {IDEA}", Proposal(IDEA, 5, 6)),
        (f"**Proposal P1** (lines 5 to 6): {IDEA}", Proposal(IDEA, 5, 6)),
        (f"- PROPOSAL line 5: {IDEA}", Proposal(IDEA, 5, 5)),
        (f"PROPOSAL: lines 5\u20136: {IDEA}", Proposal(IDEA, 5, 6)),
        (f"PROPOSAL P1 lines 5..6: **{IDEA}**", Proposal(IDEA, 5, 6)),
    ],
)
def test_proposals_as_models_write_them(line: str, proposal: Proposal) -> None:
    assert parse_ranking(f"RANKING: 3\n{line}", 4, LINES, 2) == Ranking((2, 4), (proposal,))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f"PROPOSAL P1 lines 5-{LINES + 1}: {IDEA}", f"about lines 5-{LINES + 1} of {LINES}"),
        (f"PROPOSAL P1 lines 0-3: {IDEA}", "about lines 0-3"),
        (f"PROPOSAL P1 lines 6-5: {IDEA}", "about lines 6-5"),
        ("PROPOSAL P1 lines 5-6: ...", "says nothing"),
        ("PROPOSAL P1 lines 5-6: <what to do, in one sentence>", "says nothing"),
    ],
)
def test_a_proposal_that_cannot_be_used_is_left_out_and_the_ranking_kept(line: str, why: str) -> None:
    ranking = parse_ranking(f"RANKING: 3\n{line}", 4, LINES, 2)
    assert ranking.order == (2,) and ranking.proposals == ()
    assert why in ranking.notes[0]


def test_no_more_proposals_than_asked_for_and_none_twice() -> None:
    text = "\n".join(f"PROPOSAL P{number} lines 1-2: idea {number}" for number in (1, 1, 2, 3))
    ranking = parse_ranking(f"RANKING: P2, 1\n{text}", 4, LINES, 2)
    assert [each.text for each in ranking.proposals] == ["idea 1", "idea 2"]
    assert ranking.order == (5, 0, 4)
    assert len(ranking.notes) == 2


def test_a_proposal_without_a_ranking_is_enough_and_a_long_one_is_cut() -> None:
    ranking = parse_ranking(f"PROPOSAL P1 lines 1-2: {'word ' * 100}", 4, LINES, 2)
    assert ranking.order == (4,)
    assert len(ranking.proposals[0].text) <= MAX_TEXT and ranking.proposals[0].text.endswith("word")
    assert len(ranking.notes) == 2


@pytest.mark.parametrize(
    ("text", "order", "proposals"),
    [
        ("RANKING: 3, 1", (2,), 0),  # the 1 may be the beginning of 12
        (f"RANKING: 3, 1\nPROPOSAL P1 lines 5-6: {IDEA}", (2, 0), 0),
        (f"RANKING: 3, 1\nPROPOSAL P1 lines 5-6: {IDEA}\n", (2, 0, 4), 1),
    ],
)
def test_of_a_reply_that_was_cut_off_only_what_is_whole_counts(
    text: str, order: tuple[int, ...], proposals: int
) -> None:
    ranking = parse_ranking(text, 4, LINES, 2, truncated=True)
    assert ranking.order == order and len(ranking.proposals) == proposals
    assert "cut off" in ranking.notes[0]


@pytest.mark.parametrize("text", ["(", "1 ", "9", "\t", "*", "PROPOSAL P1 lines 1", "RANKING: ", "ranking", "1,\n"])
def test_five_megabytes_are_read_in_reasonable_time(text: str) -> None:
    begun = time.process_time()
    with pytest.raises(CoderError):
        parse_ranking(text * (5_000_000 // len(text)) + "\nRANKING: none", 0, LINES, 2)
    assert time.process_time() - begun < 10


# actions in free text


def test_an_idea_is_an_action_on_its_lines_named_after_what_stands_there() -> None:
    idea = freeform_action(SOURCE, f"{IDEA}.", 5, 6)
    assert idea.kind == FREEFORM_KIND and is_freeform(idea)
    assert idea.region == Region("helper", 5, 6)
    assert idea.sentence == f"{IDEA}, lines 5-6"
    assert action_from_json(action_to_json(idea)) == idea
    assert not any(map(is_freeform, ACTIONS))


@pytest.mark.parametrize(
    ("first", "last", "name"),
    [
        (4, 4, "helper"),
        (10, 11, "forward"),
        (9, 11, "ModelNew"),
        (9, 9, "ModelNew"),
        (1, 11, "module"),
        (7, 7, "module"),
    ],
)
def test_the_region_is_the_innermost_around_the_lines(first: int, last: int, name: str) -> None:
    assert freeform_action(SOURCE, IDEA, first, last).region.name == name


def test_a_source_that_is_no_python_has_regions_too() -> None:
    assert freeform_action("def broken(", IDEA, 1, 1).region == Region("module", 1, 1)


def test_the_same_words_are_the_same_idea_and_other_words_another() -> None:
    key = freeform_action(SOURCE, IDEA, 5, 6).key
    assert freeform_action(SOURCE, f"  {IDEA.upper()} ", 5, 5).key == key
    assert freeform_action(SOURCE, IDEA, 10, 11).key != key
    assert freeform_action(SOURCE, f"{IDEA}, twice", 5, 6).key != key


# the policy


def extended(policy: ModelPolicy, observation: Observation) -> list[Action]:
    """What the search does: the proposals before `STOP`."""
    return [*ACTIONS[:-1], *policy.propose(observation, ACTIONS), STOP]


def test_the_prior_follows_the_ranking() -> None:
    context = bench_saying("RANKING: 3, 1")
    policy = ModelPolicy(temperature=1.0, floor=0.2, proposals=0)
    observation = seen(context)
    priors = policy.prior(observation, ACTIONS)
    assert priors == pytest.approx(ranked_prior([2, 0], Heuristic().prior(observation, ACTIONS), 1.0, 0.2))
    assert max(priors) == priors[2]
    assert context.verdicts == [(1, "usable")]


def test_one_call_serves_proposals_and_prior() -> None:
    context = bench_saying(f"RANKING: P1, 3\nPROPOSAL P1 lines 5-6: {IDEA}")
    policy, observation = ModelPolicy(), seen(context)
    actions = extended(policy, observation)
    assert [each.kind for each in actions] == ["fuse", "lower", "tile", "freeform", "stop"]
    assert actions[3].sentence == f"{IDEA}, lines 5-6"
    priors = policy.prior(observation, actions)
    expert = Heuristic().prior(observation, actions)
    assert priors == ranked_prior([3, 2], expert, policy.temperature, policy.floor)
    assert len(context.asked) == 1
    assert set(context.verdicts) == {(1, "usable")}


def test_proposals_that_the_search_did_not_take_leave_the_rest_of_the_ranking() -> None:
    context = bench_saying(f"RANKING: P1, 3\nPROPOSAL P1 lines 5-6: {IDEA}")
    policy, observation = ModelPolicy(), seen(context)
    expert = Heuristic().prior(observation, ACTIONS)
    assert policy.prior(observation, ACTIONS) == ranked_prior([2], expert, policy.temperature, policy.floor)


def test_no_proposals_wanted_no_question() -> None:
    context = bench_saying("RANKING: 1")
    assert ModelPolicy(proposals=0).propose(seen(context), ACTIONS) == []
    assert context.asked == []


def test_a_single_action_is_not_asked_about() -> None:
    context = bench_saying("RANKING: 1")
    assert ModelPolicy().prior(seen(context), [STOP]) == [1.0]
    assert context.asked == []


def test_the_question_follows_from_what_is_seen_alone() -> None:
    first, second = bench_saying("RANKING: 1"), bench_saying("RANKING: 2")
    ModelPolicy().prior(seen(first), ACTIONS)
    ModelPolicy().prior(seen(second), ACTIONS)
    assert first.asked == second.asked
    assert first.asked[0].purpose == "policy" and 0 <= first.asked[0].seed < 2**31
    third = bench_saying("RANKING: 1")
    ModelPolicy().prior(seen(third), ACTIONS[1:])
    assert third.asked[0].seed != first.asked[0].seed


@pytest.mark.parametrize("text", ["", "I cannot do that.", "RANKING: 1000"])
def test_an_unusable_reply_is_judged_and_logged_and_the_heuristic_decides(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    context = bench_saying(text)
    observation = seen(context)
    with caplog.at_level(logging.WARNING):
        priors = ModelPolicy().prior(observation, ACTIONS)
    assert priors == Heuristic().prior(observation, ACTIONS)
    [(_, verdict)] = context.verdicts
    assert verdict.startswith("unusable: ") and verdict.removeprefix("unusable: ") in caplog.text
    assert "the heuristic's prior is used" in caplog.text


def test_a_reply_that_was_read_with_care_is_judged_repaired() -> None:
    cut, off_list = bench_saying("RANKING: 3, 1", truncated=True), bench_saying("RANKING: 3, 77")
    for context in (cut, off_list):
        priors = ModelPolicy().prior(seen(context), ACTIONS)
        assert max(priors) == priors[2]
        assert context.verdicts == [(1, "repaired")]


@pytest.mark.parametrize("error", [BudgetSpent("budget.calls=3 are made"), CoderError("no reply after 4 tries")])
def test_without_a_reply_the_heuristic_decides(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    observation = seen(bench_raising(error))
    policy = ModelPolicy()
    with caplog.at_level(logging.WARNING):
        assert policy.propose(observation, ACTIONS) == []
        assert policy.prior(observation, ACTIONS) == Heuristic().prior(observation, ACTIONS)
    assert caplog.text.count(str(error)) == 2


def test_a_model_that_cannot_be_used_at_all_ends_the_search() -> None:
    observation = seen(bench_raising(ModelError("no key")))
    for ask in (ModelPolicy().prior, ModelPolicy().propose):
        with pytest.raises(ModelError, match="no key"):
            ask(observation, ACTIONS)


def test_without_a_model_the_hint_is_told() -> None:
    with pytest.raises(ConfigError, match=r"model\.name=.* or use policy=heuristic"):
        ModelPolicy().prior(seen(None), ACTIONS)


def test_it_is_registered_and_loads_nothing_heavy() -> None:
    assert POLICIES["llm"] is ModelPolicy
    heavy = {"torch", "triton", "litellm", "langgraph", "libcst"}
    code = f"import sys, mtmc.agents.policies; print(*{heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == ""
