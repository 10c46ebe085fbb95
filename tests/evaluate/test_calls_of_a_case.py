"""The calls of a case that changes something: what is asked of the reference, and from what it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_reference import task

from mtmc.evaluate.reference.blocks import different
from mtmc.evaluate.reference.compare import Expected
from mtmc.evaluate.reference.effects import put, values
from mtmc.evaluate.reference.expected_outputs import ExpectedOutputs
from mtmc.evaluate.reference.reference import Reference

NORM = ("x, = inputs; return self.norm(x)", "[torch.randn(rows, cols)]", "self.norm = nn.BatchNorm1d(cols)")
COUNTER = (
    "x, = inputs; self.seen += 1; return x * self.seen",
    "[torch.randn(rows, cols)]",
    "self.register_buffer('seen', torch.zeros(()))",
)
INTO_INPUT = ("x, = inputs; x.mul_(2.0); return x + 1", "[torch.randn(rows, cols)]", "pass")
SEVERAL = (
    "x, cache = inputs; cache.add_(x); self.mean.mul_(0.5).add_(x.mean(0)); return cache * 1.0, self.mean",
    "[torch.randn(rows, cols), torch.zeros(rows, cols)]",
    "self.register_buffer('mean', torch.zeros(cols))",
)
CHANGING = {"norm": NORM, "counter": COUNTER, "into its input": INTO_INPUT, "several": SEVERAL}
SECOND = (
    "x, = inputs; self.a += 1; self.b += self.a // 2; return x * self.a + self.b",
    "[torch.randn(rows, cols)]",
    "self.register_buffer('a', torch.zeros(())); self.register_buffer('b', torch.zeros(()))",
)


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The dtype in which each forward of a reference is made."""
    seen, run = list[str](), Reference.run

    def counted(self: Reference, inputs: list[Any], *given: Any, **named: Any) -> Any:
        seen.append(str(inputs[0].dtype).removeprefix("torch."))
        return run(self, inputs, *given, **named)

    monkeypatch.setattr(Reference, "run", counted)
    yield seen


def numbers(calls: list[ExpectedOutputs] | None) -> list[torch.Tensor]:
    assert calls is not None
    everything = [each for call in calls for each in call.everything]
    found = [t for each in everything if isinstance(each, Expected) for t in (each.value, each.oracle, each.rounded)]
    return [*found, *(each for call in calls for each in call.inputs)]


@pytest.mark.parametrize("name", list(CHANGING))
@pytest.mark.parametrize("count", [2, 3])
def test_the_call_that_tells_of_effects_is_the_first_of_the_case(
    tmp_path: Path, forwards: list[str], name: str, count: int
) -> None:
    """Where they are known; and what is expected hangs on no case before."""
    made = Reference(task(*CHANGING[name]), task(*CHANGING[name]).small, tmp_path, 3)
    first = numbers(made.expected("drawn", 5, count))
    assert forwards.count("float32") == count + 1 and forwards.count("float64") == 2 * count
    made.expected("drawn", 6, 3)
    forwards.clear()
    again = numbers(made.expected("drawn", 5, count))
    assert forwards.count("float32") == count and forwards.count("float64") == 2 * count
    assert len(first) == len(again) and all(map(torch.equal, first, again))


@pytest.mark.parametrize("name", list(CHANGING))
def test_one_call_alone_starts_where_the_model_does(tmp_path: Path, name: str) -> None:
    made = Reference(task(*CHANGING[name]), task(*CHANGING[name]).small, tmp_path, 3)
    first = numbers(made.expected("drawn", 5, 1))
    made.expected("drawn", 6, 2)
    assert all(map(torch.equal, first, numbers(made.expected("drawn", 5, 1))))


@pytest.mark.parametrize("count", [2, 3])
def test_what_a_later_call_changes_is_an_effect_too(tmp_path: Path, count: int) -> None:
    calls = Reference(task(*SECOND), task(*SECOND).small, tmp_path, 3).expected("drawn", 5, count)
    assert calls is not None
    assert [sorted(call.left_state) for call in calls] == [["a", "b"]] * count
    assert all(call.untouched == () for call in calls)
    kept = [[float(call.left_state[each].value) for each in "ab"] for call in calls]
    assert kept == [[1.0, 0.0], [2.0, 1.0], [3.0, 2.0]][:count]


def test_what_changes_nothing_is_called_once_in_each_precision(tmp_path: Path, forwards: list[str]) -> None:
    plain = task("x, = inputs; return x.relu()")
    made = Reference(plain, plain.small, tmp_path, 3)
    for seed in (1, 2):
        forwards.clear()
        assert made.expected("drawn", seed, 3) is not None and sorted(forwards) == ["float32", "float64", "float64"]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64, torch.uint8]
)
def test_small_tensors_that_differ_in_a_bit_are_told(dtype: torch.dtype) -> None:
    before = [torch.zeros(shape, dtype=dtype) for shape in ((3,), (), (3,), (3,), (), (2, 2), (0,), (0,), (7,))]
    for at, tensor in enumerate(before):
        now = [each.clone() for each in before]
        assert different(now, before) == []
        if tensor.numel():
            now[at].view(-1)[-1] = 1
            assert different(now, before) == [at]
        now[at] = now[at].new_zeros((9,))
        assert different(now, before) == [at]
        now[at] = before[at].to(torch.complex128)
        assert different(now, before) == [at]
    assert different([torch.tensor(0.0)] * 2, [torch.tensor(-0.0), torch.tensor(0.0)]) == [0]
    nan = torch.tensor(float("nan"))
    assert different([nan, nan], [nan.clone(), nan.clone()]) == [] == different([], [])


def test_all_that_is_put_back_lies_where_it_lay() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4))
    model.table = torch.arange(6.0).view(2, 3).t()
    saved = values(model)
    places = {path: each.data_ptr() for path, each in {**dict(model.named_buffers()), "table": model.table}.items()}
    model(torch.randn(8, 4))
    model.table.zero_()
    model[1].running_var = torch.ones(7)
    put(model, saved)
    assert all(torch.equal(each, saved[path]) for path, each in values(model).items())
    now = {**dict(model.named_buffers()), "table": model.table}
    assert [path for path, each in now.items() if each.data_ptr() != places[path]] == ["1.running_var"]
