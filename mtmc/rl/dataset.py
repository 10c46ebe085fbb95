"""dataset: recorded trees in files, see `mtmc.rl.schema`. pyarrow is loaded on first use (the extra `rl`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.agents.policies.learned.graphs import graph_from_json, graph_key
from mtmc.errors import RunError
from mtmc.files import written_whole
from mtmc.rl.record import Record
from mtmc.rl.schema import COLUMNS, FORMAT, VERSION, Split, arrow_schema
from mtmc.rl.upgrade import upgraded

if TYPE_CHECKING:
    import pyarrow

    from mtmc.task import Task

TABLES = tuple(COLUMNS)
KEYS = ("task", "node", "action")
_LEVEL = 15
"""Of zstd: reading takes the same time at any."""
_DICTIONARY_BYTES = 64 * 2**20


def write_dataset(record: Record, folder: Path) -> dict[str, int]:
    """Write the three files of a data set, each whole or not at all; returns their sizes in bytes.

    Raises: RunError where the folder cannot be written, or pyarrow is missing.
    """
    return write_tables(tables_of(record), folder)


def tables_of(record: Record) -> dict[str, pyarrow.Table]:
    """The rows of a record as tables of the data set's schema."""
    return {name: table_of(name, rows) for name, rows in record.tables.items()}


def is_dataset(folder: Path) -> bool:
    """Whether a folder holds a data set."""
    return all((folder / f"{name}.parquet").is_file() for name in TABLES)


def table_of(name: str, rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """Rows as a table of the data set's schema. name: "tasks", "nodes" or "transitions"."""
    pa = _pyarrow()
    schema = arrow_schema(name)
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_dictionary(field.type):
            columns.append(pa.array(values, pa.string()).dictionary_encode().cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def write_tables(tables: dict[str, pyarrow.Table], folder: Path) -> dict[str, int]:
    """Write tables of the data set's schema, sorted. Raises: RunError as `write_dataset`."""
    _pyarrow()
    from pyarrow import parquet

    sizes = {}
    for name, table in tables.items():
        with written_whole(folder / f"{name}.parquet") as draft:
            parquet.write_table(
                _sorted(name, table),
                draft,
                compression="zstd",
                compression_level=_LEVEL,
                dictionary_pagesize_limit=_DICTIONARY_BYTES,
                row_group_size=2**20,
            )
            sizes[name] = draft.stat().st_size
    return sizes


def _sorted(name: str, table: pyarrow.Table) -> pyarrow.Table:
    """In the order of the keys. Arrow does not sort by a dictionary, so the tasks are sorted as texts."""
    from pyarrow import compute

    keys = table.select(
        [key for key in KEYS if key in table.column_names and (key != "action" or name == "transitions")]
    )
    keys = keys.set_column(0, "task", keys["task"].cast("string"))
    return table.take(compute.sort_indices(keys, sort_keys=[(key, "ascending") for key in keys.column_names]))


def read_tables(folder: Path, split: Split | None = None) -> dict[str, pyarrow.Table]:
    """The three tables, of one split or of all, in today's words (`mtmc.rl.upgrade`).

    Raises: RunError where a file is missing, is none of this format, or was written by a newer version.
    """
    _pyarrow()
    from pyarrow import compute, parquet

    tables = {}
    for name in TABLES:
        path = folder / f"{name}.parquet"
        if not path.is_file():
            raise RunError(f"there is no data set in {folder}: it has no {path.name}; name the folder of one")
        table = parquet.read_table(path)
        tables[name] = upgraded(name, table, _version(path, table.schema))
    if split is not None:
        kept = tables["tasks"].filter(compute.equal(tables["tasks"]["split"].cast("string"), split))
        keys = kept["task"].cast("string").combine_chunks()
        tables = {
            name: table.filter(compute.is_in(table["task"].cast("string"), keys)) for name, table in tables.items()
        }
    return tables


def concatenated(parts: Sequence[dict[str, pyarrow.Table]]) -> dict[str, pyarrow.Table]:
    """Several data sets as one. Of several trees of one task, and of several tasks with the same graph and dtypes, only
    the first is kept, so that no task stands in two splits."""
    pa = _pyarrow()
    seen: set[tuple[str, str]] = set()
    kept: list[dict[str, Any]] = []
    for part in parts:
        keys = []
        for row in part["tasks"].select(["task", "graph"]).to_pylist():
            marks = {("task", row["task"])}
            if row["graph"] is not None:
                marks.add(("graph", graph_key(graph_from_json(row["graph"]), dtypes=True)))
            if not marks & seen:
                keys.append(row["task"])
            seen |= marks
        kept.append({name: _only(table, keys) for name, table in part.items()})
    return {name: pa.concat_tables([part[name] for part in kept]).unify_dictionaries() for name in TABLES}


def without_graphs(
    tables: dict[str, pyarrow.Table], keys: Collection[str]
) -> tuple[dict[str, pyarrow.Table], dict[str, str]]:
    """The tables without the tasks whose graph has one of these keys (see `graphs.graph_key`), and those tasks: name ->
    key."""
    rows = tables["tasks"].select(["task", "name", "graph_key"]).to_pylist()
    found = {row["name"]: row["graph_key"] for row in rows if row["graph_key"] in keys}
    kept = [row["task"] for row in rows if row["name"] not in found]
    return {name: _only(table, kept) for name, table in tables.items()}, found


def version_text(task: Task, plan: str) -> str:
    """The text of a version from its task and plan, by this version of the rewriter. Raises: CoderError, TaskError."""
    from mtmc.rewrite.exported import export_graph
    from mtmc.rewrite.plan import graph_of, plan_from_json, root_plan
    from mtmc.rewrite.source import print_plan, root_source

    parsed = plan_from_json(plan)
    graph = graph_of(export_graph(task), parsed)
    return root_source(task) if parsed == root_plan(graph) else print_plan(task, graph, parsed).source


def _only(table: pyarrow.Table, keys: list[str]) -> pyarrow.Table:
    pa = _pyarrow()
    from pyarrow import compute

    return table.filter(compute.is_in(table["task"].cast("string"), pa.array(keys, pa.string())))


def _version(path: Path, schema: pyarrow.Schema) -> int:
    found = schema.metadata or {}
    if found.get(b"format") != FORMAT.encode():
        raise RunError(f"{path} is no file of {FORMAT}: name the folder of a data set")
    version = int(found[b"version"])
    if version > VERSION:
        raise RunError(f"{path} has version {version} of its format, this mtmc reads up to {VERSION}: upgrade mtmc")
    return version


def _pyarrow() -> Any:
    """pyarrow. Raises: RunError where it is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise RunError("recorded trees need the package pyarrow: install mtmc[rl]") from error
    return pyarrow
