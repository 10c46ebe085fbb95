from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mtmc.action import STOP, Action, Region
from mtmc.agents.policies.heuristic import Heuristic
from mtmc.agents.policies.learned.lm.adapter import WEIGHTS, read_about, read_adapter, with_adapter
from mtmc.agents.policies.learned.lm.base import device_of, load_base
from mtmc.agents.policies.learned.lm.packing import pack, sheet_of
from mtmc.agents.policies.learned.lm.policy import Lm
from mtmc.agents.policies.learned.lm.prompt import END, QUESTION, PromptSettings, answer_text, prompt_text, read_answer
from mtmc.agents.policies.learned.lm.scoring import answer_scores
from mtmc.agents.policies.learned.lm.tokens import Texts
from mtmc.errors import ConfigError, ModelError, RunError
from mtmc.outcome import Outcome
from mtmc.protocols import Observation, Step
from mtmc.rl.forest import Forest, forest_of
from mtmc.rl.record import record_run
from mtmc.rl.replays import priors_of
from mtmc.rl.train.algorithms import Ppo
from mtmc.rl.train.card import commands
from mtmc.rl.train.lm_scorer import LmScorer, LmSettings
from mtmc.rl.train.pretraining import Pretraining
from mtmc.rl.train.settings import TrainSettings
from mtmc.rl.train.trainer import Trainer
from mtmc.rl.trees import RecordedTree, recorded_task, trees_of
from mtmc.task import load_task
from tests.rl.recorded import TASK_TEXT, Spy, hand_tree, run_of
from tests.rl.toys import detour_tree

pytest.importorskip("transformers", reason="the extra lm is not installed")
pytest.importorskip("peft", reason="the extra lm is not installed")
pytest.importorskip("pyarrow", reason="the extra rl is not installed")

from tests.rl.tiny_lm import tiny_base, tiny_tokenizer

SMALL = LmSettings(device="cpu", code=64, tokens=256, rank=2, states=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordedTree, Spy]:
    """A tree of the rewriter as it was recorded, and what its policy saw live."""
    from mtmc.rl.dataset import table_of

    out, spy = tmp_path_factory.mktemp("run"), Spy()
    task = out / "rows.py"
    task.write_text(TASK_TEXT)
    run_of(load_task(str(task)), out / "run", spy, evaluations=8)
    tables = {name: table_of(name, rows) for name, rows in record_run(out / "run").tables.items()}
    return trees_of(tables)[0], spy


@pytest.fixture
def scorer(folder: Path) -> LmScorer:
    return shaken(LmScorer(replace(SMALL, base=str(folder)), load_base(str(folder)), seed=1))


def shaken(scorer: LmScorer) -> LmScorer:
    """With an adapter and a value that do something."""
    generator = torch.Generator().manual_seed(0)
    for group in scorer.groups(1.0):
        for weight in group["params"]:
            weight.data.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return scorer


def forest() -> Forest:
    return forest_of([hand_tree(), detour_tree()])


def naive(model: Any, prompt: tuple[int, ...], answer: tuple[int, ...]) -> torch.Tensor:
    """Joint log probability, one run of the model for this answer alone."""
    logs = model(torch.tensor([[*prompt, *answer]])).logits[0].log_softmax(-1)
    return sum((logs[len(prompt) - 1 + at, token] for at, token in enumerate(answer)), torch.zeros(()))


# -- packing and scoring


def test_a_pack_by_hand() -> None:
    found = pack([7, 8, 9], [[1, 2, 5], [1, 2, 6], [3, 5]])
    assert found.tokens.tolist() == [7, 8, 9, 1, 2, 3]
    assert found.positions.tolist() == [0, 1, 2, 3, 4, 3]
    edges = list(zip(found.tokens[found.edge_from].tolist(), found.edge_token.tolist(), strict=True))
    assert edges == [(9, 1), (1, 2), (2, 5), (2, 6), (9, 3), (3, 5)]
    assert found.path_answer.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert found.path_edge.tolist() == [0, 1, 2, 0, 1, 3, 4, 5]
    assert found.seen().astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 0, 0, 1],
    ]


