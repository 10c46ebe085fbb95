"""Inputs that every number of a result hangs on: who writes the result must have seen all of them.

A matrix over its norm has no row that is that of a smaller task, so nothing of it can be compared at the full shapes, and a
version could take the norm of a part there and still move each byte once. But what a launch reads is known, and of which
launches it reads what they have written. An input counts if one element of it, changed, changes nearly every number of
the result, wherever it lies and at two sets of shapes. The launch that writes the result, together with what leads to it,
must then have read all of it; of its own launch a program has seen what the others have read only if it can wait for them.

Of each tensor of a result that hangs on an input at all, and of each buffer that is changed so, something that has read one
must be the writer, itself or through others: a small one could be left as its memory came, and no byte would be missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mtmc.evaluate.counting.tally import Counts

if TYPE_CHECKING:
    import torch

    from mtmc.evaluate.reference.reference import Reference

SAMPLE, NEARLY = 8, 0.98
"""Elements of an input that are changed; the share of the result that each must change."""
SEED = 11
_LARGE = 1e3


def everywhere(reference: Reference) -> list[bool]:
    """Of each input tensor whether all of the largest result hangs on each of its elements. Raises: TaskError."""
    import torch

    from mtmc.task.tensors import flat_tensors, map_tensors

    inputs = map_tensors(reference.draw(SEED), torch.clone)

    def result() -> torch.Tensor:
        made = flat_tensors(reference.run(map_tensors(inputs, torch.clone), SEED))
        return max(made, key=torch.numel).clone() if made else torch.empty(0)

    before, again = result(), result()
    if not torch.equal(before, again) or before.numel() < 2:
        return [False] * len(flat_tensors(inputs))
    generator = torch.Generator().manual_seed(SEED)
    found = []
    for tensor in flat_tensors(inputs):
        hangs = tensor.is_floating_point() and tensor.numel() > 1
        for at in torch.randint(max(1, tensor.numel()), (SAMPLE,), generator=generator) if hangs else []:
            place = torch.unravel_index(at, tensor.shape)
            value = tensor[place].clone()
            tensor[place] = _LARGE
            after = result()
            tensor[place] = value
            hangs = after.shape == before.shape and float((after != before).double().mean()) >= NEARLY
            if not hangs:
                break
        found.append(hangs)
    return found


def seen_of(number: int, records: Sequence[Counts], least_written: float) -> float | None:
    """Bytes of an input storage that the last launch or op to write so much has seen, itself or through what others have
    written for it; None where there is none such.

    records: of the forward in order. least_written: bytes of one storage that it must write.
    """
    last = next(
        (
            at
            for at in reversed(range(len(records)))
            if any(n != number and b >= least_written for n, b in records[at]["writes"])
        ),
        None,
    )
    if last is None:
        return None
    wanted: set[int] = set()
    seen = 0.0
    for at in reversed(range(last + 1)):
        record = records[at]
        if at != last and not wanted & {n for n, _ in record["writes"]}:
            continue
        read = sum(size for n, size in record["reads"] if n == number)
        alone = at == last and "kernel" in record and not record["atomics"]
        seen += min(read, record["program_read"]) if alone else read
        wanted |= {n for n, _ in record["reads"]} - {number}
    return seen


def unreached(
    outputs: Sequence[bool], state: Sequence[str], results: Sequence[int], kept: Mapping[str, int], inputs: int,
    records: Sequence[Counts],
) -> str:  # fmt: skip
    """What of a forward's results nothing that has read an input writes, or "".

    outputs: of each tensor of the reference's result whether it hangs on an input. state: paths of what its model keeps that
    does. results, kept: storages of the version's. inputs: number of storages of inputs. records: in any order.
    """
    if any("kernel" in record and record["unique_written"] > sum(size for _, size in record["writes"])
           for record in records):  # fmt: skip
        return ""  # at addresses from memory: it may be any storage
    seen, before = set(range(inputs)), -1
    while len(seen) != before:
        before = len(seen)
        for record in records:
            anywhere = "kernel" in record and record["unique_read"] > sum(size for _, size in record["reads"])
            if anywhere or any(number in seen for number, size in record["reads"] if size):
                seen |= {number for number, _ in record["writes"]}
    for at, hangs in enumerate(outputs if len(outputs) == len(results) else ()):
        if hangs and results[at] not in seen:
            return "the output" if len(outputs) == 1 else f"output {at}"
    return next((f"buffer {path!r}" for path in state if kept.get(path) not in seen), "")


def short_of(
    inputs: Sequence[int], sizes: Sequence[int], records: Sequence[Counts], written: float, share: float
) -> str:
    """What is wrong with a forward whose result hangs on all of some inputs, or "".

    inputs: their storages' numbers. sizes: bytes of each storage of an input. written: bytes of the result's largest tensor.
    share: of an input that has to be seen.
    """
    for number in inputs:
        found = seen_of(number, records, share * written)
        if found is not None and found < share * sizes[number]:
            return f"what its last launch writes rests on {int(found)} of {sizes[number]} bytes of an input"
    return ""
