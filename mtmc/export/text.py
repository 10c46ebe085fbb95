"""Text for people: numbers with their units, cut and cleaned lines, colours, and writing files whole or not at all."""

from __future__ import annotations

import math

from mtmc.export.record import speedup_kind
from mtmc.outcome import Status
from mtmc.tree import KernelNode, Tree

STATUS_COLOURS: dict[Status, str] = {
    "ok": "#8b97a8",
    "build_error": "#e5484d",
    "wrong_result": "#d6409f",
    "crash": "#f2711c",
    "timeout": "#8e4ec6",
    "out_of_memory": "#a1764d",
    "rejected": "#5f6672",
    "not_run": "#7c93b8",
}
BEST_COLOUR = "#e0a100"
SLOW_COLOUR, EVEN_COLOUR, FAST_COLOUR = "#c58a3a", "#8b97a8", "#0fa47f"
FULL_COLOUR_LOG2 = 2.0
"""Colours run from SLOW at a quarter of the root's speed to FAST at four times of it."""

_TABLE = str.maketrans({char: "\ufffd" for char in range(32) if chr(char) not in "\t\n"} | {127: "\ufffd"})


def clean(text: str) -> str:
    """Text that any file format here can hold: line ends as "\\n"; control characters and lone surrogates, which a
    crashed kernel's output may well contain, as replacement characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_TABLE)
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" or char in "\ufffe\uffff" else char for char in text)


def one_line(text: str, limit: int = 160) -> str:
    """Text on one line, cut with an ellipsis to at most `limit` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "\u2026"


def number(value: float) -> str:
    """A number to three digits, without an exponent: 0.00123, 12.3, 1,230."""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


def runtime(milliseconds: float) -> str:
    """A runtime with its unit: microseconds below a tenth of a millisecond, else milliseconds."""
    if milliseconds < 0.1:
        return f"{number(milliseconds * 1000)} \u00b5s"
    return f"{number(milliseconds)} ms"


def factor(speedup: float) -> str:
    """A speedup: "1.52x"."""
    return f"{number(speedup) if speedup >= 1000 or speedup < 0.01 else format(speedup, '.2f')}x"


def quantity(name: str, value: float) -> str:
    """A metric with its unit, by what its name says: bytes in binary units, fractions in percent."""
    if "bytes" in name or name == "shared_memory":
        for unit in ("B", "KiB", "MiB", "GiB"):
            if abs(value) < 1024:
                return f"{number(value)} {unit}"
            value /= 1024
        return f"{number(value)} TiB"
    if name == "flops":
        for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"):
            if abs(value) < 1000:
                return f"{number(value)} {unit}"
            value /= 1000
        return f"{number(value)} PFLOP"
    if name.endswith("_ms"):
        return runtime(value)
    if name in ("occupancy", "roofline"):
        return f"{number(100 * value)}%"
    if name == "error":
        return f"{value:.2e}"
    return number(value)


def kind_of(node: KernelNode) -> str:
    """The kind of the action that made a node, "root" for the root."""
    return node.action.kind if node.action else "root"


def result_of(tree: Tree, node_id: int) -> str:
    """What became of a version, in few words: "1.52x estimated", or its status where it failed."""
    gain = tree.speedup(node_id)
    if gain is None:
        return tree[node_id].outcome.status.replace("_", " ")
    return f"{factor(gain)} {speedup_kind(tree, node_id)}"


def colour_of(tree: Tree, node_id: int) -> str:
    """Fill of a node as "#rrggbb": by status where it failed, by its speedup over the root where it did not."""
    status, gain = tree[node_id].outcome.status, tree.speedup(node_id)
    if status != "ok" or gain is None:
        return STATUS_COLOURS[status]
    # The root tells small gains, which are the common ones, apart from none.
    share = math.sqrt(min(1.0, abs(math.log2(gain)) / FULL_COLOUR_LOG2))
    return _mix(EVEN_COLOUR, FAST_COLOUR if gain > 1.0 else SLOW_COLOUR, share)


def _mix(first: str, second: str, share: float) -> str:
    channels = ((int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in channels)
