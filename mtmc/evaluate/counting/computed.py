"""What a torch op of a forward leaves where only shapes are run: computed on the host when a spot check asks for it.

Only where that is quick: few elements, few products; of a larger one the rows that are asked for, where it treats each row
by itself (`mtmc.evaluate.counting.by_rows`). What it is given is found likewise. An op that draws numbers draws
others here, which have to be as good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mtmc.evaluate.counting.by_rows import Rows, rows_of
from mtmc.evaluate.counting.contents import Array, Contents, as_array
from mtmc.evaluate.counting.prices import product_flops
from mtmc.task.tensors import flat_tensors

if TYPE_CHECKING:
    import torch

    from mtmc.evaluate.counting.launches import Launches

MOST_BYTES, MOST_FLOPS = 64 << 20, 2e9
"""Of all storages that an op reads and writes, and of its products."""


class Earlier(Protocol):
    """What is known of a forward's launches and ops before one of them."""

    launches: Launches
    log: Any

    def before(self, at: int) -> Contents:
        """What lies in memory before that place in the log."""


class Computed:
    """A storage that a torch op writes. See `Content`. place: of the op in the forward's log."""

    of_an_op = True

    def __init__(self, writers: Earlier, number: int, place: int) -> None:
        self._writers, self._number, self._place = writers, number, place
        self._values: Array | None = None
        self._tried = False
        self._rows: Rows | None = None

    def read(self, elements: Array) -> Array | None:
        """See `Content`."""
        if not self._tried:
            self._tried = True
            self._values = self._compute()
        if self._values is None:
            return None if self._rows is None else self._rows.read(elements)
        if elements.size and int(elements.max()) >= self._values.size:
            return None
        return np.asarray(self._values[elements])

    def _compute(self) -> Array | None:
        import torch
        from torch._subclasses.fake_tensor import unset_fake_temporarily
        from torch.utils._python_dispatch import _disable_current_modes

        from mtmc.task.tensors import map_tensors

        storages = self._writers.launches.storages
        func, args, kwargs, result = storages.calls[id(self._writers.log[self._place])]
        tensors, results = flat_tensors((args, kwargs)), flat_tensors(result)
        numbers = {storages.number(tensor) for tensor in (*tensors, *results)}
        products = product_flops(func, args, kwargs, result) or 0
        if sum(storages.sizes[number] for number in numbers) > MOST_BYTES or products > MOST_FLOPS:
            call = func, args, kwargs, result
            self._rows = rows_of(call, self._number, storages, self._writers.before(self._place), MOST_BYTES)
            return None
        contents = self._writers.before(self._place)
        raw = {storages.number(t): contents.whole(storages.number(t), int(t.element_size())) for t in tensors}
        with unset_fake_temporarily(), _disable_current_modes(), torch.no_grad():
            held: dict[int, torch.Tensor] = {}
            for number, values in raw.items():
                if values is None:
                    return None
                data = bytearray(np.ascontiguousarray(values).tobytes())
                held[number] = torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
            given = map_tensors((args, kwargs), lambda tensor: _shown(held[storages.number(tensor)], tensor))
            made = flat_tensors(func(*given[0], **given[1]))
            if self._number in held:
                own = next(tensor for tensor in tensors if storages.number(tensor) == self._number)
                whole = held[self._number].view(own.dtype)
            else:
                at = next(at for at, tensor in enumerate(results) if storages.number(tensor) == self._number)
                whole = torch.zeros(storages.sizes[self._number] // made[at].element_size(), dtype=made[at].dtype)
                torch.as_strided(whole, results[at].shape, results[at].stride(), results[at].storage_offset()).copy_(
                    made[at]
                )
            return as_array(whole)


def _shown(held: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What a fake tensor shows, of a real storage in its place."""
    import torch

    bare = torch.empty(0, dtype=like.dtype)
    return bare.set_(held.untyped_storage(), int(like.storage_offset()), tuple(like.shape), tuple(like.stride()))