def test_an_answer_that_another_one_begins_with() -> None:
    found = pack([7], [[1], [1, 2]])
    assert (found.tokens.tolist(), found.path_edge.tolist()) == ([7, 1], [0, 0, 1])
    assert sheet_of([pack([7], []), found]).rows.tolist() == [8, 9]


def test_scores_and_their_gradients_are_those_of_a_loop_over_the_answers(folder: Path) -> None:
    model = with_adapter(load_base(str(folder)), rank=2, alpha=4, seed=0)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    generator = torch.Generator().manual_seed(1)
    for weight in trained:
        weight.data.copy_(0.2 * torch.randn(weight.shape, generator=generator))
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(0, 400, length).tolist()) for length in (9, 4, 6)]
    answers = [[(1, 2, 5), (1, 2, 6), (3, 5), (1, 2)], [], [(8, 8, 8, 8), (9, 4)]]
    packs = [pack(prompt, some) for prompt, some in zip(prompts, answers, strict=True)]
    found = answer_scores(model, packs)
    expected = torch.stack(
        [naive(model, prompt, answer) for prompt, some in zip(prompts, answers, strict=True) for answer in some]
    )
    torch.testing.assert_close(found.scores, expected, atol=1e-4, rtol=1e-5)
    weights = torch.linspace(-1, 2, len(expected))
    ours = torch.autograd.grad((found.scores * weights).sum(), trained)
    theirs = torch.autograd.grad((expected * weights).sum(), trained)
    assert max(grad.abs().max().item() for grad in theirs) > 0.1
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)
    last = model(torch.tensor([prompts[2]]), output_hidden_states=True).hidden_states[-1][0, -1]
    torch.testing.assert_close(found.ends[2], last, atol=1e-5, rtol=1e-5)


# -- texts and tokens


def test_prompt_and_answer_are_tokenized_as_they_stand_together(recorded: tuple[RecordedTree, Spy]) -> None:
    _, spy = recorded
    texts = Texts(tiny_tokenizer(), PromptSettings(tokens=1 << 20, code=1 << 20))
    for observation, actions in spy.seen[:4]:
        prompt = prompt_text(observation, texts.settings, texts._count)
        for action in actions:
            together = texts.tokenizer(prompt + answer_text(action, texts.settings))["input_ids"]
            assert (*texts.prompt(observation), *texts.answer(action)) == tuple(together)


def test_a_tokenizer_that_joins_question_and_answer_is_refused() -> None:
    with pytest.raises(ModelError, match="joins the question"):
        Texts(tiny_tokenizer(joins=True), PromptSettings()).answer_tokens("fuse\n")


def test_a_recorded_version_has_the_prompt_that_it_had_live(recorded: tuple[RecordedTree, Spy]) -> None:
    tree, spy = recorded
    count = Texts(tiny_tokenizer(), PromptSettings())._count
    live = {observation.source: observation for observation, _ in spy.seen}
    nodes = [node for node in tree.nodes if node.outcome.ok and node.actions]  # the others' policy was never asked
    assert len(nodes) >= 4
    for node in nodes:
        source = tree.version_text(node.id)
        again = replace(tree.observation(node.id), source=source)
        settings = PromptSettings(tokens=700)
        assert prompt_text(again, settings, count) == prompt_text(live[source], settings, count)


def test_an_answer_names_its_action(recorded: tuple[RecordedTree, Spy]) -> None:
    _, spy = recorded
    for lines in (False, True):
        settings = PromptSettings(lines=lines)
        for _, actions in spy.seen:
            for action in actions:
                text = answer_text(action, settings)
                assert text.endswith(END) and text.count("\n") == 1
                assert read_answer(text, actions, settings) == action
                assert read_answer(f"\n  {text.strip().upper()}.\nand so on", actions, settings) == action
    assert read_answer("do nothing", [STOP], PromptSettings()) is None
    assert read_answer("", [STOP], PromptSettings()) is None


