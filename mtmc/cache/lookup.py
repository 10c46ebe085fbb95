"""Lookup: the question of one optimization to the cache, asked as soon as its module is printed.

That is before small and odd shapes are derived, which takes longer than all that comes before: an entry has them too.
"""

from __future__ import annotations

import ast
import inspect
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from mtmc.cache.key import Key, mtmc_digest
from mtmc.cache.winners import Entry, WinnerCache
from mtmc.chat import ModelSettings
from mtmc.protocols import Evaluator, EvaluatorSettings
from mtmc.search import AgentSettings, Budget, components, search
from mtmc.search.components import Kind
from mtmc.search.opening import versions

if TYPE_CHECKING:
    import torch

    from mtmc.task.capture import Shapes
    from mtmc.task.live_call import Call

_log = logging.getLogger(__name__)

_PARTS: tuple[Kind, ...] = ("strategy", "policy", "coder")
_COUNTS = ("seed", "batch", "repairs")
"""Settings of a search that change what it finds."""
_VERSIONED = ("mtmc", "torch", "triton")


@dataclass(frozen=True)
class Asked:
    """How a search is to be made, as far as its winners depend on it; see `Key` for the texts."""

    hardware: str
    evaluator: str
    search: str
    budget: Budget

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Asked | str:
        """What `mtmc.search.search` is asked by these settings, or why nothing can be kept of such a search.

        Raises: ConfigError for a name that does not exist; EvaluatorError for a GPU that is not there.
        """
        defaults = {name: each.default for name, each in inspect.signature(search).parameters.items()}
        given = {**defaults, **settings}
        evaluator = components.resolve("evaluator", given["evaluator"])
        known = _hardware(evaluator)
        if not known:
            return f"the GPU that {type(evaluator).__name__} is for is known only when it is open"
        described = components.describe("evaluator", given["evaluator"], evaluator)
        how: dict[str, Any] = {name: given[name] for name in _COUNTS}
        for kind in _PARTS:
            how[kind] = {"name": given[kind]} if isinstance(given[kind], str) else _described(kind, given[kind])
            if how[kind] is None:
                return f"the settings of the {kind} {given[kind]!r} are not known"
        model = given["model"]
        asked = model if isinstance(model, ModelSettings) else ModelSettings(name=model)
        how["agents"] = asdict(given["agents"] or AgentSettings())
        how["model"] = asked.secrets.redact_data(asdict(asked))
        budget = given["budget"] if isinstance(given["budget"], Budget) else Budget(given["budget"])
        name = str(described.get("name", described.get("object")))
        return cls(known, name, json.dumps(how, sort_keys=True), budget)

    def inside_of(self, whole: str) -> Asked:
        """The same for a piece of a whole, whose budget is the whole's: what a piece gets of it depends on the others.

        whole: tells models apart.
        """
        return replace(self, search=f"{self.search} as a piece of {whole}")


class Lookup:
    """One question. key, entry: known once `shapes` was asked; entry is None where the cache has none that serves."""

    def __init__(self, asked: Asked, cache: WinnerCache, reads: bool = True) -> None:
        """reads: whether an entry is wanted; without it the cache only keeps what is found."""
        self.asked = asked
        self._cache = cache
        self._reads = reads
        self.key: Key | None = None
        self.entry: Entry | None = None

    def shapes(self, source: str, call: Call, tensors: Mapping[str, torch.Tensor]) -> Shapes | None:
        """Small and held-out shapes of the entry for a printed module, None where there is no entry.

        source: the printed file. call: the example's. tensors: the live module's, by their names in the file.
        Raises: RunError if the cache's folder is not the user's alone.
        """
        used = versions()
        stands_on = ", ".join(f"{name} {used[name]}" for name in _VERSIONED if name in used)
        asked = self.asked
        example = _example(call, tensors)
        key = Key(
            _without_inputs(source),
            example,
            asked.hardware,
            asked.evaluator,
            asked.search,
            f"{stands_on}, files {mtmc_digest()}",
        )
        self.key = key
        self.entry = self._cache.find(key, asked.budget) if self._reads else None
        return None if self.entry is None else (self.entry.small, self.entry.held_out)

    def keep(self, entry: Entry) -> bool:
        """Keep what a search has found instead; whether that could be done."""
        assert self.key is not None, "there is no key before the module is printed"
        return self._cache.add(self.key, entry)

    def refuse(self, reason: str) -> None:
        """The entry does not hold for the live module after all: forget it."""
        assert self.key is not None and self.entry is not None
        _log.warning("the winner of %s in the cache is not used: %s", self.entry.task, reason)
        self._cache.forget(self.key)
        self.entry = None


def _hardware(evaluator: Evaluator | EvaluatorSettings) -> str:
    return evaluator.known_hardware() if isinstance(evaluator, EvaluatorSettings) else evaluator.hardware


def _described(kind: Kind, part: Any) -> dict[str, Any] | None:
    """Class and settings of an object; None where it has settings that are not plain."""
    settings = components.plain_settings(part)
    return None if settings is None else {"class": f"{type(part).__module__}.{type(part).__qualname__}", **settings}


def _without_inputs(source: str) -> str:
    """A printed file without `get_inputs`, where values of the example inputs may stand."""
    tree = ast.parse(source)
    lines = source.splitlines()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            del lines[node.lineno - 1 : node.end_lineno]
            break
    return "\n".join(lines)


def _example(call: Call, tensors: Mapping[str, torch.Tensor]) -> str:
    """What a capture stands for besides its text: kinds of all arguments and weights, no values of tensors."""
    from mtmc.task.tensors import leaves

    inputs = [f"{name}{path}: {_kind(leaf)}" for name, value in call.arguments() for path, leaf in leaves(value)]
    return "\n".join([*inputs, *(f"{name} = {_kind(tensor)}" for name, tensor in tensors.items())])


def _kind(leaf: Any) -> str:
    import torch

    if isinstance(leaf, torch.Tensor):
        return f"{leaf.dtype} {list(leaf.shape)} by {list(leaf.stride())} on {leaf.device.type}"
    # What an object that is no tensor does to the graph stands in the text: its class is told, its address is not.
    plain = leaf is None or isinstance(leaf, bool | int | float | str | torch.dtype)
    return repr(leaf) if plain else type(leaf).__qualname__
