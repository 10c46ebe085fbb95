"""collection: any folder of task files, with all folders in it.

A file is a problem if its text defines `Model` or `get_inputs`; whether it is a task is found when it is loaded, and said
where it is not. Known layouts: files with names of their own; `NAME/reference.py` (kernelbench.com), called by the folder;
`NAME/func_forward.py` with `config_forward.json` (robust-kbench), whose arguments become module-level numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtmc.bench.problem import Problem
from mtmc.bench.suites.files import read_text
from mtmc.bench.suites.keywords import with_numbers
from mtmc.errors import ConfigError, TaskError
from mtmc.task.bundling import bundle

ALONE = "files"
"""The level of files that lie in the folder itself."""
_GENERAL = ("reference", "func_forward", "model", "task", "problem")
"""Names of files that say nothing: the folder's name stands for theirs."""
_BESIDES = ("solution", "submission", "sota", "check", "benchmark", "eval", "utils", "template", "func_backward")
"""Names of files that lie beside a task and are none."""
_CONFIG = "config_forward.json"
_IS_TASK = re.compile(r"^(class Model\b|def get_inputs\b)", re.MULTILINE)
_HIDDEN = (".", "_", "test", "venv", "build", "third_party", "site-packages")


@dataclass(frozen=True)
class Collection:
    """The task files below a folder. path: the folder."""

    path: str

    def problems(self) -> Sequence[Problem]:
        """By folder and name; the level is the first folder, the number the place in it. Raises: ConfigError without any."""
        if not self.path:
            raise ConfigError("suite=files needs a path: give path=FOLDER of task files")
        root = Path(self.path).expanduser()
        files = sorted(_python_files(root)) if root.is_dir() else []
        tasks = [file for file in files if _is_task(file)]
        if not tasks:
            fix = "a task defines `class Model(nn.Module)` and `get_inputs()`"
            raise ConfigError(f"{self.path!r} holds no task among {len(files)} Python files: {fix}")
        levels: dict[str, list[tuple[str, Path]]] = {}
        for file in tasks:
            level, name = _placed(file.relative_to(root))
            levels.setdefault(level, []).append((name, file))
        return [each for level, placed in levels.items() for each in _numbered(level, placed)]

    def source(self, problem: Problem) -> str:
        """The task's text, with the modules beside it in it. Raises: TaskError, with the reason, where it is none."""
        text = with_numbers(read_text(problem.path), _config(problem.path.parent / _CONFIG), problem.name)
        return bundle(text, problem.path, problem.name)

    def trusted(self, problem: Problem) -> bool:
        """Nothing is known of them."""
        return False

    def candidate(self, problem: Problem, text: str) -> str:
        """As it is."""
        return text


def _python_files(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*.py"):
        parts = file.relative_to(folder).parts
        if not any(part.startswith(_HIDDEN) for part in parts) and file.stem not in _BESIDES:
            yield file


def _is_task(file: Path) -> bool:
    try:
        return bool(_IS_TASK.search(file.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return True  # which is said where it is loaded


def _placed(path: Path) -> tuple[str, str]:
    """Level and name of a file by its path below the folder."""
    parts = [*path.parts[:-1], path.stem]
    if path.stem in _GENERAL and len(parts) > 1:
        parts.pop()
    level = parts.pop(0) if len(parts) > 1 else ALONE
    return _plain(level), _plain("_".join(parts))


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("._-") or "task"


def _numbered(level: str, placed: Sequence[tuple[str, Path]]) -> Iterator[Problem]:
    """The problems of a level; names that two files have get the number behind them."""
    taken = set[str]()
    for number, (name, file) in enumerate(placed, 1):
        unique = name if name not in taken else f"{name}_{number}"
        taken.add(unique)
        yield Problem(level, number, unique, file)


def _config(file: Path) -> dict[str, Any]:
    """What a robust-kbench task is called with: its first configurations. Raises: TaskError where it cannot be read."""
    if not file.exists():
        return {}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        parts = (data.get(f"single_{kind}_configs") or [{}] for kind in ("shared", "init", "input"))
        return {name: value for part in parts for name, value in part[0].items()}
    except (OSError, ValueError, AttributeError, IndexError) as error:
        raise TaskError(f"{file.name} cannot be read ({error}): see that the collection's files are whole") from error
