"""Action: one semantic optimization = kind x code region (+ parameters), with the sentence that states it.

MTMC section "Macro Thinking": an action is an optimization type applied to a region found by dataflow and syntax
analysis, e.g. "fuse linear and max, lines 15-20". Which kinds exist is the business of `mtmc.optimizations`: each
kind is one file there, and nothing here knows their names but `STOP`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Scalar = str | int | float | bool

STOP_KIND = "stop"


@dataclass(frozen=True)
class Region:
    """The lines of the parent's source (1-based, inclusive) that an action is about, and what stands there."""

    name: str
    first_line: int
    last_line: int

    @classmethod
    def spanning(cls, name: str, parts: Iterable[Region]) -> Region:
        """The lines from the first to the last of some regions, under a name of its own. Raises: ValueError for none."""
        parts = list(parts)
        return cls(name, min(part.first_line for part in parts), max(part.last_line for part in parts))

    def __str__(self) -> str:
        return self.name + lines_text(self.first_line, self.last_line)


@dataclass(frozen=True)
class Action:
    """One legal move from a kernel version.

    kind: name of the optimization, e.g. "fuse".
    region: where in the parent's source.
    params: what the kind needs besides, sorted by name, e.g. (("block_m", 128), ("block_n", 64)).
    sentence: the action in words, as a policy reads it and a coder is told it.
    """

    kind: str
    region: Region
    params: tuple[tuple[str, Scalar], ...]
    sentence: str

    @property
    def key(self) -> str:
        """Identity among the actions of one node: independent of wording and line numbers."""
        params = ",".join(f"{name}={value}" for name, value in self.params)
        return f"{self.kind}({self.region.name};{params})"

    def param(self, name: str) -> Scalar:
        """Value of one parameter. Raises: KeyError if the action has no such parameter."""
        return dict(self.params)[name]


STOP = Action(STOP_KIND, Region("module", 1, 1), (), "stop: keep this version as it is")


def make_action(kind: str, region: Region, sentence: str, **params: Scalar) -> Action:
    """An action whose sentence ends with its lines."""
    whole = sentence + lines_text(region.first_line, region.last_line)
    return Action(kind, region, tuple(sorted(params.items())), whole)


def lines_text(first_line: int, last_line: int) -> str:
    """How a sentence ends that tells its lines: ", line 7" or ", lines 7-9"."""
    return f", line {first_line}" if first_line == last_line else f", lines {first_line}-{last_line}"


def without_lines(action: Action) -> tuple[str, bool]:
    """An action's sentence without its lines, and whether it told them."""
    end = lines_text(action.region.first_line, action.region.last_line)
    return action.sentence.removesuffix(end), action.sentence.endswith(end)


def action_to_json(action: Action) -> dict[str, object]:
    """Plain JSON of an action; `action_from_json` is its inverse."""
    region = action.region
    return {
        "kind": action.kind,
        "region": {"name": region.name, "first_line": region.first_line, "last_line": region.last_line},
        "params": dict(action.params),
        "sentence": action.sentence,
    }


def action_from_json(data: Mapping[str, object]) -> Action:
    """Inverse of `action_to_json`. Raises: KeyError or TypeError on data of another form."""
    region = data["region"]
    params = data["params"]
    assert isinstance(region, Mapping) and isinstance(params, Mapping)
    return Action(
        kind=str(data["kind"]),
        region=Region(str(region["name"]), int(region["first_line"]), int(region["last_line"])),
        params=tuple(sorted(params.items())),
        sentence=str(data["sentence"]),
    )
