"""report.md: what a run did and found, as Markdown. Pure functions from a record to text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from mtmc.export.drawings import to_mermaid
from mtmc.export.record import RunRecord, best_path, flat_settings, speedup_kind
from mtmc.export.roofline import points_of
from mtmc.export.text import factor, number, one_line, quantity, runtime
from mtmc.outcome import Outcome, kernel_figures, speedup
from mtmc.tree import KernelNode, Tree

DRAWN_VERSIONS = 40
"""The report's own drawing shows at most so many versions; tree.html shows them all."""

TIMES = ("device_ms", "host_ms", "call_ms")
PROFILED = ("ms", "launches", "bytes_dram", "dot_flops", "registers", "spills", "occupancy", "programs")
"""Columns of the table of kernels of a version that was profiled."""
PHASES: Mapping[str, str] = {
    "build_s": "build",
    "queued_s": "wait for a worker",
    "turn_s": "wait for the device",
    "ready_s": "task and process made ready",
    "check_s": "check",
    "reference_s": "of these the reference",
    "time_s": "calls one at a time",
    "loop_s": "calls in a row",
    "again_s": "examined again",
    "verify_s": "profiler",
}
"""Metrics that say how long a part of an evaluation took, in the order of time."""
TRAFFIC = ("kernels", "bytes_moved", "bytes_min", "flops", "roofline")


def run_report(record: RunRecord) -> str:
    """The report of one run: result, path to the best version, traffic, outcomes, failures, budget, settings, tree.

    Raises: RunError where a setting is not plain data.
    """
    parts = (
        f"# {cell(record.tree.task_name)}: report of a run",
        _result(record),
        _path(record.tree),
        _metrics(record.tree, "Time a call of root and best", TIMES),
        _metrics(record.tree, "Traffic of root and best", TRAFFIC),
        _profile(record),
        _outcomes(record.tree),
        _spent(record),
        _phases(record.tree),
        _settings(record),
        _drawing(record),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: Sequence[bool] = ()) -> str:
    """A Markdown table; `cell` makes its cells safe. numeric: which columns are set flush right."""
    aligned = list(numeric) + [False] * (len(head) - len(numeric))
    lines = ["| " + " | ".join(cell(name) for name in head) + " |"]
    lines.append("|" + "|".join("---:" if right else "---" for right in aligned) + "|")
    lines += ["| " + " | ".join(cell(item) for item in row) + " |" for row in rows]
    return "\n".join(lines)


def cell(text: str) -> str:
    """Text that may stand in a table's cell or a headline: one line, nothing in it read as Markdown or HTML."""
    line = one_line(text, 300).replace("&", "&amp;").replace("<", "&lt;")
    for sign in "\\`*[]|":
        line = line.replace(sign, "\\" + sign)
    # Within a word Markdown takes an underscore as it stands.
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)


def runtime_text(outcome: Outcome) -> str:
    """A runtime with what it is: "1.23 ms (estimated)", "1.23 ms (measured, 1.20 ms to 1.27 ms)", or the status."""
    if outcome.runtime_ms is None:
        return outcome.status.replace("_", " ")
    kind: str = outcome.runtime_kind or "of unknown kind"
    if outcome.runtime_low_ms is not None and outcome.runtime_high_ms is not None:
        kind += f", {runtime(outcome.runtime_low_ms)} to {runtime(outcome.runtime_high_ms)}"
    return f"{runtime(outcome.runtime_ms)} ({kind})"


def _result(record: RunRecord) -> str:
    tree = record.tree
    best, gain = tree.best, tree.speedup(tree.best.id)
    rows = [("root (the reference)", f"#{tree.root.id}", runtime_text(tree.root.outcome), _gain(tree, tree.root.id))]
    for name, outcome in record.baselines.items():
        over_root = speedup(outcome, tree.root.outcome)
        rows.append((name, "", runtime_text(outcome), "" if over_root is None else factor(over_root)))
    rows.append(("best", f"#{best.id}", runtime_text(best.outcome), _gain(tree, best.id)))
    if tree.root.outcome.undecided:
        verdict = f"Nothing was tried: {cell(tree.root.outcome.undecided)}. No version of this task earns a reward."
    elif best.id == tree.root.id:
        verdict = "No version was faster than the root."
    elif gain is None:
        verdict = f"The best version is #{best.id}; the root has no runtime, so no speedup is known."
    else:
        verdict = f"The best version is **{factor(gain)}** as fast as the root ({speedup_kind(tree, best.id)})."
    if best.outcome.unchecked:
        verdict += f" Not checked of the best version at the full shapes: {cell(best.outcome.unchecked)}."
    if "estimated" in {tree.root.outcome.runtime_kind, best.outcome.runtime_kind}:
        verdict += " Estimated runtimes come from a model of the hardware; nothing was timed on a device."
    if record.finished:
        verdict += f" The search ended: {cell(record.finished)}."
    compared = f"Tolerance of the outputs: {cell(record.contract)}."
    runtimes = table(("version", "node", "runtime", "speedup"), rows, (False, False, True, True))
    untimed = [f"{cell(name)} has no time: {cell(why)}." for name, why in _untimed(record.baselines)]
    return "\n\n".join([verdict, compared, runtimes, *untimed])


