from __future__ import annotations

import csv
import itertools
import json
import math
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mtmc.action import Action, Region
from mtmc.agents.coders.editing.differences import difference_text
from mtmc.agents.coders.editing.patches import DIVIDER, REPLACE, SEARCH, apply_patches, find_patches
from mtmc.agents.policies.learned.lm.base import Base
from mtmc.conf.trainee import CODER, compose_trainee
from mtmc.errors import ConfigError, RunError
from mtmc.outcome import Outcome
from mtmc.protocols import EditRequest, EvaluationRequest, Evaluator
from mtmc.rl.coder.data import load_coder_data, shortest_requests
from mtmc.rl.coder.rewards import Judge, as_recorded, read_reply
from mtmc.rl.coder.settings import CoderSettings, GrpoSettings, SftSettings
from mtmc.rl.coder.trainers import Trainee
from mtmc.rl.edits import edited, edits_of_run, edits_of_tree
from mtmc.rl.formats import sft_example
from mtmc.rl.trees import recorded_task
from mtmc.task import load_task
from tests.rl.recorded import TASK_TEXT, Drawn, Spy, run_of

PARENT = """import torch
import triton
import triton.language as tl


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        a = torch.relu(x) + y
        return a.sum(dim=-1)
"""
KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, tl.maximum(x, 0.0), mask=at < n)


def launch_relu(x):
    out = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        a = launch_relu(x) + y
        return a.sum(dim=-1)
