"""An oracle is told the weights of a network once, and takes each request for what it was.

One that was lost is told them again: that is in `test_measure`, beside the other tests that share its processes.
"""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from evaluate_sources import TASK

from mtmc.evaluate.measure.oracle import Oracle
from mtmc.evaluate.measure.oracle_process import OracleProcess
from mtmc.evaluate.measure.questions import Ahead, Calibrate, Examine
from mtmc.task import Task

WEIGHTS = b"w" * 100_000
HEAVY = dataclasses.replace(TASK, state=WEIGHTS)
OTHER = dataclasses.replace(TASK, state=b"v" * 100_000)


def examine(task: Task, source: str = "x") -> Examine:
    return Examine("token", task, source, "screen", 1, 1.0)


@pytest.mark.parametrize(
    ("requests", "heavy"),
    [
        ([examine(HEAVY), examine(HEAVY, "y"), examine(dataclasses.replace(HEAVY))], [True, False, False]),
        ([examine(HEAVY), examine(OTHER), examine(HEAVY)], [True, True, True]),
        ([examine(HEAVY), Calibrate("a"), Ahead(1), Calibrate("b", (), HEAVY), examine(HEAVY)], [True] + 4 * [False]),
        ([examine(HEAVY), examine(TASK), examine(TASK), examine(HEAVY)], [True, False, False, True]),
        ([examine(HEAVY), examine(dataclasses.replace(HEAVY, source="z"))], [True, True]),
    ],
)
def test_each_request_comes_as_it_was_and_weights_once(requests: list[Any], heavy: list[bool]) -> None:
    ours, theirs = object.__new__(OracleProcess), object.__new__(Oracle)
    ours._told = theirs._told = None
    sizes = []
    for request in requests:
        body = pickle.dumps(ours._without_known(request))
        sizes.append(len(body) > len(WEIGHTS))
        assert theirs.whole(pickle.loads(body)) == request
    assert sizes == heavy
