"""One launch's program instances, run one by one in Triton's interpreter under a meter."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from mtmc.evaluate.counting.meter import EndlessError, Meter, SeenError
from mtmc.evaluate.counting.tally import Tally

_SIZES = 24


class UncountableError(RuntimeError):
    """What a candidate does cannot be counted, and that is the candidate's own doing. Not an `MtmcError`."""


class Program:
    """One launch whose programs can be run one by one. shares: see `Counters`. turn: see `sample.turn`."""

    def __init__(
        self,
        parts: Any,
        meter: Meter,
        jitted: Any,
        bound: dict[str, Any],
        constexprs: set[str],
        size: Sequence[int],
    ) -> None:
        self._parts, self._meter = parts, meter
        self._bound, self._constexprs = bound, constexprs
        self.size, self.name = tuple(size), jitted.__name__
        self._function = jitted.rewrite()
        self.shares: Mapping[int, int] = {}
        self.common: Collection[tuple[int, int]] = ()
        self.turn: range | None = None

    def sizes(self) -> list[int]:
        """Numbers of tiles that its arguments may stand for: integers, and sizes divided by integers, rounded up."""
        plain = [getattr(value, "value", value) for value in self._bound.values()]
        blocks = [value for value in plain if isinstance(value, int) and not isinstance(value, bool) and value > 1]
        shapes = [int(n) for value in plain for n in getattr(value, "shape", ()) if isinstance(n, int)]
        tiles = {-(-size // block) for size in {*blocks, *shapes} for block in blocks if block <= 1024}
        return sorted(n for n in {*blocks, *tiles} if 1 < n < math.prod(self.size))[:_SIZES]

    def run(self, index: int, limit: float, wanted: set[int] | None = None) -> Tally:
        """Run program `index` of the launch order (x fastest, as a GPU starts them).

        limit: most work, in interpreter microseconds. wanted: storages; stop when all of them have been read from.
        Raises: UncountableError beyond the limit.
        """
        import numpy as np

        nx, ny, _ = self.size
        self._parts.interpreter_builder.set_grid_dim(*self.size)
        self._parts.interpreter_builder.set_grid_idx(index % nx, index // nx % ny, index // (nx * ny))
        # Fresh handles each time: a kernel may change them in place (x += 1).
        convert = self._parts._implicit_cvt
        values = {n: v if n in self._constexprs else convert(v) for n, v in self._bound.items()}
        tally, counters = self._meter.start(limit, wanted), self._meter.counters
        counters.place, counters.shares, counters.common = (index, math.prod(self.size)), self.shares, self.common
        try:
            with np.errstate(all="ignore"):
                self._function(**values)
        except SeenError:
            pass
        except EndlessError:
            raise UncountableError(
                f"program {index} of kernel {self.name} runs too long to be counted; split its loop over more programs, "
                "or use larger blocks"
            ) from None
        return tally
