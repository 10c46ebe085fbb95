"""Objects that a call is given stay as the caller's, whoever calls the module with them to look at it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mtmc.task.live_objects import own_arguments, own_objects
from mtmc.whole.live import LiveModel


class Cache:
    """Grows by each call, as a key-value cache does."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.layers = [Layer(rows)]
        self.seen = {"rows": len(rows)}


class Layer:
    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        layer = cache.layers[0]
        layer.rows = torch.cat([layer.rows, x])
        cache.seen["rows"] = len(layer.rows)
        layer.rows.mul_(0.5)
        return self.linear(layer.rows).sum(0)


def _rows(history: bool) -> torch.Tensor:
    return nn.Linear(8, 8)(torch.ones(4, 8)) if history else torch.ones(4, 8)


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("look", ["settle", "anew", "call", "estimated"])
def test_a_cache_that_a_model_is_given_stays_as_it_was(look: str, history: bool) -> None:
    cache = Cache(_rows(history))
    before = cache.layers[0].rows
    values = before.detach().clone()
    live = LiveModel(Attends().eval(), (torch.ones(2, 8),), {"cache": cache})
    given: dict[str, tuple[Any, ...]] = {"anew": (live.model,), "call": (live.model,), "estimated": ("H100",)}
    for _ in range(2):
        getattr(live, look)(*given.get(look, ()))
    assert cache.layers[0].rows is before and torch.equal(before, values) and cache.seen == {"rows": 4}


def test_calls_one_after_another_see_the_same_cache() -> None:
    live = LiveModel(Attends().eval(), (torch.ones(2, 8), Cache(torch.ones(4, 8))), {})
    with torch.no_grad():
        assert torch.equal(live.anew(live.model), live.anew(live.model))
        assert torch.equal(live.call(live.model), live.call(live.model))


def test_one_object_at_two_places_is_one_in_the_copy_and_modules_stay() -> None:
    cache, module, x = Cache(torch.ones(4, 8)), nn.Linear(2, 2), torch.ones(3)
    one, [two, same], tensor = own_objects((cache, [cache, module], x))
    assert one is two and one is not cache and one.layers[0].rows is not cache.layers[0].rows
    assert same is module and tensor is x


def test_arguments_of_one_call_share_no_memory_with_the_given() -> None:
    x = torch.ones(3)
    args, kwargs = own_arguments((x,), {"y": [x], "flag": True})
    assert args[0] is not x and kwargs["y"][0] is not x and kwargs["flag"] is True
    args[0].zero_()
    assert torch.equal(x, torch.ones(3))
