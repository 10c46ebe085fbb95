"""A whole model from its example call to the model with winners in it, with an evaluator that takes no time."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mtmc.cli import main
from mtmc.errors import ConfigError, RunError, TaskError
from mtmc.evaluate import EVALUATORS
from mtmc.hardware import hardware
from mtmc.search import Budget, Progress
from mtmc.whole import campaign as campaign_module
from mtmc.whole.calls import CallTree
from mtmc.whole.campaign import Campaign
from mtmc.whole.judge import Measured, Patch, difference
from mtmc.whole.optimize import optimize
from mtmc.whole.patch import shallow
from mtmc.whole.piece_search import Spent, slice_budget
from mtmc.whole.pieces import Limits, Piece
from mtmc.whole.record import Record
from mtmc.whole.settings import WholeSettings
from mtmc.whole.settle import best_of
from mtmc.whole.trace import trace
from tests.whole.toy import KernelCounter, Layer, decoder, inputs

FAST: dict[str, Any] = {"evaluator": KernelCounter(), "policy": "heuristic", "dumps": False}


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, nn.Module, Path]:
    """The toy decoder, the same optimized, and the folder of its runs."""
    model, out = decoder(layers=4), tmp_path_factory.mktemp("whole") / "runs"
    told: list[Progress] = []
    new = optimize(model, inputs(), whole=True, budget=8, out=out, progress=told.append, **FAST)
    assert {progress.what for progress in told} == {"Layer layers.*"}, "progress is told with the piece it is of"
    return model, new, out


def test_four_equal_layers_are_one_search_and_their_winner_is_in_four_places(
    optimized: tuple[nn.Module, nn.Module, Path],
) -> None:
    _, new, out = optimized
    record = new.mtmc
    assert isinstance(record, Record)
    layers = record.rows[0]
    assert (layers.name, layers.places, layers.evaluations, layers.kept) == ("Layer layers.*", 4, 8, True)
    assert layers.share > 0.85 and layers.speedup is not None and layers.speedup > 1.4
    assert [path.name for path in (out / "pieces").iterdir()] == ["01-Layer"]
    assert [layer.mtmc.versions for layer in new.layers] == [new.layers[0].mtmc.versions] * 4
    assert "@triton.jit" in new.layers[0].mtmc.versions[0]


def test_the_original_is_unchanged_and_the_copy_shares_its_weights(
    optimized: tuple[nn.Module, nn.Module, Path],
) -> None:
    model, new, _ = optimized
    assert type(new) is type(model) and type(model.layers[0]) is Layer and not hasattr(model, "mtmc")
    assert all(a is b for a, b in zip(new.parameters(), model.parameters(), strict=True))
    assert list(new.state_dict()) == list(model.state_dict()) and new.head is model.head
    with torch.no_grad():
        assert torch.equal(new(*inputs()), model(*inputs()))
        for other in (copy.deepcopy(new), pickle.loads(pickle.dumps(new))):
            assert other.mtmc == new.mtmc and other.layers[3].mtmc.versions == new.layers[3].mtmc.versions
            assert torch.equal(other(*inputs()), model(*inputs()))


def test_the_table_has_the_pieces_and_the_whole(optimized: tuple[nn.Module, nn.Module, Path]) -> None:
    _, new, out = optimized
    record, lines = new.mtmc, new.mtmc.table.splitlines()
    assert lines[2].startswith(
        f"| Layer layers.* | {record.rows[0].share:.1%} | 4 | 8 | {record.rows[0].speedup:.2f}x |"
    )
    assert any(line.startswith("| Linear head |") and "promises too little" in line for line in lines)
    assert "| **the whole, eager** | | | | 1.00x |" in lines[-2] and lines[-1].endswith("estimated, handed back |")
    # Amdahl: the part of the time that is not in the layers stays.
    share, gain = record.rows[0].share, record.rows[0].speedup
    assert record.speedup == pytest.approx(1 / (1 - share + share / gain), rel=1e-6)
    assert json.loads((out / "summary.json").read_text())["chosen"] == "patched"
    assert (out / "table.md").read_text().startswith(record.table) and "sums of estimates" in record.notes[-1]


def test_pieces_are_not_searched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MTMC_CACHE", str(tmp_path / "cache"))
    parts: dict[str, Any] = {**FAST, "whole": True, "budget": 8}
    first = optimize(decoder(layers=2), inputs(), out=tmp_path / "runs", **parts)
    monkeypatch.setattr("mtmc.whole.piece_search.search", None)
    second = optimize(decoder(layers=2), inputs(), **parts)
    assert first.mtmc.rows == second.mtmc.rows and first.mtmc.evaluations == 8
    assert "Not searched again: 1 of the pieces" in second.mtmc.text and "again" not in first.mtmc.text
    for other in ({"cache": False}, {"budget": 9}, {"seed": 1}):
        with pytest.raises(TypeError, match="not callable"):
            optimize(decoder(layers=2), inputs(), **{**parts, **other})
    with pytest.raises(TypeError, match="not callable"):
        optimize(decoder(layers=3), inputs(), **parts)


def test_a_large_model_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []
    live = sys.modules["mtmc.whole.live"]
    monkeypatch.setattr(live, "trace", lambda *given: traced.append(given) or trace(*given))
    limits = WholeSettings(limits=Limits(most_kernels=8))
    made = optimize(decoder(layers=2), inputs(), whole_settings=limits, budget=1, cache=False, **FAST)
    assert isinstance(made.mtmc, Record) and len(traced) == 1


class Undecided(nn.Module):
    """Its layers can be captured, and itself cannot: it reads a value."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = decoder(layers=2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y = self.inner(ids)
        return y if bool(y.sum() > -1e9) else -y


