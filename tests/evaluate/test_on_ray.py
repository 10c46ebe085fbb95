"""evaluator=ray: on a cluster of several nodes, of which some are killed while they evaluate."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtmc.cli import main
from mtmc.errors import ConfigError, EvaluatorError, MtmcError, TaskError
from mtmc.evaluate import LabSettings, RaySettings
from mtmc.evaluate.on_ray import RayEvaluator, inner_settings, room
from mtmc.fakes import FAKE_TASK, FakeCoder, FakeEvaluator, FakePolicy
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import SearchResult, resume, search
from mtmc.search.canonical import canonical_json
from mtmc.store import Store
from tests.breadth import WIDE, share

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: mtmc[ray]")
BUDGET = 24


class Refusing(FakeEvaluator):
    """One whose reference cannot be measured."""

    def evaluate(self, requests: Any) -> list[Outcome]:
        raise TaskError("the reference gives NaN")


def test_without_ray_one_line_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EvaluatorError, match=r"not installed: pip install 'mtmc\[ray\]'"):
        RaySettings().open()
    assert main(["search", "task=softmax", "evaluator=ray", "budget.evaluations=2"]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("mtmc: evaluator=ray needs Ray")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (RaySettings(of="cpu"), "evaluator.of cannot be 'cpu'"),  # type: ignore[arg-type]
        (RaySettings(of="lab", settings={"workers": 4}), "set evaluator.slots"),
        (RaySettings(of="lab", settings={"taget": "sm_80"}), "cannot have 'taget'"),
        (RaySettings(tries=0), "evaluator.tries must be above 0"),
        (RaySettings(slots=-1), "evaluator.slots must be at least 0"),
    ],
)
def test_a_setting_that_cannot_be_is_said_before_anything_starts(settings: RaySettings, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings.open()


def test_each_slot_is_one_evaluator() -> None:
    assert inner_settings("lab", {"target": "sm_80"}, 3) == LabSettings(target="sm_80", workers=1)
    assert inner_settings("gpu", {"reuse": 4}, 3).builders == 3  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="cannot have 'devices'"):
        inner_settings("gpu", {"devices": "0"}, 1)


def test_room_of_machines() -> None:
    def node(cpu: float, gpu: float = 0.0, alive: bool = True, **more: float) -> dict[str, Any]:
        return {"Alive": alive, "Resources": {"CPU": cpu, "GPU": gpu, **more}}

    nodes = [
        node(16, 8, **{"accelerator_type:H100": 1.0}),
        node(4, 2),
        node(64, 8, alive=False),
        {"Alive": True, "Resources": {}},
    ]
    assert room(nodes, True, 2) == 8 + 2
    assert room(nodes, True, 4) == 4 + 1
    assert room(nodes, True, 2, "H100") == 8
    assert room(nodes, False, 3) == 5 + 1
    assert room(nodes[3:], False, 1) == 1


class Nodes:
    """A cluster on this machine: a head without cores, and nodes with one each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes: list[Any] = []

    def add(self) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=1))

    def kill(self) -> None:
        """What a node has no warning of."""
        self.cluster.remove_node(self.nodes.pop(0), allow_graceful=False)

    def open(self, log: Path, wait_s: float = 60.0, slots: int = 0, **fake: Any) -> RayEvaluator:
        settings = RaySettings(address=self.cluster.address, wait_s=wait_s, slots=slots)
        return RayEvaluator(settings, functools.partial(FakeEvaluator, failing=0.4, log=log, **fake))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # this file is not installed on the nodes
    found = Nodes()
    found.add()
    found.add()
    yield found
    found.cluster.shutdown()


def given(evaluator: Any) -> dict[str, Any]:
    return {"policy": FakePolicy(), "coder": FakeCoder(), "evaluator": evaluator, "dumps": False}


def begin(folder: Path, evaluator: Any, **more: Any) -> SearchResult:
    return search(FAKE_TASK, out=folder, **{"budget": BUDGET, "seed": 6, "batch": 2, **given(evaluator), **more})


def evaluations(log: Path) -> Counter[str]:
    return Counter(log.read_text().splitlines())


def when_evaluated(log: Path, count: int, act: Any) -> threading.Thread:
    """Let something happen once so many evaluations have begun."""

    def wait() -> None:
        end = time.monotonic() + 300.0
        while (not log.exists() or len(log.read_text().splitlines()) < count) and time.monotonic() < end:
            time.sleep(0.005)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@needs_ray
@pytest.mark.parametrize("asynchronous", share([False, True], 2))
def test_a_node_that_is_killed_changes_nothing(cluster: Nodes, tmp_path: Path, asynchronous: bool) -> None:
    whole = begin(tmp_path / "whole", FakeEvaluator(failing=0.4))
    log = tmp_path / "log"
    with cluster.open(log, slots=2, seconds=0.1) as evaluator:
        killer = when_evaluated(log, 7, cluster.kill)
        result = begin(tmp_path / "run", evaluator, asynchronous=asynchronous)
        killer.join()
    cluster.add()
    assert asynchronous or canonical_json(result) == canonical_json(whole)
    assert result.evaluations == BUDGET == len(evaluations(log)), "none is lost"
    assert max(evaluations(log).values()) <= 2, "what the killed node was at is made again, once"
    assert sum(evaluations(log).values()) <= BUDGET + 1, "and nothing else"
    store = Store.read(tmp_path / "run")
    charged = [row.end.evaluations for batch in store.batches() for row in batch.trials if row.end is not None]
    made = [row.end.child_id for batch in store.batches() for row in batch.trials if row.end and row.end.kind == "node"]
    store.close()
    assert sum(charged) + 1 == BUDGET, "none counts twice"
    assert sorted(made) == list(range(1, len(result.tree))), "and none is twice in the tree"