def test_what_is_too_long_is_cut_from_the_beginning_of_named_parts() -> None:
    step = Step(Action("fuse", Region("a", 1, 2), (), "fuse a and b, lines 1-2"), "", Outcome("ok", 2.0), 1.5)
    outcome = Outcome("ok", 1.0, metrics={"roofline": 0.25, "compile_s": 3.0})
    code = "\n".join(f"line {number}" for number in range(10))
    seen = Observation(recorded_task("rows", TASK_TEXT), code, None, outcome, (step,), "H100")

    def words(lines: Any) -> list[int]:
        return [len(line.split()) for line in lines]

    def text(tokens: int, code: int) -> str:
        return prompt_text(seen, PromptSettings(tokens=tokens, code=code), words)

    whole = text(1000, 1000)
    assert whole.startswith("# GPU\nH100: 132 SMs") and whole.endswith(QUESTION)
    assert "# Reference\nrows = 4096\ncols = 1024\nclass Model" in whole and "VARIANTS" not in whole
    assert "# Steps\nfuse a and b: 1.50x\n# Now\nok, 1 ms, 1.50x of the reference, roofline 0.25\n" in whole
    assert "# Code\nline 0\n" in whole and "# Plan" not in whole
    assert "# Code\n...\nline 8\nline 9\n# Steps" in text(1000, 5)
    assert "# Code" not in text(1000, 0)
    long = "\n".join(f"line {number}" for number in range(100))
    seen = replace(seen, source=long)
    short = text(150, 1000)
    assert "# Reference\nrows = 4096" in short and "# Code\n...\nline 6" in short and short.endswith(QUESTION)
    assert 140 < sum(words(short.splitlines())) <= 150
    seen = replace(seen, task=recorded_task("rows", TASK_TEXT.replace("a.sum(dim=-1)", "a" + " + a" * 200)))
    assert "# Code" not in text(150, 1000) and "# Steps\nfuse a and b" in text(150, 1000)


def test_settings_that_cannot_be() -> None:
    for wrong in (
        {"tokens": 10},
        {"code": -1},
        {"normalize": "letters"},
        {"rank": 0},
        {"heuristic_weight": -1.0},
        {"precision": "int8"},
    ):
        with pytest.raises(ConfigError, match=f"policy.{next(iter(wrong))} cannot be"):
            LmSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"policy\.device cannot be 'tpu7'"):
        device_of("tpu7")


# -- the scorer


def test_a_logit_depends_on_its_state_and_action_alone(scorer: LmScorer) -> None:
    trees = forest()
    nodes = np.asarray([0, 1, 3, 6, 8, 0], np.int64)
    whole = trees.batch(nodes)
    with torch.no_grad():
        together = scorer.score(whole)
    alone = [scorer.score(whole.part(at, at + 1)) for at in range(len(nodes))]
    torch.testing.assert_close(together.logits, torch.cat([each.logits for each in alone]).detach())
    torch.testing.assert_close(together.values, torch.cat([each.values for each in alone]).detach())
    assert together.logits.std() > 0.01 and together.values.std() > 1e-4


def test_normalization_by_hand(folder: Path) -> None:
    trees, found = forest(), {}
    for normalize in ("none", "token", "word"):
        made = LmScorer(replace(SMALL, base=str(folder), normalize=normalize), load_base(str(folder)), seed=1)
        batch = trees.batch(np.asarray([0], np.int64))
        found[normalize] = made.score(batch).logits.detach()
        actions = [trees.action(int(edge)) for edge in batch.edges]
        lengths = torch.tensor([float(made._texts.length(action, normalize)) for action in actions])
        torch.testing.assert_close(found[normalize], found["none"] / lengths)
    assert answer_text(trees.action(0), PromptSettings()) == "vectorize n0to0\n"


