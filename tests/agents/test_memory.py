"""What agents are told besides a version's ancestors: in which order, within which room, the same when it is replayed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mtmc.agents.coders.agent.prompt import first_messages
from mtmc.agents.coders.editing.prompt import edit_messages
from mtmc.agents.facts.memory import CHARACTERS, memory_text
from mtmc.agents.policies.ranking import ranking_messages
from mtmc.chat import ModelSettings
from mtmc.evaluate import ReplaySettings
from mtmc.fakes import FakeCoder, FakeEvaluator
from mtmc.knowledge import Entry, to_text
from mtmc.optimizations import KINDS
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EditRequest, Observation, Relatives, RunFacts, Step
from mtmc.search import AgentSettings, Budget, load, search
from mtmc.search.canonical import canonical_json
from mtmc.search.opening import reopened
from mtmc.search.relatives import relatives_of
from mtmc.store import Store
from tests.agents.fault_server import FaultServer, unserved_url
from tests.agents.versions import FUSE, edit_request

FAILED = Outcome("wrong_result", diagnosis=Diagnosis("check", "WrongValues", "off by  0.3 in\nrow 7"))
KNOWN = Entry(
    task="other", ops=("relu", "mul"), shapes="8x8", dtype="float32", hardware="H100", kind="fuse", params={"groups": 2},
    sentence="fuse relu and mul", gain=1.75, parent_ms=7.0, child_ms=4.0, runtime_kind="measured", gate="verify",
    parent="a", child="b", diff="-        y = torch.relu(x)\n+        y = kernel(x)",
)  # fmt: skip


def step(sentence: str, outcome: Outcome | None = None, speedup: float | None = 1.5) -> Step:
    found = outcome or Outcome("ok", 1.0)
    return Step(replace(FUSE, sentence=sentence), "", found, speedup if found.ok else None)


RELATIVES = Relatives(
    siblings=(step("tile it"), step("split it", FAILED)),
    failures=(step("pipeline it", Outcome("timeout")),),
    best=(step("lower it", speedup=1.2), step("vectorize it", speedup=3.0)),
)


def asked(tokens: int = 600, **changes: Any) -> EditRequest:
    return edit_request(relatives=RELATIVES, run=RunFacts(knowledge=(KNOWN,), memory_tokens=tokens), **changes)


TEXT = """\
# What was tried on this version already
- tile it: 1.5x the reference
- split it: wrong result, WrongValues: off by 0.3 in row 7

# The best version so far (3x the reference), step by step
- lower it: 1.2x the reference
- vectorize it: 3x the reference

# What failed elsewhere
- pipeline it: timeout

