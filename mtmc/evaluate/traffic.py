"""What a forward moves and computes at its full shapes, measured without a GPU and without its data.

The forward runs on fake tensors (shapes, no memory). Torch ops are counted from their own tensors. A Triton launch is
counted by running a few of its program instances in Triton's interpreter with every access to memory replaced: loads
return ones, stores are dropped, and the addresses and masks that the kernel really computed are counted and scaled to
the whole grid. Nothing here knows who wrote a kernel or what it is meant to do.

Must run in a process where kernels are interpreted (TRITON_INTERPRET=1 before they are decorated). With real tensors
and `exact=True` every program runs with its data, at small shapes: what the sampling is tested against.

The budget of a launch is counted in interpreter operations, not in seconds, so the records of a forward are the same
on every machine.

Records, in launch order, plain JSON. Bytes and operations are totals over the grid:

    a torch op:      {"op", "bytes_read", "bytes_written", "strided_read", "flops", "dot_flops", "dtype", "elements",
                      "kernels", "dims", "reads", "writes"}
    a Triton launch: {"kernel", "grid", "programs", "bytes_read", "bytes_written", "unique_read", "unique_written",
                      "sector_read", "sector_written", "hot_read", "program_read", "window_read", "flops", "dot_flops",
                      "dots", "dot_precision", "dot_dtype", "dot_shape", "alu_ops", "rounds", "atomics", "constexprs",
                      "num_warps", "num_stages", "sampled", "reads", "writes"}

    strided_read: bytes of inputs whose rows run across the output's, so that a warp reads scattered sectors.
    dims: [batch, M, N, K] of a matrix product, [groups, M, N, K, taps] of a convolution as one, [rows, length, stride]
        of a softmax, else [].
    unique_*: bytes counted once however often they are requested (compulsory traffic).
    sector_*: requested bytes in whole 32-byte sectors, one per load or store of a block: what L2 has to deliver.
    hot_read: requested bytes of storages so small that they stay in an SM's own cache (biases, scales).
    program_read: unique bytes that one program reads. window_read: {n: unique bytes that n neighbours read together}.
    dots: tensor products one program executes; dot_shape: [M, N, K] of the one with most work.
    alu_ops: issue slots outside the tensor cores, elements x the weights of `_SLOTS`.
    rounds: batches of loads that one program waits for one after another.
    reads, writes: [[storage, unique bytes]], a storage having the same number in all records of a forward.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mtmc.errors import EvaluatorError

Record = dict[str, Any]

SECTOR = 32  # bytes of the unit in which L2 serves requests
_FAKE_BASE = 1 << 40  # first pretended address; storages follow each other with a gap between them
_GAP = 1 << 24
_HOT = 64 << 10  # bytes of one storage that stay in the first cache of every GPU of the table
_CACHED = 4 << 20  # bytes of one storage that stay in the last cache of every GPU of the table


@dataclass(frozen=True)
class Limits:
    """How much of a launch is run. Work is in interpreter microseconds by a fixed price list, not by the clock.

    programs: most program instances run whole. work: stop taking further samples beyond it. program_work: the most for
    one program. probes: most programs started only to see which data neighbours share.
    """

    programs: int = 12
    work: float = 0.5e6
    program_work: float = 15e6
    probes: int = 192


class UncountableError(RuntimeError):
    """What a candidate does cannot be counted, and that is the candidate's own doing. Not an `MtmcError`."""


