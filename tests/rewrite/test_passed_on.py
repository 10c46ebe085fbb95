"""Ops that give what they are given are no ops of the graph, unless what they make is a tensor of its own that shows."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference

SIZES = {"n": (16, 4, 3), "m": (8, 6, 5)}
GIVEN = "torch.randn(n, m)"
INIT = "self.none, self.some, self.layer = nn.Dropout(0.0), nn.Dropout(0.5), nn.Linear(m, m)"
GONE = {
    "no_dropout": "self.none(self.layer(x)).relu()",
    "in_evaluation": "F.dropout(self.layer(x), 0.5, False).relu()",
    "of_an_input": "self.none(x) + 1",
    "a_copy_in_between": "torch.relu(self.layer(x).clone())",
    "a_copy_that_is_the_result": "self.layer(x).clone()",
    "twice": "self.layer(x).clone().clone() * 2",
}
STAYING = {
    "of_an_input": "x.clone()",
    "of_a_view_of_one": "x.view(-1).clone()",
    "beside_what_it_is_of": "(lambda y: (y, y.clone()))(self.layer(x))",
    "that_is_changed": "(lambda y: y.clone().add_(1) * y)(self.layer(x))",
    "of_a_dropout_of_an_input": "F.dropout(x, 0.5, False).clone()",
    "of_a_sum_that_is_a_view": "torch.einsum('ij->ji', x).clone()",
    "of_a_cast_that_is_none": "x.type_as(self.layer.weight).clone()",
    "in_another_order": "x.t().sin().clone(memory_format=torch.contiguous_format)",
}
CHANGED = {
    "a_result": "(lambda y: (y.mul_(2) + x, y))(self.none(x))",
    "a_part_of_one": "(lambda y: (y[:, 1:3].zero_(), y + x))(F.dropout(x, 0.5, False))",
    "an_operand": "(lambda y: (x.mul_(2), y + 1))(self.none(x))",
    "an_operand_made_here": "(lambda h: (lambda y: (h.add_(1), y * 2))(self.none(h)))(self.layer(x))",
    "a_copy": "(lambda y: (x.mul_(2), y))(self.none(x).clone())",
    "of_a_transposed_one": "(lambda y: (y.add_(x.sum()), x * 2))(F.dropout(x.t(), 0.5, False))",
    "of_a_cast_that_is_none": "(lambda y: (y.add_(1), x * 2))(x.type_as(self.kept))",
    "a_copy_of_such_a_cast": "(lambda y: (x.add_(1), y))(x.type_as(self.kept).clone())",
    "of_a_buffer": "(lambda y: (self.kept.add_(x.mean(0)), y + x))(self.none(self.kept))",
}
"""A dropout outside of training gives its operand itself: what changes one of the two changes the other."""
KEPT = f"{INIT}\nself.register_buffer('kept', torch.zeros(m))"


def ops(forward: str) -> list[str]:
    graph = export_graph(task_from_source(reference(forward, GIVEN, INIT, SIZES), "it"))
    return [op.target for op in graph.ops if "clone" in op.target or "dropout" in op.target]


@pytest.mark.parametrize("name", GONE)
def test_what_passes_on_is_gone(name: str) -> None:
    assert ops(GONE[name]) == []


@pytest.mark.parametrize("name", STAYING)
def test_a_tensor_of_its_own_stays_one(name: str) -> None:
    assert ops(STAYING[name])


def test_a_dropout_stays_one() -> None:
    assert ops("self.some(self.layer(x))") == ["aten.dropout.default"]


def test_all_are_right() -> None:
    cases = [
        {"name": name, "source": reference(forward, GIVEN, INIT, SIZES), "ways": [["lower", "fuse"]]}
        for name, forward in {**{f"gone_{k}": v for k, v in GONE.items()}, **STAYING}.items()
    ]
    cases += [
        {"name": f"changed_{name}", "source": reference(forward, GIVEN, KEPT, SIZES), "ways": [["lower", "fuse"]]}
        for name, forward in CHANGED.items()
    ]
    assert {name: problem for name, problem in interpret(cases).items() if problem} == {}