# What helped in other runs
- fuse relu and mul (groups=2): 1.75x the version before (measured, H100, other, float32 of 8x8)
The first of these changed:
```diff
-        y = torch.relu(x)
+        y = kernel(x)
```"""


def test_relatives_and_other_runs_are_told() -> None:
    assert memory_text(asked(), "fuse") == TEXT
    assert "What helped in other runs" not in memory_text(asked(), "tile")
    assert "```diff" not in memory_text(asked(), None), "a policy is told which actions helped, and not how"


def test_every_agent_is_told_but_for_a_repair() -> None:
    request = asked()
    seen = Observation(
        request.task, request.source, None, request.outcome, (), "H100", run=request.run, relatives=RELATIVES
    )
    assert TEXT in edit_messages(request)[1].content and TEXT in first_messages(request, 9, 9)[1].content
    assert "- vectorize it: 3x" in ranking_messages(seen, [FUSE], 2, 4)[1].content
    repair = edit_messages(replace(request, failed_source=request.source + "\n"))[1].content
    assert "What was tried on this version" not in repair
    assert "What was tried" not in edit_messages(asked(0))[1].content


@pytest.mark.parametrize("tokens", [0, 1, 20, 60, 120, 200, 400])
def test_it_stays_within_its_room_and_tells_the_latest(tokens: int) -> None:
    many = replace(RELATIVES, siblings=tuple(step(f"change number {at}") for at in range(200)))
    request = replace(asked(tokens), relatives=many)
    told = memory_text(request, "fuse")
    assert len(told) <= tokens * CHARACTERS
    if tokens >= 60:
        assert "change number 199" in told and "change number 0:" not in told
    if tokens >= 120:
        assert "- fuse relu and mul (groups=2)" in told, "half of the room is for other runs"


# Of a tree.


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "fake"
    coder = FakeCoder()
    search(
        "softmax",
        coder=coder,
        policy="uniform",
        evaluator=FakeEvaluator(failing=0.4),
        budget=40,
        out=folder,
        progress=False,
    )
    return folder


def test_relatives_are_those_of_the_tree_as_it_was(run_dir: Path) -> None:
    given = {"strategy": None, "policy": None, "coder": FakeCoder(), "evaluator": FakeEvaluator(failing=0.4)}
    with reopened(run_dir, given) as run:  # type: ignore[arg-type]
        tree = run.tree
        parent = max(tree, key=lambda node: len(tree.children(node.id)))
        children = tree.children(parent.id)
        assert len(children) > 2
        for known in (children[1].id, children[2].id, len(tree)):
            found = relatives_of(run, parent.id, known, "fuse")
            assert [each.source for each in found.siblings] == [each.source for each in children if each.id < known][
                -12:
            ]
            failed = [n for n in tree if n.id < known and not n.outcome.ok and n.parent_id != parent.id]
            assert {each.source for each in found.failures} <= {each.source for each in failed}
            assert len(found.failures) == min(12, len(failed))
            of_kind = [each.action.kind == "fuse" for each in found.failures]
            assert of_kind == sorted(of_kind), "those of the same kind come last"
            fastest = max((n for n in tree if n.id < known), key=lambda n: (tree.speedup(n.id) or 0.0, -n.id))
            own = fastest.id in {each.id for each in tree.path(parent.id)}
            assert (not found.best) if own else found.best[-1].source == fastest.source


# A whole search, with replies as a good model would write them.

ATTENTION = Path(__file__).parent / "attention"
FILES = {path.stem: path.read_text() for path in sorted(ATTENTION.glob("*.py"))}


def remembering_model(body: dict[str, Any]) -> str:
    """It answers with a wrong kernel at first, and once it is told that this was tried, with the right one."""
    told = str(body["messages"][1]["content"])
    tried = "# What was tried on this version already" in told or "# What failed elsewhere" in told
    return f"```python\n{FILES['online' if tried else 'broken']}```\n"


def test_a_model_learns_from_what_failed_on_the_same_version(tmp_path: Path) -> None:
    """Of a fake evaluator that lets only the right kernel pass; the run is then replayed without file and server."""
    file = tmp_path / "knowledge.json"
    entry = replace(KNOWN, ops=("softmax", "matmul"), sentence="one kernel for all of attention")
    file.write_text(to_text([replace(entry, kind=kind) for kind in KINDS]))
    settings: dict[str, Any] = {
        "coder": "llm", "strategy": "greedy", "policy": "uniform", "repairs": 0, "progress": False,
        "budget": Budget(evaluations=3, calls=4),
    }  # fmt: skip
    with FaultServer(reply=remembering_model) as server:
        result = search(
            ATTENTION / "task.py",
            evaluator=OnlyOnline(),
            model=ModelSettings("openai/scripted", server.url, temperature=0.0),
            agents=AgentSettings(knowledge=str(file)),
            out=tmp_path / "run",
            **settings,
        )
    assert [node.outcome.status for node in result.tree] == ["ok", "wrong_result", "ok"]
    store = Store.read(result.run_dir)
    first, second = [call.request.messages[1].content for call in store.model_calls()]
    store.close()
    assert "# What was tried on this version already" not in first and "one kernel for all of attention" in first
    assert "wrong result, WrongValues: the columns beyond the length" in second
    file.unlink()
    again = search(
        ATTENTION / "task.py",
        evaluator=ReplaySettings(run=str(result.run_dir)),
        model=ModelSettings("openai/scripted", unserved_url(), 0.0, replay=str(result.run_dir)),
        out=tmp_path / "again",
        **settings,
    )
    assert canonical_json(again) == canonical_json(load(result.run_dir))


class OnlyOnline(FakeEvaluator):
    """Finds the broken kernel wrong."""

    def _evaluate(self, request: Any) -> Outcome:
        if request.source == FILES["broken"]:
            message = "the columns beyond the length were not masked"
            return Outcome("wrong_result", diagnosis=Diagnosis("check", "WrongValues", message))
        return Outcome("ok", 1.0 if request.source == FILES["online"] else 3.0, runtime_kind="estimated")
