"""mtmc show, mtmc export and mtmc report: looking at runs."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.cli.command import Command
from mtmc.errors import ConfigError, MtmcError, RunError

if TYPE_CHECKING:
    from mtmc.export import RunRecord
    from mtmc.search import SearchResult

FORMATS = ("graphml", "json", "dot", "mermaid", "html", "png")


def _show(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.cli import tell
    from mtmc.cli.console import summary
    from mtmc.search import load

    result = load(Path(arguments.run_folder).expanduser())
    if arguments.node is None:
        if arguments.source or arguments.diff:
            raise ConfigError("--source and --diff are about one version: mtmc show RUN VERSION --source")
        print(summary(result))
        print()
        print(tell.tree_text(result.tree, whole=arguments.all))
        return 0
    node = result.tree[tell.node_id(result.tree, arguments.node)]
    if arguments.source:
        print(node.source, end="")
    elif arguments.diff:
        print(tell.diff_text(result.tree, node), end="")
    else:
        print(tell.node_text(result.record, node))
    return 0


def _export(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.export.text import write_whole
    from mtmc.search import load

    output = None if arguments.output is None else Path(arguments.output).expanduser()
    form = arguments.format or (output.suffix.lstrip(".") if output is not None else None)
    if form not in FORMATS:
        given = "the format is missing" if form is None else f"there is no format {form!r}"
        near = difflib.get_close_matches(form or "", FORMATS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"{given}: {hint}use --format with one of {', '.join(FORMATS)}")
    if form == "png" and output is None:
        raise ConfigError("a picture needs a file: add -o FILE.png")
    content = exported(load(Path(arguments.run_folder).expanduser()).record, form)
    if output is None:
        assert isinstance(content, str)
        print(content, end="" if content.endswith("\n") else "\n")
    else:
        print(f"wrote {write_whole(output, content)}")
    return 0


def exported(record: RunRecord, form: str) -> str | bytes:
    """A run's tree in one of `FORMATS`; bytes for a picture."""
    from mtmc import export

    if form == "png":
        with tempfile.TemporaryDirectory(prefix="mtmc-") as folder:
            return export.tree_png(record, Path(folder) / "tree.png").read_bytes()
    writers: dict[str, Callable[[RunRecord], str]] = {
        "graphml": export.to_graphml,
        "json": export.to_json,
        "dot": export.to_dot,
        "mermaid": export.to_mermaid,
        "html": export.to_html,
    }
    return writers[form](record)