@contextlib.contextmanager
def fake_tensors() -> Iterator[Any]:
    """Make every tensor created inside fake: full shapes, no memory. Build the model and its inputs in here."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        yield mode


def count_traffic(
    forward: Callable[..., Any], inputs: Sequence[Any], limits: Limits | None = None, exact: bool = False
) -> list[Record]:
    """Count one call `forward(*inputs)`; the records' fields are in this module's text.

    With fake tensors, call it inside the `fake_tensors()` that made them. exact: run all programs on real tensors.
    Raises: EvaluatorError where Triton's interpreter lacks what is needed or a kernel is not interpreted;
    UncountableError where the forward reads a value that a fake tensor does not have, or one program runs beyond
    `Limits.program_work`; whatever the forward itself raises.
    """
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    parts = _interpreter()
    storages = _Storages(fake=not exact)
    log: list[Record] = []
    paused: list[bool] = []  # not empty while what torch runs is part of something already counted
    launches = _Launches(parts, storages, log, limits or Limits(), exact, paused)
    ops = _torch_modes(storages, log, paused)
    try:
        with torch.no_grad(), launches.intercept(), ops[0], ops[1]:
            forward(*inputs)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise UncountableError(
            f"the forward reads a tensor's values on the host ({error}), which has none when only shapes are run; "
            "compute it on the device, or pass it as an argument"
        ) from error
    return log


# --- storages --------------------------------------------------------------------------------------------------------


class _Storages:
    """Numbers and address ranges of the storages seen, in order. Holds them, so that no address comes twice."""

    def __init__(self, fake: bool) -> None:
        self.fake = fake
        self.sizes: list[int] = []
        self._bases: list[int] = []
        self._held: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._next = _FAKE_BASE

    def number(self, tensor: Any) -> int:
        """Number of a tensor's storage."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._numbers:
            self._numbers[key] = len(self.sizes)
            self.sizes.append(int(storage.nbytes()))
            self._held.append(storage)
            self._bases.append(self._next if self.fake else int(storage.data_ptr()))
            self._next += -(-self.sizes[-1] // _GAP) * _GAP + _GAP
        return self._numbers[key]

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

    def offset(self, number: int, addresses: Any) -> Any:
        """Byte offsets of addresses (an array) in a storage."""
        return addresses - self._bases[number]


# --- torch ops -------------------------------------------------------------------------------------------------------

_ONE_KERNEL = {"rms_norm": "aten._fused_rms_norm", "scaled_dot_product_attention": "aten.scaled_dot_product_attention"}
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Functions that are one library call on a GPU where CPU tensors make them many ops."""

# (kernels, further reads of the input, further writes and reads of an intermediate of its size), from ATen's sources:
# cuda/group_norm_kernel.cu (moments, parameters, apply), ReduceOps.cpp logsumexp_out_impl (amax, sub, exp_, sum, log_,
# add_), masked_fill (clone, then fill in place), loss functions whose elementwise part and reduction are two kernels.
_PASSES: dict[str, tuple[int, int, int]] = {
    "aten.native_group_norm": (3, 1, 0),
    "aten.logsumexp": (7, 1, 2),
    "aten.masked_fill": (2, 0, 1),
    "aten.mse_loss": (2, 0, 1),
    "aten.smooth_l1_loss": (2, 0, 1),
    "aten.huber_loss": (2, 0, 1),
    "aten.native_batch_norm": (1, 0, 0),
    "aten.topk": (3, 2, 0),
    "aten.sort": (4, 3, 2),
}
_LOOKUPS = ("embedding", "gather", "index_select", "index", "take", "nll_loss_forward", "nll_loss2d_forward")
_WRITE_ONLY = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_")


def _torch_modes(storages: _Storages, log: list[Record], paused: list[bool]) -> tuple[Any, Any]:
    """The two modes of a counted forward: one sees the ops, the other the calls and addresses asked for."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if not paused and func.namespace != "prim":
                record = _op_record(func, args, kwargs or {}, result, storages)
                if record is not None:
                    log.append(record)
            return result

    class Calls(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if storages.fake and func is torch.Tensor.data_ptr:
                return storages.address(args[0])
            name = getattr(func, "__name__", "")
            if paused or name not in (*_ONE_KERNEL, *_RECURRENT):
                return func(*args, **(kwargs or {}))
            paused.append(True)
            try:
                result = func(*args, **(kwargs or {}))
            finally:
                paused.pop()
            log.append(_call_record(name, args, kwargs or {}, result, storages))
            return result

    return Ops(), Calls()


def _op_record(func: Any, args: Any, kwargs: Any, result: Any, storages: _Storages) -> Record | None:
    """Record of one dispatched op, or None where a GPU would run nothing."""
    inputs, outputs = _tensors((args, kwargs)), _tensors(result)
    schema = func._schema
    written = _mutated(schema, args, kwargs)
    owned = {storages.number(t) for t in inputs}
    fresh = [t for t in outputs if storages.number(t) not in owned]
    name = str(func._schema.name).replace("::", ".")
    base = name.rpartition(".")[2]
    if not written and (not fresh or base.startswith(("empty", "new_empty"))):
        return None
    if base.rstrip("_") in ("resize", "set") or base in ("_local_scalar_dense", "lift_fresh"):
        return None
    write_only = {id(t) for t in written} if base in _WRITE_ONLY or schema.overload_name.endswith("out") else set()
    record = _record(name, [t for t in inputs if id(t) not in write_only], [*written, *fresh], storages)
    record["dot_flops"] = _dot_flops(func, args, kwargs, result)
    record["flops"] = record["dot_flops"] or record["elements"]
    record["dims"] = _dims(base, args, record["dot_flops"])
    if not record["dot_flops"]:
        record["strided_read"] = _strided_bytes(inputs, [*written, *fresh])
    kernels, reads, passes = _PASSES.get(name, (1, 0, 0))
    if base == "native_batch_norm" and args[5]:  # training: the statistics are a pass of their own
        kernels, reads = 2, 1
    if base in _LOOKUPS:
        _count_lookup(record, inputs, fresh, storages)
    largest = max((_bytes(t) for t in inputs), default=0)
    record["kernels"] = kernels
    record["bytes_read"] += (reads + passes) * largest
    record["bytes_written"] += passes * largest
    return record


def _count_lookup(record: Record, inputs: Sequence[Any], outputs: Sequence[Any], storages: _Storages) -> None:
    """Of the table that an op looks up, only what is asked for is read: as much as comes out, in whole sectors."""
    table = max(inputs, key=_bytes)
    asked = max(sum(map(_bytes, outputs)), SECTOR * max((int(t.numel()) for t in inputs if t is not table), default=1))
    spared = max(0, _bytes(table) - asked)
    record["bytes_read"] -= spared
    record["elements"] = max(int(t.numel()) for t in [*outputs, *(t for t in inputs if t is not table)])
    number = storages.number(table)
    record["reads"] = [[n, size - spared if n == number else size] for n, size in record["reads"]]


def _call_record(name: str, args: Any, kwargs: Any, result: Any, storages: _Storages) -> Record:
    """Record of a call that is one library routine on a GPU."""
    inputs, outputs = _tensors((args, kwargs)), _tensors(result)
    record = _record(_ONE_KERNEL.get(name, f"aten.{name}"), inputs, outputs, storages)
    record["flops"] = record["elements"]
    if name == "scaled_dot_product_attention":
        batch, keys = math.prod(args[0].shape[:-2]), args[1].shape[-2]
        length, width = args[0].shape[-2:]
        causal = kwargs.get("is_causal", len(args) > 5 and args[5])
        flops = 2 * batch * length * keys * (width + args[2].shape[-1]) // (2 if causal else 1)
        record.update(flops=flops, dot_flops=flops, dims=[batch, length, keys, width])
    elif name in _RECURRENT:
        weights = [t for t in inputs if t.dim() == 2 and t is not args[0]]
        batch_first = bool(kwargs.get("batch_first", args[-1] if isinstance(args[-1], bool) else False))
        rows = math.prod(args[0].shape[:-1])
        steps = args[0].shape[1 if batch_first and args[0].dim() == 3 else 0]
        flops = 2 * rows * sum(t.numel() for t in weights)
        record.update(flops=flops, dot_flops=flops, kernels=steps * max(1, len(weights) // 2), dims=[steps])
    return record


def _record(name: str, read: Sequence[Any], written: Sequence[Any], storages: _Storages) -> Record:
    read, written = _distinct(read), _distinct(written)
    first = ([t for t in [*written, *read] if t.is_floating_point()] or [*written, *read])[0]
    return {
        "op": name,
        "bytes_read": sum(map(_bytes, read)),
        "bytes_written": sum(map(_bytes, written)),
        "strided_read": 0,
        "flops": 0,
        "dot_flops": 0,
        "dtype": str(first.dtype).removeprefix("torch."),
        "elements": max((int(t.numel()) for t in [*read, *written]), default=0),
        "kernels": 1,
        "dims": [],
        "reads": [[storages.number(t), _bytes(t)] for t in read],
        "writes": [[storages.number(t), _bytes(t)] for t in written],
    }


def _tensors(values: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _distinct(tensors: Sequence[Any]) -> list[Any]:
    seen = {(t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), tuple(t.stride())): t for t in tensors}
    return list(seen.values())


def _bytes(tensor: Any) -> int:
    """Bytes a tensor's elements occupy; an expanded dimension (stride 0) is there once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0 or size == 0]
    return int(math.prod(sizes)) * int(tensor.element_size())


def _mutated(schema: Any, args: Any, kwargs: Any) -> list[Any]:
    values = [(a, args[i] if i < len(args) else kwargs.get(a.name)) for i, a in enumerate(schema.arguments)]
    return _tensors([value for a, value in values if a.alias_info is not None and a.alias_info.is_write])


def _strided_bytes(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Bytes of inputs of an elementwise op (or copy) that do not run along the output's rows."""
    if not outputs or outputs[0].numel() <= 1:
        return 0
    out = outputs[0]
    inner = min((d for d in range(out.dim()) if out.shape[d] > 1), key=lambda d: abs(int(out.stride(d))))
    crossing = 0
    for tensor in _distinct(inputs):
        if tensor.shape == out.shape and int(tensor.stride(inner)) * int(tensor.element_size()) >= SECTOR:
            crossing += _bytes(tensor)
    return crossing


def _dot_flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(func._overloadpacket)
    return int(formula(*args, **kwargs, out_val=result)) if formula is not None else 0


def _dims(base: str, args: Any, dot_flops: int) -> list[int]:
    """What an estimate needs of an op's shape; see this module's text."""
    if base in ("mm", "addmm", "bmm", "baddbmm"):
        left, right = args[-2:] if len(args) < 3 else args[1:3]
        batch = left.shape[0] if left.dim() == 3 else 1
        return [int(batch), int(left.shape[-2]), int(right.shape[-1]), int(left.shape[-1])]
    if base in ("_softmax", "_log_softmax"):
        length = int(args[0].shape[args[1]])
        return [int(args[0].numel()) // max(1, length), length, int(args[0].stride(args[1]))]
    if base in ("convolution", "_convolution"):
        weight, groups = args[1], int(args[8])
        outs, depth = int(weight.shape[0]) // groups, math.prod(int(n) for n in weight.shape[1:])
        if args[6]:  # transposed: the weight is [in, out / groups, ...]
            outs, depth = int(weight.shape[1]), int(weight.shape[0]) // groups * math.prod(weight.shape[2:])
        taps = math.prod(int(n) for n in weight.shape[2:])
        return [groups, dot_flops // max(1, 2 * groups * outs * depth), outs, depth, taps]
    return []


# --- counting inside the interpreter ---------------------------------------------------------------------------------

# Issue slots per element of a builder operation on an NVIDIA SM, by counting instructions of compiled kernels: a gelu
# by erf with an integer remainder has 44 per element (40 by this table), a softmax of one pass 15.8 (16).
_SLOTS: dict[str, float] = {
    **dict.fromkeys(("fadd", "fsub", "fmul", "fma", "fneg", "fabs", "minnumf", "maxnumf", "minimumf", "maximumf"), 1.0),
    **dict.fromkeys(("clampf", "floor", "ceil"), 2.0),
    **dict.fromkeys(("fdiv", "approx_divf", "exp", "log", "log2", "sqrt"), 6.0),
    **dict.fromkeys(("exp2", "rsqrt"), 4.0),
    **dict.fromkeys(("precise_divf", "precise_sqrt", "frem"), 12.0),
    **dict.fromkeys(("sin", "cos"), 14.0),
    **dict.fromkeys(("erf", "extern_elementwise", "inline_asm"), 24.0),
}
_OTHER_SLOTS: dict[str, float] = {
    **dict.fromkeys(("sdiv", "udiv", "srem", "urem", "idiv"), 8.0),
    **dict.fromkeys(("select", "fp_trunc", "fp_ext", "fp_to_fp", "si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui"), 0.5),
    **dict.fromkeys(("add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "addptr", "umulhi"), 0.25),
}
_ACCESS_SLOTS = 0.5  # a load or store moves up to 16 bytes an instruction; its address is mostly shared
_CALL_WORK, _ELEMENT_WORK = 25.0, 0.004  # microseconds of interpreter time a builder call, and an element of it, cost

_NEEDED = ("InterpretedFunction", "InterpreterBuilder", "GridExecutor", "TensorHandle", "ReduceOps", "ScanOps",
           "interpreter_builder", "_patch_lang", "_implicit_cvt", "_get_np_dtype")  # fmt: skip
_NEEDED_OPS = ("create_masked_load", "create_masked_store", "create_load", "create_store", "create_dot",
               "create_atomic_rmw", "create_atomic_cas", "set_grid_dim", "set_grid_idx")  # fmt: skip


def _interpreter() -> Any:
    """Triton's interpreter module. Raises: EvaluatorError if this Triton is built otherwise."""
    import triton
    from triton.runtime import interpreter

    missing = [name for name in _NEEDED if not hasattr(interpreter, name)]
    missing += [name for name in _NEEDED_OPS if not hasattr(getattr(interpreter, "interpreter_builder", None), name)]
    if missing:
        raise EvaluatorError(
            f"triton {triton.__version__} has no {', '.join(missing)} in its interpreter, so traffic cannot be "
            "counted; install a version from 3.6 to 3.9"
        )
    return interpreter


class _SeenError(BaseException):
    """Ends a probed program from inside a builder call. Not an Exception: the interpreter wraps those."""


class _EndlessError(BaseException):
    """Ends a program that goes beyond its limit of work. Not an Exception either."""


@dataclass
class _Use:
    """What one program does with one storage: requested bytes, and bytes of blocks it has not asked for before."""

    read: int = 0
    written: int = 0
    unique_read: int = 0
    unique_written: int = 0
    blocks: set[tuple[bool, int, int, int]] = field(default_factory=set)
    first: int | None = None  # lowest address of its first load
    span: tuple[int, int] = (sys.maxsize, 0)


@dataclass
class _Tally:
    """What one program (or, counting exactly, a whole grid) does."""

    uses: defaultdict[int | None, _Use] = field(default_factory=lambda: defaultdict(_Use))
    sectors_read: int = 0
    sectors_written: int = 0
    flops: float = 0.0
    dot_flops: float = 0.0
    alu: float = 0.0
    atomics: int = 0
    rounds: int = 0
    dots: defaultdict[tuple[str, str, int, int, int], int] = field(default_factory=lambda: defaultdict(int))
    work: float = 0.0


class _Meter:
    """Stands in for the interpreter builder's operations and counts them into `tally`.

    wanted: while probing, the storages whose first load ends the program.
    """

    def __init__(self, parts: Any, storages: _Storages, touch_memory: bool) -> None:
        self.parts, self.storages, self.touch_memory = parts, storages, touch_memory
        self.tally = _Tally()
        self.wanted: set[int] | None = None
        self.limit = math.inf
        self.maps: dict[tuple[int, bool, int], Any] = {}  # exact counting: which elements were touched
        self._sites: set[tuple[int, int]] = set()
        self._suspended = 0

    def start(self, limit: float, wanted: set[int] | None = None) -> _Tally:
        """Begin a program (or grid)."""
        self.tally, self.limit, self.wanted = _Tally(), limit, set(wanted) if wanted is not None else None
        self._sites.clear()
        return self.tally

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Shadow the builder's methods, and the reductions that the interpreter runs element by element."""
        builder = self.parts.interpreter_builder
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
        shadows = {}
        for name in names:
            original = getattr(builder, name)
            if name in special:
                shadows[name] = self._bound(special[name], original)
            elif name not in ("create_load", "create_store", "create_barrier"):
                shadows[name] = self._counted(name.removeprefix("create_"), original)
        before = {name: vars(builder)[name] for name in shadows if name in vars(builder)}
        reductions = [(self.parts.ReduceOps, "generic_reduce"), (self.parts.ScanOps, "generic_scan")]
        applies = [(self.parts.ReduceOps, "apply_impl"), (self.parts.ScanOps, "apply_impl")]
        kept = [(owner, name, vars(owner)[name]) for owner, name in [*applies, *reductions]]
        vars(builder).update(shadows)
        for owner, name in applies:
            setattr(owner, name, self._reduction(vars(owner)[name]))
        if not self.touch_memory:
            self.parts.ReduceOps.generic_reduce = _first_along_axis(self.parts)
            self.parts.ScanOps.generic_scan = lambda ops, values: list(values)
        try:
            yield
        finally:
            for name in shadows:
                del vars(builder)[name]
            vars(builder).update(before)
            for owner, name, original in kept:
                setattr(owner, name, original)

    def _bound(self, method: Callable[..., Any] | None, original: Callable[..., Any]) -> Callable[..., Any]:
        if method is None:
            return original if self.touch_memory else lambda *args, **kwargs: None
        return lambda *args, **kwargs: method(original, *args, **kwargs)

    def _counted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        flops = name in _SLOTS
        slots = _SLOTS.get(
            name, _OTHER_SLOTS.get(name, 0.25 if name.startswith(("icmp", "fcmp", "min", "max")) else 0.0)
        )

        def operation(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
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
            raise _EndlessError

    # Memory. `mask` may be a handle, an array or None, by operation and version.

    def _access(self, pointers: Any, mask: Any, writes: bool, once: bool = True) -> None:
        import numpy as np

        addresses = pointers.data
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        self._spend(addresses.size, _ACCESS_SLOTS, flops=False)
        if mask is not None:
            kept = np.broadcast_to(np.asarray(getattr(mask, "data", mask), dtype=bool), addresses.shape)
            addresses = addresses if kept.all() else addresses[kept]
        if addresses.size == 0:
            return
        low, high = int(addresses.min()), int(addresses.max())
        number = self.storages.find(low)
        moved = addresses.size * size
        use, tally = self.tally.uses[number], self.tally
        block = (writes, low, high, addresses.size)
        new = moved if block not in use.blocks else 0
        use.blocks.add(block)
        use.span = (min(use.span[0], low), max(use.span[1], high))
        sectors = _sectors(addresses, low, high) if once else addresses.size
        if writes:
            use.written, use.unique_written = use.written + moved, use.unique_written + new
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
                raise _SeenError

    def _mark(self, number: int, writes: bool, addresses: Any, size: int) -> None:
        import numpy as np

        key = (number, writes, size)
        if key not in self.maps:
            self.maps[key] = np.zeros(self.storages.sizes[number], dtype=bool)
        offsets = self.storages.offset(number, addresses.astype(np.int64))
        self.maps[key][offsets[offsets < self.storages.sizes[number]]] = True  # beyond it is another one's memory

    def _load(self, original: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **more: Any) -> Any:
        frame = sys._getframe(2)
        package = self.parts.__name__.partition(".")[0]
        while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(
            (package + ".", __name__)
        ):
            frame = frame.f_back
        site = (id(frame.f_code), frame.f_lasti)
        # Loads wait together until a result is needed by all threads (a barrier) or the loop comes round again.
        if not self._sites or site in self._sites:
            self.tally.rounds += 1
            self._sites.clear()
        self._sites.add(site)
        self._access(pointers, mask, writes=False)
        if self.touch_memory:
            return original(pointers, mask, other, *rest, **more)
        return self._ones(pointers, mask, other)

    def _ones(self, pointers: Any, mask: Any, other: Any) -> Any:
        """What a load returns without memory: ones, harmless as divisors, indices and loop bounds; else `other`."""
        import numpy as np

        dtype = pointers.get_element_ty()
        array = np.full(pointers.data.shape, _one(dtype), dtype=self.parts._get_np_dtype(dtype))
        if other is not None and mask is not None:
            kept = np.broadcast_to(np.asarray(getattr(mask, "data", mask), dtype=bool), array.shape)
            array = np.where(kept, array, np.asarray(other.data, dtype=array.dtype))
        return self.parts.TensorHandle(array, dtype)

    def _store(self, original: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        self._sites.clear()
        self._access(pointers, mask, writes=True)
        return original(pointers, value, mask, *rest, **more) if self.touch_memory else None

    def _atomic_rmw(self, original: Any, op: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        self._count_atomic(pointers, mask)
        if self.touch_memory:
            return original(op, pointers, value, mask, *rest)
        return self.parts.TensorHandle(value.data * 0, value.dtype.scalar)

    def _atomic_cas(self, original: Any, pointers: Any, expected: Any, value: Any, *rest: Any) -> Any:
        self._count_atomic(pointers, None)
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
        kept = pointers.data.size if mask is None else int((pointers.data.size // mask.data.size) * mask.data.sum())
        self.tally.atomics += kept

    # Arithmetic.

    def _dot(self, original: Any, a: Any, b: Any, acc: Any, precision: Any = None, *rest: Any, **more: Any) -> Any:
        label = str(getattr(precision, "name", precision)).lower()
        self._count_dot(a.dtype.scalar.name, label, a.data.shape, b.data.shape)
        return original(a, b, acc, precision, *rest, **more) if self.touch_memory else acc

    def _dot_scaled(self, original: Any, a: Any, a_scale: Any, a_format: Any, b: Any, *rest: Any, **more: Any) -> Any:
        acc = rest[-1] if rest else more["acc_handle"]
        packed = 2 if a.dtype.scalar.name in ("int8", "uint8") and a.data.shape[-1] != b.data.shape[-2] else 1
        shape = (*a.data.shape[:-1], a.data.shape[-1] * packed)
        self._count_dot("fp8", "ieee", shape, (*acc.data.shape[:-2], shape[-1], acc.data.shape[-1]))
        if self.touch_memory:
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
        self._spend(argument.data.size, _SLOTS["erf"], flops=True)
        return original(argument) if self.touch_memory else argument

    def _extern(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = args[3] if len(args) > 3 else kwargs["argList"]
        result_type = (args[4] if len(args) > 4 else kwargs["retType"]).scalar
        self._spend(arguments[0].data.size, _SLOTS["extern_elementwise"], flops=True)
        if self.touch_memory:
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


def _one(dtype: Any) -> int | float:
    """1 in the interpreter's representation: types that numpy lacks are kept as bits."""
    if dtype.is_floating() and dtype.name not in ("fp16", "fp32", "fp64"):
        return int(dtype.exponent_bias) << int(dtype.fp_mantissa_width)
    return 1


def _first_along_axis(parts: Any) -> Callable[..., list[Any]]:
    """A reduction by any combine function, as far as shapes and types go."""

    def generic_reduce(ops: Any, values: Any) -> list[Any]:
        import numpy as np

        results = []
        for value in values:
            data = value.handle.data
            axis = 0 if ops.axis is None else ops.axis
            data = data.reshape(-1) if ops.axis is None and not ops.keep_dims else data
            if ops.axis is None and ops.keep_dims:
                first = data.reshape(-1)[:1].reshape([1] * data.ndim)
            else:
                first = np.take(data, [0], axis=axis) if ops.keep_dims else np.take(data, 0, axis=axis)
            results.append(ops.to_tensor(first, value.dtype))
        return results

    return generic_reduce


def _sectors(addresses: Any, low: int, high: int) -> int:
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


# --- launches --------------------------------------------------------------------------------------------------------


class _Launches:
    """Takes the place of running a kernel: samples its programs and appends a record."""

    def __init__(
        self,
        parts: Any,
        storages: _Storages,
        log: list[Record],
        limits: Limits,
        exact: bool,
        paused: list[bool],
    ) -> None:
        self.parts, self.storages, self.log, self.limits, self.exact = parts, storages, log, limits, exact
        self.paused = paused
        self.meter = _Meter(parts, storages, touch_memory=exact)

    @contextlib.contextmanager
    def intercept(self) -> Iterator[None]:
        """Catch launches while open; autotuned kernels take their first configuration."""
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        from mtmc.evaluate.autotune import pin_autotuners

        function = self.parts.InterpretedFunction
        kept = [
            (function, "run", function.run),
            (JITFunction, "run", JITFunction.run),
            (Autotuner, "run", Autotuner.run),
        ]

        def run(jitted: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
            if not warmup:
                self.launch(jitted, args, kwargs, grid, kept[0][2])

        def refuse(jitted: Any, *args: Any, **kwargs: Any) -> None:
            raise EvaluatorError(
                f"kernel {jitted.__name__} was decorated without interpretation; set TRITON_INTERPRET=1 before the "
                "file that defines it is loaded"
            )

        function.run, JITFunction.run = run, refuse
        if Autotuner.run.__module__ == Autotuner.__module__:  # nobody has pinned a configuration yet
            pin_autotuners({})
        try:
            with _patched_language(self.parts):
                yield
        finally:
            for owner, name, original in kept:
                setattr(owner, name, original)

    def launch(self, jitted: Any, args: Any, kwargs: Any, grid: Any, original: Any) -> None:
        """Count one launch."""
        names = inspect.getfullargspec(jitted.fn)
        named = {k: v for k, v in kwargs.items() if k in names.args or k in names.kwonlyargs}
        bound = inspect.getcallargs(jitted.fn, *args, **named)
        for hook in () if self.exact else jitted.pre_run_hooks:  # exactly: the original run calls them
            hook(*args, **kwargs)
        constexprs = set(self.parts.GridExecutor(jitted.fn, jitted.arg_names, grid).constexprs)
        values = {**bound, **kwargs}
        size = tuple(int(n) for n in (grid(values) if callable(grid) else grid))
        size += (1,) * (3 - len(size))
        record: Record = {
            "kernel": jitted.__name__,
            "grid": list(size),
            "programs": math.prod(size),
            "constexprs": {n: _plain(v) for n, v in bound.items() if n in constexprs},
            "num_warps": int(kwargs.get("num_warps", 4)),
            "num_stages": int(kwargs.get("num_stages", 3)),
        }
        for tensor in _tensors([getattr(v, "base", v) if not _is_tensor(v) else v for v in bound.values()]):
            self.storages.number(tensor)
        if self.exact:
            self.meter.maps.clear()
            tally = self.meter.start(math.inf)
            self.paused.append(True)
            with self.meter.installed():
                original(jitted, *args, grid=size, warmup=False, **kwargs)
            self.paused.pop()
            record.update(self._exact(tally, record["programs"]))
        else:
            with self.meter.installed():
                record.update(self._sampled(_Program(self.parts, self.meter, jitted, bound, constexprs, size)))
        self.log.append(record)

    def _sampled(self, program: _Program) -> Record:
        """Run programs of each part of the grid (interior, last row, last column, ...) and scale them to the whole."""
        total = math.prod(program.size)
        if total == 0:
            return _summary([], [], self.storages.sizes) | {"window_read": {}, "sampled": 0}
        order = sample_programs(program.size, self.limits.programs)
        tallies: dict[int, _Tally] = {}
        work = 0.0
        for index, _ in order:
            # The first sample says what one costs; at least the most typical one always runs.
            if tallies and work + work / len(tallies) > self.limits.work:
                break
            tallies[index] = program.run(index, self.limits.program_work)
            work += tallies[index].work
        weights = sample_weights(program.size, list(tallies))
        record = _summary(list(tallies.values()), weights, self.storages.sizes)
        record["window_read"] = self._windows(program, tallies, record, total)
        record["sampled"] = len(tallies)
        return record

    def _windows(self, program: _Program, tallies: Mapping[int, _Tally], record: Record, total: int) -> dict[str, int]:
        """Unique bytes that the first n programs of the launch order read together, for n = 1, 2, 4, ...

        Programs that begin at the same address of a storage are taken to read the same bytes of it.
        """
        typical = next(iter(tallies.values()))
        each = {n: use.unique_read for n, use in typical.uses.items() if use.unique_read}
        unique = dict(record["reads"])
        tops = {n: unique.get(n, each[n] * total) for n in each}
        # Only what is read again and again, and does not fit the last cache of every GPU anyway, is worth the probing.
        probed = {n for n in each if n is not None and each[n] * total > 1.5 * tops[n] and tops[n] > _CACHED}
        if not probed:
            return {str(n): sum(min(n * each[k], tops[k]) for k in each) for n in _doublings(total)}
        spent = 0.0
        seen: dict[int, set[int | None]] = {n: set() for n in probed}
        curve: dict[str, int] = {}
        for count in range(1, min(total, self.limits.probes) + 1):
            tally = program.run(count - 1, self.limits.program_work, probed)
            spent += tally.work
            for n in probed:
                seen[n].update({tally.uses[n].first} if n in tally.uses else ())
            last = count == min(total, self.limits.probes) or spent > self.limits.work
            if count & (count - 1) == 0 or last:
                held = {n: len(seen[n]) if n in probed else count for n in each}
                curve[str(count)] = sum(min(held[n] * each[n], tops[n]) for n in each)
            if last:
                break
        return curve

    def _exact(self, tally: _Tally, programs: int) -> Record:
        import numpy as np

        record = _summary([tally], [1.0], self.storages.sizes)
        unique: dict[tuple[int, bool], int] = defaultdict(int)
        for (number, writes, size), touched in self.meter.maps.items():
            unique[number, writes] += int(np.count_nonzero(touched)) * size
        record["reads"] = [[n, size] for (n, writes), size in unique.items() if not writes]
        record["writes"] = [[n, size] for (n, writes), size in unique.items() if writes]
        record["unique_read"] = sum(size for _, size in record["reads"])
        record["unique_written"] = sum(size for _, size in record["writes"])
        for name in ("rounds", "dots"):
            record[name] /= max(1, programs)
        return record | {"program_read": 0, "window_read": {}, "sampled": programs}


@contextlib.contextmanager
def _patched_language(parts: Any) -> Iterator[None]:
    """Patch `triton.language` for interpretation once.

    The interpreter does it anew for every launch and every device function called, which is most of its time.
    """
    import triton.language as tl

    original = parts._patch_lang
    scope = original(types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    index = tl.tensor.__index__
    # Triton 3.6 converts an array of one element by int(), which numpy 2.4 refuses.
    tl.tensor.__index__ = lambda value: int(value.handle.data.squeeze())
    parts._patch_lang = lambda fn: types.SimpleNamespace(restore=lambda: None)
    try:
        yield
    finally:
        parts._patch_lang = original
        tl.tensor.__index__ = index
        scope.restore()


class _Program:
    """One launch whose programs can be run one by one."""

    def __init__(
        self,
        parts: Any,
        meter: _Meter,
        jitted: Any,
        bound: dict[str, Any],
        constexprs: set[str],
        size: Sequence[int],
    ) -> None:
        self._parts, self._meter = parts, meter
        self._bound, self._constexprs = bound, constexprs
        self.size, self.name = tuple(size), jitted.__name__
        self._function = jitted.rewrite()

    def run(self, index: int, limit: float, wanted: set[int] | None = None) -> _Tally:
        """Run program `index` of the launch order (x fastest, as a GPU starts them)."""
        import numpy as np

        nx, ny, _ = self.size
        self._parts.interpreter_builder.set_grid_dim(*self.size)
        self._parts.interpreter_builder.set_grid_idx(index % nx, index // nx % ny, index // (nx * ny))
        # Fresh handles each time: a kernel may change them in place (x += 1).
        convert = self._parts._implicit_cvt
        values = {n: v if n in self._constexprs else convert(v) for n, v in self._bound.items()}
        tally = self._meter.start(limit, wanted)
        try:
            with np.errstate(all="ignore"):
                self._function(**values)
        except _SeenError:
            pass
        except _EndlessError:
            raise UncountableError(
                f"program {index} of kernel {self.name} runs too long to be counted; split its loop over more programs, "
                "or use larger blocks"
            ) from None
        return tally


def sample_programs(size: Sequence[int], count: int) -> list[tuple[int, tuple[bool, ...]]]:
    """Up to `count` programs of a grid (x, y, z) to run, the most telling first: (launch index, part of the grid).

    A grid has up to 8 parts: along each axis either the last index, which may be a partly masked tail, or all others.
    One program of the largest part comes first, then one of each other part, then more of the parts in proportion to
    their size, evenly spread. The first program is among them where there are enough.
    """
    parts: dict[tuple[bool, ...], list[range]] = {}
    for mask in range(8):
        last = tuple(bool(mask >> axis & 1) for axis in range(3))
        if any(is_last and n == 1 for is_last, n in zip(last, size, strict=True)):
            continue
        parts[last] = [
            range(n - 1, n) if is_last else range(max(1, n - 1)) for is_last, n in zip(last, size, strict=True)
        ]
    volume = {part: math.prod(len(axis) for axis in axes) for part, axes in parts.items()}
    order = sorted(parts, key=lambda part: -volume[part])
    spare = max(0, count - len(order))
    quota = {part: min(volume[part], 1 + round(spare * volume[part] / sum(volume.values()))) for part in order}
    picks = {part: _spread(volume[part], quota[part]) for part in order}
    rounds = [[(p, picks[p][i]) for p in order if i < len(picks[p])] for i in range(max(quota.values()))]
    return [(_index(parts[part], place, size), part) for group in rounds for part, place in group][:count]


def _spread(volume: int, count: int) -> list[int]:
    """`count` places of `volume`, evenly spread: midpoints, but 0 for the first of them, and the middle one first."""
    places = sorted({min(volume - 1, int((i + 0.5) * volume / count)) for i in range(count)})
    if count > 2:
        places[0] = 0
    middle = places.pop(len(places) // 2)
    return [middle, *places]


def _index(axes: Sequence[range], place: int, size: Sequence[int]) -> int:
    x = axes[0][place % len(axes[0])]
    y = axes[1][place // len(axes[0]) % len(axes[1])]
    z = axes[2][place // (len(axes[0]) * len(axes[1]))]
    return x + size[0] * (y + size[1] * z)


def sample_weights(size: Sequence[int], indices: Sequence[int]) -> list[float]:
    """How many programs each sampled one stands for: those of its part of the grid, shared evenly.

    A part without a sample counts with the largest part, whose sample always runs.
    """
    part_of = {}
    for index in indices:
        place = (index % size[0], index // size[0] % size[1], index // (size[0] * size[1]))
        part_of[index] = tuple(p == n - 1 and n > 1 for p, n in zip(place, size, strict=True))
    volume = {
        part: math.prod(1 if is_last else max(1, n - 1) for is_last, n in zip(part, size, strict=True))
        for part in part_of.values()
    }
    missing = math.prod(size) - sum(volume.values())
    volume[max(volume, key=lambda part: volume[part])] += missing
    members = list(part_of.values())
    return [volume[part_of[index]] / members.count(part_of[index]) for index in indices]


def _summary(tallies: Sequence[_Tally], weights: Sequence[float], sizes: Sequence[int]) -> Record:
    """Totals over a grid of tallies that stand for `weights` programs each."""

    def total(value: Callable[[_Tally], float]) -> int:
        return round(sum(w * value(t) for w, t in zip(weights, tallies, strict=True)))

    programs = max(1.0, sum(weights))
    numbers = sorted({n for t in tallies for n in t.uses if n is not None})
    reads = [[n, _unique(tallies, weights, n, "unique_read", sizes[n])] for n in numbers]
    writes = [[n, _unique(tallies, weights, n, "unique_written", sizes[n])] for n in numbers]
    stray = [total(lambda t: t.uses[None].unique_read if None in t.uses else 0)]
    stray.append(total(lambda t: t.uses[None].unique_written if None in t.uses else 0))
    dots: defaultdict[tuple[str, str, int, int, int], float] = defaultdict(float)
    for weight, tally in zip(weights, tallies, strict=True):
        for dot, count in tally.dots.items():
            dots[dot] += weight * count
    main = max(dots, key=lambda d: dots[d] * d[2] * d[3] * d[4]) if dots else None
    return {
        "bytes_read": total(lambda t: sum(u.read for u in t.uses.values())),
        "bytes_written": total(lambda t: sum(u.written for u in t.uses.values())),
        "unique_read": sum(size for _, size in reads) + stray[0],
        "unique_written": sum(size for _, size in writes) + stray[1],
        "sector_read": SECTOR * total(lambda t: t.sectors_read),
        "sector_written": SECTOR * total(lambda t: t.sectors_written),
        "hot_read": total(lambda t: sum(t.uses[n].read for n, size in reads if size <= _HOT and n in t.uses)),
        "program_read": round(total(lambda t: sum(u.unique_read for u in t.uses.values())) / programs),
        "flops": total(lambda t: t.flops),
        "dot_flops": total(lambda t: t.dot_flops),
        "dots": round(sum(dots.values()) / programs, 6),
        "dot_precision": main[1] if main else None,
        "dot_dtype": main[0] if main else None,
        "dot_shape": list(main[2:]) if main else [],
        "alu_ops": total(lambda t: t.alu),
        "rounds": round(sum(w * t.rounds for w, t in zip(weights, tallies, strict=True)) / programs, 6),
        "atomics": total(lambda t: t.atomics),
        "reads": [pair for pair in reads if pair[1]],
        "writes": [pair for pair in writes if pair[1]],
    }


def _unique(tallies: Sequence[_Tally], weights: Sequence[float], number: int, what: str, size: int) -> int:
    """Bytes of a storage that a grid touches: what its programs touch, never more than there is.

    Where all sampled programs touch the same stretch (a bias, a whole weight matrix), that stretch.
    """
    uses = [t.uses[number] if number in t.uses else _Use() for t in tallies]
    each = [getattr(use, what) for use in uses]
    same = len(uses) > 1 and len({(use.span, value) for use, value in zip(uses, each, strict=True)}) == 1
    total = each[0] if same else round(sum(w * value for w, value in zip(weights, each, strict=True)))
    return int(min(total, size))


def _doublings(total: int) -> list[int]:
    return [1 << power for power in range(min(total, 1024).bit_length())]


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")


def _plain(value: Any) -> Any:
    inner = getattr(value, "value", value)
    return inner if inner is None or isinstance(inner, bool | int | float | str) else str(inner)
