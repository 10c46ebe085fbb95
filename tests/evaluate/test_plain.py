"""What another process says becomes a typed fact, or is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

import pytest

from mtmc.errors import EvaluatorError
from mtmc.evaluate.audit.diagnosis import Failure
from mtmc.evaluate.check.cases import Checked
from mtmc.evaluate.compiling.build import Built, build
from mtmc.evaluate.counting.count import Counted
from mtmc.evaluate.measure.clock import Timing
from mtmc.evaluate.measure.questions import Answer, Measured
from mtmc.evaluate.plain import MalformedError, from_plain, returned
from mtmc.evaluate.pool.warm_process import name_of
from mtmc.outcome import Diagnosis


class Row(TypedDict):
    name: str


@dataclass(frozen=True)
class Inner:
    number: float
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    pair: tuple[int, str]
    several: tuple[Inner, ...]
    named: Mapping[str, bool]
    rows: list[Row]
    anything: Any = None


OUTER = Outer(Inner(0.5), (1, "x"), (Inner(1.0, "b"),), {"y": True}, [{"name": "z"}], [{"z": None}])


@pytest.mark.parametrize(
    ("kind", "fact"),
    [
        (Outer, OUTER),
        (Built | Failure, Failure("crash", Diagnosis("build", "KeyError", "no", 3))),
        (Built | Failure, Built((), (), {"k": 2})),
        (Answer, Answer(Measured(Timing(1.0, 0.5, 2.0, 12), {"error": 1e-7}, ("weak",)), taken=True)),
    ],
)
def test_facts_come_back_as_they_were(kind: Any, fact: Any) -> None:
    assert from_plain(kind, json.loads(json.dumps(asdict(fact)))) == fact


@pytest.mark.parametrize(
    "change",
    [
        {"inner": {"number": "1"}},
        {"inner": {"number": True}},
        {"inner": {"number": 1, "kind": "c"}},
        {"inner": {"number": 1, "more": 2}},
        {"inner": {}},
        {"inner": []},
        {"pair": [1]},
        {"pair": [1.0, "x"]},
        {"several": {"number": 1}},
        {"named": {"y": 1}},
        {"rows": [{}]},
        {"rows": [{"name": "z", "more": 1}]},
        {"unknown": 1},
    ],
)
def test_what_is_of_another_type_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        from_plain(Outer, {**asdict(OUTER), **change})


def test_a_whole_number_stands_for_a_float_and_nothing_else_is_converted() -> None:
    found = from_plain(Inner, {"number": 2})
    assert found == Inner(2.0) and type(found.number) is float
    assert from_plain(dict[str, float], {"a": 1}) == {"a": 1.0}
    with pytest.raises(MalformedError, match="1\\.5"):
        from_plain(int, 1.5)


def test_forged_answers_of_jobs_are_refused() -> None:
    op = {"op": "aten.add", "bytes_read": 4, "reads": [[0, 4]], "writes": [[1, 4]]}
    for answer in ({"records": [op], "inputs": [4]}, {"records": [], "inputs": ["4"]}, {"status": "ok"}):
        with pytest.raises(MalformedError):
            from_plain(Counted | Failure, answer)
    for answer in ({"launches": [], "kernels": [], "autotuned": {}, "records": []}, {"launches": [{}]}, [], None):
        with pytest.raises(MalformedError):
            returned(build, answer)
    with pytest.raises(MalformedError):
        from_plain(Checked | Failure, {"error": 0.0, "cases": 1, "exact": 1})
    with pytest.raises(MalformedError):
        from_plain(Failure, {"status": "fine", "diagnosis": asdict(Diagnosis("check", "X", "y"))})


def test_only_functions_of_modules_are_jobs() -> None:
    assert name_of(build) == "mtmc.evaluate.compiling.build:build"
    for function in (lambda: None, dict.fromkeys, OUTER.__repr__):
        with pytest.raises(EvaluatorError, match="cannot be a job"):
            name_of(function)
