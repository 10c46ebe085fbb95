"""The tensors of nested lists, tuples, mappings and data classes: one order, and the same types when they are changed."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import torch

from mtmc.task.tensors import flat_tensors, leaves, map_tensors
from mtmc.whole.signature import opaque, signature

Pair = namedtuple("Pair", "one other")


@dataclass
class Held:
    name: str
    tensor: Any = None


@dataclass(frozen=True)
class Frozen:
    tensors: tuple[Any, ...]


class Output(OrderedDict[str, Any]):
    """What transformers returns is such a dictionary."""


def structure() -> list[Any]:
    a, b, c, d, e, f = (torch.full((1,), float(at)) for at in range(6))
    return [a, Pair(b, 2), {"x": (c, None)}, Output(y=d), Held("h", e), Frozen((f, torch.Size([3]))), "text", 7]


def test_they_are_found_in_order_and_changed_in_their_places() -> None:
    given = structure()
    assert [int(tensor) for tensor in flat_tensors(given)] == list(range(6))
    made = map_tensors(given, lambda tensor: tensor + 10)
    assert [int(tensor) for tensor in flat_tensors(made)] == list(range(10, 16))
    assert [type(part) for part in made] == [type(part) for part in given]
    assert (
        made[1].other == 2 and made[4].name == "h" and made[5].tensors[1] == torch.Size([3]) and made[6:] == ["text", 7]
    )
    assert [int(tensor) for tensor in flat_tensors(given)] == list(range(6)), "what was given is as it was"
    assert [path for path, _ in leaves(given)][:3] == ["[0]", "[1][0]", "[1][1]"]


def test_a_call_with_a_data_class_is_told_by_its_tensors_too() -> None:
    assert opaque((Held("h", torch.zeros(2)),), {}) == "" and opaque((Held("h", object()),), {}) == "object"
    forms = {signature((Held(name, torch.zeros(size)),), {}) for name in "gh" for size in (2, 3)}
    assert len(forms) == 4
