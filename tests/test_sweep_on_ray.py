"""hydra/launcher=mtmc_ray: a sweep on a cluster of several nodes, of which one is killed under a run."""

from __future__ import annotations

import csv
import importlib.util
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mtmc.cli import main
from mtmc.export.sweep import ERROR_FILE
from mtmc.search import load
from mtmc.search.canonical import canonical_json
from tests.breadth import WIDE

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: mtmc[ray]")
wide = pytest.mark.skipif(not WIDE, reason="takes half a minute: make test-all")
OUTSIDE = ("policy=mtmc.fakes:FakePolicy", "coder=mtmc.fakes:FakeCoder", "evaluator=mtmc.fakes:FakeEvaluator")
SWEEP = ("search", "-m", *OUTSIDE, "budget.evaluations=4", "dumps=false")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A head without cores, to which a test adds nodes."""
    from ray.cluster_utils import Cluster

    monkeypatch.chdir(tmp_path)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    made.shutdown()


def test_runs_are_made_on_the_cluster_and_come_back(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_node(num_cpus=1)
    Path("mine.py").write_text((Path(__file__).parents[1] / "mtmc" / "builtin_tasks" / "softmax.py").read_text())
    place = ("hydra/launcher=mtmc_ray", f"hydra.launcher.address={cluster.address}")
    assert main([*SWEEP, "task=mine.py", "seed=3", *place, "out=far"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("run 0 (")]
    assert len(told) == 1 and "seed=3): " in told[0] and told[0].endswith("/far/0"), "not the folder of its machine"
    assert main([*SWEEP, "task=mine.py", "seed=3", "out=near"]) == 0
    assert canonical_json(load("far/0")) == canonical_json(load("near/0")) and load("far/0").evaluations == 4
    rows = [list(csv.reader(Path(each, "sweep.csv").read_text().splitlines())) for each in ("far", "near")]
    assert rows[0] == rows[1] and len(rows[0]) == 2


@wide
def test_a_run_whose_machine_is_lost_is_made_again(cluster: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first, _ = (cluster.add_node(num_cpus=1) for _ in range(2))
    started = time.monotonic()

    def roots() -> int:
        """How often the root was evaluated: once by each run that has begun."""
        lines = log.read_text().splitlines() if log.exists() else []
        return Counter(lines)[lines[0]] if lines else 0

    def kill() -> None:
        while roots() < 2 and time.monotonic() < started + 300:
            time.sleep(0.05)
        cluster.remove_node(first, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    slow = (f"evaluator.log={log}", "evaluator.seconds=1.5")
    place = ("hydra/launcher=mtmc_ray", f"hydra.launcher.address={cluster.address}")
    status = main([*SWEEP, "task=softmax", "seed=0,1", *slow, *place, "out=a"])
    killer.join()
    assert status == 0 and [load(f"a/{number}").evaluations for number in (0, 1)] == [4, 4]
    assert roots() == 3, "the run of the lost machine has begun again, the other one not"


@wide
def test_a_run_that_is_lost_too_often_has_failed(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_node(num_cpus=2)
    place = ("hydra/launcher=mtmc_ray", "hydra.launcher.tries=1", f"hydra.launcher.address={cluster.address}")
    dying = "evaluator=tests.test_sweep_on_ray:Dying,mtmc.fakes:FakeEvaluator"
    given = [each for each in SWEEP if not each.startswith("evaluator=")]
    assert main([*given, "task=softmax", "seed=0", dying, *place, "out=a"]) == 2
    assert "the cluster could not make this run" in (Path("a/0") / ERROR_FILE).read_text()
    assert "mtmc: run 0" in capsys.readouterr().err
    assert load("a/1").evaluations == 4, "the others go on"


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for words, said in (
        (("evaluator=ray",), "evaluator=ray cannot be used with hydra/launcher=mtmc_ray"),
        (("hydra.launcher.tries=0",), "hydra.launcher.tries cannot be 0: use 1 or more"),
    ):
        assert main([*SWEEP, "task=softmax", "seed=0,1", "hydra/launcher=mtmc_ray", *words]) == 2
        assert said in capsys.readouterr().err


def __getattr__(name: str) -> Any:
    """Dying, made when it is asked for: the module is imported by the cluster's processes too."""
    if name != "Dying":
        raise AttributeError(name)
    import os

    from mtmc.fakes import FakeEvaluator

    class Dying(FakeEvaluator):
        def evaluate(self, requests: Any) -> Any:
            os._exit(1)

    return Dying
