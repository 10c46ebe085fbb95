"""Knowledge: what helped where, over runs: pairs of a version and its child, with the action between them. Pure.

`mtmc knowledge` makes a file of it from runs, and agents are told of the entries that are nearest to what they work on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from mtmc.errors import ConfigError

_KINDS: Mapping[str, Any] = {"float": (int, float), "str": str}
"""What the plain fields of an entry may be."""
FORMAT = 1
"""Version of the file."""
LEAST_GAIN = 1.02
"""Of a pair that is worth an entry: measured runtimes repeat within 1% or so."""


@dataclass(frozen=True)
class Entry:
    """One verified pair.

    task: its name. ops: names of the operators of its reference, sorted, each once. shapes: of forward's arguments, in
    words. dtype: of most of its numbers. hardware: in the hardware table. kind, params, sentence: of the action.
    gain: the parent's runtime over the child's. parent_ms, child_ms: these. runtime_kind: "measured" or "estimated".
    gate: the last one that the child has passed, "screen" or "verify". parent, child: hashes of the sources.
    diff: what changed, as a unified diff, cut.
    """

    task: str
    ops: tuple[str, ...]
    shapes: str
    dtype: str
    hardware: str
    kind: str
    params: Mapping[str, str | int | float | bool]
    sentence: str
    gain: float
    parent_ms: float
    child_ms: float
    runtime_kind: str
    gate: str
    parent: str
    child: str
    diff: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        """What two runs of one task with the same edit have in common."""
        params = tuple(sorted((name, str(value)) for name, value in self.params.items()))
        return (self.ops, self.shapes, self.dtype, self.hardware, self.kind, params, self.sentence, self.runtime_kind)


def merged(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries without those that say the same as another of a greater gain; the greatest gains first."""
    best: dict[tuple[object, ...], Entry] = {}
    for entry in entries:
        known = best.get(entry.identity)
        if known is None or entry.gain > known.gain:
            best[entry.identity] = entry
    return tuple(sorted(best.values(), key=lambda entry: (-entry.gain, entry.task, entry.kind, entry.child)))


def to_text(entries: Sequence[Entry]) -> str:
    """The file's text; `from_text` is its inverse."""
    return json.dumps({"format": FORMAT, "entries": [asdict(entry) for entry in entries]}, indent=1) + "\n"


def from_text(text: str, where: str) -> tuple[Entry, ...]:
    """The entries of a file's text. where: its name. Raises: ConfigError naming it and what is wrong."""
    hint = "make it with mtmc knowledge RUN... --out FILE"
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ConfigError(f"{where} is of format {data['format']!r}, this version reads {FORMAT}: {hint}")
        entries = tuple(Entry(**{**each, "ops": tuple(each["ops"])}) for each in data["entries"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{where} holds no knowledge of runs ({type(error).__name__}: {error}): {hint}") from error
    for entry in entries:
        for each in fields(Entry):
            value = getattr(entry, each.name)
            kind = _KINDS.get(str(each.type), object)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ConfigError(f"{where} holds no knowledge of runs ({each.name} is {value!r}): {hint}")
    return entries


def nearest(
    entries: Sequence[Entry], ops: Sequence[str], dtype: str | None, hardware: str, kind: str | None, most: int
) -> list[Entry]:
    """The entries that tell most of a version, the nearest first.

    kind: of the action that is to be applied; None for any. An entry that shares no operator with the task tells nothing.
    Nearness is the share of operators in common (Jaccard), halved for another dtype and for another GPU.
    """
    own = set(ops)

    def near(entry: Entry) -> float:
        both = own | set(entry.ops)
        share = len(own & set(entry.ops)) / len(both) if both else 0.0
        return share * (1.0 if entry.dtype == dtype else 0.5) * (1.0 if entry.hardware == hardware else 0.5)

    wanted = [entry for entry in entries if (kind is None or entry.kind == kind) and near(entry) > 0]
    return sorted(wanted, key=lambda entry: (-near(entry), -entry.gain, entry.child))[:most]
