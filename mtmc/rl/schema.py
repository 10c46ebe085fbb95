"""schema: the format of recorded trees, version 2. Anything that reads Parquet can use it.

A data set is a folder with three Parquet files (zstd, dictionary-encoded), sorted by task, node and action:

    tasks.parquet         one row a task: its text, its graph, its split, what was reached
    nodes.parquet         one row a version: how it came to be, its plan, what evaluation found
    transitions.parquet   one row for each legal action of each version that is right: what it is, and, if it was tried
                          or leads to a known version, where to, with the paper's reward

Each column's meaning is in `COLUMNS` and in the files themselves (metadata "description" of the field). Keys: `task`
joins all three; (`task`, `node`) names a version, node 0 is the root; (`task`, `node`, `action`) names a legal action.

Texts of versions are not kept: a version's plan and its task's text give it again (`dataset.version_text`), and `version`
is the hash to see that it is the same. The features of `mtmc.agents.policies.learned.features` are not kept either: they are
a function of these columns, computed when trees are loaded, so they may change without a new recording.

A task's split follows from the hash of its text alone (`split_of`), so it is the same in every recording.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow

FORMAT = "mtmc recorded trees"
VERSION = 2
"""Of what is written; older files are read as well, see `mtmc.rl.upgrade`."""

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
VALIDATION_SHARE = TEST_SHARE = 0.1

How = Literal["evaluated", "transposition", "no_edit", "stop", "untried"]

METRICS = (
    *("bytes_moved", "bytes_min", "bytes_dram", "flops", "dot_flops", "kernels", "roofline", "registers", "spills"),
    *("shared_memory", "programs", "occupancy", "error", "achieved_gbs", "achieved_tflops", "eager_ms", "clock_ms"),
    *("device_ms", "host_ms", "call_ms"),
)
"""Metrics of an outcome that are kept (`mtmc.outcome.Outcome.metrics`); seconds that evaluating took are not."""

Column = tuple[str, str]
"""Type and meaning. Types: text, word (text of few different values), int16, int32, float, bool."""

_TASK: dict[str, Column] = {"task": ("word", "hash of the task's text, 16 hex digits")}

COLUMNS: dict[str, dict[str, Column]] = {
    "tasks": {
        **_TASK,
        "name": ("text", "name that the task was searched under; it stands in the first line of every version"),
        "split": ("word", "train, validation or test, by the hash of the text"),
        "text": ("text", "the whole file, in KernelBench's format with VARIANTS"),
        "graph": (
            "text",
            "ops, edges and shapes as JSON, see `agents.policies.learned.graphs.GraphFacts`; null where it does not export",
        ),
        "graph_key": ("text", "hash of the graph's canonical form, dtypes left out; null where there is no graph"),
        "hardware": ("word", "GPU that runtimes are for, by name in mtmc's hardware table"),
        "evaluator": ("word", "who found the outcomes: gpu, lab, ..."),
        "coder": ("word", "who wrote the versions: rewriter, ..."),
        "versions": ("word", "versions of mtmc, python, torch and triton as JSON"),
        "seed": ("int32", "seed of the search"),
        "finished": ("bool", "whether the search came to its end; else it was cut off"),
        "evaluations": ("int32", "versions evaluated, the root and failures included"),
        "root_ms": ("float", "runtime of the reference in milliseconds"),
        "best_ms": ("float", "runtime of the fastest version that is right"),
        "best_node": ("int32", "that version"),
    },
    "nodes": {
        **_TASK,
        "node": ("int32", "number of the version in its tree, in the order of coming; the root is 0"),
        "parent": ("int32", "version it was made from; null for the root"),
        "action": ("int16", "which of the parent's legal actions made it; null for the root"),
        "depth": ("int16", "steps from the root on this way"),
        "version": ("text", "hash of the version's text, 16 hex digits"),
        "plan": (
            "text",
            "stages with their schedules as JSON, see mtmc.rewrite.plan; null where a model wrote the text",
        ),
        "status": ("word", "ok, build_error, wrong_result, crash, timeout, out_of_memory, rejected or not_run"),
        "runtime_ms": ("float", "median time of one forward in milliseconds; null unless ok"),
        "runtime_low_ms": ("float", "lower end of its 95% interval; null for an estimate"),
        "runtime_high_ms": ("float", "upper end of its 95% interval; null for an estimate"),
        "runtime_kind": ("word", "measured or estimated"),
        "failure_stage": ("word", "gate that a failed version failed in"),
        "failure_kind": ("word", "exception type or exploit family"),
        "failure_message": ("text", "first 200 characters of the reason"),
        **{
            f"metric_{name}": ("float", f"metric {name}, see mtmc.outcome; null where it is not known")
            for name in METRICS
        },
    },
    "transitions": {
        **_TASK,
        "node": ("int32", "version that the action is legal on"),
        "action": ("int16", "position among its legal actions, from 0"),
        "kind": ("word", "optimization kind: fuse, tile, ..., stop"),
        "region": ("word", "code region: name of the stage or stages"),
        "params": ("word", "parameters as JSON, names sorted"),
        "sentence": ("word", "the action in words, without its lines"),
        "first_line": ("int16", "first line of the region in the version's text"),
        "last_line": ("int16", "last line of the region"),
        "lines_told": ("bool", "whether the whole sentence goes on with ', line N' or ', lines N-M'"),
        "how": ("word", "evaluated (a trial), transposition (leads to a known version), no_edit, stop, or untried"),
        "child": ("int32", "version it leads to; null for no_edit, stop and untried"),
        "reward": ("float", "the paper's shaped reward at step depth + 1, see mtmc.reward; null where child is"),
        "log_gain": ("float", "log2 of the parent's over the child's runtime; null where either has none"),
    },
}


def split_of(task: str) -> Split:
    """The split of a task. task: hash of its text (`mtmc.tree.source_hash`), 16 hex digits."""
    draw = int(hashlib.sha256(f"split:{task}".encode()).hexdigest()[:8], 16) / 2**32
    if draw < TEST_SHARE:
        return "test"
    return "validation" if draw < TEST_SHARE + VALIDATION_SHARE else "train"


def arrow_schema(table: str) -> pyarrow.Schema:
    """The pyarrow schema of one of the tables. Raises: KeyError for a table that there is none of."""
    import pyarrow as pa

    types: dict[str, Any] = {
        "text": pa.string(),
        "word": pa.dictionary(pa.int32(), pa.string()),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "float": pa.float64(),
        "bool": pa.bool_(),
    }
    fields = [
        pa.field(name, types[kind], metadata={"description": meaning})
        for name, (kind, meaning) in COLUMNS[table].items()
    ]
    return pa.schema(fields, metadata={"format": FORMAT, "version": str(VERSION), "table": table})
