"""mtmc bench."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.cli.command import CUT_SHORT, Command, Interrupted, add_dry_run, print_settings

if TYPE_CHECKING:
    from mtmc.bench import BenchSettings

BENCHES = Path("bench")
"""Where benchmarks go that nobody gives a folder."""


def _bench(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.conf import make_parts
    from mtmc.conf.bench import as_plain, compose_bench

    settings, config = compose_bench(overrides)
    if arguments.dry_run:
        arguments.answer["settings"] = as_plain(settings, config)
        print_settings(as_plain(settings, config))
        return 0
    if arguments.list:
        return _list(settings, config.out, arguments.level, arguments.answer)
    from mtmc.bench import SearchOptions, run_bench
    from mtmc.bench.row import row_from_json
    from mtmc.cli.bench_progress import display

    name = f"{settings.suite}-{time.strftime('%Y%m%d-%H%M%S')}"
    out = Path(config.out).expanduser() if config.out else BENCHES / name
    settings_of_searches = (config.budget, config.seed, config.batch, config.repairs, config.model, config.dumps)
    options = SearchOptions(*settings_of_searches, asynchronous=config.asynchronous, agents=config.agents)
    try:
        with display() as watcher:
            level = arguments.level.upper()
            run_bench(settings, make_parts(config), out, options=options, watcher=watcher, log_level=level)
    except KeyboardInterrupt as stop:
        kept = (out / "bench.json").exists()
        hint = f"go on with the same command and out={out}" if kept else "nothing was kept"
        raise Interrupted(hint) from stop
    data = json.loads((out / "bench.json").read_text(encoding="utf-8"))
    arguments.answer.update(folder=out, **data)
    print(_summary(out))
    modelless = [row.id for row in map(row_from_json, data["rows"]) if row.modelless]
    if modelless:
        hint = f"see to the model and give the command again with out={out} retry=true"
        print(f"the model answered nothing usable for {', '.join(modelless[:8])}: {hint}")
    return CUT_SHORT if modelless else 0


def _summary(out: Path) -> str:
    """What a benchmark has found, from its folder."""
    from mtmc.bench.report import about, figures_table
    from mtmc.bench.row import row_from_json

    data = json.loads((out / "bench.json").read_text(encoding="utf-8"))
    rows = [row_from_json(each) for each in data["rows"]]
    files = f"{out / 'bench.md'} has each problem, {out / 'bench.json'} all figures, {out / 'bench.png'} the speedups"
    parts = (about(rows, data["left"], data["settings"]), figures_table(rows), files)
    return "\n\n".join(part for part in parts if part)


def _list(settings: BenchSettings, out: str | None, level: str, answer: dict[str, Any]) -> int:
    """Say which problems load."""
    from mtmc.bench import list_problems
    from mtmc.cli.bench_progress import display

    with tempfile.TemporaryDirectory(prefix="mtmc-bench-") as temporary:
        folder = Path(out).expanduser() if out else Path(temporary)
        with display() as watcher:
            rows = list_problems(settings, folder, watcher=watcher, log_level=level.upper())
    answer["problems"] = [{"id": row.id, "level": row.level, "failure": row.failure} for row in rows]
    for row in rows:
        if row.failure is not None:
            print(f"{row.id}: {row.failure.kind.replace('_', ' ')}: {row.failure.message}")
    for name in dict.fromkeys(row.level for row in rows):
        of_level = [row for row in rows if row.level == name]
        print(f"{name}: {sum(row.failure is None for row in of_level)} of {len(of_level)} problems load")
    return 0


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="only say which of the chosen problems load")
    add_dry_run(parser)


def _settings_help() -> str:
    """The settings that a benchmark has besides those of a search."""
    from mtmc.bench import SUITES, BenchSettings
    from mtmc.conf.schema import setting_lines

    lines = ["settings:", *setting_lines(BenchSettings, {"suite": f"one of {', '.join(SUITES)}"})]
    lines.append("  and those of mtmc search, without task: budget=48 is short for budget.evaluations=48")
    return "\n".join(lines)


BENCH = Command(
    run=_bench,
    arguments=_arguments,
    summary="search each problem of a suite, and compare",
    usage="[--list] [--dry-run] suite=NAME [path=FOLDER] [levels=[1,2]] [problems=[1,5]] [SETTING=VALUE ...]",
    description="Search each problem of a suite (KernelBench, TritonBench, our own tasks), and write the tables.\n\n"
    "  mtmc bench suite=kernelbench path=KernelBench levels=[1,2,3] every=5 budget=48 evaluator=gpu out=bench/dev\n"
    "  mtmc bench --list suite=kernelbench path=KernelBench levels=[1]        which problems load\n"
    "  mtmc bench suite=kernelbench path=KernelBench levels=[1] score=ANSWERS evaluator=gpu\n\n"
    "The same command with the same out= goes on with what is left. A problem without a result is a row with its reason.",
    epilog=_settings_help,
    overrides=True,
)