@needs_ray
@pytest.mark.skipif(not WIDE, reason="half a minute: make test-all")
def test_when_all_nodes_are_lost_the_search_ends_and_goes_on_later(cluster: Nodes, tmp_path: Path) -> None:
    whole = begin(tmp_path / "whole", FakeEvaluator(failing=0.4))

    def kill_all() -> None:
        while cluster.nodes:
            cluster.kill()

    log = tmp_path / "log"
    with cluster.open(log, wait_s=3.0, seconds=0.1) as evaluator:
        killer = when_evaluated(log, 7, kill_all)
        with pytest.raises(EvaluatorError, match="no room for an evaluator for 3 s: start a machine with ray start"):
            begin(tmp_path / "run", evaluator)
        killer.join()
    recorded = Store.read(tmp_path / "run")
    before = {hash_ for hash_, _ in recorded.recorded()}
    recorded.close()
    cluster.add()
    with cluster.open(log, slots=2) as evaluator:  # there is room for one: the second waits for its node
        result = resume(tmp_path / "run", **given(evaluator))
        cluster.add()
    assert canonical_json(result) == canonical_json(whole)
    repeated = {line.split()[1] for line, count in evaluations(log).items() if count > 1}
    assert not repeated & before


@needs_ray
def test_what_a_slot_raises_is_raised_here_and_the_cluster_goes_on(cluster: Nodes, tmp_path: Path) -> None:
    settings = RaySettings(address=cluster.cluster.address, slots=1)
    with RayEvaluator(settings, Refusing) as evaluator:
        for _ in range(2):
            with pytest.raises(TaskError, match="the reference gives NaN"):
                evaluator.evaluate([EvaluationRequest(FAKE_TASK, "class ModelNew: ...\n")])
        assert evaluator.baselines(FAKE_TASK)["fake compiler"].ok
        assert evaluator.imports("import torch\n") is None
    with pytest.raises(EvaluatorError, match="closed"):
        evaluator.evaluate([EvaluationRequest(FAKE_TASK, "class ModelNew: ...\n")])
    with pytest.raises(MtmcError, match=r"sandbox|strct"):
        RaySettings(address=cluster.cluster.address, of="lab", settings={"sandbox": "strct"}).open()


@needs_ray
def test_what_cannot_be_started_there_is_said_in_one_line(cluster: Nodes) -> None:
    class Absent(FakeEvaluator):
        def __reduce__(self) -> Any:
            return importlib.import_module, ("no_such_package",)

    settings = RaySettings(address=cluster.cluster.address, slots=1)
    with pytest.raises(EvaluatorError, match=r"cannot be started on the cluster.*installed on each machine") as caught:
        RayEvaluator(settings, Absent())  # type: ignore[arg-type]
    assert "no_such_package" in str(caught.value) and "\n" not in str(caught.value)


@needs_ray
@pytest.mark.skipif(not WIDE, reason="processes of Ray are slow to start again: make test-all")
def test_an_evaluation_that_takes_its_process_along_is_given_up(cluster: Nodes, tmp_path: Path) -> None:
    settings = RaySettings(address=cluster.cluster.address, tries=2)
    with (
        RayEvaluator(settings, Deadly) as evaluator,
        pytest.raises(EvaluatorError, match="lost 2 times with the process or machine that made it"),
    ):
        evaluator.evaluate([EvaluationRequest(FAKE_TASK, "class ModelNew: ...\n")])


class Deadly(FakeEvaluator):
    """Its process ends with each evaluation, of lack of memory say."""

    def evaluate(self, requests: Any) -> list[Outcome]:
        os._exit(1)


@needs_ray
@pytest.mark.skipif(not WIDE, reason="a lab and a Ray of its own take a minute: make test-all")
def test_the_lab_on_ray_in_this_process_finds_what_the_lab_finds(tmp_path: Path) -> None:
    results = [
        search("softmax", out=tmp_path / str(number), budget=3, policy="heuristic", evaluator=evaluator, dumps=False)
        for number, evaluator in enumerate((LabSettings(workers=1), RaySettings(of="lab", slots=1)))
    ]
    assert [node.outcome.runtime_ms for node in results[0].tree] == [
        node.outcome.runtime_ms for node in results[1].tree
    ]


def test_settings_of_the_slots_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "task=softmax", "evaluator=ray", "evaluator.settings={target: sm_80}", "--dry-run"]) == 0
    assert "target: sm_80" in capsys.readouterr().out
    assert main(["search", "task=softmax", "evaluator=lab", "evaluator.settings={target: sm_80}", "--dry-run"]) == 2
