"""Storages of the tensors that a counted forward touches: a number and a range of addresses each."""

from __future__ import annotations

import math
from typing import Any

SECTOR = 32  # bytes of the unit in which L2 serves requests
_FAKE_BASE = 1 << 40  # first pretended address; storages follow each other with a gap between them
_GAP = 1 << 24


class Storages:
    """Numbers and address ranges of the storages seen, in order. Holds them, so that no address comes twice.

    held: whether their memory is held too, without which only numbers and sizes tell something.
    real: among fake ones, tensors of those that have memory, by number.
    calls: (op, arguments, keywords, result) of each torch op, by the identity of its record; where memory is held.
    """

    def __init__(self, fake: bool, held: bool = True) -> None:
        self.fake = fake
        self._holds_memory = held
        self.sizes: list[int] = []
        self._bases: list[int] = []
        self._held: list[Any] = []
        self.real: dict[int, Any] = {}
        self.calls: dict[int, tuple[Any, Any, Any, Any]] = {}
        self._numbers: dict[int, int] = {}
        self._next = _FAKE_BASE

    def number(self, tensor: Any) -> int:
        """Number of a tensor's storage."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._numbers:
            self._numbers[key] = len(self.sizes)
            self.sizes.append(int(storage.nbytes()))
            self._held.append(storage if self._holds_memory else _weak(storage))
            if self.fake and not hasattr(tensor, "fake_mode") and tensor.device.type == "cpu":
                self.real[self._numbers[key]] = tensor
            self._bases.append(self._next if self.fake else int(storage.data_ptr()))
            self._next += -(-self.sizes[-1] // _GAP) * _GAP + _GAP
        return self._numbers[key]

    def known(self, tensor: Any) -> int | None:
        """Number of a tensor's storage, None where nothing has touched it."""
        return self._numbers.get(tensor.untyped_storage()._cdata)

    def keep_call(self, record: Any, call: tuple[Any, Any, Any, Any]) -> None:
        """Note what an op was given and gave, which holds its tensors."""
        if self._holds_memory:
            self.calls[id(record)] = call

    def address(self, tensor: Any) -> int:
        """Pretended address of a tensor's first element."""
        base = self._bases[self.number(tensor)]
        return base + int(tensor.storage_offset()) * int(tensor.element_size())

    def find(self, address: int) -> int | None:
        """Number of the storage that holds an address, or None."""
        for number, base in enumerate(self._bases):
            if base <= address < base + max(1, self.sizes[number]):
                return number
        return None

    def beyond(self, number: int, addresses: Any) -> bool:
        """Whether any of these addresses, the least of which is in a storage, is not."""
        return int(addresses.max()) >= self._bases[number] + max(1, self.sizes[number])

    def offset(self, number: int, addresses: Any) -> Any:
        """Byte offsets of addresses (an array) in a storage."""
        return addresses - self._bases[number]


def _weak(storage: Any) -> Any:
    """Keeps the key of a storage from being another one's, and not its memory."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(storage)


def tensor_bytes(tensor: Any) -> int:
    """Bytes a tensor's elements occupy; an expanded dimension (stride 0) is there once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0 or size == 0]
    return int(math.prod(sizes)) * int(tensor.element_size())


def flat(tensor: Any) -> Any:
    """All of a real tensor's storage, in its dtype."""
    import torch

    count = int(tensor.untyped_storage().nbytes()) // int(tensor.element_size())
    return torch.as_strided(tensor.detach(), (count,), (1,), 0)


def as_bytes(tensor: Any) -> Any:
    """A flat real tensor as uint8."""
    import torch

    return tensor.view(torch.uint8)


def count_sectors(addresses: Any, low: int, high: int) -> int:
    """How many 32-byte sectors a block of addresses touches."""
    import numpy as np

    first, count = low // SECTOR, high // SECTOR - low // SECTOR + 1
    if count <= 1 or addresses.size == 1:
        return 1
    sectors = (addresses.ravel() // np.uint64(SECTOR)).astype(np.int64) - first
    if count <= max(1 << 16, 8 * addresses.size):
        touched = np.zeros(count, dtype=bool)
        touched[sectors] = True
        return int(np.count_nonzero(touched))
    return int(np.unique(sectors).size)
