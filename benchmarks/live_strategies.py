"""Strategies x policies x budgets live, on the tasks of an evaluator: one experiment, one command, one page.

    PYTHONPATH=. python benchmarks/live_strategies.py --jobs 8 --minutes 9 --out results/live_strategies

Each of `--tasks` (built-in ones, and blocks as LEVEL/NAME) is searched by each strategy with each policy and several seeds,
one trial at a time, until the greatest of `--budgets` is spent. A version that one search has had evaluated is not evaluated
again for another, so that two searches of a task differ in what they try and not in the noise of a clock; it counts as one
evaluation all the same. `+gain` behind a strategy's name: with the model of gains that ships (`agents.gain=trained`).

Each search is kept in OUT.jsonl as it ends, and those that are there are not made again. The tables are of the tasks whose
searches have all ended, and say what `benchmarks/strategy_replays.py` says of recorded trees; "the best known speedup" is
the best that any search found. Runtimes are the evaluator's: measured ones on a GPU, estimates in the lab.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from multiprocessing import active_children, get_context
from pathlib import Path

from benchmarks.common import Deadline, Report, parser, settings_of
from benchmarks.experiment_page import Experiment, Line, Table, write_page
from benchmarks.remembering import Remembering
from benchmarks.strategy_replays import Curves, across, as_data, compared, told
from mtmc.bench.suites.blocks import FOLDER
from mtmc.errors import ConfigError, MtmcError
from mtmc.evaluate.sandbox.capabilities import end_with_parent
from mtmc.evaluate.shared import EvaluatorServer, RemoteEvaluator, Shared
from mtmc.export import best_so_far
from mtmc.rl.replays import Curve
from mtmc.search import AgentSettings, search
from mtmc.task import builtin_names

GAIN = "+gain"
STRATEGIES = ("mcts", "mcts, zero", "best_first", f"best_first{GAIN}")
POLICIES = ("compact", "heuristic")
BUDGETS = (4, 8, 16)
TASKS = (
    *("softmax_gelu", "layernorm", "rmsnorm", "residual_norm", "groupnorm", "cross_entropy", "row_mean_max_argmax"),
    *("linear_gelu", "mlp", "matmul_max", "batched_matmul", "transformer_block"),
    *("decoder/gqa_prefill", "decoder/swiglu_mlp", "decoder/rope_qk", "decoder/dense_decoder_layer"),
    *("moe/topk_router", "encoder/bert_layer", "vision/convnext_block", "vision/vit_block"),
    *(
        "diffusion/dit_block",
        "recurrent/selective_scan_chunk",
        "loss/vocabulary_cross_entropy",
        "quantized/w8a8_linear",
    ),
)
TOLD_EVERY = 8
"""Searches between two lines of progress."""


@dataclass(frozen=True)
class Spec:
    """One search. strategy: a label of `compared`, with or without `GAIN`."""

    task: str
    policy: str
    strategy: str
    seed: int


@dataclass(frozen=True)
class Found:
    """values: log2 of the best speedup after each evaluation, empty where the search failed, which `failure` says why."""

    spec: Spec
    values: tuple[float, ...]
    failure: str = ""


def task_of(name: str) -> str | Path:
    """What `search` takes for a task's name. Raises: ConfigError for a name that is none."""
    path = FOLDER / f"{name}.py"
    if "/" in name and path.is_file():
        return path
    if name in builtin_names():
        return name
    raise ConfigError(f"--tasks cannot have {name!r}: use a built-in task, or LEVEL/NAME of a block")


def searched(spec: Spec, budget: int, evaluator: Shared) -> Found:
    """Make one search."""
    label = spec.strategy.removesuffix(GAIN)
    try:
        result = search(
            task_of(spec.task),
            strategy=compared()[label],
            policy=spec.policy,
            evaluator=evaluator,
            budget=budget,
            seed=spec.seed,
            agents=AgentSettings(gain="trained" if label != spec.strategy else ""),
            dumps=False,
            progress=False,
        )
    except MtmcError as error:
        return Found(spec, (), f"{type(error).__name__}: {error}")
    return Found(spec, tuple(math.log2(each) for each in best_so_far(result.record) if each is not None))


def _asked(spec: Spec, budget: int, address: str, key: bytes) -> Found:
    """The same in a process of its own: exports cannot be made in several threads."""
    return searched(spec, budget, Shared(RemoteEvaluator(address, key), {}))


def in_processes(
    specs: Sequence[Spec], budget: int, evaluator: Remembering, jobs: int, deadline: Deadline
) -> Iterator[Found]:
    """Make the searches, `jobs` at a time; none is begun after the deadline."""
    server, waiting, running = EvaluatorServer(evaluator), iter(specs), set[Future[Found]]()
    try:
        evaluator.beside(lambda: [each.pid for each in active_children() if each.pid is not None])
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
            while True:
                for spec in itertools.islice(waiting, 0 if deadline.passed else jobs - len(running)):
                    running.add(pool.submit(_asked, spec, budget, server.address, server.key))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
    finally:
        server.close()


