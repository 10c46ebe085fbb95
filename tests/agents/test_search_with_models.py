"""Whole searches that ask a model: over real HTTP, from a server of ours whose replies are written by us.

The model is a fixture: what a good one would answer, and everything that a bad one does. The searches, the prompts, the
parser, the repairs and the lab evaluator are the real ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtmc.agents.coders.agent.calls import ToolCall, render_call
from mtmc.agents.coders.agent.tools import TOOLS
from mtmc.chat import ModelSettings
from mtmc.errors import ConfigError, ModelError
from mtmc.evaluate import ReplaySettings
from mtmc.evaluate.lab import LabEvaluator
from mtmc.export.prices import price_lines
from mtmc.fakes import FakeEvaluator
from mtmc.outcome import kernel_metrics
from mtmc.search import AgentSettings, Budget, SearchResult, load, search
from mtmc.search.canonical import canonical_json
from mtmc.store import Store
from tests.agents import fault_server
from tests.agents.fault_server import Fault, FaultServer

ATTENTION = Path(__file__).parent / "attention"
FILES = {path.stem: path.read_text() for path in sorted(ATTENTION.glob("*.py"))}


def good_model(body: dict[str, Any]) -> str:
    """What a good model answers about attention: one kernel for all of it, with a mistake; its repair; a larger tile."""
    asked = str(body["messages"][-1]["content"])
    if "weights = tl.exp" not in asked:
        return f"One kernel with an online softmax.\n\n```python\n{FILES['broken']}```\n"
    if "wrong_result" in asked or "WrongValues" in asked:
        return f"The columns beyond the length were not masked.\n\n```python\n{FILES['online']}```\n"
    blocks = [("triton.cdiv(length, 64)", "triton.cdiv(length, 128)")]
    blocks += [("M=64, N=32, D=lanes, num_warps=4", "M=128, N=64, D=lanes, num_warps=8")]
    lines = FILES["online"].splitlines()
    edits = []
    for old, new in blocks:
        [line] = [line for line in lines if old in line]
        edits.append(f"<<<<<<< SEARCH\n{line}\n=======\n{line.replace(old, new)}\n>>>>>>> REPLACE\n")
    return "\n".join(edits)


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory, lab: LabEvaluator) -> SearchResult:
    """Attention from the root to a version that the rewriter cannot make."""
    with FaultServer(reply=good_model) as server:
        return search(
            ATTENTION / "task.py",
            coder="llm",
            strategy="greedy",
            policy="uniform",
            evaluator=lab,
            model=ModelSettings("openai/scripted", server.url, temperature=0.0),
            budget=5,
            out=tmp_path_factory.mktemp("runs") / "attention",
        )


def test_a_good_model_takes_attention_from_the_root_to_a_faster_version(attention: SearchResult) -> None:
    tree = attention.tree
    first = tree[1]
    assert first.outcome.ok and first.repairs == 1 and first.source == FILES["online"]
    assert tree.best.source == FILES["tuned"] and tree.best.parent_id == 1
    assert attention.best.speedup is not None and attention.best.speedup > 2.5
    assert first.cost.calls == 2 and first.cost.tokens_in > 0


def test_its_calls_are_recorded_judged_and_priced(attention: SearchResult) -> None:
    store = Store.read(attention.run_dir)
    calls = store.model_calls()
    store.close()
    assert {call.request.purpose for call in calls} >= {"edit", "repair"}
    assert all(call.verdict for call in calls)
    text = "\n".join(price_lines(attention.tree, attention.record.calls))
    assert "without a known price" in text and "improvement" in text


def test_a_replay_needs_no_server_and_gives_the_same_tree(attention: SearchResult, tmp_path: Path) -> None:
    recorded = load(attention.run_dir)
    again = search(
        ATTENTION / "task.py",
        coder="llm",
        strategy="greedy",
        policy="uniform",
        evaluator=ReplaySettings(run=str(attention.run_dir)),
        model=ModelSettings("openai/scripted", fault_server.unserved_url(), 0.0, replay=str(attention.run_dir)),
        budget=5,
        out=tmp_path / "again",
    )
    assert canonical_json(again) == canonical_json(recorded)


# An agent: the same model with tools.

SCRIPT = (
    ("lineage", ""),
    ("playbook", '{"kind": "fuse"}'),
    ("playbook", '{"kind": "hardware"}'),
    ("draft", FILES["broken"]),
    ("check", ""),  # wrong at odd shapes
    ("fix", ""),  # no rule is sure of it
    ("draft", FILES["online"]),
    ("diff", '{"from": "d1", "to": "draft"}'),
    ("back", '{"to": "d1"}'),
    ("back", '{"to": "d2"}'),
    ("check", ""),
    ("profile", ""),
    ("critique", "The scores of columns beyond the length are masked now; the tile of 64 rows may be small."),
    ("commit", ""),
)


def scripted_agent(body: dict[str, Any]) -> str:
    """The next call of the script: as many have been made as there are replies in the conversation."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    return f"Step {turn + 1}.\n\n{render_call(ToolCall(*SCRIPT[turn]))}\n"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, lab: LabEvaluator) -> SearchResult:
    """Attention by an agent that uses every tool."""
    with FaultServer(reply=scripted_agent) as server:
        return search(
            ATTENTION / "task.py",
            coder="agent",
            strategy="greedy",
            policy="uniform",
            evaluator=lab,
            model=ModelSettings("openai/scripted", server.url, temperature=0.0),
            budget=Budget(evaluations=3, calls=len(SCRIPT)),
            agents=AgentSettings(profiles=2),
            out=tmp_path_factory.mktemp("runs") / "agent",
        )


