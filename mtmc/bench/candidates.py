"""candidates: which of the files made elsewhere is for which problem. Pure but for listing a folder.

A file is for a problem if its name says so: the problem's name ("19_ReLU.py"), that without its number ("ReLU.py"), its
number ("19.py"), or as KernelBench's scripts name theirs ("level_1_problem_19_sample_0_kernel.py"). In a folder named after
a level ("level1/19.py") the number is one of that level. Several samples of a problem are several candidates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtmc.bench.problem import Problem
from mtmc.bench.selection import bare_name, matches
from mtmc.errors import ConfigError

_KERNELBENCH = re.compile(r"(?:level_?(?P<level>\d+)_)?problem_(?P<number>\d+)(?:_sample_\d+)?(?:_kernel)?")
_SAMPLE = re.compile(r"_(?:sample_?)?\d+$")


@dataclass(frozen=True)
class Matched:
    """by_problem: the files of each problem that has any, by its id. unmatched: files that are for none."""

    by_problem: dict[str, tuple[Path, ...]]
    unmatched: tuple[Path, ...]


def match_candidates(folder: Path, problems: Sequence[Problem]) -> Matched:
    """The candidates below a folder, by problem.

    Raises: ConfigError where there is no such folder, no file in it is for any problem, or one is for several.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {str(folder)!r} of candidates: give score=FOLDER")
    files = sorted(path for path in folder.rglob("*.py") if not path.name.startswith("__"))
    by_problem: dict[str, list[Path]] = {}
    unmatched = []
    for path in files:
        found = _problems_of(path, problems)
        if len(found) > 1:
            names = ", ".join(each.id for each in found[:4])
            raise ConfigError(
                f"the candidate {path.name} is for several problems ({names}): put it into a folder named after its "
                "level, or choose one level"
            )
        if found:
            by_problem.setdefault(found[0].id, []).append(path)
        else:
            unmatched.append(path)
    if not by_problem:
        shown = f"it has {files[0].name}" if files else "it has no .py files"
        fix = f"name them like {problems[0].name}.py"
        raise ConfigError(f"no file in {str(folder)!r} is for a chosen problem ({shown}): {fix}")
    return Matched({each: tuple(paths) for each, paths in by_problem.items()}, tuple(unmatched))


def _problems_of(path: Path, problems: Sequence[Problem]) -> list[Problem]:
    named = _KERNELBENCH.fullmatch(path.stem)
    level = named["level"] if named and named["level"] else None
    if level is not None:
        inside = [each for each in problems if each.level == f"level{level}"]
    else:
        inside = [each for each in problems if each.level.lower() in {part.lower() for part in path.parts[:-1]}]
        inside = inside or list(problems)
    texts = [named["number"]] if named else [path.stem, path.stem.rstrip("_"), _SAMPLE.sub("", path.stem)]
    for text in texts:
        found = [each for each in inside if matches(each, text) or text == bare_name(each)]
        if found:
            return found
    return []
