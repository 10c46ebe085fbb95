"""The floor of a task: what any honest version of it must move at the full shapes, and how exactly it must multiply.

Results are compared at small shapes and launches counted at the full ones, so a version could leave its work out where
only launches are counted. The floor is found once for a task, from the reference alone, and on the safe side. An input
counts where each of its elements shows in the result, as far as a sample tells (so not one of which a mask hides a half,
or a stride passes over some), and it reaches the result by another way than being looked up in (rows of a table that are not
asked for need not be read), with no more than one op of the reference reads of it. An output counts if it depends
on the inputs at all, and is no view of one. Weights do not count: a version may pack them once.

`floor` is a job in a check worker. A version's records are measured by `distinct_bytes` and `least_bits`, which load no
torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.errors import EvaluatorError, TaskError
from mtmc.evaluate.counting.tally import Counts, Record
from mtmc.evaluate.counting.tiling import Tiles, tiles, tiles_that_stand_out
from mtmc.evaluate.pool.server import out_of_memory
from mtmc.task import Task
from mtmc.task.tensors import storage_key

if TYPE_CHECKING:
    import torch

    from mtmc.evaluate.reference.reference import Reference

SAMPLE = 24
"""Elements of an input that are changed, one at a time. If a quarter of them had no effect, one such input in a thousand
would still pass for needed as a whole."""
WORK_S = 10.0
"""Of the reference's forwards for all of these, by a fixed price list: an input that is not reached does not count, and that
must hang on the task alone, not on what else the machine does."""
_OP_S, _BYTE_S, _FLOP_S = 20e-6, 0.5e-9, 0.25e-9
"""The price list: seconds of a core for an op, a byte that it moves, a flop."""
SEED = 5

_BITS = {"fp64": 53, "fp32": 24, "fp16": 11, "bf16": 8, "float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
_TF32_BITS, _LEAST_BITS = 11, 4
_CASTS = ("_to_copy",)
_INDEXED_WRITES = ("scatter", "scatter_add", "scatter_reduce", "index_put", "index_copy", "index_add", "index_reduce",
                   "index_fill", "put", "masked_scatter", "_grouped_mm")  # fmt: skip
"""Ops with addresses from memory: a kernel's are unknown where memory is not there, and so is how much they span."""


@dataclass(frozen=True)
class Floor:
    """What honest work at the full shapes takes at least.

    bytes: of inputs to read and outputs to write. bits: of the narrowest significand among floating inputs, outputs and
    the reference's own products. unknown: why both are 0, or "".
    tiles: what spot checks are held against, see `mtmc.evaluate.counting.compared`.
    unpriced: ops of the reference whose flops are not known. flops: see `mtmc.evaluate.counting.products`.
    everywhere: storages of inputs that all of the result hangs on, see `mtmc.evaluate.counting.upstream`.
    largest: bytes of the result's largest tensor.
    outputs, state: tensors of the result, and paths of what the model keeps, that hang on inputs, see `unreached`.
    left_out: sentences on what is asked of no version at the full shapes, and why: the same on every machine.
    """

    bytes: int
    bits: int
    unknown: str = ""
    tiles: Tiles | None = None
    unpriced: tuple[str, ...] = ()
    flops: int = 0
    everywhere: tuple[int, ...] = ()
    largest: int = 0
    outputs: tuple[bool, ...] = ()
    state: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def unpriced(records: Sequence[Counts]) -> tuple[str, ...]:
    """Names of the ops whose flops are not known, each once."""
    return tuple(dict.fromkeys(str(record["op"]) for record in records if "op" in record and not record["priced"]))


def least_bits(records: Sequence[Counts]) -> int | None:
    """Bits of the narrowest significand that a forward multiplies matrices in, or rounds numbers to on their way; None if it
    does neither. Every product counts, not only the largest."""
    ops = [
        (r["dtype"], None)
        for r in records
        if "op" in r and (r["dot_flops"] or (_base(r) in _CASTS and "float" in r["dtype"]))
    ]
    kinds = [tuple(kind) for r in records if "op" not in r for kind in r["kinds"]]
    return min((_bits(dtype, precision) for dtype, precision in (*ops, *kinds)), default=None)