def test_a_network_of_many_operations_is_one_search_and_in_pieces_where_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules["mtmc.whole.optimize"]
    monkeypatch.setattr(module, "FEW", 8)
    parts: dict[str, Any] = {**FAST, "budget": 2, "cache": False}
    whole = optimize(decoder(layers=4), inputs(), **parts)
    assert not isinstance(whole.mtmc, Record) and whole.mtmc.result.evaluations == 2
    split = optimize(Undecided().eval(), inputs(), **parts).mtmc
    assert isinstance(split, Record) and split.evaluations == 2
    assert split.notes[0].startswith("It is searched in pieces, for it cannot be as one: module Undecided")
    heavy = WholeSettings(limits=Limits(most_bytes=100))
    assert isinstance(optimize(decoder(layers=4), inputs(), whole_settings=heavy, **parts).mtmc, Record)
    assert [Limits.where(on_gpu).most_kernels for on_gpu in (True, False)] == [512, 64]
    monkeypatch.setattr(module, "FEW", 64)
    with pytest.raises(TaskError, match="module Undecided"):
        optimize(Undecided().eval(), inputs(), **parts)


def test_a_small_module_is_one_search_and_a_bad_setting_is_refused(tmp_path: Path) -> None:
    single = optimize(Layer(16, 0).eval(), torch.randn(4, 16), budget=2, **FAST)
    assert not isinstance(single.mtmc, Record) and single.mtmc.result.evaluations == 2
    with pytest.raises(ConfigError, match="no setting 'budgets'"):
        optimize(decoder(1), inputs(), whole=True, budgets=2, **FAST)
    with pytest.raises(ConfigError, match="model_seconds is not for a whole model"):
        optimize(decoder(1), inputs(), whole=True, budget=Budget(model_seconds=3.0), **FAST)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="not an empty folder"):
        optimize(decoder(1), inputs(), whole=True, out=tmp_path, **FAST)
    with pytest.raises(TaskError, match="Decoder does not run on its example inputs"):
        optimize(decoder(1), (torch.zeros(3, 8),), whole=True, **FAST)


def test_a_winner_that_is_not_right_in_a_place_is_not_put_there_and_the_table_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def drop_in(module: nn.Module, capture: Any, sources: Sequence[str]) -> nn.Module:
        new = shallow(module)
        right = module.index != 1
        new.__dict__["mtmc"] = SimpleNamespace(versions=tuple(sources) if right else (), reason="it differs")
        return new

    monkeypatch.setattr(sys.modules["mtmc.whole.optimize"], "drop_in", drop_in)
    model = decoder(2)
    new = optimize(model, inputs(), whole=True, budget=3, cache=False, **FAST)
    assert new.layers[1] is model.layers[1] and new.layers[0] is not model.layers[0]
    assert "The winner of Layer layers.* is not used in 1 of its places: it differs." in new.mtmc.notes


class FakeSearch:
    """A search that needs no time: 10% faster with each slice, but for linear layers."""

    def __init__(self, piece: Piece, capture: Any, folder: Path, settings: Any) -> None:
        self.piece, self.spent, self.speedup = piece, Spent(), 1.0

    def advance(self, budget: Budget, evaluator: Any) -> None:
        self.spent = Spent(budget.evaluations, usd=budget.evaluations / 100)
        self.speedup *= 1.0 if self.piece.sites[0].kind == "Linear" else 1.1