def test_the_heuristic_s_prior_is_added(folder: Path, tmp_path: Path, recorded: tuple[RecordedTree, Spy]) -> None:
    tree, _ = recorded
    batch = forest_of([tree]).batch(np.asarray([0, 1, 0], np.int64))
    plain, corrected = (
        LmScorer(replace(SMALL, base=str(folder), heuristic_weight=weight), load_base(str(folder)), seed=1)
        for weight in (0.0, 2.0)
    )
    with torch.no_grad():
        added = corrected.score(batch).logits - plain.score(batch).logits
        ours = corrected.score(batch).logits[: batch.counts[0]].softmax(0)
    known = [tree.root.actions[index] for index in tree.root.known]
    seen = replace(tree.observation(0), source=tree.version_text(0))
    priors = torch.tensor(Heuristic(action_statistics=0.0).prior(seen, tree.root.actions))[list(tree.root.known)]
    expected = 2 * priors.log()
    for first in (0, len(added) - len(known)):
        found = added[first : first + len(known)]
        torch.testing.assert_close(found - found[0], expected - expected[0], atol=1e-4, rtol=1e-4)
    corrected.export(tmp_path, "# A card\n")
    policy = Lm(adapter=str(tmp_path), device="cpu", floor=1e-6)
    torch.testing.assert_close(ours, torch.tensor(policy.prior(seen, known)), atol=2e-3, rtol=0.02)
    about = json.loads((tmp_path / "lm.json").read_text())
    about |= {"version": 1, "opinion": about.pop("heuristic_weight")}  # as it was once written
    (tmp_path / "lm.json").write_text(json.dumps(about))
    assert read_about(tmp_path).heuristic_weight == 2.0


def test_the_reference_is_the_base_and_stays(scorer: LmScorer, folder: Path) -> None:
    batch = forest().batch(np.asarray([0, 1], np.int64))
    fresh = LmScorer(replace(SMALL, base=str(folder)), load_base(str(folder)), seed=5)
    with torch.no_grad():
        torch.testing.assert_close(fresh.score(batch).logits, fresh.reference(batch))
    torch.testing.assert_close(scorer.reference(batch), fresh.reference(batch))
    assert not scorer.reference(batch).requires_grad


def test_the_reference_can_be_the_policy_at_the_start(folder: Path) -> None:
    batch = forest().batch(np.asarray([0, 1], np.int64))
    settings = replace(SMALL, base=str(folder), reference="start")
    made = shaken(LmScorer(settings, load_base(str(folder)), seed=5))
    made.keep_reference()
    with torch.no_grad():
        start = made.score(batch).logits
    now = shaken(made).score(batch).logits.detach()
    torch.testing.assert_close(made.reference(batch), start)
    assert torch.equal(made.score(batch).logits, now) and not torch.allclose(now, start)
    again = LmScorer(settings, load_base(str(folder)), seed=6)
    again.load_state_dict(made.state_dict())
    torch.testing.assert_close(again.reference(batch), start)


def test_training_finds_the_best_way(folder: Path, tmp_path: Path) -> None:
    """By trying alone: the first step that gains most leads to nothing more."""
    trees = forest_of([detour_tree()])
    small = replace(SMALL, base=str(folder), tokens=128, code=0, scale=2.0, states=24)
    made = LmScorer(small, load_base(str(folder)), seed=0)
    method = Ppo(lr=0.02, kl_coef=0.0, ent_coef=0.0, gamma=0.9, epochs=2)
    settings = TrainSettings(
        data=("none",),
        iterations=10,
        episodes=24,
        steps=3,
        pretraining=Pretraining(epochs=0),
        random_start_prob=0.0,
        validate_every=10,
    )
    rows: list[Any] = []
    Trainer(made, method, settings, trees, trees, tmp_path, {}).run(lambda done, units, row: rows.append(row))
    rewards = [row["reward"] for row in rows if "reward" in row]
    assert len(rewards) == 10 and rewards[-1] > 2.0 > rewards[0]


def test_a_state_is_kept_and_loaded(scorer: LmScorer, folder: Path) -> None:
    batch = forest().batch(np.asarray([0, 1, 4], np.int64))
    before = scorer.score(batch)
    state = scorer.state_dict()
    again = LmScorer(replace(SMALL, base=str(folder)), load_base(str(folder)), seed=9)
    again.load_state_dict(state)
    after = again.score(batch)
    assert torch.equal(before.logits, after.logits) and torch.equal(before.values, after.values)
    optimizer = torch.optim.SGD(again.groups(0.1))
    (after.logits.sum() + after.values.sum()).backward()
    optimizer.step()
    assert not torch.equal(again.score(batch).logits, before.logits)
    again.load_state_dict(state)  # the state is a copy: the step did not change it
    assert torch.equal(again.score(batch).logits, before.logits)
    with pytest.raises(RunError, match="another base"):
        again.load_state_dict({**state, "mark": "0"})