def _untimed(baselines: Mapping[str, Outcome]) -> Iterator[tuple[str, str]]:
    """Those that could not be timed, and why, where that is known."""
    for name, outcome in baselines.items():
        if outcome.runtime_ms is None and outcome.diagnosis is not None:
            yield name, one_line(outcome.diagnosis.message)


def _gain(tree: Tree, node_id: int) -> str:
    gain = tree.speedup(node_id)
    return "" if gain is None else f"{factor(gain)} {speedup_kind(tree, node_id)}"


def _path(tree: Tree) -> str:
    ids = best_path(tree)
    if len(ids) == 1:
        return ""
    rows = []
    for step, node_id in enumerate(ids):
        node = tree[node_id]
        rows.append((str(step), f"#{node_id}", *_action(node), runtime_text(node.outcome), _gain(tree, node_id)))
    head = ("step", "node", "kind", "action", "runtime", "speedup over root")
    return "## From root to best\n\n" + table(head, rows, (True, False, False, False, True, True))


def _action(node: KernelNode) -> tuple[str, str]:
    return (node.action.kind, node.action.sentence) if node.action else ("", "the reference")


def _metrics(tree: Tree, title: str, wanted: Sequence[str]) -> str:
    """A table of some metrics; "" where neither has one."""
    root, best = tree.root.outcome.metrics, tree.best.outcome.metrics
    names = [name for name in wanted if name in root or name in best]
    if not names:
        return ""
    rows = []
    for name in names:
        before, after = root.get(name), best.get(name)
        share = number(after / before) if before and after is not None else ""
        texts = ("" if value is None else quantity(name, value) for value in (before, after))
        rows.append((name.removesuffix("_ms").replace("_", " "), *texts, share))
    return f"## {title}\n\n" + table(
        ("", f"root #{tree.root.id}", f"best #{tree.best.id}", "best / root"), rows, (False, True, True, True)
    )


def _profile(record: RunRecord) -> str:
    """The kernels of the best version that was profiled, and the picture of all that were; "" where none was."""
    profiled = [node for node in record.tree if kernel_figures(node.outcome.metrics)]
    if not profiled:
        return ""
    node = max(profiled, key=lambda each: record.tree.speedup(each.id) or 0.0)
    rows = [
        (name, *(quantity(metric, own[metric]) if metric in own else "" for metric in PROFILED))
        for name, own in kernel_figures(node.outcome.metrics).items()
    ]
    head = ("kernel", *("time, ms" if metric == "ms" else metric for metric in PROFILED))
    told = table(head, rows, (False, *(True for _ in PROFILED)))
    picture = "\n\n![Kernels under the roofs](roofline.png)" if points_of(record) else ""
    return f"## Kernels of version #{node.id}\n\n{told}{picture}"


def _outcomes(tree: Tree) -> str:
    counts = Counter(node.outcome.status for node in tree)
    rows = [(status.replace("_", " "), str(count)) for status, count in counts.most_common()]
    text = "## Outcomes\n\n" + table(("status", "versions"), rows, (False, True))
    failures = Counter(
        (node.outcome.status, diagnosis.stage if diagnosis else "", diagnosis.kind if diagnosis else "")
        for node in tree
        if not node.outcome.ok
        for diagnosis in [node.outcome.diagnosis]
    )
    if not failures:
        return text
    ordered = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    lines = [(status.replace("_", " "), stage, kind, str(count)) for (status, stage, kind), count in ordered]
    head = ("status", "found by", "kind", "versions")
    return text + "\n\n### Failures by kind\n\n" + table(head, lines, (False, False, False, True))


def _spent(record: RunRecord) -> str:
    cost, settings = record.cost, flat_settings(record.settings)
    allowed = settings.get("budget.evaluations")
    evaluations = str(len(record.evaluations)) + ("" if allowed is None else f" of {allowed}")
    rows = [
        ("evaluations", evaluations),
        ("versions in the tree", str(len(record.tree))),
        ("rounds of repair", str(sum(node.repairs for node in record.tree))),
    ]
    if cost.calls:
        rows.append(("model calls", str(cost.calls)))
        rows.append(("tokens in / out", f"{cost.tokens_in:,} / {cost.tokens_out:,}"))
        rows.append(("US dollars", f"{cost.usd:.4f}"))
    if cost.seconds:
        rows.append(("seconds spent coding", number(cost.seconds)))
    return "## Spent\n\n" + table(("", ""), rows, (False, True))


def _phases(tree: Tree) -> str:
    """How long each part of the evaluations of the versions took; "" where nothing tells."""
    rows = []
    for name, title in PHASES.items():
        seconds = [node.outcome.metrics[name] for node in tree if name in node.outcome.metrics]
        if seconds:
            rows.append((title, str(len(seconds)), f"{median(seconds):.2f}", f"{sum(seconds):.1f}"))
    head = ("part of an evaluation", "versions", "median, s", "sum, s")
    return "## Seconds of evaluations\n\n" + table(head, rows, (False, True, True, True)) if rows else ""


def _settings(record: RunRecord) -> str:
    settings = flat_settings(record.settings)
    if not settings:
        return ""
    rows = [(name, str(value)) for name, value in settings.items()]
    return "## Settings\n\n" + table(("setting", "value"), rows)


def _drawing(record: RunRecord) -> str:
    return f"## Tree\n\n```mermaid\n{to_mermaid(record, DRAWN_VERSIONS)}```"
