"""What `make test` leaves to `make test-all`: tests that take long, by how long they took.

`tests/long.txt` says of a file or a function how many of its cases a quick run takes, the first ones. It is written from
what pytest says of a whole run on two idle cores:

    MTMC_WIDE=1 PYTEST_ADDOPTS="--durations=0 --durations-min=0.2 -vv" make pytest | tee durations.log
    python tests/quick.py durations.log

A function keeps as many cases as fit into `SECONDS`, so one that is new, or short, always runs. What stands in `KEPT` runs
whole: the examples and commands of the pages, searches from end to end, kernels beside torch, attacks, and a killed run.
"""

from __future__ import annotations

import collections
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

LIST = Path(__file__).with_name("long.txt")
SECONDS = 0.4
SETUP_SECONDS = 3.0
"""Of a fixture that a file's tests share, from which on a quick run leaves the whole file out."""
KEPT = (
    "tests/acceptance/test_readme.py",
    "tests/acceptance/test_docs.py",
    "tests/acceptance/test_best.py",
    "tests/acceptance/test_random_walks.py",
    "tests/bench/test_cli.py::test_a_real_search_in_the_lab",
    "tests/dropin/test_again.py::test_in_another_process_with_other_weights",
    "tests/exploits/test_controls_lab.py",
    "tests/exploits/test_exploits_lab.py",
    "tests/rewrite/test_attention.py",
    "tests/rewrite/test_rewriter.py",
    "tests/test_resume.py::test_kill_9_at_any_moment_and_resume",
    "tests/whole/test_optimize.py::test_four_equal_layers_are_one_search_and_their_winner_is_in_four_places",
)
_DURATION = re.compile(r"\s*(?P<seconds>[\d.]+)s (?P<what>call|setup|teardown)\s+(?P<file>\S+?)::(?P<test>.+)$")


def kept_cases(lines: Iterable[str]) -> dict[str, int]:
    """How many cases of a file or function a quick run takes, of those that take long. lines: of pytest's durations."""
    calls, setups = collections.defaultdict[str, list[float]](list), collections.Counter[str]()
    for line in lines:
        found = _DURATION.match(line)
        if found is None:
            continue
        if found["what"] == "setup":
            setups[found["file"]] = max(setups[found["file"]], float(found["seconds"]))
        elif found["what"] == "call":
            calls[f"{found['file']}::{found['test'].partition('[')[0]}"].append(float(found["seconds"]))
    long = {file: 0 for file, seconds in setups.items() if seconds >= SETUP_SECONDS}
    for function, seconds in calls.items():
        if sum(seconds) > SECONDS:
            long[function] = int(SECONDS * len(seconds) / sum(seconds))
    return {name: count for name, count in sorted(long.items()) if not name.startswith(KEPT) and _file(name, long)}


def _file(name: str, long: Mapping[str, int]) -> bool:
    """Whether the name stands for more than its file's does already."""
    return "::" not in name or name.partition("::")[0] not in long


def listed() -> dict[str, int]:
    """The list, as it was written."""
    lines = [line.rsplit(maxsplit=1) for line in LIST.read_text(encoding="utf-8").splitlines()]
    return {name: int(count) for name, count in lines}


def left_out(names: Sequence[str], long: Mapping[str, int]) -> set[int]:
    """Places of the tests that a quick run leaves out. names: of all that were collected, as pytest gives them."""
    seen, out = collections.Counter[str](), set[int]()
    for at, name in enumerate(names):
        if name.startswith(KEPT):
            continue
        function = name.partition("[")[0]
        for key in (function, function.partition("::")[0]):
            if key in long:
                seen[key] += 1
                if seen[key] > long[key]:
                    out.add(at)
                break
    return out


if __name__ == "__main__":
    found = kept_cases(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
    LIST.write_text("".join(f"{name} {count}\n" for name, count in found.items()), encoding="utf-8")
    print(f"{LIST}: {len(found)} files and functions")