def test_an_agent_uses_every_tool_and_commits_a_verified_edit(agent: SearchResult) -> None:
    assert {name for name, _ in SCRIPT} == {*TOOLS} - {"give_up"}
    assert agent.evaluations == 3 and len(agent.tree) == 2  # root, the failing draft, the one that was committed
    assert agent.tree.best.source == FILES["online"] and agent.tree.best.repairs == 0
    assert agent.best.speedup is not None and agent.best.speedup > 2
    assert agent.tree.best.cost.calls == len(SCRIPT)
    assert all(call.verdict == "usable" for call in agent.record.calls)


def test_it_is_told_of_each_kernel_of_the_root_and_of_its_draft(agent: SearchResult) -> None:
    assert len(kernel_metrics(agent.tree.root.outcome.metrics)) == 3, "two products and a softmax"
    [name] = kernel_metrics(agent.tree.best.outcome.metrics)
    store = Store.read(agent.run_dir)
    first, *_, last = [call.request.messages for call in store.model_calls()]
    told = [message.content for message in last if f"kernel {name}: " in message.content]
    assert store.evaluations() == agent.evaluations == 3, "a profile is no evaluation"
    store.close()
    assert len(told) == 1 and "Kernels, as estimated:" in told[0] and "instructions: " in told[0]
    assert "Kernels, as estimated:" in first[1].content and "softmax: " in first[1].content
    assert (agent.run_dir / "roofline.png").read_bytes().startswith(b"\x89PNG")
    assert f"| {name.replace('_', chr(95))} |" in (agent.run_dir / "report.md").read_text()


def test_its_transcript_is_on_the_page(agent: SearchResult) -> None:
    turns = agent.record.transcripts[1]
    called = [turn["tool"] for turn in turns if turn["role"] == "agent"]
    assert called == [name for name, _ in SCRIPT]
    page = (agent.run_dir / "tree.html").read_text()
    assert "The scores of columns beyond the length are masked now" in page


# A model that answers anything but an edit.

