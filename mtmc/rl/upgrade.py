"""upgrade: recorded trees of an older version of the format, read in today's words.

Files keep the words of their time. Where a kind of optimization, a setting of a schedule, one of its values or a key of a
plan gets another name, raise `mtmc.rl.schema.VERSION` by one and say here what was renamed since the version before:

    RENAMED = {1: Renamed(kinds={"old": "new"}, settings={"cache": "eviction"}, values={("cache", "let go"): "first"})}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mtmc.rl.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Renamed:
    """Words between two versions of the format, old -> new.

    kinds: of optimizations. stage: keys of a stage. plan: keys of a plan beside its stages. settings: of
    schedules, and parameters of actions; values: theirs, (old setting, old value) -> new value. sentences: pieces of an
    action's sentence.
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    stage: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[tuple[str, Any], Any] = field(default_factory=dict)
    sentences: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> dict[tuple[str, str], Callable[[str], str]]:
        """(table, column) -> what makes its new texts of the old ones."""
        return {
            ("nodes", "plan"): self._plan,
            ("transitions", "kind"): lambda kind: self.kinds.get(kind, kind),
            ("transitions", "params"): lambda params: _json(self._settings(json.loads(params))),
            ("transitions", "sentence"): self._sentence,
        }

    def _plan(self, text: str) -> str:
        data = json.loads(text)
        stages = data if isinstance(data, list) else data["stages"]
        for stage in stages:
            for key in [key for key in stage if key in self.stage]:
                stage[self.stage[key]] = stage.pop(key)
            stage["schedule"] = self._settings(stage["schedule"])
        return _json(data if data is stages else {self.plan.get(key, key): value for key, value in data.items()})

    def _settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {
            self.settings.get(name, name): self.values.get((name, value), value) for name, value in settings.items()
        }

    def _sentence(self, sentence: str) -> str:
        for old, new in self.sentences.items():
            sentence = sentence.replace(old, new)
        return sentence


RENAMED: dict[int, Renamed] = {
    1: Renamed(
        kinds={"capture": "cuda_graph", "simplify": "algebra"},
        stage={"family": "template"},
        plan={"captured": "cuda_graph", "simplified": "algebra"},
        settings={"cache": "eviction_policy", "walk": "loop", "apart": "horizontal"},
        values={
            ("cache", "keep"): "evict_normal",
            ("cache", "let go"): "evict_first",
            ("right", "turned"): "transposed",
            ("right", "as it lies"): "as_is",
        },
        sentences={
            "simplify: ": "rewrite by algebra: ",
            " side by side": " horizontally",
            "turn the right operand": "transpose the right operand",
        },
    ),
}
"""Version of the format -> what is called otherwise in the next one."""


def upgraded(name: str, table: pyarrow.Table, version: int) -> pyarrow.Table:
    """A table of the data set in the words of today's version. name: of the table. version: of its file."""
    import pyarrow as pa

    for old, renamed in sorted(RENAMED.items()):
        if old >= version:
            for (whose, column), function in renamed.columns.items():
                if whose == name:
                    table = _replaced(table, column, function)
    schema = arrow_schema(name)
    for column in schema:
        if column.name.startswith("metric_") and column.name not in table.column_names:  # not kept at that time
            table = table.append_column(column, pa.nulls(len(table), column.type))
    return table.select(schema.names).cast(schema)


def _replaced(table: pyarrow.Table, column: str, function: Callable[[str], str]) -> pyarrow.Table:
    """The table with each text of a column replaced; nulls stay. A text that comes often is looked at once."""
    import pyarrow as pa

    old = table[column].cast(pa.string())
    new = {text: function(text) for text in old.unique().to_pylist() if text is not None}
    texts = pa.array([None if text is None else new[text] for text in old.to_pylist()], pa.string())
    return table.set_column(table.column_names.index(column), column, texts)


def _json(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