def _bits(dtype: str, precision: str | None = None) -> int:
    return _TF32_BITS if dtype == "fp32" and precision == "tf32" else _BITS.get(dtype, _LEAST_BITS)


def floor(task: Task, secret: int = SEED) -> Floor:
    """The floor of a task. secret: what its small draw is drawn with.

    Raises: TaskError if the reference fails at its small shapes; EvaluatorError if counting itself cannot work."""
    from mtmc.evaluate.counting.products import least_flops
    from mtmc.evaluate.counting.traffic import fake_tensors
    from mtmc.evaluate.reference.reference import Reference

    bare = replace(task, state=None)  # values of weights make no difference to what is moved
    needed, dependent, untried = _needed(Reference(bare, task.small, Path.cwd(), SEED), _tries(bare))
    kept = _changed_state(Reference(bare, task.small, Path.cwd(), SEED))
    try:
        with fake_tensors():
            found, records = _count(Reference(bare, task.full, Path.cwd(), SEED), needed, dependent)
        flops = least_flops(Reference(bare, task.small, Path.cwd(), SEED), records)
        tiled, why_not = _tiles(task, secret)
        everywhere = _everywhere(bare, found.everywhere, tiled)
        found = replace(found, outputs=tuple(dependent), state=kept)
        left_out = tuple(filter(None, (untried, why_not)))
        return replace(found, flops=flops, tiles=tiled, everywhere=everywhere, left_out=left_out)
    except EvaluatorError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        why = f"{type(error).__name__}: {error}"[:500]
        told = f"the reference cannot be run without data, so nothing is asked of a version's traffic or results: {why}"
        return Floor(0, 0, why, left_out=(told,))


@dataclass(frozen=True)
class StandingOut:
    """What stands out, see `tiles_that_stand_out`. why_not: where that is not known; "" where it is."""

    tiles: tuple[Tiles, ...] = ()
    why_not: str = ""


def standing_out(task: Task, tiles: Tiles, secret: int) -> StandingOut:
    """See `tiles_that_stand_out`. Job function of a check worker; none where the reference does not take such inputs."""
    try:
        return StandingOut(tiles_that_stand_out(task, tiles.tiling, secret))
    except Exception as error:
        if out_of_memory(error) or isinstance(error, EvaluatorError):
            raise
        why = f"{type(error).__name__}: {error}"[:300]
        return StandingOut((), f"no results are compared on inputs of which only a part counts: {why}")


def _everywhere(task: Task, storages: tuple[int, ...], tiled: Tiles | None) -> tuple[int, ...]:
    """Storages of the inputs that all of the result hangs on, at two sets of shapes with more than one row each.

    storages: of each input tensor."""
    from mtmc.evaluate.counting.upstream import everywhere
    from mtmc.evaluate.reference.reference import Reference
    from mtmc.task.tensors import flat_tensors

    axes = [each.axes for each in tiled.tiling.inputs] if tiled else [() for _ in storages]
    found: list[list[bool]] = []
    for variant in (task.small, *task.held_out):
        reference = Reference(task, variant, Path.cwd(), SEED)
        shapes = [tuple(tensor.shape) for tensor in flat_tensors(reference.draw(SEED))]
        pairs = [pair for each, shape in zip(axes, shapes, strict=True) for pair in zip(each, shape, strict=False)]
        if all(size > 1 for axis, size in pairs if axis >= 0):
            try:
                found.append(everywhere(reference))
            except TaskError:
                return ()  # it refuses such a number
        if len(found) == 2 or (found and not any(found[0])):
            break
    hangs = [len(found) > 1 and all(each[at] for each in found) for at in range(len(storages))]
    return tuple(dict.fromkeys(number for number, whole in zip(storages, hangs, strict=True) if whole))