def kept(path: Path) -> list[Found]:
    """The searches that a file has."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Found(Spec(**row["spec"]), tuple(row["values"]), row["failure"]) for row in rows]


def complete(found: Sequence[Found], specs: Sequence[Spec]) -> list[str]:
    """The tasks of which every search has ended well, in order."""
    well = {each.spec for each in found if each.values}
    tasks = dict.fromkeys(spec.task for spec in specs)
    return [task for task in tasks if all(spec in well for spec in specs if spec.task == task)]


def curves_of(found: Sequence[Found], tasks: Sequence[str]) -> dict[str, dict[str, Curves]]:
    """By policy and strategy, [tasks][seeds]."""
    values = {each.spec: each.values for each in found}
    best = {task: max(max(each.values) for each in found if each.values and each.spec.task == task) for task in tasks}
    made: dict[str, dict[str, Curves]] = {}
    for policy, strategy in dict.fromkeys((spec.policy, spec.strategy) for spec in values):
        seeds = sorted({spec.seed for spec in values if (spec.policy, spec.strategy) == (policy, strategy)})
        made.setdefault(policy, {})[strategy] = [
            [Curve(values[Spec(task, policy, strategy, seed)], best[task]) for seed in seeds] for task in tasks
        ]
    return made


def say(report: Report, found: Sequence[Found], specs: Sequence[Spec], budgets: Sequence[int]) -> None:
    """Tell what came of the searches. Raises: ConfigError where no task is complete."""
    tasks = complete(found, specs)
    failed = {each.spec.task: each.failure for each in found if each.failure}
    report.data |= {"tasks": tasks, "failed": failed}
    if not tasks:
        raise ConfigError("no task has all of its searches: give it more time, fewer strategies, or another --tasks")
    baseline = specs[0].strategy
    about = (
        f"{len(tasks)} tasks with all of their searches of {len({spec.task for spec in specs})}: {', '.join(tasks)}."
    )
    report.say(f"{about} Ratios and tests are on the same tasks, against {baseline}.")
    for task, why in failed.items():
        report.say(f"\n{task} failed: {why}")
    mine = curves_of([each for each in found if each.spec.task in tasks], tasks)
    sizes, tables = [max(budgets)] * len(tasks), list[Table]()
    for policy, by_strategy in mine.items():
        tables += told(policy, by_strategy, sizes, budgets, baseline)
        report.data[policy] = as_data(by_strategy, sizes, budgets, baseline)
    tables += across(mine, budgets, baseline)
    for each in tables:
        report.say(each.markdown)
    if report.out is not None:
        lines = [Line(policy, label, curves) for policy, some in mine.items() for label, curves in some.items()]
        experiment = Experiment(about, tuple(tables), tuple(lines), title="Strategies live")
        for path in write_page(experiment, report.out):
            print(f"wrote {path}")


def arguments_of() -> argparse.Namespace:
    """The command line."""
    made = parser(__doc__)
    labels = [f"{label}{gain}" for label in compared() for gain in ("", GAIN)]
    made.add_argument("--tasks", nargs="*", default=list(TASKS))
    made.add_argument("--strategies", nargs="*", default=list(STRATEGIES), choices=labels, metavar="STRATEGY")
    made.add_argument("--policies", nargs="*", default=list(POLICIES))
    made.add_argument("--budgets", nargs="*", type=int, default=list(BUDGETS), help="evaluations, the root's included")
    made.add_argument("--seeds", type=int, default=1)
    made.add_argument("--jobs", type=int, default=4, help="searches at the same time")
    arguments = made.parse_args()
    if min(arguments.seeds, arguments.jobs, *arguments.budgets) < 1:
        made.error("--seeds, --jobs and --budgets are 1 or more")
    return arguments


Run = Callable[[Sequence[Spec], int, Remembering, int, Deadline], Iterator[Found]]


def main(run: Run = in_processes) -> None:
    """See the text of this file. run: makes the searches."""
    arguments = arguments_of()
    for task in arguments.tasks:
        task_of(task)
    axes = (arguments.policies, arguments.strategies, range(arguments.seeds))
    specs = [Spec(task, *rest) for task in arguments.tasks for rest in itertools.product(*axes)]
    rows = Path(f"{arguments.out}.jsonl") if arguments.out else None
    ended: Mapping[Spec, Found] = {} if rows is None else {each.spec: each for each in kept(rows)}
    found = [ended[spec] for spec in specs if spec in ended]
    left = [spec for spec in specs if spec not in ended]
    deadline = Deadline(arguments.minutes)
    with Report("Strategies live", arguments.out) as report:
        if left:
            chosen = settings_of(arguments, baselines=(), profile=False)
            evaluator = Remembering(chosen.open())
            report.data["hardware"] = evaluator.hardware
            try:
                for each in run(left, max(arguments.budgets), evaluator, arguments.jobs, deadline):
                    found.append(each)
                    if rows is not None:
                        rows.parent.mkdir(parents=True, exist_ok=True)
                        with rows.open("a", encoding="utf-8") as file:
                            print(json.dumps(asdict(each)), file=file)
                    if len(found) % TOLD_EVERY == 0:
                        print(f"{len(found)} of {len(specs)} searches, {evaluator.known} evaluations", flush=True)
            finally:
                evaluator.close()
        say(report, found, specs, arguments.budgets)


if __name__ == "__main__":
    main()