"""
ACTION = Action("lower", Region("relu", 8, 8), (), "lower relu to a Triton kernel, line 8")


def request(source: str = PARENT, ms: float = 4.0) -> EditRequest:
    task = recorded_task("rows", TASK_TEXT)
    return EditRequest(task, source, None, Outcome("ok", ms, runtime_kind="estimated"), ACTION, "H100")


def fenced(source: str) -> str:
    return f"Here it is:\n```python\n{source}```\n"


@dataclass
class Timed(Evaluator):
    """An evaluator by hand: text -> outcome; counts what it is asked."""

    outcomes: dict[str, Outcome]
    hardware: str = "H100"
    asked: list[str] = field(default_factory=list)

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[Outcome]:
        self.asked += [each.source for each in requests]
        return [self.outcomes[each.source.strip()] for each in requests]

    def close(self) -> None:
        """Nothing to end."""


# -- rewards


def test_rules_by_hand() -> None:
    whole = read_reply(fenced(KERNEL), request())
    assert (whole.rules, whole.why, whole.kept) == (1.0, "", True)
    assert read_reply("I would use a kernel.", request()).rules == 0.0
    assert read_reply(fenced(PARENT), request()).rules == 0.0  # nothing changed
    assert read_reply(fenced(KERNEL)[:-200], request(), truncated=True).source is None
    never = read_reply(fenced(KERNEL.replace("launch_relu(x) + y", "torch.relu(x) + y + 0")), request())
    assert never.rules == pytest.approx(0.2) and "launches no kernel" in never.why and not never.kept
    dummy = read_reply(
        fenced(KERNEL.replace("    tl.store(out_ptr + at, tl.maximum(x, 0.0), mask=at < n)\n", "")), request()
    )
    assert dummy.rules == pytest.approx(0.6) and "stores" in dummy.why


def test_going_back_to_torch_does_not_pay() -> None:
    """Of a version whose relu is a kernel already."""
    back = KERNEL.replace("a = launch_relu(x) + y", "a = launch_relu(torch.relu(x)) + y")
    found = read_reply(fenced(back), request(KERNEL))
    assert found.rules == pytest.approx(0.6) and "calls torch for 3 computations, before it was 2" in found.why


def test_the_reward_by_execution_is_the_paper_s() -> None:
    slower, wrong, broken = (KERNEL.replace("1024", size) for size in ("512", "256", "128"))
    judge = Judge(
        Timed(
            {
                KERNEL.strip(): Outcome("ok", 2.0, runtime_kind="estimated"),
                slower.strip(): Outcome("ok", 8.0, runtime_kind="estimated"),
                wrong.strip(): Outcome("wrong_result"),
                broken.strip(): Outcome("build_error"),
            }
        )
    )
    replies = [(fenced(each), False) for each in (KERNEL, slower, wrong, broken, PARENT, KERNEL)]
    found = judge.rewards(replies, [request()] * len(replies))
    assert [rules for rules, _ in found] == [1.0, 1.0, 1.0, 1.0, 0.0, 1.0]
    assert [execution for _, execution in found] == pytest.approx([1.6, 0.6, -0.4, -1.0, -1.0, 1.6])
    asked = judge.evaluator.asked  # type: ignore[attr-defined]
    assert len(asked) == 4  # the same file once, and nothing that breaks a rule
    assert judge.outcome(fenced(slower), request()) == Outcome("ok", 8.0, runtime_kind="estimated")


def test_only_what_was_asked_for_is_the_recorded_version() -> None:
    """An edit that is right and fast, but another one, is not."""
    other = KERNEL.replace("1024", "512")
    said = [
        fenced(KERNEL),
        fenced(KERNEL.replace("out = torch", "# a row\n    out =  torch")),
        fenced(other),
        "no file",
    ]
    assert [as_recorded(read_reply(each, request()), KERNEL) for each in said] == [1.0, 1.0, 0.0, 0.0]


def test_a_parent_of_another_kind_of_runtime_is_evaluated_too() -> None:
    measured = Outcome("ok", 2.0, runtime_kind="measured")
    judge = Judge(Timed({KERNEL.strip(): measured, PARENT.strip(): replace(measured, runtime_ms=1.0)}))
    assert judge.rewards([(fenced(KERNEL), False)], [request(ms=4.0)]) == [(1.0, pytest.approx(0.6))]


# -- data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    (out / "rows.py").write_text(TASK_TEXT)
    run_of(load_task(str(out / "rows.py")), out / "run", Spy(), evaluations=8)
    return out / "run"


class Characters:
    """A tokenizer by characters."""

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": list(map(ord, text))}


def test_a_recorded_tree_gives_the_edits_of_its_run(run: Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra rl is not installed")
    from mtmc.rl.dataset import table_of
    from mtmc.rl.record import record_run
    from mtmc.rl.trees import trees_of

    tables = {name: table_of(name, rows) for name, rows in record_run(run).tables.items()}
    tree = trees_of(tables)[0]
    live, again = list(edits_of_run(run)), list(edits_of_tree(tree, edited(tree)))
    assert len(live) >= 3
    for mine, other in zip(live, again, strict=True):
        assert (mine.child, mine.about) == (other.child, {**other.about, "task": mine.about["task"]})
        assert mine.request.source == other.request.source and mine.request.action == other.request.action


class Copying:
    """A pool whose work is done here, but on copies, as what goes to other processes is one."""

    def __init__(self, jobs: int) -> None:
        assert jobs == 2

    def __enter__(self) -> Copying:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""

    def map(self, function: Any, jobs: Iterable[Any], chunksize: int) -> Iterator[Any]:
        for job in jobs:
            there, given = pickle.loads(pickle.dumps((function, job)))
            yield pickle.loads(pickle.dumps(there(given)))


def test_edits_that_processes_print_are_those_printed_here(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="the extra rl is not installed")
    from mtmc.rl.coder import printing
    from mtmc.rl.dataset import table_of
    from mtmc.rl.record import record_run
    from mtmc.rl.trees import trees_of

    tree = trees_of({name: table_of(name, rows) for name, rows in record_run(run).tables.items()})[0]
    first, *others = edited(tree)
    jobs = [(tree, others), (tree, [first])]
    here = list(printing.printed(jobs))
    monkeypatch.setattr(printing, "cores", lambda: 2)
    monkeypatch.setattr(printing, "LEAST", 1)
    monkeypatch.setattr(printing, "process_pool", Copying)
    elsewhere = list(printing.printed(jobs))
    assert [each.about["child"] for each in elsewhere] == [*others, first]
    assert [(each.child, each.about, each.request.source) for each in elsewhere] == [
        (each.child, each.about, each.request.source) for each in here
    ]


def test_examples_are_not_too_long_and_drawn_by_task(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtmc.rl.coder.data.split_of", lambda task: "train")
    settings = CoderSettings(data=(str(run),), prompt=1 << 20, reply=1 << 20)
    every = load_coder_data(settings, Characters())
    assert len(every.train) == len(list(edits_of_run(run))) and not every.test
    few = load_coder_data(replace(settings, per_task=2), Characters())
    assert len(few.train) == 2
    longest = max(len(each.completion[0]["content"]) for each in every.train)
    some = load_coder_data(replace(settings, reply=longest), Characters())
    assert 0 < len(some.train) < len(every.train)
    assert some.about["too_long"] == len(every.train) - len(some.train)
    kinds = [each.edit.about["kind"] for each in shortest_requests(every.train, 9)]
    assert len(set(kinds[: len(set(kinds))])) == len(set(kinds))  # one of each kind before a second of any
    with pytest.raises(ConfigError, match="too long and none is left"):
        load_coder_data(replace(settings, prompt=64), Characters())
    with pytest.raises(ConfigError, match="data is missing"):
        load_coder_data(CoderSettings(), Characters())
    with pytest.raises(RunError, match="neither recorded trees nor a run"):
        load_coder_data(replace(settings, data=(str(run.parent),)), Characters())


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"sft\.lr cannot be 0"):
        SftSettings(lr=0)
    with pytest.raises(ConfigError, match=r"grpo\.at_once cannot be 5: .* 32 replies"):
        GrpoSettings(at_once=5)
    with pytest.raises(ConfigError, match="examples cannot be 2"):
        CoderSettings(examples=2)


# -- the whole way


def spoil_gradients(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The gradient of one weight is no number in the `at`-th backward pass of a training."""
    from mtmc.rl.coder import train

    made, passes = train._trainee, itertools.count(1)

    def spoilt(base: Base, settings: CoderSettings) -> Trainee:
        trainee = made(base, settings)
        weight = next(each for each in trainee.model.parameters() if each.requires_grad)
        weight.register_hook(lambda gradient: gradient * (math.nan if next(passes) == at else 1.0))
        return trainee

    monkeypatch.setattr(train, "_trainee", spoilt)