def _tiles(task: Task, secret: int) -> tuple[Tiles | None, str]:
    """What results are compared with at the full shapes, or why with nothing."""
    try:
        found = tiles(task, secret)
    except Exception as error:
        if isinstance(error, EvaluatorError):
            raise
        memory = out_of_memory(error)
        why = "it takes more than evaluator.memory_mib" if memory else f"{type(error).__name__}: {error}"[:300]
        found = f"the reference does not run at the shapes of a small draw ({why})"
    if isinstance(found, Tiles):
        return found, ""
    return None, f"no results are compared at the full shapes: {found}"


def _tries(task: Task) -> int:
    """How many forwards at the small shapes are tried; those of one input at least. task: without its weights.

    Raises: TaskError."""
    from mtmc.evaluate.counting.forward import count_forward
    from mtmc.evaluate.counting.traffic import fake_tensors
    from mtmc.evaluate.reference.reference import Reference

    try:
        with fake_tensors():
            reference = Reference(task, task.small, Path.cwd(), SEED)
            records, _, _ = count_forward(reference.model, reference.draw(SEED))
    except Exception as error:
        if out_of_memory(error) or isinstance(error, EvaluatorError):
            raise
        return SAMPLE  # nor can it be counted at the full shapes: nothing comes of these
    moved = sum(size for record in records for _, size in (*record["reads"], *record["writes"]))
    flops = sum(record["flops"] for record in records)
    return max(SAMPLE, int(WORK_S / (_OP_S * max(1, len(records)) + _BYTE_S * moved + _FLOP_S * flops)))


def _needed(reference: Reference, tries: int) -> tuple[list[bool], list[bool], str]:
    """Whether each input tensor is needed as a whole, whether each tensor of the result depends on any of them, and what was
    not asked. tries: forwards after which no further input is begun."""
    import torch

    from mtmc.evaluate.reference.blocks import differ
    from mtmc.task.tensors import flat_tensors, map_tensors

    inputs = map_tensors(reference.draw(SEED), torch.clone)
    before, again = _results(reference, inputs), _results(reference, inputs)
    needed, dependent = [], [False] * len(before)
    if any(differ(now, old) for now, old in zip(again, before, strict=True)):
        told = "another result at each call does not say which inputs are needed"
        return [False] * len(flat_tensors(inputs)), dependent, told
    generator, tried, untried = torch.Generator().manual_seed(SEED), 0, 0
    for tensor in flat_tensors(inputs):
        asked = tensor.is_floating_point() and tensor.numel() > 0
        whole = asked and tried < tries
        untried += asked and not whole
        places = torch.randint(max(1, tensor.numel()), (SAMPLE,), generator=generator).unique() if whole else []
        for place in places:
            changed, runs = _changed(reference, inputs, tensor, torch.unravel_index(place, tensor.shape), before)
            tried += runs
            dependent = [a or b for a, b in zip(dependent, changed, strict=True)]
            whole = whole and any(changed)
            if not whole and all(dependent):
                break
        needed.append(whole)
    told = f"{untried} inputs need not be read, for trying which are needed takes too much work" if untried else ""
    return needed, dependent, told


def _changed_state(reference: Reference) -> tuple[str, ...]:
    """Paths of what a model keeps that is another one after a call with other inputs."""
    from mtmc.evaluate.reference.blocks import differ
    from mtmc.evaluate.reference.effects import values

    left: list[dict[str, torch.Tensor]] = []
    paths: tuple[str, ...] = ()
    for seed in (SEED, SEED + 1):
        with contextlib.suppress(TaskError):
            reference.restart()
            paths = reference.observed(reference.model, reference.draw(seed), SEED)[1].state
            left.append(values(reference.model, paths))
    if len(left) < 2:
        return ()
    return tuple(path for path in paths if path in left[0] and path in left[1] and differ(left[0][path], left[1][path]))


