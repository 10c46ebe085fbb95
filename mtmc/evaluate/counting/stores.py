"""What a program that computes has stored, and what it finds where it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtmc.evaluate.counting.interpreter_parts import kept_by


@dataclass
class Stores:
    """What a program has stored so far, in order.

    written: (addresses, values, type) of each store. added: (what, addresses, values) of each atomic.
    """

    written: list[tuple[Any, Any, Any]] = field(default_factory=list)
    added: list[tuple[str, Any, Any]] = field(default_factory=list)

    def write(self, addresses: Any, value: Any, mask: Any) -> None:
        """Note a store of a block, where the mask keeps it."""
        import numpy as np

        values = np.broadcast_to(value.data, addresses.shape)
        if mask is not None:
            kept = kept_by(mask, addresses.shape)
            addresses, values = addresses[kept], values[kept]
        self.written.append((addresses.reshape(-1), values.reshape(-1), value.dtype.scalar))

    def add(self, op: str, addresses: Any, values: Any, mask: Any) -> None:
        """Note an atomic of a block, where the mask keeps it."""
        import numpy as np

        kept = kept_by(True if mask is None else mask, addresses.shape)
        self.added.append((op, addresses[kept], np.broadcast_to(values, addresses.shape)[kept]))


def own_stores(
    written: Sequence[tuple[Any, Any, Any]], addresses: Any, kind: Any, others: Callable[[Any, int], Any]
) -> Any:
    """What a program finds at addresses: what it has stored there itself, and `others(addresses, size)` elsewhere.

    written: (addresses, values, type) of each of its stores. Returns: None where `others` does.
    """
    import numpy as np

    flat = np.ravel(addresses)
    found, has = np.zeros(flat.size, kind), np.zeros(flat.size, bool)
    low, high = (flat.min(), flat.max()) if flat.size else (0, 0)
    for there, values, _ in written:
        if not there.size or there.max() < low or there.min() > high or values.dtype.itemsize != kind.itemsize:
            continue
        order = np.argsort(there, kind="stable")
        place = np.searchsorted(there[order], flat, side="right") - 1
        hit = (place >= 0) & (there[order][np.maximum(place, 0)] == flat)
        found[hit] = values[order][place[hit]].view(kind)
        has |= hit
    if has.all() and flat.size:
        return found.reshape(np.shape(addresses))
    # What it has stored is not asked for, where others may not know it.
    rest = others(
        np.where(has, flat[~has][:1], flat).reshape(np.shape(addresses)) if has.any() else addresses, kind.itemsize
    )
    if rest is None or not has.any():
        return rest
    return np.where(has, found, np.ravel(rest).view(kind)).reshape(np.shape(addresses))