def test_a_tiny_model_is_trained(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("transformers", "peft", "trl", "datasets"):
        pytest.importorskip(package, reason="the extra trl is not installed")
    from safetensors.torch import load_file

    from mtmc.rl.coder.train import train as train_coder
    from tests.rl.tiny_lm import tiny_base

    texts = []
    for edit in edits_of_run(run):
        example = sft_example(edit, 0, blocks=True)
        texts += [each["content"] for each in (*example["prompt"], *example["completion"])]
    base = tiny_base(tmp_path / "base", texts=texts)
    monkeypatch.setattr("mtmc.rl.coder.data.split_of", lambda task: "train")
    settings = CoderSettings(
        data=(str(run),),
        rank=2,
        prompt=1800,
        reply=400,
        samples=1,
        device="cpu",
        sft=SftSettings(steps=2, batch=2, at_once=1),
        grpo=GrpoSettings(steps=1, requests=1, replies=2, at_once=2),
    )
    rows: list[dict[str, object]] = []
    spoil_gradients(monkeypatch, at=2)  # one edit is short enough, so a step is one pass
    result = train_coder(
        str(base), settings, Drawn(), tmp_path / "out", rows.append, lambda text: None, "mtmc train ..."
    )
    assert [(row["phase"], row["step"]) for row in rows] == [("sft", 1), ("sft", 2), ("grpo", 1)]
    assert [row["left_out"] for row in rows] == [0, 1, 0]
    assert all({"rules", "execution", "asked"} <= set(row) for row in rows[2:])
    assert list(result.scores) == ["base", "sft", "grpo"]
    out = tmp_path / "out"
    assert {path.relative_to(out).as_posix() for path in result.files} == {
        *("adapter/adapter_model.safetensors", "adapter/adapter_config.json", "adapter/model_card.md"),
        "adapter/coder.json",
        *("curves.csv", "curves.png", "samples.md", "samples.jsonl"),
    }
    with (out / "curves.csv").open() as file:
        assert [row["phase"] for row in csv.DictReader(file)] == ["sft", "sft", "grpo"]
    assert all(weight.isfinite().all() for weight in load_file(out / "adapter" / "adapter_model.safetensors").values())
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    assert [each["stage"] for each in samples] == ["base", "sft", "grpo"]
    assert all(each["execution"] == -1.0 and each["why"] for each in samples)
    card = (out / "adapter" / "model_card.md").read_text()
    assert "| grpo | 1 | 0.00 | -1.00 | 0 | 0 | 0 |" in card and str(tmp_path / "base") in card
    goes_on = replace(settings, adapter=str(out / "adapter"), sft=SftSettings(steps=0), grpo=GrpoSettings(steps=0))
    result = train_coder(str(base), goes_on, Drawn(), tmp_path / "more", rows.append, lambda text: None)
    assert list(result.scores) == ["start"]
    before, after = (load_file(folder / "adapter" / "adapter_model.safetensors") for folder in (out, tmp_path / "more"))
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    with pytest.raises(RunError, match="cannot be read"):
        train_coder(
            str(base), replace(goes_on, adapter="nowhere"), Drawn(), tmp_path / "no", rows.append, lambda text: None
        )


def test_the_command_line_names_a_coder() -> None:
    texts = [
        "coder=smollm2",
        "data=[trees/a,trees/b]",
        "sft.steps=5",
        "grpo.kl_coef=0",
        "evaluator=lab",
        "evaluator.target=sm_80",
    ]
    assert compose_trainee(["policy=lm", "data=trees/a"]) is None
    plan = compose_trainee(texts)
    assert plan is not None and plan.evaluator is not None
    assert (plan.trainee, plan.name, plan.out, plan.evaluator.name) == (CODER, "smollm2", None, "lab")
    assert (plan.settings.data, plan.settings.sft.steps, plan.settings.grpo.kl_coef) == (("trees/a", "trees/b"), 5, 0.0)
    assert plan.evaluator.settings["target"] == "sm_80"
    with pytest.raises(ConfigError, match=r"did you mean sft\.steps"):
        compose_trainee(["coder=smollm2", "sft.stps=5"])


# -- changes as blocks


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb\na\nb\n", "a\nb\na\nc\n"),  # the second b: with the lines before it
        ("x\nx\nx\n", "x\nx\nx\ny\n"),
        ("a\n\nb\n\nc\n", "a\n\n\nb\n\nc\n"),
        ("a\nb\nc\nd\ne\nf\n", "A\nb\nc\nd\ne\n"),
        (PARENT, KERNEL),
    ],
)
def test_blocks_make_the_child_of_the_parent(before: str, after: str) -> None:
    text = difference_text(before, after)
    assert text is not None and text.count(SEARCH) >= 1
    assert apply_patches(find_patches(text.split("\n"))[0], before)[0] == after


def test_blocks_are_as_short_as_their_place_allows() -> None:
    assert difference_text("a\nb\nc\nd\n", "a\nB\nc\nd\n") == f"{SEARCH}\nb\n{DIVIDER}\nB\n{REPLACE}"
    assert difference_text("a\n", "a\n") is None
    assert difference_text("a\nb\n", f"a\n{REPLACE}\nc\n") is None


def test_the_edits_of_a_run_as_blocks_are_read_again(run: Path) -> None:
    for edit in edits_of_run(run):
        [answer] = sft_example(edit, 0, blocks=True)["completion"]
        found = read_reply(answer["content"], edit.request)
        assert found.kept and found.source == edit.child
        assert len(answer["content"]) <= len(sft_example(edit, 0)["completion"][0]["content"])
