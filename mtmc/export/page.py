"""tree.html: the whole run on one page that needs nothing but a browser.

The page is made of the files in `web/`. The run goes in as JSON inside a script element that browsers do not execute,
and the page's own code shows it through text nodes only: what a kernel's source or a model's sentence says is never
read as HTML. A content security policy with the hashes of the page's own script and style forbids everything else,
network access included.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from mtmc.action import Action
from mtmc.export.record import RunRecord, best_path, edge_prior, flat_settings, speedup_kind
from mtmc.export.text import STATUS_COLOURS, one_line
from mtmc.files import write_whole
from mtmc.outcome import Outcome
from mtmc.tree import NO_PARENT, KernelNode

SCRIPTS = {
    "page.html": (
        *("elements.js", "model.js", "code.js", "layout.js", "tree.js", "map.js", "axis.js", "progress.js", "panel.js"),
        *("live.js", "app.js"),
    ),
    "runs.html": ("elements.js", "axis.js", "curves.js", "runs.js"),
    "experiment.html": ("elements.js", "axis.js", "curves.js", "experiment.js"),
}
"""The scripts of each page, in order."""
ALIKE = ("head.html", "foot.html")
"""What all pages begin and end with."""


class _Table:
    """Things by number of first appearance. Versions of one tree share most lines and most legal actions, so a page
    with thousands of versions stays a few megabytes."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, thing: Any) -> int:
        return self.numbers.setdefault(thing, len(self.numbers))


class PageTables:
    """The tables of one page: of a run that goes on they grow, and nothing in them changes its place."""

    def __init__(self) -> None:
        self.lines = _Table()
        self.actions = _Table()

    def data(self, lines: int = 0, actions: int = 0) -> dict[str, Any]:
        """What is in the tables from these places on."""
        return {
            "lines": list(islice(self.lines.numbers, lines, None)),
            "actions": [_action(action) for action in islice(self.actions.numbers, actions, None)],
        }


def page_data(record: RunRecord) -> dict[str, Any]:
    """All that the page shows, as plain JSON without wall times.

    lines, actions: tables that nodes[].source, nodes[].turns, nodes[].action and nodes[].legal point into by position.

    Raises: RunError where a setting is not plain data.
    """
    tables = PageTables()
    nodes = page_nodes(record, tables)
    return {**page_facts(record), "evaluations": list(record.evaluations), "nodes": nodes, **tables.data()}


def page_nodes(record: RunRecord, tables: PageTables, first: int = 0) -> list[dict[str, Any]]:
    """The versions from `first` on. tables: what they point into is added."""
    return [_node(record, record.tree[node_id], tables) for node_id in range(first, len(record.tree))]


def page_facts(record: RunRecord) -> dict[str, Any]:
    """What the page shows of the run as a whole. Raises: as `page_data`."""
    tree = record.tree
    return {
        "task": tree.task_name,
        "best": tree.best.id,
        "path": list(best_path(tree)),
        "settings": [[name, str(value)] for name, value in flat_settings(record.settings).items()],
        "statuses": list(STATUS_COLOURS),
    }


def to_html(record: RunRecord) -> str:
    """The page as one HTML text without any reference to another file or host.

    Raises: RunError where a setting is not plain data.
    """
    return page_html(record.tree.task_name, page_data(record))


def page_html(title: str, data: Mapping[str, Any], page: str = "page.html", connect: bool = False) -> str:
    """A page of its data as one HTML text. page: its frame in web/, a name in `SCRIPTS`. connect: whether it may ask whoever
    has served it for more."""
    web = files("mtmc.export") / "web"
    texts = {name: (web / name).read_text(encoding="utf-8") for name in (page, *ALIKE, "style.css", *SCRIPTS[page])}
    script = '"use strict";\n' + "\n".join(texts[name] for name in SCRIPTS[page])
    policy = f"default-src 'none'; script-src '{_sha256(script)}'; style-src '{_sha256(texts['style.css'])}'"
    parts = {
        "title": html.escape(f"{one_line(title, 80)} - mtmc"),
        "policy": html.escape(policy + ("; connect-src 'self'" if connect else "")),
        "style": texts["style.css"],
        # JSON text may spell these signs as escapes, and without them no text can end the script element.
        "data": json_text(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
        "script": script,
    }
    frame = texts[page]
    for name in ALIKE:
        frame = frame.replace(f"{{{{{name.removesuffix('.html')}}}}}\n", texts[name])
    # One pass, so that a placeholder's name within the data stays what it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], frame)


def json_text(data: Mapping[str, Any]) -> str:
    """JSON in one line. Half a surrogate pair, which a crashed kernel's output may hold, is no text that a file or a browser
    can show, and is replaced."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def write_html(record: RunRecord, path: Path) -> Path:
    """Write `to_html`. Raises: RunError where the file cannot be written."""
    return write_whole(path, to_html(record))


def _sha256(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _action(action: Action) -> dict[str, Any]:
    region = action.region
    return {
        "key": action.key,
        "kind": action.kind,
        "sentence": action.sentence,
        "region": region.name,
        "first": region.first_line,
        "last": region.last_line,
        "params": [[name, str(value)] for name, value in action.params],
    }


def _node(record: RunRecord, node: KernelNode, tables: PageTables) -> dict[str, Any]:
    cost, lines, actions = node.cost, tables.lines, tables.actions
    facts = {
        "id": node.id,
        "parent": node.parent_id if node.parent_id != NO_PARENT else None,
        "action": actions(node.action) if node.action else None,
        "prior": edge_prior(record, node),
        "source": [lines(line) for line in node.source.replace("\r\n", "\n").removesuffix("\n").split("\n")],
        "hash": node.hash,
        "speedup": record.tree.speedup(node.id),
        "speedup_kind": speedup_kind(record.tree, node.id),
        "repairs": node.repairs,
        "usd": cost.usd,
        "tokens_in": cost.tokens_in,
        "tokens_out": cost.tokens_out,
        "calls": cost.calls,
        "notes": finite(record.annotations.get(node.id, {})),
        "legal": [[actions(action), prior] for action, prior in record.legal.get(node.id, ())],
        "turns": [_turn(turn, lines) for turn in record.transcripts.get(node.id, ())] or None,
        **_outcome(node.outcome),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _turn(turn: Mapping[str, str], lines: _Table) -> dict[str, Any]:
    texts = {name: [lines(line) for line in turn[name].split("\n")] for name in ("text", "arguments") if turn[name]}
    return {"role": turn["role"], "tool": turn["tool"], "verdict": turn["verdict"], **texts}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    diagnosis = outcome.diagnosis
    return {
        "status": outcome.status,
        "runtime_ms": outcome.runtime_ms,
        "runtime_low_ms": outcome.runtime_low_ms,
        "runtime_high_ms": outcome.runtime_high_ms,
        "runtime_trials": outcome.trials,
        "runtime_kind": outcome.runtime_kind,
        "metrics": finite(outcome.metrics),
        "diagnosis": None
        if diagnosis is None
        else {
            "stage": diagnosis.stage,
            "kind": diagnosis.kind,
            "message": diagnosis.message,
            "line": diagnosis.line,
            "excerpt": diagnosis.excerpt,
        },
    }


def finite(numbers: Mapping[str, float]) -> dict[str, float]:
    """Those numbers that JSON knows, by name."""
    return {name: float(numbers[name]) for name in sorted(numbers) if math.isfinite(numbers[name])}
