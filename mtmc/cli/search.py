"""mtmc search and mtmc resume."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from mtmc.cli.command import CUT_SHORT, Command, add_dry_run, print_settings
from mtmc.cli.documents import run_document
from mtmc.cli.single import resumable, run


def _search(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc import conf
    from mtmc.cli.console import summary

    if arguments.multirun:
        from mtmc.cli.sweep import run_sweep

        return run_sweep(overrides, arguments.answer, arguments.config_dir)
    if arguments.cfg:
        from omegaconf import OmegaConf

        shown = conf.as_hydra_shows(overrides, arguments.cfg, arguments.config_dir)
        if arguments.json:
            arguments.answer["settings"] = OmegaConf.to_container(shown)
        print_settings(shown)
        return 0
    config = conf.compose(overrides, arguments.config_dir)
    if arguments.dry_run:
        arguments.answer["settings"] = dataclasses.asdict(config)
        print_settings(arguments.answer["settings"])
        return 0
    result = run(config)
    arguments.answer.update(run_document(result))
    print(summary(result))
    return CUT_SHORT if result.cut_short else 0


def _resume(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.chat import ModelSettings
    from mtmc.cli.console import progress_display, summary
    from mtmc.conf import change
    from mtmc.search import resume
    from mtmc.search.opening import recorded_budget
    from mtmc.store import Store

    folder = Path(arguments.run_folder).expanduser()
    store = Store.read(folder)
    try:
        name, recorded = store.task().name, store.settings()
    finally:
        store.close()
    budget, model = change(recorded_budget(recorded), ModelSettings(**recorded.get("model", {})), overrides)
    with resumable(folder), progress_display(name) as show:
        result = resume(folder, budget=budget, model=model, progress=show)
    arguments.answer.update(run_document(result))
    print(summary(result))
    return CUT_SHORT if result.cut_short else 0


def _search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--multirun", action="store_true", help="a sweep: settings may have several values, a,b")
    add_dry_run(parser)
    parser.add_argument("--cfg", choices=("job", "hydra", "all"), help="print what Hydra composes, do nothing")
    parser.add_argument(
        "--config-dir", metavar="FOLDER", default="", help="a folder with more config files, in its own groups too"
    )


def _resume_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="the folder of the run")


def _settings_help() -> str:
    """All settings with what they may be, for mtmc search --help."""
    from mtmc import conf
    from mtmc.conf.schema import in_words, setting_fields
    from mtmc.task import builtin_names

    lines = ["settings:"]
    for name, hint in setting_fields(conf.SearchConfig).items():
        if name in conf.GROUPS:
            lines.append(f"  {name}={{{', '.join(conf.options(name))}}}")
            for option, maker in conf.registry(name).items():
                inner = ", ".join(f"{name}.{each}" for each in setting_fields(maker))
                lines += [f"      {option}: {inner}"] if inner else []
        elif dataclasses.is_dataclass(hint):
            lines += [f"  {name}.{each}=  {in_words(kind)}" for each, kind in setting_fields(hint).items()]
        else:
            lines.append(f"  {name}=  {in_words(hint)}")
    return "\n".join([*lines, "", f"built-in tasks: {', '.join(builtin_names())}"])


SEARCH = Command(
    run=_search,
    arguments=_search_arguments,
    summary="grow a tree of kernel versions of a task",
    usage="[-m] [--dry-run] [--cfg job] [--config-dir FOLDER] task=NAME|FILE.py [SETTING=VALUE ...]",
    description="Grow a tree of kernel versions of a task and keep the fastest that is right.\n\n"
    "  mtmc search task=softmax budget.evaluations=64 strategy=mcts\n"
    "  mtmc search -m task=softmax strategy=mcts,greedy seed=0,1,2      a sweep, six runs",
    epilog=_settings_help,
    overrides=True,
)

RESUME = Command(
    run=_resume,
    arguments=_resume_arguments,
    summary="go on with a run that was ended before its time, or with a greater budget",
    usage="RUN [budget.NAME=VALUE ...]",
    description="Go on with a run. Nothing that it has recorded is done again.\n\n"
    "  mtmc resume runs/softmax-20250101-120000-1 budget.evaluations=128",
    overrides=True,
)