FAULTS: dict[str, tuple[str | Fault, str]] = {
    "429": (fault_server.rate_limited(0.01), "failed"),
    "500": (fault_server.server_error(), "failed"),
    "hang": (fault_server.hang(), "failed"),
    "reset": (fault_server.reset(), "failed"),
    "invalid JSON": (fault_server.invalid_json(), "failed"),
    "empty": ("", "unusable: empty"),
    "refusal": ("I'm sorry, but I can't help with that.", "unusable"),
    "no code": ("First I would fuse the two operations, then tile.", "unusable: no code"),
    "two files": (f"```python\n{FILES['broken']}```\nor\n```python\n{FILES['tuned']}```\n", "usable"),
    "truncated": (f"```python\n{FILES['online'][:900]}", "unusable"),
    "5 MB": ("x = 1\n" * 900_000, "unusable"),
    "reads the environment": (
        "```python\nimport os\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, q, k, v):\n        return q * len(os.environ)\n```\n",
        "usable",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_search_survives_what_models_return(name: str, tmp_path: Path, lab: LabEvaluator) -> None:
    said, verdict = FAULTS[name]
    with FaultServer(reply=lambda body: said) as server:
        result = search(
            ATTENTION / "task.py",
            coder="llm",
            strategy="greedy",
            policy="uniform",
            # The real one where the reply is a file that must be refused by it.
            evaluator=lab if name == "reads the environment" else FakeEvaluator(),
            model=ModelSettings(
                "openai/scripted", server.url, 0.0, timeout_s=0.1 if name == "hang" else 30.0, retries=0, patience_s=0.0
            ),
            budget=Budget(evaluations=4, calls=5),
            repairs=1,
            out=tmp_path / "run",
        )
        sent = len(server.requests)
    store = Store.read(result.run_dir)
    calls, booked = store.model_calls(), store.bookings()
    store.close()
    if verdict == "failed":
        assert result.cut_short and calls == () and len(booked) == 2, "the question, and a short one: the edge is open"
        return
    answered = [call for call in calls if not call.spent]
    assert result.finished is not None and sent == len(answered) <= 5
    assert answered and all((call.verdict or "failed").startswith(verdict) for call in answered), [
        (call.verdict, call.error) for call in answered
    ]
    if name == "reads the environment":
        assert all(node.outcome.status == "rejected" for node in result.tree if node.id)


def test_the_parent_returned_unchanged_is_no_version(tmp_path: Path) -> None:
    def same(body: dict[str, Any]) -> str:
        return "Here it is.\n\n```python\n" + _shown(body) + "\n```\n"

    with FaultServer(reply=same) as server:
        result = search(
            ATTENTION / "task.py",
            coder="llm",
            policy="uniform",
            evaluator=FakeEvaluator(),
            model=ModelSettings("openai/scripted", server.url, 0.0),
            budget=Budget(evaluations=4, calls=3),
            out=tmp_path / "run",
        )
    assert len(result.tree) == 1
    assert {call.verdict for call in result.record.calls if call.reply} == {"unusable: unchanged"}


def test_without_a_model_the_search_does_not_start(tmp_path: Path) -> None:
    for coder in ("llm", "auto", "agent"):
        with pytest.raises(ConfigError, match=r"set model\.name"):
            search(ATTENTION / "task.py", coder=coder, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"set model\.name"):
        search(ATTENTION / "task.py", policy="llm", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_that_cannot_be_used_ends_the_search_with_what_to_set(tmp_path: Path) -> None:
    settings = ModelSettings("openai/scripted", fault_server.unserved_url(), retries=0)
    with pytest.raises(ModelError, match=r"model\.api_base"):
        search(
            ATTENTION / "task.py",
            coder="llm",
            evaluator=FakeEvaluator(),
            model=settings,
            budget=4,
            out=tmp_path / "run",
        )


def _shown(body: dict[str, Any]) -> str:
    """The file as the prompt shows it, without line numbers."""
    from mtmc.agents.coders import CODERS
    from mtmc.task import load_task

    return CODERS["rewriter"]().root(load_task(ATTENTION / "task.py")).source