def _changed(
    reference: Reference, inputs: list[Any], tensor: torch.Tensor, place: Any, before: list[torch.Tensor]
) -> tuple[list[bool], int]:
    """Which results change with one element of an input (to a large number, to its negative, or by one), and how many
    forwards that took.

    Never to no number: that shows in a product with 0, too, which nobody need compute."""
    value = tensor[place].clone()
    changed, runs = [False] * len(before), 0
    for other in (1e4, -1e4, float(value) + 1):
        tensor[place] = other
        runs += 1
        try:
            after = _results(reference, inputs)
        except TaskError:
            after = before  # it refuses such a number: that says nothing of the result
        tensor[place] = value
        changed = [_unlike(now, old) for now, old in zip(after, before, strict=True)]
        if any(changed):
            break
    return changed, runs


def _unlike(now: torch.Tensor, old: torch.Tensor) -> bool:
    """Whether any number differs; 0 and -0 are one, which a product with 0 has the sign of its other factor."""
    return now.shape != old.shape or bool(((now != old) & ((now == now) | (old == old))).any())


def _results(reference: Reference, inputs: list[Any]) -> list[torch.Tensor]:
    import torch

    from mtmc.task.tensors import flat_tensors, map_tensors

    return flat_tensors(reference.run(map_tensors(inputs, torch.clone), SEED))


def _count(reference: Reference, needed: Sequence[bool], dependent: Sequence[bool]) -> tuple[Floor, list[Record]]:
    from mtmc.evaluate.counting.forward import count_forward
    from mtmc.evaluate.counting.storages import tensor_bytes
    from mtmc.evaluate.reference.necessary import written_bytes
    from mtmc.evaluate.reference.reaching import Reaching
    from mtmc.task.tensors import flat_tensors

    inputs = reference.draw(SEED)
    reached: list[set[int]] = []

    def forward(*given: Any) -> Any:
        with Reaching(flat_tensors(given)) as ways:
            result = reference.model(*given)
        reached.extend(ways.of(tensor) for tensor in flat_tensors(result))
        return result

    records, sizes, result = count_forward(forward, inputs)
    results, keys = flat_tensors(result), [storage_key(tensor) for tensor in flat_tensors(inputs)]
    storages = list(dict.fromkeys(keys))
    whole_ways = set().union(*reached)
    wanted = {storages.index(keys[at]) for at, whole in enumerate(needed) if whole and at in whole_ways}
    read = _reads(records)
    made = [tensor for tensor, depends in zip(results, dependent, strict=True) if depends]
    written = 0
    if not any(_base(record) in _INDEXED_WRITES for record in records):
        written = written_bytes([tensor for tensor in made if storage_key(tensor) not in storages])
    own = least_bits(records)
    dtypes = [str(tensor.dtype) for tensor in (*flat_tensors(inputs), *results) if tensor.is_floating_point()]
    bits = [_bits(dtype.removeprefix("torch.")) for dtype in dtypes] + ([own] if own else [])
    moved = written + sum(min(sizes[number], read.get(number, 0)) for number in wanted)
    largest = max(map(tensor_bytes, results), default=0)
    numbers = tuple(storages.index(key) for key in keys)  # of all inputs, until it is known which of them count
    found = Floor(moved, min(bits, default=0), unpriced=unpriced(records), everywhere=numbers, largest=largest)
    return found, records


def _reads(records: Sequence[Counts]) -> dict[int, int]:
    """Most bytes that any op reads of each storage otherwise than by looking up in it."""
    from mtmc.evaluate.reference.reaching import INDEXED_READS

    read: dict[int, int] = {}
    for record in records:
        for number, size in record["reads"] if _base(record) not in INDEXED_READS else ():
            read[number] = max(size, read.get(number, 0))
    return read


def _base(record: Counts) -> str:
    """Name of an op without its name space: index_put of aten.index_put_."""
    return str(record["op"]).rpartition(".")[2].rstrip("_")
