from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from mtmc.task import first_run

Result = TypeVar("Result")


def at_once(source: str, name: str, trials: Callable[[], Result]) -> Result:
    return trials()


@pytest.fixture(scope="package", autouse=True)
def no_first_runs() -> Iterator[None]:
    """The references here are the tests' own, hundreds of them: no child process tries them before they are loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_run, "tried", at_once)
        yield
