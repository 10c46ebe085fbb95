"""What a quick run of the tests leaves out, by hand; and that the list is of tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.quick import KEPT, kept_cases, left_out, listed

ROOT = Path(__file__).parents[1]
DURATIONS = """
0.40s call     tests/a/test_one.py::test_cases[x::y-1]
0.40s call     tests/a/test_one.py::test_cases[z]
0.30s call     tests/a/test_one.py::test_short
1.20s call     tests/a/test_one.py::test_alone
9.00s setup    tests/a/test_two.py::test_first
3.00s call     tests/a/test_two.py::test_first
9.00s call     tests/acceptance/test_readme.py::test_examples[x]
2.90s setup    tests/a/test_three.py::test_that_shares
(130 durations < 0.2s hidden.)
"""


def test_a_function_keeps_what_fits_into_a_second_and_a_file_with_a_long_setup_nothing() -> None:
    long = kept_cases(DURATIONS.splitlines())
    assert long == {
        "tests/a/test_one.py::test_alone": 0,
        "tests/a/test_one.py::test_cases": 1,
        "tests/a/test_two.py": 0,
    }
    names = [
        "tests/a/test_one.py::test_cases[x::y-1]",
        "tests/a/test_one.py::test_cases[z]",
        "tests/a/test_one.py::test_short",
        "tests/a/test_one.py::test_alone",
        "tests/a/test_two.py::test_new",
        "tests/acceptance/test_readme.py::test_examples[x]",
        "tests/a/test_new.py::test_cases[z]",
    ]
    assert left_out(names, long) == {1, 3, 4}


def test_every_name_is_of_a_test_that_exists() -> None:
    for name in [*listed(), *KEPT]:
        file, _, function = name.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not function or re.search(rf"^def {function}\(", text, re.MULTILINE), name