def campaign(monkeypatch: pytest.MonkeyPatch, budget: Budget, refuse: str = "") -> Campaign:
    """A campaign for the toy decoder. refuse: the class of the modules that cannot be captured."""

    def capture(module: nn.Module, *rest: Any) -> Any:
        if type(module).__name__ == refuse:
            raise TaskError(f"{refuse} reads values")
        return SimpleNamespace()

    monkeypatch.setattr(campaign_module, "capture_module", capture)
    monkeypatch.setattr(campaign_module, "PieceSearch", FakeSearch)
    model = decoder()
    profile = trace(model, inputs(), {}, CallTree()).profile(hardware("H100"))
    return Campaign(model, profile, lambda piece: ((), {}), KernelCounter(), budget, Path("none"), {})


def test_what_cannot_be_captured_is_split_and_the_budget_is_spent_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = campaign(monkeypatch, Budget(32))
    plain.run()
    assert list(plain.searches) == [plain.choice.pieces[0].key] and plain.spent.evaluations == 32
    split = campaign(monkeypatch, Budget(64), refuse="Layer")
    split.run()
    assert [(each.name, each.reason) for each in split.choice.passed_over] == [("Layer layers.*", "Layer reads values")]
    # The head has the shape of gate and up, and the last norm that of the layers': pieces grow by what is split.
    places = {piece.sites[0].path: len(piece.paths) for piece in split.choice.pieces}
    assert places == {"layers.0.gate": 9, "layers.0.down": 4, "layers.0.norm": 5, "embedding": 1}
    norm = next(piece for piece in split.choice.pieces if piece.sites[0].kind == "RMSNorm")
    assert norm.key in split.searches and split.prospects[norm.key].share == norm.share > 0.1
    assert split.spent.evaluations == 64
    limited = campaign(monkeypatch, Budget(64, usd=0.1))
    limited.run()
    assert 0.1 <= limited.spent.usd < 0.3 and limited.spent.evaluations < 64


def test_a_slice_may_take_what_the_whole_budget_leaves() -> None:
    whole = Budget(100, wall_seconds=60.0, usd=2.0, depth=5)
    given = slice_budget(whole, Spent(30, 20.0, 1.5), Spent(10, 5.0, 0.25), 8)
    assert given == Budget(18, wall_seconds=45.0, usd=0.75, depth=5)


class Costs(nn.Module):
    """Takes the place of a submodule: costs so much time, and multiplies its result."""

    clock = 0.0

    def __init__(self, inner: nn.Module, ms: float, factor: float = 1.0) -> None:
        super().__init__()
        self.inner, self.ms, self.factor = inner, ms, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Costs.clock += self.ms
        return self.inner(x) * self.factor


def compare(calls: Sequence[Callable[[], Any]]) -> list[float]:
    times = []
    for call in calls:
        Costs.clock = 0.0
        call()
        times.append(Costs.clock)
    return times


def judged(patches: dict[str, Patch], modes: dict[str, str | None] | None = None) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(Costs(nn.Linear(4, 4), 3.0), Costs(nn.Linear(4, 4), 3.0), Costs(nn.Linear(4, 4), 4.0)).eval()
    x = torch.randn(2, 4)
    return Measured(lambda m: m(x), lambda m: m(x.clone()), compare, modes or {}).judge(model, patches)


def patch(path: str, ms: float, factor: float = 1.0) -> Patch:
    return Patch((path,), lambda module: Costs(module.inner, ms, factor), 0.0)


def test_a_patch_that_makes_the_whole_slower_or_wrong_is_dropped() -> None:
    found = judged({"good": patch("0", 1.0), "slow": patch("1", 5.0), "wrong": patch("2", 0.0, factor=1.5)})
    assert found.settled.kept == {"good"} and found.settled.dropped == {"slow": 10 / 8}
    assert found.times_ms == {"eager": 10.0, "patched": 8.0} and best_of(found.times_ms) == "patched"
    assert found.models["patched"][0].ms == 1.0 and found.models["patched"][1].ms == 3.0
    assert len(found.notes) == 1 and found.notes[0].startswith("The patch of 2 is not used: result 0 differs by 0.5")
    none = judged({"slow": patch("1", 5.0)})
    assert none.settled.kept == frozenset() and list(none.models) == ["eager"] and best_of(none.times_ms) == "eager"


