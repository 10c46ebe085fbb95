"""The coder that a training leaves, in a search: loaded from its folder, asked as it was trained, recorded and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtmc.agents.trained.about import CoderAbout, folder_of, read_about, write_about
from mtmc.agents.trained.lm_coder import LmCoder, Writer
from mtmc.chat import ChatReply
from mtmc.errors import ConfigError, ModelError, RunError
from mtmc.fakes import FakeEvaluator
from mtmc.outcome import Diagnosis, Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.search import Budget, resume, search
from mtmc.search.canonical import canonical_json
from mtmc.search.components import make
from mtmc.store import Store

ATTENTION = Path(__file__).parents[1] / "agents" / "attention"
FILES = {path.stem: path.read_text() for path in sorted(ATTENTION.glob("*.py"))}


class OnlyOnline(FakeEvaluator):
    """The kernel that masks is three times as fast; another kernel is wrong."""

    def _evaluate(self, request: EvaluationRequest) -> Outcome:
        if "tl.exp" not in request.source or request.source == FILES["online"]:
            return Outcome("ok", 1.0 if "tl.exp" in request.source else 3.0, runtime_kind="estimated")
        return Outcome("wrong_result", diagnosis=Diagnosis("check", "WrongValues", "columns were not masked"))


def test_what_it_says_of_itself_is_read_again(tmp_path: Path) -> None:
    about = CoderAbout("smollm2", "0123", 1, 700)
    (tmp_path / "adapter").mkdir()
    write_about(about, tmp_path / "adapter")
    assert folder_of(str(tmp_path)) == folder_of(str(tmp_path / "adapter")) == tmp_path / "adapter"
    assert read_about(folder_of(str(tmp_path))) == about
    newer = {**json.loads((tmp_path / "adapter" / "coder.json").read_text()), "version": 9}
    (tmp_path / "adapter" / "coder.json").write_text(json.dumps(newer))
    with pytest.raises(RunError, match="upgrade mtmc"):
        read_about(tmp_path / "adapter")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "mtmc lm coder", "version": 1, "more": 2}'])
def test_a_folder_without_a_training_says_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "coder.json").write_text(text)
    with pytest.raises(RunError):
        read_about(tmp_path)
    with pytest.raises(RunError):
        LmCoder(adapter=str(tmp_path)).check()


def test_a_search_without_a_training_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"coder\.adapter"):
        search(ATTENTION / "task.py", coder="lm", evaluator=OnlyOnline(), out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="reply"):
        LmCoder(reply=-1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training, of a model with a few thousand random weights."""
    for package in ("transformers", "peft"):
        pytest.importorskip(package, reason="the extra lm is not installed")
    import torch

    from mtmc.agents.policies.learned.lm.adapter import with_adapter, write_weights
    from mtmc.agents.policies.learned.lm.base import load_base
    from tests.rl.tiny_lm import tiny_base

    folder = tmp_path_factory.mktemp("trained")
    made = tiny_base(folder / "base", texts=list(FILES.values()))
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1 << 15}))
    base = load_base(str(made))
    model = with_adapter(base, rank=2, alpha=4, seed=0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.5, generator=torch.Generator().manual_seed(1))
    (folder / "adapter").mkdir()
    write_weights(model, base.name, folder / "adapter")
    write_about(CoderAbout(base.name, base.mark, 0, 24), folder / "adapter")
    return folder


def settings(trained: Path, out: Path) -> dict[str, Any]:
    """Of a search of attention by the coder of a training."""
    return {
        "task": ATTENTION / "task.py", "coder": make("coder", "lm", {"adapter": str(trained), "device": "cpu"}),
        "evaluator": OnlyOnline(), "strategy": "greedy", "policy": "uniform", "repairs": 1, "progress": False,
        "budget": Budget(evaluations=3), "dumps": False, "out": out,
    }  # fmt: skip


def test_its_replies_are_the_models_own_and_what_gives_no_file_is_recorded_with_the_reason(
    trained: Path, tmp_path: Path
) -> None:
    result = search(**settings(trained, tmp_path / "run"))
    store = Store.read(result.run_dir)
    [attempt] = store.attempts(0)
    assert store.settings()["coder"] == {
        "name": "lm", "settings": {"adapter": str(trained), "base": "", "reply": 0, "device": "cpu"}
    }  # fmt: skip
    store.close()
    assert attempt.source is None and attempt.error, "a model of random weights writes no file"
    assert "tokens, more than" not in attempt.error, "it was asked"
    assert len(result.tree) == 1 and "nothing is left to try" in (result.finished or "")


def test_a_reply_with_a_file_becomes_a_version_and_a_resumed_run_loads_no_model(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def reply(self: Writer, messages: Any, limit: int) -> ChatReply:
        asked.append(messages[-1].content)
        assert limit == 24
        return ChatReply(f"```python\n{FILES['online']}```\n", 900, 20, tries=0)

    monkeypatch.setattr(Writer, "reply", reply)
    given = settings(trained, tmp_path / "run")
    result = search(**{**given, "budget": Budget(evaluations=2)})
    assert result.tree[1].source == FILES["online"] and result.best.speedup == 3
    assert result.tree[1].cost.tokens_in == 900 and result.tree[1].cost.usd == 0 and result.tree[1].cost.calls == 0
    assert "# Optimization Type" in asked[0] and len(asked) == 1
    monkeypatch.setattr(Writer, "reply", None)
    again = resume(tmp_path / "run", evaluator=OnlyOnline())
    assert canonical_json(again) == canonical_json(result)


def test_weights_of_another_base_are_refused(trained: Path, tmp_path: Path) -> None:
    from tests.rl.tiny_lm import tiny_base

    other = tiny_base(tmp_path / "other", seed=3, texts=list(FILES.values()))
    coder = LmCoder(adapter=str(trained), base=str(other), device="cpu")
    given = {**settings(trained, tmp_path / "run"), "coder": coder}
    with pytest.raises((RunError, ModelError), match="other weights"):
        search(**given)
