"""Attention that is written out becomes one kernel in one action, and so do products that algebra brings in."""

from __future__ import annotations

import pytest

from mtmc.action import Action
from mtmc.bench.suites.blocks import FOLDER
from mtmc.optimizations.groups import flow_of
from mtmc.optimizations.merging import chains
from mtmc.optimizations.version import Version
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import IN_ORDER
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import Task, load_task, task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference
from tests.rewrite.stepping import actions_on, after, version

ATTENTION = "torch.softmax((x @ y.transpose(1, 2) * 0.3).masked_fill({mask}, -1e4), -1) @ z"
INPUTS = "torch.randn(2, n, k), torch.randn(2, m, k), torch.randn(2, m, k)"


def root(task: Task) -> Version:
    return version(task, root_plan(export_graph(task)))


def block(name: str) -> Task:
    return load_task(FOLDER / f"{name}.py")


def shape_of(child: Version) -> list[tuple[str, int]]:
    """Template and number of ops of each kernel."""
    return [(stage.template, len(stage.ops)) for stage in child.kernels()]


def candidate(child: Version) -> dict[str, str]:
    """A case for the interpreter: the version's file beside its task."""
    return {"source": child.task.source, "candidate": print_plan(child.task, child.graph, child.plan).source}


def joined(start: Version, rules: str) -> list[Action]:
    return [
        each
        for each in actions_on(start)
        if each.kind == "algebra" and each.param("rules") == rules and dict(each.params).get("joined")
    ]


def test_attention_is_one_action_away_from_the_root() -> None:
    """Whether the mask is made on the way is the search's choice: both are offered."""
    written = task_from_source(reference(ATTENTION.format(mask="y[:, None, :, 0] > 0.5"), INPUTS), "written")
    action, plain = after(root(written), "fuse matmul and matmul_1 with the 4 calls between them")
    assert action.param("saved") == 5 and shape_of(plain) == [("attention", 6)]
    action, decode = after(root(block("decoder/gqa_decode")), "fuse matmul and matmul_1 with the 7 calls between them")
    assert action.param("saved") == 8 and shape_of(decode) == [("attention", 11)]
    _, masked = after(root(block("decoder/gqa_decode")), "fuse matmul and matmul_1 with the 5 calls between them")
    assert shape_of(masked) == [("attention", 7)]
    cases = {"plain": plain, "decode": decode, "masked": masked}
    assert interpret([{"name": name, **candidate(each)} for name, each in cases.items()]) == dict.fromkeys(cases)


def test_what_stands_between_products_is_all_that_hangs_on_both() -> None:
    """A product on the way ends the chain; a mask that is read elsewhere, too, is no part of it."""
    body = "(mask := y[:, None, :, 0] > 0.5) & (" + ATTENTION.format(mask="mask") + "[:, :, :1] > 0)"
    start = root(task_from_source(reference(body, INPUTS), "mask_needed"))
    names = [[stage.name for stage in found] for found in chains(start, flow_of(start))]
    assert names == [["matmul", "mul", "masked_fill", "softmax", "matmul_1"]]
    three = root(
        task_from_source(
            reference("((x.relu() @ y).relu() @ y).relu() @ y", "torch.randn(m, k), torch.randn(k, k)"), "three"
        )
    )
    names = [[stage.name for stage in found] for found in chains(three, flow_of(three))]
    assert names == [["matmul", "relu_1", "matmul_1"], ["matmul_1", "relu_2", "matmul_2"]]


def test_einsums_become_attention_in_one_action() -> None:
    start = root(block("science/row_attention_with_pair_bias"))
    [action] = joined(start, "einsums")
    assert action.param("saved") == 3
    _, child = after(start, action.sentence)
    [kernel] = child.kernels()
    assert kernel.template == "attention" and kernel.ops[0] == "einsum_product" and "add" in kernel.ops
    assert "scores" not in kernel.name and child.plan.algebra == ("einsums",)
    assert interpret([{"name": "rows", **candidate(child)}]) == {"rows": None}


def test_einsums_take_in_what_stands_around_them() -> None:
    source = reference(
        "torch.einsum('bqhd,bkhd->bhqk', x.relu(), y.exp()).tanh() + 1",
        "torch.randn(2, n, 3, k), torch.randn(2, m, 3, k)",
    )
    start = root(task_from_source(source, "around"))
    [action] = joined(start, "einsums")
    _, child = after(start, action.sentence)
    assert "matmul" in [template for template, _ in shape_of(child)]
    assert interpret([{"name": "around", **candidate(child)}]) == {"around": None}


def test_products_alone_are_not_joined() -> None:
    """Nothing stands around the first, and the second takes apart what is one kernel as it is."""
    alone = reference("torch.einsum('bkhd,bqhd->bhqk', y, x)", "torch.randn(2, n, 3, k), torch.randn(2, m, 3, k)")
    assert not joined(root(task_from_source(alone, "alone")), "einsums")
    wide = reference("nn.functional.scaled_dot_product_attention(x, x, x)", "torch.randn(1, 2, n, 320)")
    start = root(task_from_source(wide, "wide"))
    assert any(each.kind == "algebra" for each in actions_on(start)) and not joined(start, "attention")


def test_smoothed_labels_are_one_pass_one_action_away_from_the_root() -> None:
    start = root(block("loss/label_smoothing"))
    (action,) = joined(start, "logs")
    assert action.sentence.partition(", lines")[0].endswith("and fuse all neighbours that gain by it")
    _, child = after(start, action.sentence)
    [(template, count)] = shape_of(child)
    fused = next(each for each in actions_on(start) if each.kind == "fuse" and dict(each.params).get("saved"))
    before = candidate(after(start, fused.sentence)[1])["candidate"]
    assert template == "rowwise" and 10 < action.param("saved") < count, "views are no stages"
    assert (before.count(loop := "for start in range(0, n_cols"), candidate(child)["candidate"].count(loop)) == (2, 1)
    assert interpret([{"name": "smoothed", **candidate(child)}]) == {"smoothed": None}


@pytest.mark.parametrize(
    ("equation", "turned"),
    [("ikc,jkc->ijc", 1), ("kic,kjc->ijc", 1), ("ikc,kjc->ijc", 0), ("kic,jkc->ijc", 2), ("bikc,bjkc->bijc", 1)],
)
def test_matrices_are_copied_in_the_order_that_they_have(equation: str, turned: int) -> None:
    """What makes their elements row by row writes none across, and the product takes the other order as it is."""
    one = f"torch.randn({'2, ' if equation.startswith('b') else ''}n, n, 3)"
    start = root(task_from_source(reference(f"torch.einsum('{equation}', x, y)", f"{one}, {one}"), "of_each"))
    _, child = after(start, "rewrite by algebra: einsum is a product of matrices, line")
    graph = child.graph
    copies = [op for op in graph.ops if op.target == IN_ORDER]
    steps = [graph.values[op.args[0].name].lying[-2:] for op in copies]
    assert len(copies) == 2 and all(down[0] > across[0] for down, across in steps)
    (product,) = [op for op in graph.ops if op.target == "aten.matmul.default"]
    assert sum(bool(graph.values[ref].strides) for ref in product.refs()) == turned
    assert interpret([{"name": "child", **candidate(child)}]) == {"child": None}
