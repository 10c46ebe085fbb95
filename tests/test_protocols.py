"""The boundaries say all that is asked across them: what a part must have, and what it is taken to be where it is silent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mtmc.action import STOP, Action, Region
from mtmc.agents.coders import CODERS
from mtmc.agents.policies import POLICIES
from mtmc.errors import ConfigError, ModelError
from mtmc.evaluate import EVALUATORS
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy, FakeStrategy
from mtmc.outcome import Outcome
from mtmc.protocols import (
    Coder,
    Edit,
    EditRequest,
    EvaluationRequest,
    Evaluator,
    EvaluatorSettings,
    Observation,
    Policy,
    Strategy,
)
from mtmc.search import search
from mtmc.search.strategies import STRATEGIES
from mtmc.task import Task

FILES = Path(__file__).parent.parent / "mtmc"
OPTIONAL = (
    *("verifies", "baselines", "recorded_as", "open", "propose", "freeform", "asks_model", "reads_text", "check"),
    *("anchored", "threads"),
)
"""What once was looked up by name."""

PARTS = [
    *(pytest.param(part, Policy, id=f"policy {name}") for name, part in {**POLICIES, "fake": FakePolicy}.items()),
    *(pytest.param(part, Coder, id=f"coder {name}") for name, part in {**CODERS, "fake": FakeCoder}.items()),
    *(pytest.param(part, EvaluatorSettings, id=f"evaluator {name}") for name, part in EVALUATORS.items()),
    *(
        pytest.param(part, Strategy, id=f"strategy {name}")
        for name, part in {**STRATEGIES, "fake": FakeStrategy}.items()
    ),
    pytest.param(FakeEvaluator, Evaluator, id="evaluator fake"),
]


@dataclass(frozen=True)
class Even(Policy):
    def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
        return [1 / len(actions)] * len(actions)


@dataclass(frozen=True)
class Copying(Coder):
    deterministic: bool = True

    def root(self, task: Task) -> Edit:
        return Edit("root\n")

    def actions(self, observation: Observation, failures: Sequence[tuple[str | None, Outcome]]) -> list[Action]:
        return [Action("tile", Region("op", 1, 1), (), "tile op"), STOP]

    def edit(self, request: EditRequest) -> Edit:
        return Edit(f"{request.source}again\n")


class Timeless(Evaluator):
    hardware = "H100"

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        assert all(request.depth == "screen" for request in requests)
        return [Outcome("ok", 1.0, runtime_kind="estimated") for _ in requests]

    def close(self) -> None: ...


def run(**parts: Any) -> Any:
    given = {"strategy": "greedy", "policy": Even(), "coder": Copying(), "evaluator": Timeless(), **parts}
    return search(FAKE_TASK, **given, budget=3, dumps=False)


@pytest.mark.parametrize(("part", "protocol"), PARTS)
def test_every_part_names_its_protocol_as_its_base(part: type, protocol: type) -> None:
    assert protocol in part.__mro__


def test_nothing_that_a_protocol_declares_is_looked_up_by_name() -> None:
    lookup = re.compile(rf"(?:get|has)attr\([^()]*, \"({'|'.join(OPTIONAL)})\"")
    found = [f"{path}: {hit}" for path in FILES.rglob("*.py") for hit in lookup.findall(path.read_text())]
    assert found == []


def test_a_part_that_has_what_it_must_have_is_enough() -> None:
    result = run()
    assert (len(result.tree), result.baselines) == (3, {})
    assert Even().propose(None, []) == [] and Even().priors([]) == []  # type: ignore[arg-type]
    assert not (Even().asks_model or Even().reads_text or Copying().asks_model or Copying().freeform)
    assert not Timeless().verifies and Timeless().recorded_as is None


@pytest.mark.parametrize(("part", "lacks"), [(Policy, "prior"), (Evaluator, "close, evaluate"), (Strategy, "add_node")])
def test_a_part_that_lacks_what_it_must_have_cannot_be_made(part: type, lacks: str) -> None:
    with pytest.raises(TypeError, match="abstract") as refused:
        type("Lacking", (part,), {})()
    assert all(name in str(refused.value) for name in lacks.split(", "))  # quoted or not, by the version of Python


def test_an_object_without_the_base_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    class Unbased:
        def prior(self, observation: Observation, actions: Sequence[Action]) -> list[float]:
            return [1.0]

    with pytest.raises(ConfigError, match=r"is no policy: give a name \(.*\) or an object whose class has the base "):
        run(policy=Unbased(), out=tmp_path / "run")
    with pytest.raises(
        ConfigError, match=r"mtmc\.protocols\.Policy; it lacks asks_model, reads_text, check, priors, prop"
    ):
        run(policy=Unbased(), out=tmp_path / "run")

    class Nameless(Evaluator):
        def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
            return []

        def close(self) -> None: ...

    with pytest.raises(ConfigError, match=r"mtmc\.protocols\.Evaluator; it lacks hardware$"):
        run(evaluator=Nameless(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_part_that_cannot_be_used_says_so_before_anything_starts(tmp_path: Path) -> None:
    class Unusable(Even):
        def check(self) -> None:
            raise ModelError("there is no such model: name another one")

    with pytest.raises(ModelError, match="no such model"):
        run(policy=Unusable(), out=tmp_path / "run")

    class Asking(Copying):
        @property
        def asks_model(self) -> bool:
            return True

    with pytest.raises(ConfigError, match="the coder of this search ask a language model, and none is named"):
        run(coder=Asking(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_actions_that_a_policy_proposes_are_for_a_coder_that_takes_such() -> None:
    idea = Action("freeform", Region("op", 1, 1), (), "keep it in registers")

    class Proposing(Even):
        def propose(self, observation: Observation, actions: Sequence[Action]) -> list[Action]:
            return [idea]

    @dataclass(frozen=True)
    class Free(Copying):
        freeform: bool = field(default=True)

    assert [each for each, _ in run(policy=Proposing(), coder=Free()).record.legal[0]][1:] == [idea, STOP]
    assert idea not in [each for each, _ in run(policy=Proposing()).record.legal[0]]
