"""Configuration: overrides are checked, errors name the nearest setting, and what ships can be composed."""

from __future__ import annotations

import enum
import shutil
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import pytest
from omegaconf import OmegaConf

import mtmc
from mtmc import conf
from mtmc.chat import ModelSettings
from mtmc.conf import composing, overrides, schema
from mtmc.errors import ConfigError
from mtmc.evaluate import EVALUATORS
from mtmc.search import Budget
from mtmc.search.strategies import STRATEGIES, Greedy, Mcts

CONF = Path(mtmc.__file__).parent / "conf"


@dataclass(frozen=True)
class Inner:
    """Settings within settings."""

    size: int = 4


class Colour(enum.Enum):
    """A choice as an enum."""

    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Settings:
    """Every type that a setting may have."""

    needed: int
    ratio: float = 0.5
    flag: bool = False
    text: str = "a"
    limit: float | None = None
    follow: Literal["last", "best"] = "last"
    colour: Colour = Colour.RED
    sizes: tuple[int, ...] = (1, 2)
    weights: dict[str, float] = field(default_factory=lambda: {"fuse": 1.0})
    inner: Inner = field(default_factory=Inner)
    free: Any = None
    made: int = field(default=3, init=False)


def refused(*texts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        conf.compose(["task=softmax", *texts])
    return str(caught.value)


def test_every_shipped_file_composes() -> None:
    files = sorted(CONF.rglob("*.yaml"))
    assert CONF / "config.yaml" in files
    for path in files:
        group = [] if path.parent == CONF else [f"{path.parent.name}={path.stem}"]
        assert conf.compose(["task=softmax", *group]).task == "softmax"


def test_every_registered_option_composes_with_its_own_defaults() -> None:
    for kind in conf.GROUPS:
        for name, maker in conf.registry(kind).items():
            part = getattr(conf.compose(["task=softmax", f"{kind}={name}"]), kind)
            assert part.name == name
            assert maker(**part.settings) == maker()


def test_file_and_data_classes_have_the_same_defaults() -> None:
    shipped = OmegaConf.to_container(OmegaConf.load(CONF / "config.yaml"))
    assert isinstance(shipped, dict)
    declared = {each.name: each.default for each in fields(conf.SearchConfig)}
    for name in ("out", "seed", "batch", "repairs", "dumps"):
        assert shipped[name] == declared[name], name
    assert Budget(**shipped["budget"]) == Budget()


def test_values_arrive_with_their_types() -> None:
    given = ["task=softmax", "strategy=greedy", "strategy.follow=best", "budget.roofline=0.9", "dumps=false", "seed=-3"]
    config = conf.compose([*given, "budget.evaluations=7", "out=runs/${task}"])
    assert config.strategy == conf.Part("greedy", {"follow": "best"})
    assert (config.seed, config.dumps, config.out) == (-3, False, "runs/softmax")
    assert config.budget == Budget(evaluations=7, roofline=0.9)
    assert conf.make_parts(config)["strategy"] == Greedy(follow="best")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["budget.evalutions=8"], "there is no setting 'budget.evalutions': did you mean budget.evaluations?"),
        (["evaluations=8"], "there is no setting 'evaluations': did you mean budget.evaluations?"),
        (["budget={evaluations: 8, depht: 3}"], "there is no setting 'budget.depht': did you mean budget.depth?"),
        (["strategy=greedi"], "there is no strategy 'greedi': did you mean greedy?"),
        (["policy=zzz"], "there is no policy 'zzz': use one of heuristic, uniform"),
        (["strategy=null"], "there is no strategy 'null'"),
        (["strategy.exploraton=2"], "there is no setting 'strategy.exploraton': did you mean strategy.exploration?"),
        (["strategy=greedy", "strategy.exploration=2"], "strategy.exploration is a setting of strategy=mcts"),
        (["strategy.name=greedy"], "write strategy=greedy"),
        (["strategy={name: greedy}"], "write strategy=greedy"),
        (["budget.evaluations=abc"], "budget.evaluations cannot be 'abc': use a whole number"),
        (["budget.evaluations=1.5"], "budget.evaluations cannot be '1.5': use a whole number"),
        (["seed=true"], "seed cannot be 'true': use a whole number"),
        (["budget.wall_seconds=soon"], "budget.wall_seconds cannot be 'soon': use a number, or null"),
        (["budget={depth: x}"], "budget.depth cannot be 'x': use a whole number"),
        (["budget=5"], "budget cannot be '5': give its settings one by one: budget.evaluations"),
        (["dumps=maybe"], "dumps cannot be 'maybe': use true or false"),
        (["strategy=greedy", "strategy.follow=worst"], "strategy.follow cannot be 'worst': use one of last, best"),
        (["budget.evaluations=-1"], "budget.evaluations cannot be -1"),
        (["task="], "task is missing"),
        (["seed=0,1"], "'seed=0,1' has several values: add -m"),
        (["+seed=1"], "write seed=1"),
        (["~seed"], "takes a setting away"),
        (["strategy@x=mcts"], "moves a setting to another place"),
        (["seed"], "'seed' is no setting: write name=value"),
        (["hydra.job.chdir=true"], "means nothing to a single run: add -m"),
        (["seed=${nope}"], "nope"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(texts: list[str], message: str) -> None:
    found = refused(*texts)
    assert message in found
    assert "\n" not in found


def test_a_missing_task_names_the_built_in_ones() -> None:
    with pytest.raises(ConfigError, match=r"task is missing: .*softmax"):
        conf.compose([])


@pytest.mark.parametrize(
    "path", ["a/b.py", "a b/c.py", "x=1,2[3](4).py", "it's.py", "back\\", "quote\\'s", "a:b%c@d", "{x}", "..", "ünï"]
)
def test_any_path_is_taken_as_it_stands(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if not path.startswith("."):  # a comma in a path that exists makes no sweep
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).touch()
    config = conf.compose([f"task={path}", f"out={path}"])
    assert (config.task, config.out) == (path, path)
    assert overrides.parse([f"out={overrides.quoted(path)}"], sweep=True)[0].value() == path


def test_a_new_strategy_is_one_line_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Wander(Greedy):
        """A strategy from somewhere else."""

        patience: int = 5

    monkeypatch.setitem(STRATEGIES, "wander", Wander)
    config = conf.compose(["task=softmax", "strategy=wander", "strategy.patience=9"])
    assert conf.make_parts(config)["strategy"] == Wander(patience=9)
    assert refused("strategy=wander", "strategy.patiense=9").endswith("did you mean strategy.patience?")


def test_an_option_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "other_conf"
    (package / "strategy").mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(CONF / "config.yaml", package)
    (package / "strategy" / "wide.yaml").write_text("defaults: [mcts, _self_]\nexploration: 3.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(composing, "MODULE", "other_conf")
    monkeypatch.setattr(composing, "__file__", str(package / "__init__.py"))
    config = conf.compose(["task=softmax", "strategy=wide", "strategy.expansions=2"])
    assert conf.make_parts(config)["strategy"] == Mcts(exploration=3.0, expansions=2)


def test_a_sweep_is_checked_run_by_run() -> None:
    texts, configs = conf.check_sweep(["task=softmax", "strategy=mcts,greedy", "seed=range(2)", "hydra.verbose=true"])
    assert texts == ["task=softmax", "strategy=mcts,greedy", "seed=range(2)", "hydra.verbose=true"]
    found = [(config.strategy.name, config.seed) for config in configs]
    assert found == [("mcts", 0), ("mcts", 1), ("greedy", 0), ("greedy", 1)]
    with pytest.raises(ConfigError, match="exploration is a setting of strategy=mcts"):
        conf.check_sweep(["task=softmax", "strategy=mcts,greedy", "strategy.exploration=1"])
    with pytest.raises(ConfigError, match="cannot be swept"):
        conf.check_sweep(["task=softmax", "seed=interval(0,1)"])
    with pytest.raises(ConfigError, match=r"budget\.evaluations cannot be 0"):
        conf.check_sweep(["task=softmax", "budget.evaluations=0,8"])


def test_a_resumed_run_may_change_its_budget_and_its_model_only() -> None:
    old, model = Budget(evaluations=32, depth=5), ModelSettings("openai/small", timeout_s=5)
    new = conf.change(old, model, ["budget.evaluations=64", "budget.usd=0.5"])
    assert new == (Budget(evaluations=64, depth=5, usd=0.5), model)
    assert conf.change(old, model, ["budget={evaluations: 40}"]) == (Budget(evaluations=40, depth=5), model)
    assert conf.change(Budget(wall_seconds=5.0), model, ["budget.wall_seconds=null"]) == (Budget(), model)
    moved = conf.change(old, model, ["model.api_base=http://127.0.0.1:1/v1"])
    assert moved == (old, ModelSettings("openai/small", "http://127.0.0.1:1/v1", timeout_s=5))
    assert conf.change(old, model, []) == (old, model)
    for text, message in {
        "seed=1": "a resumed run keeps its seed",
        "strategy.exploration=1": "a resumed run keeps its strategy",
        "budget.evalutions=1": "did you mean budget.evaluations",
        "budget.evaluations=x": "budget.evaluations cannot be 'x': use a whole number",
        "budget.evaluations=0": "budget.evaluations cannot be 0",
        "model.timeout_s=0": "model.timeout_s cannot be 0",
    }.items():
        with pytest.raises(ConfigError, match=message):
            conf.change(old, model, [text])


def test_settings_classes_become_structured_configs() -> None:
    config = OmegaConf.structured(schema.structured(Settings))
    assert OmegaConf.is_missing(config, "needed")
    assert config.inner.size == 4 and list(config.sizes) == [1, 2] and "made" not in config
    for name, bad in (("ratio", "x"), ("flag", "maybe"), ("sizes", ["a"]), ("colour", "GREEN"), ("follow", [1])):
        with pytest.raises(Exception, match="full_key"):
            OmegaConf.update(config, name, bad)
    config.needed, config.limit, config.sizes, config.inner.size = 1, 2, [3], 5
    plain = OmegaConf.to_container(config)
    assert isinstance(plain, dict)
    kinds = schema.setting_fields(Settings)
    made = Settings(**{name: schema.typed(plain[name], hint) for name, hint in kinds.items()})
    assert made == Settings(needed=1, limit=2.0, sizes=(3,), inner=Inner(5))
    assert not schema.allowed("worst", kinds["follow"]) and schema.allowed("best", kinds["follow"])


def test_types_are_told_in_words() -> None:
    words = {name: schema.in_words(hint) for name, hint in schema.setting_fields(Settings).items()}
    assert words["needed"] == "a whole number"
    assert words["limit"] == "a number, or null"
    assert words["follow"] == "one of last, best"
    assert words["colour"] == "one of RED, BLUE"
    assert words["sizes"] == "a list [..., ...], each a whole number"
    assert words["inner"] == "settings {name: value, ...}"


def test_a_setting_cannot_have_the_name_of_the_name() -> None:
    @dataclass(frozen=True)
    class Named:
        name: str = "x"

    with pytest.raises(TypeError, match="cannot have a setting called 'name'"):
        schema.structured(Named, name="named")


def test_no_default_is_shared_between_two_configs() -> None:
    first, second = (schema.structured(Settings)() for _ in range(2))
    first.weights["fuse"] = 9.0
    assert second.weights == {"fuse": 1.0}


def test_evaluators_are_settings_here_and_opened_by_the_search() -> None:
    config = conf.compose(["task=softmax", "evaluator.target=sm_80", "evaluator.timeout_s=5"])
    assert EVALUATORS[config.evaluator.name](**config.evaluator.settings).target == "sm_80"
    assert config.evaluator.settings["timeout_s"] == 5.0
