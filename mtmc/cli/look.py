"""mtmc show, mtmc export and mtmc report: looking at runs."""

from __future__ import annotations

import argparse
import difflib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtmc.cli.command import Command
from mtmc.cli.documents import run_document, tree_document
from mtmc.cli.sweep_report import report_sweep
from mtmc.errors import ConfigError

if TYPE_CHECKING:
    from mtmc.export import RunRecord

FORMATS = ("graphml", "json", "dot", "mermaid", "html", "png")


def _show(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.cli import tell
    from mtmc.cli.console import summary
    from mtmc.export.prices import price_lines
    from mtmc.search import load

    result = load(Path(arguments.run_folder).expanduser())
    if arguments.node is None:
        if arguments.source or arguments.diff:
            raise ConfigError("--source and --diff are about one version: mtmc show RUN VERSION --source")
        if arguments.json:
            arguments.answer.update(run_document(result), tree=tree_document(result))
        print(summary(result))
        print()
        print(tell.tree_text(result.tree, whole=arguments.all))
        prices = list(price_lines(result.tree, result.record.calls, result.record.bookings))
        if prices:
            print("\n" + "\n".join(prices))
        return 0
    node = result.tree[tell.node_id(result.tree, arguments.node)]
    facts = result.tree.to_networkx().nodes[node.id] if arguments.json else {}
    parent = None if node.parent_id < 0 else node.parent_id
    difference = tell.diff_text(result.tree, node)
    arguments.answer.update({"id": node.id, "parent_id": parent, **facts, "source": node.source, "diff": difference})
    if arguments.source:
        print(node.source, end="")
    elif arguments.diff:
        print(difference, end="")
    else:
        print(tell.node_text(result.record, node))
    return 0


def _export(arguments: argparse.Namespace, overrides: Sequence[str]) -> int:
    from mtmc.files import write_whole
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
    arguments.answer.update(format=form, path=output)
    if output is None:
        assert isinstance(content, str)
        arguments.answer["content"] = content
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
    from mtmc.store import has_run

    folder = Path(arguments.folder).expanduser()
    if not has_run(folder):
        return report_sweep(folder, arguments.answer)
    result = load(folder)
    text = export.run_report(result.record)
    arguments.answer.update(run_document(result), report=text)
    print(text, end="")
    return 0


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
