"""Generated tasks: the same everywhere, admitted, spread over sizes and kinds, different from one another."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mtmc.agents.policies.learned.graphs import graph_facts, graph_key
from mtmc.errors import ConfigError, TaskError
from mtmc.evaluate.reference.admission import admit
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rl import generator
from mtmc.rl.benchmark import benchmark_keys
from mtmc.rl.generator import Generated, distinct, generate, task_of, task_text
from mtmc.rl.generator.program import Program, Step, Value, base, size_of, then
from mtmc.rl.generator.sizes import LEAST_US, MOST_BYTES, MOST_US, work_of
from tests.breadth import share

MANY = 120
DIGEST = "e4e0869f4dba2a7b"
"""Of the texts of the first tasks of seed 0."""
SPARE = ((12, "norms"), (36, "pools"), (61, "sums"), (105, "constants"), (105, "identities"), (113, "attention"))
"""Tasks of seed 0, and a kind of algebra that each has something for."""


@pytest.fixture(scope="module")
def many() -> list[Generated]:
    """The first tasks of a seed."""
    return [generate(0, index) for index in range(MANY)]


def test_a_seed_and_an_index_give_the_same_text_everywhere(many: list[Generated]) -> None:
    assert task_text(0, 17) == many[17].text
    assert task_text(1, 17) != many[17].text
    digest = hashlib.sha256("".join(each.text for each in many).encode()).hexdigest()
    assert digest[:16] == DIGEST, (
        "the generator has changed: data sets that were collected cannot be made again with it"
    )


def test_tasks_are_spread_over_kinds_sizes_and_dtypes(many: list[Generated]) -> None:
    regimes = Counter(each.work.regime for each in many)
    assert set(regimes) == {"launch", "memory", "compute"} and min(regimes.values()) >= MANY // 12
    kinds = Counter(each.program.kind for each in many)
    assert set(kinds) == {"single", "subgraph", "network", "image", "blocks", "spare", "short", "large"}
    assert min(kinds.values()) >= MANY // 30
    assert set(Counter(each.program.dtype for each in many)) == {"fp32", "fp16", "bf16"}
    assert any(len(each.program.outputs) > 1 or len(each.program.inputs) > 2 for each in many)  # graphs with branches
    ops = Counter(step.op for each in many for step in each.program.steps)
    assert {"linear", "softmax", "layer_norm", "add", "gelu", "conv2d", "transposed2d", "batch_norm_eval"} <= set(ops)


def test_blocks_are_repeated(many: list[Generated]) -> None:
    made = [[step.op for step in each.program.steps] for each in many if each.program.kind == "blocks"]
    for ops in made:
        assert any(ops == ops[:size] * (len(ops) // size) for size in range(1, len(ops) // 2 + 1)), ops
    assert max(map(len, made)) >= 20


def test_no_value_is_empty_at_any_shape(many: list[Generated]) -> None:
    for each in many:
        for shapes in _variants(each.text).values():
            assert all(size_of(dim, shapes) >= 1 for value in each.program.values.values() for dim in value.dims)


@pytest.mark.parametrize(("index", "kind"), SPARE)
def test_algebra_leaves_out_what_is_spare(index: int, kind: str) -> None:
    assert apply_rules(export_graph(task_of(generate(0, index))), kind).sentences


def test_tasks_take_time_and_memory_within_bounds(many: list[Generated]) -> None:
    for each in many:
        assert LEAST_US <= each.work.us <= MOST_US
        assert each.work.memory <= MOST_BYTES


def test_the_work_of_a_linear_layer_by_hand() -> None:
    x = Value("x", ("rows", "cols"))
    step = Step("linear", "self.linear1(x)", ("x",), Value("a", ("rows", "features1")), inner="cols")
    program = Program("single", "fp16", (x,), (step,), ("a",), weights=(("cols", "features1"),))
    work = work_of(program, {"rows": 1024, "cols": 2048, "features1": 512})
    assert work.us == pytest.approx(
        max(4.0, 2 * 1024 * 512 * 2048 / 600e6, 2 * (1024 * 2048 + 1024 * 512 + 2048 * 512) / 2.6e6)
    )
    assert work.memory == 2 * (2 * 2048 * 512 + 2 * 1024 * 2048 + 3 * 1024 * 512 + 6 * 1024 * 512)
    assert size_of("rows // 2", {"rows": 9}) == 4 and size_of("1", {}) == 1
    assert then("rows", "- 2", "// 2") == "(rows - 2) // 2" and size_of("(rows - 2) // 2", {"rows": 9}) == 3
    assert base(then("rows", "- 2", "// 2")) == "rows"


def test_no_two_sizes_of_a_variant_are_equal(many: list[Generated]) -> None:
    for each in many:
        for shapes in _variants(each.text).values():
            assert len(set(shapes.values())) == len(shapes)


def _variants(text: str) -> dict[str, dict[str, int]]:
    names: dict[str, dict[str, dict[str, int]]] = {}
    exec(text[text.index("VARIANTS") : text.index("class Model")], names)
    return names["VARIANTS"]


@pytest.mark.parametrize("index", share([5, 7, 9, 13, 19], 5))
def test_a_task_is_loaded_admitted_and_captured(index: int, tmp_path: Path) -> None:
    task = task_of(generate(0, index))
    assert admit(task, "cpu", tmp_path).warnings == ()
    graph = export_graph(task)
    assert graph.ops and len(graph.variants) == 4


def test_there_is_no_task_below_zero() -> None:
    with pytest.raises(TaskError, match="index of 0 or more"):
        generate(0, -1)


def test_equal_tasks_come_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = generate(0, 3)
    again = replace(real, index=4, text=real.text.replace('"small"', '"small" '))
    made = {3: real, 4: again, 5: generate(0, 5)}
    monkeypatch.setattr(generator, "generate", lambda seed, index: made[index])
    assert [each.index for each in itertools.islice(distinct(0, 3), 2)] == [3, 5]


def test_no_task_is_a_problem_of_a_benchmark_made_by_hand(tmp_path: Path) -> None:
    generated = generate(0, 9)  # a linear layer
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    renamed = generated.text.replace("linear1", "fc").replace("features1", "width").replace(" a ", " out ")
    (level / "1_same.py").write_text(renamed.replace("return a\n", "return out\n"))
    (level / "2_other.py").write_text(generate(0, 6).text)
    (level / "3_broken.py").write_text("class Model: pass\n")
    keys = benchmark_keys(tmp_path)
    assert keys[graph_key(graph_facts(export_graph(task_of(generated))))] == "level1/1_same"
    assert graph_key(graph_facts(export_graph(task_of(generate(0, 1))))) not in keys
    with pytest.raises(ConfigError, match="no problems"):
        benchmark_keys(tmp_path / "nothing")


@pytest.mark.skipif("KERNELBENCH" not in os.environ, reason="KERNELBENCH names no checkout of KernelBench")
def test_no_task_is_a_problem_of_kernelbench() -> None:
    keys = benchmark_keys(Path(os.environ["KERNELBENCH"]), ("level1", "level2"), every=10)
    assert len(keys) >= 15
    small = [each for each in (generate(0, index) for index in range(60)) if len(each.program.steps) <= 3]
    assert len(small) >= 10
    for each in small:
        assert graph_key(graph_facts(export_graph(task_of(each)))) not in keys
