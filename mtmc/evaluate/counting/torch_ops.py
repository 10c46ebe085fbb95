"""Records of torch ops: what each moves and computes, from its own tensors, as a GPU's library would run it.

The records' fields are in `mtmc.evaluate.counting.traffic`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mtmc.evaluate.counting.prices import product_flops
from mtmc.evaluate.counting.storages import SECTOR, Storages, tensor_bytes
from mtmc.evaluate.counting.tally import Record
from mtmc.evaluate.reference.reaching import mutated
from mtmc.task.recurrent import NAMES as RECURRENT
from mtmc.task.tensors import flat_tensors

_ONE_KERNEL = {"rms_norm": "aten._fused_rms_norm", "scaled_dot_product_attention": "aten.scaled_dot_product_attention"}
_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Names of its arguments, each of which may be given by position or by name."""
ROUTINES = (*_ONE_KERNEL, *RECURRENT)
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
_TURNED_SHARE = 0.25
"""Of the bytes of a tensor that is turned to or from channels last, those that count as scattered: 134 MB took 0.148 ms on
an H100."""
_WRITE_ONLY = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_")


Noting = Callable[[Any, Any, Any, Any, Storages], Record | None]


def torch_modes(
    storages: Storages, log: list[Record], paused: list[bool], op: Noting | None = None, call: Noting | None = None
) -> tuple[Any, Any]:
    """The two modes of a counted forward: one sees the ops, the other the calls and addresses asked for.

    op, call: what goes into the log for either, given the op or the call's name, its arguments, result, and the storages;
        their records where nothing else is asked for.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = _run(func, args, kwargs or {}, storages)
            if not paused and func.namespace != "prim":
                record = (op or op_record)(func, args, kwargs or {}, result, storages)
                if record is not None:
                    log.append(record)
            return result

    class Calls(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if storages.fake and func is torch.Tensor.data_ptr:
                return storages.address(args[0])
            name = getattr(func, "__name__", "").partition(".")[0]  # of an overload: "lstm.input"
            if paused or name not in ROUTINES:
                return func(*args, **(kwargs or {}))
            paused.append(True)
            try:
                result = func(*args, **(kwargs or {}))
            finally:
                paused.pop()
            record = (call or call_record)(name, args, kwargs or {}, result, storages)
            if record is not None:
                log.append(record)
            return result

    return Ops(), Calls()


def _run(func: Any, args: Any, kwargs: Any, storages: Storages) -> Any:
    """Run an op; where fake tensors are counted, one whose tensors all have memory, such as packing weights, on that."""
    if storages.fake:
        from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

        tensors = flat_tensors((args, kwargs))
        if tensors and not any(isinstance(tensor, FakeTensor) or tensor.device.type != "cpu" for tensor in tensors):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
    return func(*args, **kwargs)


def touched(func: Any, args: Any, kwargs: Any, result: Any, storages: Storages) -> tuple[list[Any], list[Any]] | None:
    """Tensors that a dispatched op writes into, and those that it makes; None where a GPU would run nothing."""
    inputs, outputs = flat_tensors((args, kwargs)), flat_tensors(result)
    written = mutated(func._schema, args, kwargs)
    owned = {storages.number(t) for t in inputs}
    fresh = [t for t in outputs if storages.number(t) not in owned]
    base = str(func._schema.name).rpartition("::")[2]
    if not written and (not fresh or base.startswith(("empty", "new_empty"))):
        return None
    if base.rstrip("_") in ("resize", "set") or base in ("_local_scalar_dense", "lift_fresh"):
        return None
    return written, fresh


def op_record(func: Any, args: Any, kwargs: Any, result: Any, storages: Storages) -> Record | None:
    """Record of one dispatched op, or None where a GPU would run nothing."""
    found = touched(func, args, kwargs, result, storages)
    if found is None:
        return None
    written, fresh = found
    inputs, schema = flat_tensors((args, kwargs)), func._schema
    name = str(schema.name).replace("::", ".")
    base = name.rpartition(".")[2]
    write_only = {id(t) for t in written} if base in _WRITE_ONLY or schema.overload_name.endswith("out") else set()
    record = _record(name, [t for t in inputs if id(t) not in write_only], [*written, *fresh], storages)
    products = product_flops(func, args, kwargs, result)
    record["dot_flops"], record["priced"] = products or 0, products is not None
    record["flops"] = record["dot_flops"] or record["elements"]
    record["dims"] = _dims(base, args, record["dot_flops"])
    if not record["dot_flops"]:
        record["strided_read"] = _strided_bytes(inputs, [*written, *fresh])
    record["channels_last"] = base in ("convolution", "_convolution") and any(map(is_channels_last, args[:2]))
    kernels, reads, passes = _PASSES.get(name, (1, 0, 0))
    if base == "native_batch_norm" and args[5]:  # training: the statistics are a pass of their own
        kernels, reads = 2, 1
    if base in _LOOKUPS:
        _count_lookup(record, inputs, fresh, storages)
    largest = max((tensor_bytes(t) for t in inputs), default=0)
    record["kernels"] = kernels
    record["bytes_read"] += (reads + passes) * largest
    record["bytes_written"] += passes * largest
    storages.keep_call(record, (func, args, kwargs, result))
    return record


def _count_lookup(record: Record, inputs: Sequence[Any], outputs: Sequence[Any], storages: Storages) -> None:
    """Of the table that an op looks up, only what is asked for is read: as much as comes out, in whole sectors."""
    table = max(inputs, key=tensor_bytes)
    asked = max(
        sum(map(tensor_bytes, outputs)), SECTOR * max((int(t.numel()) for t in inputs if t is not table), default=1)
    )
    spared = max(0, tensor_bytes(table) - asked)
    record["bytes_read"] -= spared
    record["elements"] = max(int(t.numel()) for t in [*outputs, *(t for t in inputs if t is not table)])
    number = storages.number(table)
    record["reads"] = [[n, size - spared if n == number else size] for n, size in record["reads"]]


def call_record(name: str, args: Any, kwargs: Any, result: Any, storages: Storages) -> Record:
    """Record of a call that is one library routine on a GPU."""
    inputs, outputs = flat_tensors((args, kwargs)), flat_tensors(result)
    record = _record(_ONE_KERNEL.get(name, f"aten.{name}"), inputs, outputs, storages)
    record["flops"] = record["elements"]
    if name == "scaled_dot_product_attention":
        given = {**dict(zip(_ATTENTION, args, strict=False)), **kwargs}
        query, key, value = given["query"], given["key"], given["value"]
        batch, keys = math.prod(query.shape[:-2]), key.shape[-2]
        length, width = query.shape[-2:]
        flops = 2 * batch * length * keys * (width + value.shape[-1]) // (2 if given.get("is_causal") else 1)
        record.update(flops=flops, dot_flops=flops, dims=[batch, length, keys, width])
    elif name in RECURRENT:
        first = args[0] if args else kwargs["input"]
        weights = [t for t in inputs if t.dim() == 2 and t is not first]
        batch_first = bool(kwargs.get("batch_first", args[-1] if args and isinstance(args[-1], bool) else False))
        rows = math.prod(first.shape[:-1])
        steps = first.shape[1 if batch_first and first.dim() == 3 else 0]
        flops = 2 * rows * sum(t.numel() for t in weights)
        record.update(flops=flops, dot_flops=flops, kernels=steps * max(1, len(weights) // 2), dims=[steps])
    return record


def _record(name: str, read: Sequence[Any], written: Sequence[Any], storages: Storages) -> Record:
    read, written = _distinct(read), _distinct(written)
    first = ([t for t in [*written, *read] if t.is_floating_point()] or [*written, *read])[0]
    return {
        "op": name,
        "bytes_read": sum(map(tensor_bytes, read)),
        "bytes_written": sum(map(tensor_bytes, written)),
        "strided_read": 0,
        "flops": 0,
        "dot_flops": 0,
        "dtype": str(first.dtype).removeprefix("torch."),
        "elements": max((int(t.numel()) for t in [*read, *written]), default=0),
        "priced": True,
        "kernels": 1,
        "dims": [],
        "channels_last": False,
        "reads": [[storages.number(t), tensor_bytes(t)] for t in read],
        "writes": [[storages.number(t), tensor_bytes(t)] for t in written],
    }


def _distinct(tensors: Sequence[Any]) -> list[Any]:
    seen = {(t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), tuple(t.stride())): t for t in tensors}
    return list(seen.values())


def _strided_bytes(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Bytes of inputs of an elementwise op (or copy) that do not run along the output's rows."""
    if not outputs or outputs[0].numel() <= 1:
        return 0
    out = outputs[0]
    inner = min((d for d in range(out.dim()) if out.shape[d] > 1), key=lambda d: abs(int(out.stride(d))))
    crossing = 0
    for tensor in _distinct(inputs):
        if tensor.shape == out.shape and int(tensor.stride(inner)) * int(tensor.element_size()) >= SECTOR:
            turned = is_channels_last(tensor) != is_channels_last(out)
            crossing += int(tensor_bytes(tensor) * (_TURNED_SHARE if turned else 1))
    return crossing


def is_channels_last(tensor: Any) -> bool:
    """Whether a tensor's channels lie next to each other, and not its rows."""
    import torch

    memory = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return memory is not None and not tensor.is_contiguous() and bool(tensor.is_contiguous(memory_format=memory))


def _dims(base: str, args: Any, dot_flops: int) -> list[int]:
    """What an estimate needs of an op's shape; see `mtmc.evaluate.counting.traffic`."""
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