def _report(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc import export
    from mtmc.search import load
    from mtmc.store import STORE_NAME

    folder = Path(arguments.folder).expanduser()
    if not (folder / STORE_NAME).exists():
        return report_sweep(folder)
    print(export.run_report(load(folder).record), end="")
    return 0


def report_sweep(folder: Path, expected: int | None = None) -> int:
    """Write and print the report of all runs below `folder`; returns the exit status: 2 where one has failed.

    expected: how many runs there should be, None if that is not known.
    Raises: RunError if there is none that can be read.
    """
    from mtmc import export

    results, failures = read_runs(folder)
    if expected is None:  # a sweep that ends now has told of them already
        for failure in failures:
            print(f"mtmc: {failure}", file=sys.stderr)
    if failures and not results:
        raise RunError(f"all {len(failures)} runs below {folder} have failed, the last one so: {failures[-1]}")
    if not results:
        raise RunError(f"there is no run below {folder} to report on: name a run's folder, or one that holds runs")
    unfinished = [str(result.run_dir) for result in results if result.finished is None]
    if unfinished:
        print(f"mtmc: {len(unfinished)} runs have not ended: {', '.join(unfinished)}", file=sys.stderr)
    paths = export.sweep_report(told_apart([result.record for result in results]), folder)
    print(paths[0].read_text(encoding="utf-8"), end="")
    print()
    print(f"wrote {', '.join(str(path) for path in paths)}")
    lacking = len(failures) if expected is None else expected - len(results) + len(unfinished)
    if lacking:
        total = len(results) + len(failures) if expected is None else expected
        print(f"mtmc: {lacking} of {total} runs failed", file=sys.stderr)
    return 2 if lacking else 0


def told_apart(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records of a sweep with settings that tell them apart in few words: "strategy" is its name, and a setting of
    it is there only if it differs between runs with the same name."""
    values: dict[tuple[str, str, str], set[str]] = {}
    for record in records:
        for kind, name, settings in _parts(record):
            for setting, value in settings.items():
                values.setdefault((kind, name, setting), set()).add(repr(value))
    return [dataclasses.replace(record, settings=_in_few_words(record, values)) for record in records]


def _in_few_words(record: RunRecord, values: Mapping[tuple[str, str, str], set[str]]) -> dict[str, object]:
    settings = dict(record.settings)
    for kind, name, inner in _parts(record):
        settings[kind] = name
        for setting, value in inner.items():
            if len(values[kind, name, setting]) > 1:
                settings[f"{kind}.{setting}"] = value
    return settings


def _parts(record: RunRecord) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """(kind, name, settings) of the parts of a run."""
    for kind in ("strategy", "policy", "coder", "evaluator"):
        part = record.settings.get(kind)
        if isinstance(part, dict):
            yield kind, str(part.get("name", part.get("object"))), part.get("settings", {})


def read_runs(folder: Path) -> tuple[list[SearchResult], list[str]]:
    """All runs below `folder` in the order of their names, and what is to be said of those that cannot be read."""
    from mtmc.cli.sweep import ERROR_FILE
    from mtmc.search import load
    from mtmc.store import STORE_NAME

    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}: name a run's folder, or one that holds runs")
    results: list[SearchResult] = []
    failures: list[str] = []
    for path in sorted({path.parent for name in (STORE_NAME, ERROR_FILE) for path in folder.rglob(name)}, key=_order):
        if (path / ERROR_FILE).exists() and not (path / STORE_NAME).exists():
            failures.append(f"{path} failed: {(path / ERROR_FILE).read_text(encoding='utf-8').strip()}")
            continue
        try:
            results.append(load(path))
        except MtmcError as error:
            failures.append(f"{path} is left out: {error}")
    return results, failures


def _order(path: Path) -> list[tuple[int, int, str]]:
    """Sorts run 10 after run 9."""
    parts = re.findall(r"\d+|\D+", str(path))
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="the folder of the run")
    parser.add_argument("node", metavar="VERSION", nargs="?", help="a version's number, or root, or best")
    parser.add_argument("--source", action="store_true", help="its source and nothing else")
    parser.add_argument("--diff", action="store_true", help="its difference to the version that it was made from")
    parser.add_argument("--all", action="store_true", help="all versions, however many there are")


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="the folder of the run")
    parser.add_argument("--format", "-f", metavar="FORMAT", help=f"{', '.join(FORMATS)}; by default what FILE ends in")
    parser.add_argument("--output", "-o", metavar="FILE", help="where to write it; by default stdout")


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="of a run, or of a sweep")


SHOW = Command(
    run=_show,
    arguments=_show_arguments,
    summary="show a run's tree, or one of its versions",
    usage="RUN [VERSION] [--source | --diff] [--all]",
    description="Show a run's tree, or one version: the action that made it, its outcome, its difference to its parent.",
)
EXPORT = Command(
    run=_export,
    arguments=_export_arguments,
    summary="write a run's tree in another format",
    usage="RUN [--format FORMAT] [-o FILE]",
    description="Write a run's tree as GraphML, node-link JSON, DOT, Mermaid, a self-contained HTML page or a picture.",
)
REPORT = Command(
    run=_report,
    arguments=_report_arguments,
    summary="report on a run, or on all runs of a sweep",
    usage="FOLDER",
    description="Print a run's report. For a sweep, write sweep.md, sweep.csv and sweep.png into its folder and print\n"
    "the table.",
)
