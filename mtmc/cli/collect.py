"""mtmc collect and mtmc dataset: trees to learn from, and any run in their format."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.cli.command import Command, Interrupted, add_dry_run, print_settings
from mtmc.errors import ConfigError

if TYPE_CHECKING:
    from mtmc.rl.worker import TreeResult

COLLECTIONS = Path("trees")
"""Where collections go that nobody gives a folder."""
FORMATS = ("parquet", "sft", "preference")


def _collect(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.conf.collect import compose_collect
    from mtmc.search.components import make

    settings, part, given = compose_collect(overrides)
    recorded_as = {"name": part.name, "settings": dict(part.settings)}
    if arguments.dry_run:
        plain = {**dataclasses.asdict(settings), "out": given, "evaluator": recorded_as}
        arguments.answer["settings"] = plain
        print_settings(plain)
        return 0
    from mtmc.rl.collect import as_many, collect

    settings = as_many(settings)
    out = Path(given).expanduser() if given else COLLECTIONS / f"{part.name}-{settings.seed}"
    reporter = _Reporter(settings.tasks)
    try:
        found = collect(settings, make("evaluator", part.name, part.settings), recorded_as, out, reporter)
    except KeyboardInterrupt as stop:
        raise Interrupted(f"go on with the same command and out={out}") from stop
    arguments.answer.update(dataclasses.asdict(found), folder=out)
    size = sum(found.sizes.values()) / 2**20
    per = sum(found.sizes.values()) / max(1, found.transitions)
    print(f"{found.transitions} transitions of {found.nodes} versions of {found.tasks} tasks in {out}")
    print(f"{found.evaluations} evaluations, {size:.2f} MiB, {per:.0f} bytes a transition")
    if found.left:
        print(f"{found.left} trees are not finished: the same command goes on with them")
    return 0


class _Reporter:
    """A line for each tree that ends, on stderr."""

    def __init__(self, tasks: int) -> None:
        self._tasks, self._recorded, self._evaluations = tasks, 0, 0
        self._started = time.monotonic()

    def __call__(self, result: TreeResult) -> None:
        self._recorded += result.status not in ("refused", "failed")
        self._evaluations += result.evaluations
        rate = self._evaluations / max(1e-9, time.monotonic() - self._started)
        why = f": {' '.join(result.reason.split())[:160]}" if result.reason else ""
        line = f"{result.name} {result.status}, {result.evaluations} evaluations in {result.seconds:.0f} s{why}"
        print(f"[{self._recorded}/{self._tasks}, {rate:.2f} evaluations a second] {line}", file=sys.stderr, flush=True)


def _dataset(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.rl.formats import preferences, sft_examples, write_jsonl

    runs = [Path(run).expanduser() for run in arguments.runs]
    output = Path(arguments.output).expanduser()
    if arguments.format == "parquet":
        return _parquet(runs, arguments.benchmark, output, arguments.answer)
    if arguments.benchmark:
        raise ConfigError("--benchmark is for --format parquet: examples are made of all runs that are named")
    if arguments.format not in FORMATS:
        raise ConfigError(f"there is no format {arguments.format!r}: use --format with one of {', '.join(FORMATS)}")
    made = sft_examples if arguments.format == "sft" else preferences
    count = write_jsonl((example for run in runs for example in made(run)), output)
    arguments.answer.update(format=arguments.format, path=output, examples=count)
    print(f"wrote {output} ({count} examples)")
    return 0


def _parquet(folders: Sequence[Path], benchmark: str, output: Path, answer: dict[str, Any]) -> int:
    """Runs, and whole data sets, as one data set without a benchmark's problems."""
    from mtmc.rl.dataset import concatenated, is_dataset, read_tables, tables_of, without_graphs, write_tables
    from mtmc.rl.record import merged, record_run

    sets = [folder for folder in folders if is_dataset(folder)]
    records = [record_run(folder) for folder in folders if folder not in sets]
    tasks = [record.tasks[0]["task"] for record in records]
    if len(set(tasks)) < len(tasks):
        raise ConfigError("two of the runs are of one task: a data set has one tree a task, leave one out")
    tables = concatenated([*([tables_of(merged(records))] if records else []), *map(read_tables, sets)])
    if benchmark:
        from mtmc.rl.benchmark import benchmark_keys

        keys = benchmark_keys(Path(benchmark).expanduser())
        tables, left_out = without_graphs(tables, keys)
        answer["left_out"] = left_out
        for name, key in left_out.items():
            print(f"left out {name}: it is the benchmark's {keys[key]}")
        print(f"compared with {len(keys)} problems of the benchmark: {len(left_out)} of its graphs among the tasks")
    sizes = write_tables(tables, output)
    rows = {name: tables[name].num_rows for name in sizes}
    answer.update(format="parquet", path=output, rows=rows, bytes=sizes)
    for name, size in sizes.items():
        print(f"wrote {output / name}.parquet ({tables[name].num_rows} rows, {size} bytes)")
    return 0


def _collect_arguments(parser: argparse.ArgumentParser) -> None:
    add_dry_run(parser)


def _dataset_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="the folder of a run, or for parquet of a data set")
    parser.add_argument("--output", "-o", metavar="PATH", required=True, help="a folder for parquet, else a file")
    parser.add_argument("--format", "-f", metavar="FORMAT", default="parquet", help=", ".join(FORMATS))
    parser.add_argument(
        "--benchmark", metavar="CHECKOUT", default="", help="leave out tasks that are problems of this KernelBench"
    )


def _settings_help() -> str:
    from mtmc import conf
    from mtmc.conf.schema import setting_lines
    from mtmc.rl.settings import CollectSettings

    lines = ["settings:", *setting_lines(CollectSettings)]
    lines += ["  out=  the folder of the collection", f"  evaluator={{{', '.join(conf.options('evaluator'))}}}"]
    return "\n".join(lines)


COLLECT = Command(
    run=_collect,
    arguments=_collect_arguments,
    summary="grow trees of generated tasks, or of a suite's, and record them, to learn from",
    usage="[--dry-run] [tasks=N] [evaluations=N] [evaluator=NAME] [out=FOLDER] [SETTING=VALUE ...]",
    description="Grow trees of generated tasks, or of a suite's, wide rather than high, and record every transition.\n\n"
    "  mtmc collect tasks=6 evaluations=15 out=trees/small\n"
    "  mtmc collect tasks=400 evaluations=80 evaluator=gpu evaluator.reuse=64 jobs=8 minutes=30 out=trees/h100\n"
    "  mtmc collect suite=blocks evaluations=300 evaluator=gpu evaluator.reuse=64 minutes=60 out=trees/blocks\n\n"
    "The same command with the same out= goes on with what is left.",
    epilog=_settings_help,
    overrides=True,
)
DATASET = Command(
    run=_dataset,
    arguments=_dataset_arguments,
    summary="write runs as recorded trees, or as examples for others' trainers",
    usage="RUN [RUN ...] -o PATH [--format parquet|sft|preference] [--benchmark CHECKOUT]",
    description="Write any run in the format of recorded trees (parquet: a folder with three files), as prompts with\n"
    "completions (sft), or as prompts with a chosen and a rejected answer (preference); both are JSON lines.\n"
    "Several data sets, of machines that shared a collection, become one: of trees of one graph the first is kept.",
)
