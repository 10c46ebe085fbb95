"""The meter: stands in for the operations of Triton's interpreter and counts them, memory, products and all else."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mtmc.evaluate.counting.counters import Counters
from mtmc.evaluate.counting.interpreter_parts import first_along_axis, kept_by, one
from mtmc.evaluate.counting.slots import ACCESS_SLOTS, FLOP_SLOTS, slots_of
from mtmc.evaluate.counting.storages import Storages, count_sectors
from mtmc.evaluate.counting.stores import Stores, own_stores
from mtmc.evaluate.counting.tally import Tally
from mtmc.evaluate.interpreter.frames import kernel_frame

if TYPE_CHECKING:
    from mtmc.evaluate.counting.contents import Contents

_CALL_WORK, _ELEMENT_WORK = 25.0, 0.004  # microseconds of interpreter time a builder call, and an element of it, cost


class SeenError(BaseException):
    """Ends a probed program from inside a builder call. Not an Exception: the interpreter wraps those."""


class EndlessError(BaseException):
    """Ends a program that goes beyond its limit of work. Not an Exception either."""


class Meter:
    """Stands in for the interpreter builder's operations and counts them into `tally`.

    wanted: while probing, the storages whose first load ends the program.
    contents: what loads give, while a program computes; None where they give ones and nothing is computed.
    stores: what a program that computes has stored. left: that of the last one. counters: those that programs wait at.
    """

    def __init__(self, parts: Any, storages: Storages, touch_memory: bool) -> None:
        self.parts, self.storages, self.touch_memory = parts, storages, touch_memory
        self.tally = Tally()
        self.wanted: set[int] | None = None
        self.contents: Contents | None = None
        self.stores = self.left = Stores()
        self.counters = Counters(storages)
        self.limit = math.inf
        self.maps: dict[tuple[int, bool, int], Any] = {}  # exact counting: which elements were touched
        self._sites: set[tuple[int, int]] = set()
        self._suspended = 0

    @property
    def computes(self) -> bool:
        """Whether operations give what a GPU's would, and not only what has their shape."""
        return self.touch_memory or self.contents is not None

    def start(self, limit: float, wanted: set[int] | None = None) -> Tally:
        """Begin a program (or grid)."""
        self.tally, self.limit, self.wanted = Tally(), limit, set(wanted) if wanted is not None else None
        self._sites.clear()
        self.counters.start()
        return self.tally

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Shadow the builder's methods, and the reductions that the interpreter runs element by element."""
        builder = self.parts.interpreter_builder
        shadows = self._shadows(builder)
        before = {name: vars(builder)[name] for name in shadows if name in vars(builder)}
        reductions = [(self.parts.ReduceOps, "generic_reduce"), (self.parts.ScanOps, "generic_scan")]
        applies = [(self.parts.ReduceOps, "apply_impl"), (self.parts.ScanOps, "apply_impl")]
        kept = [(owner, name, vars(owner)[name]) for owner, name in [*applies, *reductions]]
        vars(builder).update(shadows)
        for owner, name in applies:
            setattr(owner, name, self._reduction(vars(owner)[name]))
        if not self.touch_memory:
            first = first_along_axis(self.parts)
            reduce, scan = self.parts.ReduceOps.generic_reduce, self.parts.ScanOps.generic_scan
            self.parts.ReduceOps.generic_reduce = lambda ops, values: (reduce if self.computes else first)(ops, values)
            self.parts.ScanOps.generic_scan = lambda ops, values: scan(ops, values) if self.computes else list(values)
        try:
            yield
        finally:
            for name in shadows:
                del vars(builder)[name]
            vars(builder).update(before)
            for owner, name, original in kept:
                setattr(owner, name, original)

    @contextlib.contextmanager
    def aside(self, contents: Contents) -> Iterator[None]:
        """While open, a program computes that another one waits for, or none. `left` is the inner one's afterwards."""
        builder = self.parts.interpreter_builder
        before = self.tally, self.limit, self.wanted, self.contents, self._sites, self._suspended, self.stores
        place, counters = (getattr(builder, "grid_dim", None), getattr(builder, "grid_idx", None)), self.counters
        self.contents, self.counters = contents, Counters(self.storages)
        contents.begin()
        self._sites, self._suspended, self.stores = set(), 0, Stores()
        try:
            yield
        finally:
            self.left = self.stores
            self.tally, self.limit, self.wanted, self.contents, self._sites, self._suspended, self.stores = before
            builder.grid_dim, builder.grid_idx = place
            self.counters = counters

    def _shadows(self, builder: Any) -> dict[str, Callable[..., Any]]:
        """What takes the place of each of the builder's methods."""
        special = {
            "create_masked_load": self._load,
            "create_masked_store": self._store,
            "create_atomic_rmw": self._atomic_rmw,
            "create_atomic_cas": self._atomic_cas,
            "create_atomic_poll": self._atomic_poll,
            "create_dot": self._dot,
            "create_dot_scaled": self._dot_scaled,
            "create_erf": self._unary,
            "create_extern_elementwise": self._extern,
            "create_print": None,
            "create_assert": None,
            "create_assume": None,
        }
        names = [name for name in dir(builder) if name.startswith("create_") and callable(getattr(builder, name))]
        shadows: dict[str, Callable[..., Any]] = {}
        for name in names:
            original = getattr(builder, name)
            if name in special:
                shadows[name] = self._bound(special[name], original)
            elif name not in ("create_load", "create_store", "create_barrier"):
                shadows[name] = self._counted(name.removeprefix("create_"), original)
        return shadows

    def _bound(self, method: Callable[..., Any] | None, original: Callable[..., Any]) -> Callable[..., Any]:
        if method is None:
            return original if self.touch_memory else lambda *args, **kwargs: None
        return lambda *args, **kwargs: method(original, *args, **kwargs)

    def _counted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        flops, slots = name in FLOP_SLOTS, slots_of(name)

        def operation(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if name in ("fp_trunc", "fp_to_fp"):
                self.tally.roundings.add(args[1].scalar.name)
            data = getattr(result, "data", None)
            size = data.size if data is not None and hasattr(data, "size") else 1
            self._spend(size, slots, flops)
            return result

        return operation

    def _spend(self, size: int, slots: float, flops: bool) -> None:
        if self._suspended:
            return
        tally = self.tally
        tally.alu += slots * size
        tally.flops += size if flops else 0
        tally.work += _CALL_WORK + _ELEMENT_WORK * size
        if tally.work > self.limit:
            raise EndlessError

    # Memory. `mask`: see `kept_by`, or None.

    def _access(self, pointers: Any, mask: Any, writes: bool, once: bool = True) -> None:
        addresses = pointers.data
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        self._spend(addresses.size, ACCESS_SLOTS, flops=False)
        if mask is not None:
            kept = kept_by(mask, addresses.shape)
            addresses = addresses if kept.all() else addresses[kept]
        if addresses.size == 0:
            return
        low, high = int(addresses.min()), int(addresses.max())
        number = self.storages.find(low)
        moved = addresses.size * size
        use, tally = self.tally.uses[number], self.tally
        block = (writes, low, high, addresses.size)
        new = 0 if block in use.blocks else moved - (0 if writes else size * use.again(addresses, low, high, size))
        use.blocks.add(block)
        use.span = (min(use.span[0], low), max(use.span[1], high))
        sectors = count_sectors(addresses, low, high) if once else addresses.size
        if writes:
            use.written, use.unique_written = use.written + moved, use.unique_written + new
            use.begin = min(use.begin, low)
            tally.sectors_written += sectors
        else:
            use.read, use.unique_read = use.read + moved, use.unique_read + new
            tally.sectors_read += sectors
            use.first = low if use.first is None else use.first
        if self.touch_memory and number is not None:
            self._mark(number, writes, addresses, size)
        if not writes and self.wanted is not None and number in self.wanted:
            self.wanted.discard(number)
            if not self.wanted:
                raise SeenError

    def _mark(self, number: int, writes: bool, addresses: Any, size: int) -> None:
        import numpy as np

        key = (number, writes, size)
        if key not in self.maps:
            self.maps[key] = np.zeros(self.storages.sizes[number], dtype=bool)
        offsets = self.storages.offset(number, addresses.astype(np.int64))
        self.maps[key][offsets[offsets < self.storages.sizes[number]]] = True  # beyond it is another one's memory

    def _load(self, original: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **more: Any) -> Any:
        frame = kernel_frame()
        site = (id(frame.f_code), frame.f_lasti)
        # Loads wait together until a result is needed by all threads (a barrier) or the loop comes round again.
        if not self._sites or site in self._sites:
            self.tally.rounds += 1
            self._sites.clear()
        self._sites.add(site)
        self._access(pointers, mask, writes=False)
        if self.touch_memory:
            return original(pointers, mask, other, *rest, **more)
        return self._without_memory(pointers, mask, other)

    def _without_memory(self, pointers: Any, mask: Any, other: Any) -> Any:
        """What a load returns without memory: what is known to be there, or ones, harmless as divisors, indices and loop
        bounds; else `other`."""
        import numpy as np

        dtype = pointers.get_element_ty()
        kind = self.parts._get_np_dtype(dtype)
        array = None if self.contents is None else self._known(self.contents, pointers.data, mask, np.dtype(kind))
        if array is None and self.contents is not None:
            array = self.contents.guessed(pointers.data.shape, np.dtype(kind))
        if array is None:
            array = np.full(pointers.data.shape, one(dtype), dtype=kind)
        if other is not None and mask is not None:
            kept = kept_by(mask, array.shape)
            array = np.where(kept, array, np.asarray(other.data, dtype=array.dtype))
        return self.parts.TensorHandle(array, dtype)

    def _known(self, contents: Contents, addresses: Any, mask: Any, kind: Any) -> Any:
        """What lies at addresses; where the mask has none, anything. None where it is not known."""
        import numpy as np

        if mask is not None:
            kept = kept_by(mask, addresses.shape)
            if not kept.any():
                return np.zeros(addresses.shape, kind)
            addresses = addresses if kept.all() else np.where(kept, addresses, addresses[kept].min())
        array = own_stores(self.stores.written, addresses, kind, contents.read)
        return None if array is None else array.view(kind)

    def _store(self, original: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        self._sites.clear()
        self._access(pointers, mask, writes=True)
        if self.contents is not None:
            self.stores.write(pointers.data, value, mask)
            self.contents.changed()
        return original(pointers, value, mask, *rest, **more) if self.touch_memory else None

    def _atomic_rmw(self, original: Any, op: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        self._count_atomic(pointers, mask)
        if self.touch_memory:
            return original(op, pointers, value, mask, *rest)
        data = value.data * 0
        if self.contents is not None:
            self.stores.add(str(getattr(op, "name", op)), pointers.data, value.data, mask)
        if pointers.data.size == 1 and data.dtype.kind in "iu":
            size = pointers.get_element_ty().primitive_bitwidth // 8
            address, step = int(pointers.data.flat[0]), int(value.data.flat[0])
            if step and self.contents is not None:
                self.contents.changed()
            data = data + self.counters.ticket(address, size, step, self.contents)
        elif data.dtype.kind == "f" and self.contents is not None:  # what others have added until then
            self.contents.unknown = True
            guessed = self.contents.guessed(data.shape, data.dtype)
            data = data if guessed is None else guessed
        return self.parts.TensorHandle(data.astype(value.data.dtype), value.dtype.scalar)

    def _atomic_cas(self, original: Any, pointers: Any, expected: Any, value: Any, *rest: Any) -> Any:
        self._count_atomic(pointers, None)
        if self.contents is not None:
            known = self.counters.unlike(pointers.data, expected.data, self.contents)
            if known is not None:
                return self.parts.TensorHandle(known, expected.dtype.scalar)
            self.contents.changed()
        return original(pointers, expected, value, *rest) if self.touch_memory else expected  # the exchange succeeds

    def _atomic_poll(self, original: Any, pointers: Any, *rest: Any) -> Any:
        import numpy as np
        import triton.language as tl

        if self.touch_memory:
            return original(pointers, *rest)
        self._access(pointers, None, writes=False)
        return self.parts.TensorHandle(np.ones(pointers.data.shape, dtype=bool), tl.int1)

    def _count_atomic(self, pointers: Any, mask: Any) -> None:
        self._sites.clear()
        self._access(pointers, mask, writes=False, once=False)
        self._access(pointers, mask, writes=True, once=False)
        if pointers.data.size:
            self.tally.uses[self.storages.find(int(pointers.data.min()))].atomic = True
        kept = pointers.data.size if mask is None else int((pointers.data.size // mask.data.size) * mask.data.sum())
        self.tally.atomics += kept

    # Arithmetic.

    def _dot(self, original: Any, a: Any, b: Any, acc: Any, precision: Any = None, *rest: Any, **more: Any) -> Any:
        label = str(getattr(precision, "name", precision)).lower()
        self._count_dot(a.dtype.scalar.name, label, a.data.shape, b.data.shape)
        return original(a, b, acc, precision, *rest, **more) if self.computes else acc

    def _dot_scaled(self, original: Any, a: Any, a_scale: Any, a_format: Any, b: Any, *rest: Any, **more: Any) -> Any:
        acc = rest[-1] if rest else more["acc_handle"]
        packed = 2 if a.dtype.scalar.name in ("int8", "uint8") and a.data.shape[-1] != b.data.shape[-2] else 1
        shape = (*a.data.shape[:-1], a.data.shape[-1] * packed)
        self._count_dot("fp8", "ieee", shape, (*acc.data.shape[:-2], shape[-1], acc.data.shape[-1]))
        if self.computes:
            return original(a, a_scale, a_format, b, *rest, **more)
        return acc

    def _count_dot(self, dtype: str, precision: str, a_shape: Sequence[int], b_shape: Sequence[int]) -> None:
        self._sites.clear()
        batch = math.prod(a_shape[:-2])
        m, k, n = a_shape[-2], a_shape[-1], b_shape[-1]
        self.tally.dots[dtype, precision if dtype == "fp32" else "ieee", m, n, k] += batch
        self.tally.dot_flops += 2 * batch * m * n * k
        self.tally.flops += 2 * batch * m * n * k
        self._spend(batch * (m * k + k * n), 0.0, flops=False)

    def _unary(self, original: Any, argument: Any) -> Any:
        self._spend(argument.data.size, FLOP_SLOTS["erf"], flops=True)
        return original(argument) if self.computes else argument

    def _extern(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = args[3] if len(args) > 3 else kwargs["argList"]
        result_type = (args[4] if len(args) > 4 else kwargs["retType"]).scalar
        self._spend(arguments[0].data.size, FLOP_SLOTS["extern_elementwise"], flops=True)
        if self.computes:
            return original(*args, **kwargs)
        data = arguments[0].data
        return self.parts.TensorHandle(data.astype(self.parts._get_np_dtype(result_type)), result_type)

    def _reduction(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def apply_impl(ops: Any, values: Any) -> Any:
            self._sites.clear()
            for value in values if isinstance(values, tuple | list) else (values,):
                self._spend(value.handle.data.size, 1.0, flops=True)
            self._suspended += 1  # what it combines is counted above
            try:
                return original(ops, values)
            finally:
                self._suspended -= 1

        return apply_impl
