"""KernelBench's adversarial kernels and example kernels through our evaluator: none of the first may pass, all of the
second must.

    PYTHONPATH=. python benchmarks/kernelbench_adversarial.py --kernelbench PATH --out results/kernelbench_adversarial

PATH is a checkout of KernelBench, from which everything is read; nothing of it is kept here. Its adversarial kernels and
most of its examples are CUDA C++ that a compiler is started for, or other languages: our evaluator takes Triton and torch
only, so its audit refuses them, honest or not. Such examples are listed as "not Triton" (one file is empty) and decide
nothing. For the same reason each adversarial kernel is joined by its idea written anew in torch and Triton, which the
audit does not stop.

A `.cuda()` in a reference's inputs is taken out of its text: the evaluator puts inputs where they belong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.common import Report, evaluated, failure, parser, settings_of
from benchmarks.figures import header, row
from benchmarks.kernelbench_pairs import problem_file
from mtmc.errors import ConfigError
from mtmc.outcome import Outcome
from mtmc.protocols import Depth, EvaluationRequest, Evaluator
from mtmc.task import Task, Variant, load_task

Group = Literal["adversarial", "honest", "not Triton"]
PRODUCT = "level1/1"
"""The problem that KernelBench's adversarial kernels are for: a square matrix product."""
DEPTHS: tuple[Depth, ...] = ("screen", "verify")
_HEAD = """\
import torch
import triton
import triton.language as tl
from torch import nn

"""

IDEAS = {
    "result_reuse_kernel": f"""{_HEAD}
class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
""",
    "zero_out_kernel": f"""{_HEAD}
@triton.jit
def clear(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zero = tl.zeros((BLOCK,), tl.float32)
    tl.store(x + at, zero, mask=at < n)
    tl.store(out + at, zero, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
        clear[(triton.cdiv(a.numel(), 1024),)](a, out, a.numel(), BLOCK=1024)
        clear[(triton.cdiv(b.numel(), 1024),)](b, out, b.numel(), BLOCK=1024)
        return out
""",
    "non_default_stream_kernel": f"""{_HEAD}
class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.mm(a, b, out=out)
        return out
""",
}
"""By the name of KernelBench's file: the same idea, written anew. An output that is never written; inputs and output
zeroed; the work on a stream that nobody waits for."""


@dataclass(frozen=True)
class Trial:
    """One candidate. name: of its file, or of the idea."""

    name: str
    group: Group
    task: Task
    source: str


def adversarial(checkout: Path) -> Iterator[Trial]:
    """KernelBench's adversarial kernels, each followed by its idea in torch and Triton.

    Raises: ConfigError where the checkout has none, or one that has no twin here.
    """
    folder = checkout / "src" / "kernelbench" / "unit_tests" / "test_kernels"
    files = sorted(folder.glob("*.py"))
    if not files:
        raise ConfigError(f"{str(checkout)!r} has no src/kernelbench/unit_tests/test_kernels: give a checkout")
    task = load_task(problem_file(checkout, PRODUCT))
    for path in files:
        yield Trial(path.stem, "adversarial", task, path.read_text(encoding="utf-8"))
        if path.stem not in IDEAS:
            raise ConfigError(f"{path.name} is a new adversarial kernel of KernelBench: write its idea anew in IDEAS")
        yield Trial(f"{path.stem}, in torch and Triton", "adversarial", task, IDEAS[path.stem])


def examples(checkout: Path) -> Iterator[Trial]:
    """The example kernels of KernelBench's prompts whose reference is there too."""
    prompts = checkout / "src" / "kernelbench" / "prompts"
    for path in sorted(prompts.rglob("model_new_ex_*.py")):
        reference = reference_of(path)
        if reference is None:
            continue
        source = path.read_text(encoding="utf-8")
        name = str(path.relative_to(prompts).with_suffix(""))
        group: Group = "honest" if "@triton.jit" in source else "not Triton"
        text = reference.read_text(encoding="utf-8").replace(".cuda()", "")
        # Their sizes are written out where they are used, so there is nothing to shrink: all shapes are the full ones.
        yield Trial(name, group, Task(f"kernelbench_{reference.stem}", text, Variant("full"), Variant("small")), source)


def reference_of(path: Path) -> Path | None:
    """The reference beside an example: model_new_ex_add_triton.py -> model_ex_add.py, by its longest beginning."""
    words = path.stem.removeprefix("model_new_ex_").split("_")
    for end in range(len(words), 0, -1):
        found = path.with_name(f"model_ex_{'_'.join(words[:end])}.py")
        if found.exists():
            return found
    return None


def judged(trial: Trial, outcomes: Sequence[Outcome]) -> bool | None:
    """Whether it came out as it must; None for a trial that decides nothing. An adversarial one may pass no depth."""
    if trial.group == "not Triton":
        return None
    passed = all(outcome.ok for outcome in outcomes)
    return passed if trial.group == "honest" else not any(outcome.ok for outcome in outcomes)


def run(evaluator: Evaluator, trials: Sequence[Trial], report: Report) -> bool:
    """The table; whether everything came out as it must."""
    report.say(header("kernel", "group", "task", "screening", "verification", "as it must be"))
    report.data["trials"] = []
    good = True
    for trial in trials:
        outcomes = [evaluated(evaluator, EvaluationRequest(trial.task, trial.source, depth=depth)) for depth in DEPTHS]
        verdict = judged(trial, outcomes)
        good &= verdict is not False
        shown = ["passes" if outcome.ok else failure(outcome) for outcome in outcomes]
        shown[1] = "the same" if shown[0] == shown[1] else shown[1]
        word = {True: "yes", False: "**NO**", None: ""}[verdict]
        report.say(row(trial.name, trial.group, trial.task.name, *shown, word))
        statuses = [outcome.status for outcome in outcomes]
        report.data["trials"].append([trial.name, trial.group, *statuses, verdict])
    return good


def conclude(trials: Sequence[Trial], good: bool, report: Report) -> None:
    """Counts by group, and the verdict."""
    counts = {group: sum(trial.group == group for trial in trials) for group in ("adversarial", "honest", "not Triton")}
    report.data.update(counts=counts, holds=good)
    report.say(
        f"\n{counts['adversarial']} adversarial, {counts['honest']} honest, {counts['not Triton']} examples not in Triton "
        f"(refused by the audit, or counted as nothing). Everything came out as it must: {good}."
    )


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--kernelbench", type=Path, required=True, metavar="PATH", help="a checkout of KernelBench")
    options.add_argument("--limit", type=int, default=100, help="candidates at most")
    arguments: argparse.Namespace = options.parse_args()
    trials = [*adversarial(arguments.kernelbench), *examples(arguments.kernelbench)][: arguments.limit]
    good = False
    with Report("KernelBench's adversarial and example kernels", arguments.out) as report:
        with settings_of(arguments).open() as evaluator:
            good = run(evaluator, trials, report)
        conclude(trials, good, report)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
