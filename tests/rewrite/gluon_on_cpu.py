"""Gluon's words on a CPU, as far as a printed attention needs them: what Triton's interpreter is for Triton.

Groups of warps are threads, barriers count arrivals and bytes as Hopper's do, and a product of the tensor cores reads its
operands when it is waited for, a store its tile: one that is overwritten too early, or a barrier that nobody arrives at, is
an error here, too. So is an operand that is not there when a product is started: the product is NaN.
Layouts and registers are nothing here; what they do only a compiler and a GPU can say.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

STUCK_S = 300.0
"""After which a wait counts as one for ever."""
LOAD_S = 0.0
"""What a load takes, and a fifth of what every second one takes."""
_IMPORT = re.compile(r"^(?:from triton\.experimental\b.*|import triton\.language as tl)$", re.MULTILINE)
_HERE = threading.local()


class Tile(torch.Tensor):
    """A tensor, whose type has a layout."""

    type = SimpleNamespace(layout=None)  # type: ignore[assignment]

    def split(self) -> tuple[Any, Any]:  # type: ignore[override]
        """The two halves of a last dimension of two."""
        assert self.shape[-1] == 2
        return self[..., 0], self[..., 1]


def tile(data: Any, dtype: torch.dtype | None = None) -> Any:
    return torch.as_tensor(data, dtype=dtype).as_subclass(Tile)


class Memory:
    """A tensor in shared memory."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.shape, self.dtype = data, list(data.shape), data.dtype

    def index(self, at: Any) -> Memory:
        return Memory(self.data[int(at)])

    def reshape(self, shape: Sequence[int]) -> Memory:
        return Memory(self.data.view(*shape))

    def permute(self, order: Sequence[int]) -> Memory:
        return Memory(self.data.permute(*order))

    def slice(self, first: int, count: int, axis: int) -> Memory:
        assert first + count <= self.shape[axis]
        return Memory(self.data.narrow(axis, first, count))

    def store(self, value: torch.Tensor) -> None:
        assert value.dtype == self.dtype and list(value.shape) == self.shape
        self.data.copy_(value)


class Barrier:
    """One mbarrier."""

    def __init__(self) -> None:
        self.count = self.missing = self.bytes = self.phase = 0
        self.changed = threading.Condition()

    def arrive(self, arrivals: int, more: int) -> None:
        """Arrivals, and bytes that are expected (or, below 0, have come)."""
        with self.changed:
            self.missing -= arrivals
            self.bytes += more
            assert self.missing >= 0, "more arrive than the barrier counts"
            if not self.missing and not self.bytes:
                self.phase, self.missing = self.phase + 1, self.count
                self.changed.notify_all()

    def wait(self, parity: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.phase & 1 != parity, STUCK_S), "waits for ever"


class Barriers:
    """Several."""

    def __init__(self, count: int) -> None:
        self.all = [Barrier() for _ in range(count)]

    def index(self, at: Any) -> Barrier:
        return self.all[int(at)]


class Pointer:
    """An address of elements."""

    def __init__(self, data: torch.Tensor, offset: Any = 0) -> None:
        self.data, self.offset = data, offset

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.data, self.offset + offset)