def test_a_compiler_that_fails_is_told_of_and_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            raise RuntimeError("no C++ compiler")

        return call if settings else function

    monkeypatch.setattr(torch, "compile", fails)
    found = judged({"good": patch("0", 1.0)}, {"torch.compile": None, "torch.compile max-autotune": "max-autotune"})
    assert list(found.times_ms) == ["eager", "patched", "torch.compile", "patched, torch.compile"]
    assert [note.partition(" is")[0] for note in found.notes] == [
        "torch.compile max-autotune", "patched, torch.compile max-autotune",
    ]  # fmt: skip


def test_results_differ_by_shape_values_and_what_is_not_finite() -> None:
    x = torch.randn(100)
    assert difference([x * (1 + 1e-4), None], [x, None]) is None
    assert "differs by" in str(difference([x * 1.01], [x])) and "differs by" in str(difference([x / 0], [x]))
    assert difference([x.bfloat16() * 1.01], [x.bfloat16()]) is None
    assert "another thing" in str(difference([x[:5]], [x])) and "instead of 2" in str(difference([x], [x, x]))
    ids = torch.arange(3)
    assert difference([ids], [ids]) is None and difference([ids + 1], [ids]) == "result 0 has other values"


MODELS = """
import torch
from torch import nn
def make_model(): return nn.Sequential(*(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(3)))
def make_one(): return nn.Sequential(nn.LayerNorm(16), nn.GELU())
def make_inputs(): return (torch.randn(4, 16),)
def by_name(): return {"input": torch.randn(4, 16)}
def a_tensor(): return torch.randn(4, 16)
def fails(): raise ValueError("no weights here")
number = 3
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with a module of models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(EVALUATORS, "counter", KernelCounter)
    (tmp_path / "toymodels.py").write_text(MODELS)
    return tmp_path


def test_the_command_prints_one_table_and_writes_it(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("budget=3", "evaluator=counter", "policy=heuristic", "dumps=false", "out=there", "--whole", "yes")
    assert main(["optimize", "toymodels:make_model", "--inputs", "toymodels:by_name", *options]) == 0
    told = capsys.readouterr().out
    assert "| Sequential * |" in told and told.count("| **the whole,") == 2 and "there/summary.json" in told
    assert (models / "there" / "table.md").read_text().strip() in told
    assert (models / "there" / "pieces" / "01-Sequential" / "best.py").exists()


def test_the_command_reads_the_cache_unless_it_is_told_not_to(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTMC_CACHE", str(models / "cache"))
    command = ["optimize", "toymodels:make_one", "--inputs", "toymodels:make_inputs", "--whole", "no", "budget=2"]
    command += ["evaluator=counter", "policy=heuristic", "dumps=false"]
    told = []
    for more in ([], [], ["--no-cache"], ["out=there"]):
        assert main([*command, *more]) == 0
        told.append(capsys.readouterr().out)
    assert ["from the cache" in each for each in told] == [False, True, False, False]
    runs = sorted((models / "runs").iterdir())
    assert [(each / "run.sqlite").exists() for each in runs] == [True, False, True]
    assert (runs[0] / "best.py").read_text() == (runs[1] / "best.py").read_text() and str(runs[1].name) in told[1]


@pytest.mark.parametrize(
    ("model", "given", "told"),
    [
        ("nothere:make_model", "make_inputs", "there is no module 'nothere'"),
        ("toymodels", "make_inputs", "'toymodels' names no function"),
        ("toymodels:other", "make_inputs", "toymodels has no 'other'"),
        ("toymodels:number", "make_inputs", "toymodels:number is a int, not a function"),
        ("toymodels:fails", "make_inputs", "toymodels:fails fails: ValueError: no weights here"),
        (
            "toymodels:a_tensor",
            "make_inputs",
            "toymodels:a_tensor returns a Tensor: it has to return a torch.nn.Module",
        ),
        ("toymodels:make_model", "a_tensor", "toymodels:a_tensor returns a Tensor: a tuple of positional"),
        ("toymodels:make_model", "make_inputs budgets=3", "there is no setting 'budgets'"),
        ("toymodels:make_model", "make_inputs task=softmax", "takes a model, not a task"),
    ],
)
def test_bad_input_is_one_message_and_status_2(
    models: Path, capsys: pytest.CaptureFixture[str], model: str, given: str, told: str
) -> None:
    inputs_name, *overrides = given.split()
    assert main(["optimize", model, "--inputs", f"toymodels:{inputs_name}", *overrides]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and told in error
    assert sorted(path.name for path in models.iterdir() if path.name != "__pycache__") == ["toymodels.py"]
