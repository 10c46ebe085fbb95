"""The same module is not searched twice, and a run gives its module back: here and in other processes."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mtmc
from mtmc.action import STOP, Action, Region
from mtmc.cache import WinnerCache
from mtmc.errors import RunError
from mtmc.fakes import FakePolicy
from mtmc.outcome import Outcome
from mtmc.protocols import Coder, Edit, EditRequest, EvaluationRequest, Evaluator, Observation
from mtmc.search import Budget
from mtmc.store import SCHEMA_VERSION, STORE_NAME
from mtmc.task import Task
from tests.dropin.modules import BLOCK, Block

X = torch.linspace(-2, 2, 48).reshape(6, 8)
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class OneVersion(Coder):
    """A coder of one version, whatever the task."""

    text: str = BLOCK

    @property
    def deterministic(self) -> bool:
        return True

    def root(self, task: Task) -> Edit:
        return Edit(task.source.replace("class Model(", "class ModelNew("))

    def actions(self, observation: Observation, failures: Sequence[Any]) -> list[Action]:
        return [STOP] if observation.history else [Action("lower", Region("fc", 1, 1), (), "write it out"), STOP]

    def edit(self, request: EditRequest) -> Edit:
        return Edit(self.text)


@dataclass
class Times(Evaluator):
    """Gives the root 8 ms and every other version `ms`."""

    ms: float = 4.0
    hardware: str = "H100"
    asked: list[str] = field(default_factory=list)

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        self.asked += [request.source for request in requests]
        return [Outcome("ok", self.ms if "triton" in r.source else 8.0, runtime_kind="estimated") for r in requests]

    def close(self) -> None:
        pass


def optimized(times: Times, module: nn.Module | None = None, x: torch.Tensor = X, **settings: Any) -> Any:
    module = Block().eval() if module is None else module
    parts: dict[str, Any] = {"policy": FakePolicy(), "coder": OneVersion(), "evaluator": times, "budget": 4}
    return mtmc.optimize(module, x, **{**parts, **settings})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of each test's own."""
    monkeypatch.setenv("MTMC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def same(made: Any, x: torch.Tensor = X) -> bool:
    """Whether a drop-in does what its class does, by kernels."""
    before = made.mtmc.kernel_calls
    with torch.no_grad():
        right = torch.allclose(made(x), Block.forward(made, x), rtol=1e-4, atol=1e-5)
    return right and made.mtmc.kernel_calls == before + 1


def test_the_second_time_nothing_is_searched(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    first = optimized(times)
    assert len(times.asked) == 2 and same(first) and not first.mtmc.found.cached and first.mtmc.result is not None
    with caplog.at_level(logging.WARNING, "mtmc"):
        second = optimized(times, x=torch.randn(6, 8) * 9)
    assert len(times.asked) == 2 and same(second) and second.mtmc.result is None
    assert second.mtmc.found == replace(first.mtmc.found, cached=True)
    assert "Block is not searched again: 2.00x estimated" in caplog.text and "cache=False" in caplog.text
    assert "from the cache" in repr(second.mtmc) and "from the cache" not in repr(first.mtmc)
    third = optimized(times, cache=False)
    assert len(times.asked) == 4 and not third.mtmc.found.cached


@pytest.mark.filterwarnings("ignore:mtmc. a version is not used")
def test_what_is_other_is_searched() -> None:
    times = Times()
    optimized(times)
    others: list[dict[str, Any]] = [
        {"module": Block(4).eval(), "x": X[:, :4]},
        {"x": X.T.contiguous().T},
        {"module": Block().eval().double(), "x": X.double()},
        {"budget": Budget(4, depth=9)},
        {"seed": 1},
        {"coder": OneVersion(BLOCK + "\n")},
    ]
    for other in others:
        assert not optimized(times, **other).mtmc.found.cached, other
    assert optimized(times, budget=Budget(3, wall_seconds=9.0)).mtmc.found.cached


def test_that_nothing_is_faster_is_remembered() -> None:
    times = Times(ms=9.0)
    first, second = optimized(times), optimized(times)
    assert second.mtmc.found.cached and len(times.asked) == 2 and second.mtmc.found.speedup == 1.0
    assert second.mtmc.reason.startswith(first.mtmc.reason) and "from the cache" in second.mtmc.reason
    with torch.no_grad():
        assert torch.equal(second(X), Block.forward(second, X))


def test_a_winner_that_is_not_right_here_is_searched_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entry was made where it was right: on weights for which the limit does not matter, say."""
    wrong = BLOCK.replace("y > 3.0, 3.0", "y > 1.0, 1.0")
    small = Block().eval()
    with torch.no_grad():
        small.fc.weight.mul_(0.01)
        small.fc.bias.mul_(0.01)
    times = Times()
    assert optimized(times, small, coder=OneVersion(wrong)).mtmc.versions
    large = Block().eval()
    with torch.no_grad():
        large.fc.weight.mul_(10)
    with pytest.warns(RuntimeWarning, match="a version is not used"), caplog.at_level(logging.WARNING, "mtmc"):
        made = optimized(times, large, coder=OneVersion(wrong))
    assert not made.mtmc.versions and len(times.asked) == 4 and "in the cache is not used" in caplog.text
    again = optimized(times, large, coder=OneVersion(wrong))
    assert again.mtmc.found.cached and "on the example" in again.mtmc.reason and len(times.asked) == 4


def test_with_a_folder_of_its_own_there_is_always_a_search(tmp_path: Path) -> None:
    times = Times()
    optimized(times)
    made = optimized(times, out=tmp_path / "run")
    assert not made.mtmc.found.cached and made.mtmc.found.run == str(tmp_path / "run") and (tmp_path / "run").is_dir()
    assert len(times.asked) == 4


def test_a_folder_that_others_may_write_to_is_refused_before_anything_is_done(folder: Path) -> None:
    (folder / "winners").mkdir(parents=True, mode=0o700)
    (folder / "winners").chmod(0o777)
    with pytest.raises(RunError, match="others may write to the cache folder"):
        optimized(times := Times())
    assert not times.asked
    assert same(optimized(times, cache=False))


def test_in_another_process_with_other_weights(tmp_path: Path) -> None:
    """The cache spares the search, and the run gives its module back."""
    run, module = tmp_path / "run", Block().eval()
    optimized(Times(), module, out=run)
    other = Block().eval()
    made = mtmc.load(run, other)
    assert same(made) and made.fc is other.fc and isinstance(made, Block)
    code = (
        "import json, torch\nfrom tests.dropin.test_again import *\n"
        "torch.manual_seed(7)\nmodule = Block().eval()\n"
        "made = optimized(times := Times(), module)\n"
        f"loaded, alone = mtmc.load({str(run)!r}, module), mtmc.load({str(run)!r})\n"
        f"torch.save(alone(X), {str(tmp_path / 'out.pt')!r})\n"
        "print(json.dumps([made.mtmc.found.cached, same(made), times.asked, same(loaded)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts == [True, True, [], True]
    with torch.no_grad():
        assert torch.allclose(torch.load(tmp_path / "out.pt"), module(X), rtol=1e-4, atol=1e-5), "its own weights"


def test_a_run_that_found_nothing_gives_the_original_back(tmp_path: Path) -> None:
    optimized(Times(ms=9.0), out=tmp_path / "run")
    made = mtmc.load(tmp_path / "run", Block().eval())
    assert not made.mtmc.versions and made.mtmc.reason.startswith("no version is faster")


def test_a_run_that_was_resumed_gives_its_module_back(tmp_path: Path) -> None:
    run = tmp_path / "pieces" / "01-Block"
    assert not optimized(Times(), out=run, budget=1, cache=False).mtmc.versions
    mtmc.search.resume(run, policy=FakePolicy(), coder=OneVersion(), evaluator=Times(), budget=4)
    assert same(mtmc.load(run, Block().eval()))
    with pytest.raises(RunError, match="holds the runs of several modules"):
        mtmc.load(tmp_path)


def test_a_run_of_a_file_gives_a_module_of_its_own(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"policy": FakePolicy(), "coder": OneVersion(SCALE), "evaluator": Times(), "budget": 4}
    mtmc.search.search(FILE, out=tmp_path / "run", **parts)
    made = mtmc.load(tmp_path / "run")
    assert type(made).__name__ == "ModelNew" and torch.equal(made(torch.ones(2)), torch.full((2,), 3.0))
    with pytest.raises(RunError, match="searched as a file"):
        mtmc.load(tmp_path / "run", Block())


FILE = '''"""A task with an argument."""
import torch

rows = 8


class Model(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.scale = torch.nn.Linear(1, 1)
        self.factor = factor

    def forward(self, x):
        return x * self.factor + 0 * self.scale.weight.sum()


def get_inputs():
    return [torch.randn(rows)]


def get_init_inputs():
    return [3.0]
'''
SCALE = FILE.replace("class Model(", "class ModelNew(") + "# no triton\n"


def test_what_cannot_be_loaded_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    with pytest.raises(RunError, match="there is no run in"):
        mtmc.load(run)
    optimized(Times(), out=run)
    with pytest.raises(RunError, match=r"not of this Block \(its fc.weight is \(4, 4\)"):
        mtmc.load(run, Block(4))
    with pytest.raises(RunError, match=r"not of this ReLU \(.*no tensor at 'fc.weight'"):
        mtmc.load(run, nn.ReLU())
    monkeypatch.setattr("mtmc.store.run_store.RESUMABLE", SCHEMA_VERSION + 1)
    with pytest.raises(RunError, match="older version of mtmc"):
        mtmc.load(run)
    monkeypatch.undo()
    with pytest.raises(ZeroDivisionError):
        optimized(Times(), out=tmp_path / "stopped", cache=False, progress=lambda progress: 1 / 0)
    assert (tmp_path / "stopped" / STORE_NAME).exists()
    with pytest.raises(RunError, match="has not ended: go on with it first"):
        mtmc.load(tmp_path / "stopped")


def test_a_run_whose_call_cannot_be_pickled_is_loaded_without_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(what: object) -> bytes:
        raise pickle.PicklingError("no")

    monkeypatch.setattr("mtmc.dropin.binding.pickle.dumps", refuse)
    assert same(optimized(Times(), out=tmp_path / "run"))
    assert mtmc.load(tmp_path / "run")(X).shape == X.shape
    with pytest.raises(RunError, match="its call could not be kept"):
        mtmc.load(tmp_path / "run", Block())
    assert len(WinnerCache().entries()) == 1