class Descriptor:
    """A tensor and the size of a tile of it."""

    def __init__(self, base: torch.Tensor, shape: list[int], strides: list[int], block: list[int], layout: Any) -> None:
        assert list(base.shape) == shape and list(base.stride()) == strides and len(block) == len(shape)
        assert base.data_ptr() % 16 == 0 and strides[-1] == 1
        assert not any(step * base.element_size() % 16 for step in strides[:-1])
        self.base, self.block, self.layout, self.dtype = base, block, layout, base.dtype

    def pair(self, tile: torch.Tensor, at: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """The parts of a tensor and of a tile that lie over one another."""
        assert list(tile.shape) == self.block
        begins = [int(each) for each in at]
        ends = [min(begin + n, size) for begin, n, size in zip(begins, self.block, self.base.shape, strict=True)]
        there = tuple(slice(begin, max(begin, end)) for begin, end in zip(begins, ends, strict=True))
        here = tuple(slice(0, max(0, end - begin)) for begin, end in zip(begins, ends, strict=True))
        return self.base[there], tile[here]


class Begun:
    """A product that is on its way."""

    def __init__(self, a: Any, b: Memory, total: Any, use_acc: bool) -> None:
        self.a, self.b, self.total, self.use_acc = a, b, total, use_acc
        self.value: Any = None
        self.early = any(isinstance(each, Memory) and bool(each.data.isnan().any()) for each in (a, b))

    def end(self) -> None:
        left = self.a.data if isinstance(self.a, Memory) else self.a
        made = left.float() @ self.b.data.float()
        if self.early:
            made.fill_(float("nan"))
        total = self.total.value if isinstance(self.total, Begun) else self.total
        self.value = tile(made + total if self.use_acc else made)


def _mma(a: Any, b: Memory, total: Any, *, use_acc: bool = True, is_async: bool = False) -> Begun:
    assert is_async
    begun = Begun(a, b, total, use_acc)
    _HERE.begun.append(begun)
    return begun


def _mma_wait(left: int, deps: tuple[Begun, ...]) -> Any:
    while len(_HERE.begun) > left:
        _HERE.begun.pop(0).end()
    (begun,) = deps
    if begun.value is None:
        assert left, "a product that is not waited for"
        return begun  # only a further product may take it
    return begun.value


def _load_tile(tiles: Descriptor, at: Sequence[Any], barrier: Barrier, memory: Memory) -> None:
    memory.data.fill_(float("nan"))

    def arrive() -> None:
        memory.data.zero_()
        there, here = tiles.pair(memory.data, at)
        here.copy_(there)
        with suppress(AssertionError):  # the barrier stays as it is, and somebody waits for ever
            barrier.arrive(0, -memory.data.numel() * memory.data.element_size())

    if LOAD_S:
        _HERE.loads = getattr(_HERE, "loads", 0) + 1
        threading.Timer(LOAD_S * (1 if _HERE.loads % 2 else 5), arrive).start()
    else:
        arrive()


def _store_tile(tiles: Descriptor, at: Sequence[Any], memory: Memory) -> None:
    """Memory is read when the store is waited for: what is written there before is what is stored."""
    _HERE.stores.append((tiles, at, memory))


def _store_wait(left: int) -> None:
    while len(_HERE.stores) > left:
        tiles, at, memory = _HERE.stores.pop(0)
        there, here = tiles.pair(memory.data, at)
        there.copy_(here)


class _BarrierLayout:
    pass


def _allocate(dtype: torch.dtype, shape: Sequence[int], layout: Any) -> Any:
    if isinstance(layout, _BarrierLayout):
        return Barriers(shape[0]) if len(shape) > 1 else Barrier()
    return Memory(torch.full(tuple(shape), float("nan"), dtype=dtype))


def _init(barrier: Barrier, count: int) -> None:
    barrier.count = barrier.missing = count


Part = tuple[Callable[..., None], tuple[Any, ...]]
"""A function that a group of warps runs, and its arguments."""


def _specialize(parts: Sequence[Part], warps: list[int], registers: list[int]) -> None:
    assert len(parts) == len(warps) + 1 == len(registers) + 1
    failures: list[BaseException] = []

    def run(function: Callable[..., None], given: tuple[Any, ...]) -> None:
        _HERE.begun, _HERE.stores = [], []
        try:
            function(*given)
            assert not _HERE.begun, "products that nobody waits for"
            assert not _HERE.stores, "results that nobody waits for"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _load(pointer: Pointer, mask: Any = None, other: Any = 0) -> Any:
    offset = torch.as_tensor(pointer.offset)
    flat = pointer.data.as_strided((pointer.data.untyped_storage().nbytes() // pointer.data.element_size(),), (1,), 0)
    offset = offset + pointer.data.storage_offset()
    if mask is None:
        return tile(flat[offset])
    offset, mask = torch.broadcast_tensors(offset, mask)
    return tile(torch.where(mask, flat[torch.where(mask, offset, 0)], torch.tensor(other, dtype=flat.dtype)))


class Kernel:
    """A function that is called by others, or launched over a grid."""

    program: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*given: Any, **options: Any) -> None:
            names = inspect.signature(self.function).parameters
            arguments = [Pointer(each) if isinstance(each, torch.Tensor) else each for each in given]
            constants = {name: value for name, value in options.items() if name in names}
            Kernel.grid = tuple(int(size) for size in grid)
            for program in product(*map(range, Kernel.grid)):
                Kernel.program = program
                self.function(*arguments, **constants)

        return launch


def _any(*given: Any, **options: Any) -> None:
    """A layout."""


gl = SimpleNamespace(
    **{name: getattr(torch, name) for name in "float16 bfloat16 float32 float64 int32 int64 exp2 exp abs sin cos".split()},  # noqa: SIM905
    constexpr=None, SliceLayout=_any, DotOperandLayout=_any, NVMMADistributedLayout=_any,
    NVMMASharedLayout=SimpleNamespace(get_default_for=_any), static_range=range,
    program_id=lambda axis: tile(Kernel.program[axis]), num_programs=lambda axis: tile(Kernel.grid[axis]),
    cdiv=lambda a, b: (a + b - 1) // b, warp_specialize=_specialize, allocate_shared_memory=_allocate, load=_load,
    minimum=lambda a, b: torch.minimum(tile(a), tile(b)), maximum=lambda a, b: torch.maximum(tile(a), tile(b)),
    sqrt=lambda x: torch.sqrt(tile(x, torch.float32)), expand_dims=lambda x, axis: x.unsqueeze(axis),
    arange=lambda first, last, layout: tile(torch.arange(first, last)),
    convert_layout=lambda x, layout, assert_trivial=False: x,
    full=lambda shape, value, dtype, layout: tile(torch.full(shape, value, dtype=dtype)),
    zeros=lambda shape, dtype, layout: tile(torch.zeros(shape, dtype=dtype)),
    max=lambda x, axis: x.amax(axis), sum=lambda x, axis: x.sum(axis), cast=lambda x, dtype: tile(x).to(dtype),
    fma=lambda a, b, c: (a.double() * b + c).to(torch.float32),  # rounded once, as good as
    where=lambda mask, a, b: torch.where(mask, tile(a, torch.float32), tile(b, torch.float32)),
)  # fmt: skip
hopper = SimpleNamespace(
    mbarrier=SimpleNamespace(
        MBarrierLayout=_BarrierLayout, init=_init,
        wait=lambda barrier, parity, pred=True: barrier.wait(int(parity)) if pred else None,
        arrive=lambda barrier, count, pred=True: barrier.arrive(count, 0) if pred else None,
        expect=lambda barrier, size: barrier.arrive(1, int(size)),
    ),
    tma=SimpleNamespace(async_load=_load_tile, async_store=_store_tile, store_wait=_store_wait),
    fence_async_shared=_any, warpgroup_mma=_mma, warpgroup_mma_wait=_mma_wait,
)  # fmt: skip


def module_on_cpu(source: str) -> ModuleType:
    """The module of a printed file, with Gluon's words as they are here."""
    module = ModuleType("gluon_on_cpu_version")
    vars(module).update(gluon=SimpleNamespace(jit=Kernel), gl=gl, hopper=hopper, TileDescriptor=Descriptor)
    exec(compile(_IMPORT.sub("", source), "<version>", "exec"), vars(module))
    return module
