"""Dumps: a run as files that people and other tools open.

    tree.json       node-link JSON for networkx; `from_json` loads the run again
    tree.graphml    GraphML with typed keys
    tree.dot        Graphviz        tree.mmd     Mermaid
    tree.html       one self-contained page: the tree, and all about each version
    tree.png        the tree        progress.png best speedup so far against evaluations
    report.md       the run in words and tables
    roofline.png    kernels of the versions that were profiled, under the GPU's roofs
    sweep.*         table, CSV and plot over many runs (`sweep_report`)

`write_dumps` is the one entry point for a run. Everything takes a `RunRecord` and nothing here knows the store.
"""

from __future__ import annotations

import logging
from pathlib import Path

from mtmc.export.document import from_json, to_json, write_json
from mtmc.export.drawings import to_dot, to_mermaid
from mtmc.export.graphs import SCHEMA_VERSION, to_graphml, to_networkx, write_graphml
from mtmc.export.page import to_html, write_html
from mtmc.export.plots import progress_png, tree_png
from mtmc.export.record import RunRecord, best_path, best_so_far
from mtmc.export.report import run_report
from mtmc.export.roofline import roofline_png
from mtmc.export.sweep import SweepRow, sweep_csv, sweep_markdown, sweep_report, sweep_rows
from mtmc.files import write_whole

__all__ = [
    "SCHEMA_VERSION",
    "RunRecord",
    "SweepRow",
    "best_path",
    "best_so_far",
    "from_json",
    "progress_png",
    "roofline_png",
    "run_report",
    "sweep_csv",
    "sweep_markdown",
    "sweep_report",
    "sweep_rows",
    "to_dot",
    "to_graphml",
    "to_html",
    "to_json",
    "to_mermaid",
    "to_networkx",
    "tree_png",
    "write_dumps",
    "write_graphml",
    "write_html",
    "write_json",
]

_log = logging.getLogger(__name__)


def write_dumps(record: RunRecord, folder: Path | str) -> list[Path]:
    """Write every dump of a run into `folder`, which is made where it is missing; returns their paths.

    Files of the same names are replaced, each whole or not at all. All but report.md (seconds spent) are functions of
    facts without wall times.

    Raises: RunError where a file cannot be written, matplotlib is missing, or a setting is not plain data.
    """
    folder = Path(folder)
    paths = [
        write_json(record, folder / "tree.json"),
        write_graphml(record, folder / "tree.graphml"),
        write_whole(folder / "tree.dot", to_dot(record)),
        write_whole(folder / "tree.mmd", to_mermaid(record)),
        write_html(record, folder / "tree.html"),
        write_whole(folder / "report.md", run_report(record)),
        tree_png(record, folder / "tree.png"),
        progress_png(record, folder / "progress.png"),
    ]
    roofline = roofline_png(record, folder / "roofline.png")
    paths += [] if roofline is None else [roofline]
    _log.info("wrote %d dumps of %d versions to %s", len(paths), len(record.tree), folder)
    return paths
