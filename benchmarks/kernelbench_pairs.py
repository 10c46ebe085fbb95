"""Problems of a checkout of KernelBench, and candidates for them that the rewriter made beforehand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import evaluated, failure, task_from_json, task_to_json
from mtmc.errors import ConfigError
from mtmc.protocols import EvaluationRequest, Evaluator
from mtmc.task import Task, load_task


@dataclass(frozen=True)
class Candidate:
    """One pair. problem: e.g. "level1/19_ReLU". label: last step of the rewriter's line."""

    problem: str
    label: str
    task: Task
    source: str


def problem_file(checkout: Path, problem: str) -> Path:
    """The file of "level1/19" or "level1/19_ReLU". Raises: ConfigError where there is none."""
    level, _, name = problem.partition("/")
    pattern = f"{name}.py" if "_" in name else f"{name}_*.py"
    found = sorted((checkout / "KernelBench" / level).glob(pattern))
    if len(found) != 1:
        raise ConfigError(f"{problem!r} is no problem of this checkout of KernelBench: write it as level1/19")
    return found[0]


def prepare(checkout: Path, problems: Sequence[str], folder: Path, lab: Evaluator) -> None:
    """Write the candidates: of each problem's line the last version that has kernels and passes the lab."""
    from benchmarks.on_gpu import line

    folder.mkdir(parents=True, exist_ok=True)
    for number, problem in enumerate(problems):
        path = problem_file(checkout, problem)
        task = load_task(path)
        for label, source in reversed(list(line(task))):
            outcome = evaluated(lab, EvaluationRequest(task, source))
            if "@triton.jit" in source and outcome.ok:
                break
            print(f"{path.stem}, {label}: {failure(outcome)}", flush=True)
        else:
            print(f"{path.stem}: no candidate", flush=True)
            continue
        name = f"{path.parent.name}/{path.stem}"
        data = {"problem": name, "label": label, "digest": digest(task.source), **task_to_json(task), "source": source}
        target = folder / f"{number:02}_{path.stem}.json"
        target.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {label}, {source.count('@triton.jit')} kernels", flush=True)


def digest(text: str) -> str:
    """Identity of a problem's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_candidates(checkout: Path, folder: Path, problems: Sequence[str]) -> list[Candidate]:
    """The prepared candidates of the named problems, in the order in which they were prepared.

    Raises: ConfigError where there are none, or the checkout's problem is another one than it was.
    """
    wanted = {problem_file(checkout, problem) for problem in problems}
    found = []
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        file = problem_file(checkout, data["problem"])
        text = file.read_text(encoding="utf-8")
        if digest(text) != data["digest"]:
            raise ConfigError(f"{data['problem']} is not the text that {path.name} was made for: --prepare again")
        if file in wanted:
            found.append(Candidate(data["problem"], data["label"], task_from_json(data, text), data["source"]))
    if not found:
        raise ConfigError(f"{str(folder)!r} has no candidates: make them with --prepare {folder}")
    return found