def test_a_training_begins_with_an_earlier_one_s_adapter(scorer: LmScorer, folder: Path, tmp_path: Path) -> None:
    scorer.export(tmp_path, "# A card\n\n    mtmc train policy=lm seed=1\n")
    settings = replace(SMALL, base=str(folder), adapter=str(tmp_path))
    batch = forest().batch(np.asarray([0, 1], np.int64))
    with torch.no_grad():
        ours = scorer.score(batch).logits
        torch.testing.assert_close(settings.open(forest(), seed=5).score(batch).logits, ours, atol=2e-3, rtol=0.02)
        fresh = replace(settings, adapter="").open(forest(), seed=5)
        assert not torch.allclose(fresh.score(batch).logits, ours, atol=2e-3, rtol=0.02)
    again, last = tmp_path / "again", tmp_path / "last"
    for where, seed, begun in ((again, 2, settings), (last, 3, replace(settings, adapter=str(again)))):
        where.mkdir()
        begun.open(forest(), seed=5).export(where, f"# A card\n\n    mtmc train policy=lm seed={seed}\n")
    assert commands((last / "model_card.md").read_text()) == [f"mtmc train policy=lm seed={seed}" for seed in (3, 2, 1)]
    with pytest.raises(RunError, match="another adapter"):
        replace(settings, rank=3).open(forest(), seed=5)
    (tmp_path / "base").mkdir()
    with pytest.raises(RunError, match="trained on other weights"):
        replace(settings, base=str(tiny_base(tmp_path / "base", seed=3))).open(forest(), seed=5)
    with pytest.raises(RunError, match="there is no adapter"):
        replace(settings, adapter=str(tmp_path / "nowhere")).open(forest(), seed=5)


def test_an_adapter_is_written_and_a_search_reads_it(
    scorer: LmScorer, folder: Path, tmp_path: Path, recorded: tuple[RecordedTree, Spy]
) -> None:
    files = scorer.export(tmp_path, "# A card\n")
    assert {file.name for file in files} == {
        "adapter_model.safetensors",
        "adapter_config.json",
        "lm.json",
        "model_card.md",
    }
    assert (tmp_path / "model_card.md").read_text().startswith("# A card\n") and read_about(
        tmp_path
    ).normalize == "token"
    tree, spy = recorded
    policy = Lm(adapter=str(tmp_path), device="cpu", floor=1e-6)
    batch = forest_of([tree]).batch(np.asarray([0], np.int64))
    with torch.no_grad():
        ours = scorer.score(batch).logits.softmax(0)
    known = [tree.root.actions[index] for index in tree.root.known]
    theirs = torch.tensor(policy.prior(replace(tree.observation(0), source=tree.version_text(0)), known))
    torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=0.02)
    [told] = [priors for priors in priors_of(replace(tree, nodes=tree.nodes[:1]), policy) if priors]
    assert policy.reads_text and [told[index] for index in tree.root.known] == pytest.approx(
        [each * sum(told[index] for index in tree.root.known) for each in theirs.tolist()], rel=0.01
    )
    asked = [(replace(seen, source="pass\n" * at), actions) for at, (seen, actions) in enumerate(spy.seen[:3] * 8)]
    for together, (seen, actions) in zip(policy.priors(asked), asked, strict=True):
        assert together == pytest.approx(policy.prior(seen, actions), rel=1e-3, abs=1e-6)
    observation, actions = spy.seen[0]
    mixed = Lm(adapter=str(tmp_path), device="cpu", heuristic=1.0, floor=0.1).prior(observation, actions)
    expert = Heuristic().prior(observation, actions)
    assert mixed == pytest.approx([0.1 / len(actions) + 0.9 * each for each in expert])
    (folder / "other").mkdir()
    with pytest.raises(RunError, match="trained on other weights"):
        read_adapter(tmp_path, str(tiny_base(folder / "other", seed=3)))
    (tmp_path / WEIGHTS).write_bytes(b"")
    with pytest.raises(RunError, match="cannot be read"):
        read_adapter(tmp_path)
