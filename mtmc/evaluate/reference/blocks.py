"""Large tensors a block at a time: what compares or sums gigabytes on a GPU must not hold a second copy of them.

Nothing here waits for the device: results stay there until the caller reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from mtmc.evaluate.reference.side_by_side import side_by_side

GPU_BLOCK = 2**25
"""Elements at a time on a GPU: kernels far longer than their launch, temporaries of 128 MiB in float32."""
CPU_BLOCK = 2**18
"""Elements at a time on a CPU: temporaries that stay in its caches."""
HASH_BLOCK = 2**24
"""Words that share one set of random multipliers in `fingerprint`."""

Index = tuple[slice, ...]


def block_size(tensor: torch.Tensor) -> int:
    """Elements to work on at a time where `tensor` is."""
    return CPU_BLOCK if tensor.device.type == "cpu" else GPU_BLOCK


def blocks(shape: Sequence[int], limit: int) -> Iterator[Index]:
    """Indices that cut a tensor into parts of at most `limit` elements, in order, without a copy whatever its strides.

    Each holds one slice for each of the first dimensions; the start of its first element is `origin(index, len(shape))`.
    """
    count = math.prod(shape)
    if count <= limit or not shape:
        yield ()
        return
    inner = count // shape[0]
    if inner <= limit:
        step = limit // inner
        for start in range(0, shape[0], step):
            yield (slice(start, min(start + step, shape[0])),)
        return
    for start in range(shape[0]):
        for rest in blocks(shape[1:], limit):
            yield (slice(start, start + 1), *rest)


def origin(index: Index, dimensions: int) -> list[int]:
    """Coordinates in the whole tensor of the first element of a block."""
    return [part.start for part in index] + [0] * (dimensions - len(index))


def fingerprint(tensor: torch.Tensor, key: int) -> torch.Tensor:
    """A keyed checksum of a tensor's raw bits: equal for equal bits, different for others but by a chance of 2^-31.

    The bits are read as 32-bit words, and each is multiplied by a random 64-bit number that follows from `key`; the sum
    wraps. Who does not know `key` cannot change words so that their changes cancel out. One pass over the tensor.

    key: any integer of up to 63 bits, secret where the tensor is in reach of others.
    Returns: int64 without dimensions, on the tensor's device. A tensor that is not contiguous is copied.
    """
    generator = torch.Generator(tensor.device).manual_seed(key)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    words, tail = _words(tensor)
    multipliers = _random(min(max(words.numel(), tail.numel()), HASH_BLOCK), generator)
    parts = [*words.split(HASH_BLOCK), tail] if words.numel() else [tail]
    # Words that share a multiplier are told apart by an odd one of their block's own.
    scales = _random(len(parts), generator).bitwise_or_(1)
    for part, scale in zip(parts, scales.unbind(), strict=True):
        total += scale * torch.mul(part, multipliers[: part.numel()]).sum()
    return total


def same_bits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Whether two tensors of one shape, dtype and device hold the same bits: a bool without dimensions, on the device.

    NaN of the same bits are the same, and 0.0 and -0.0 are not. Tensors that are not contiguous are copied.
    Raises: ValueError if shape or dtype differ.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)} cannot hold the same bits")
    different = torch.zeros((), dtype=torch.bool, device=a.device)
    for mine, other in zip(_words(a), _words(b), strict=True):
        size = block_size(a)
        for x, y in zip(mine.split(size), other.split(size), strict=True) if mine.numel() else ():
            different |= (x != y).any()
    return ~different


def equal_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """`same_bits` of two contiguous tensors, in one pass without blocks; waits for the device."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(a.element_size(), torch.uint8)
    return torch.equal(a.view(whole), b.view(whole))


def differ(now: torch.Tensor, before: torch.Tensor) -> bool:
    """Whether a tensor has changed in any bit."""
    return bool(different([now], [before]))


def different(now: Sequence[torch.Tensor], before: Sequence[torch.Tensor]) -> list[int]:
    """Positions of tensors that have changed in any bit. One wait for the device: a deep network has hundreds of them, and
    small ones are compared together."""
    pairs = list(zip(now, before, strict=True))
    alike = [at for at, (a, b) in enumerate(pairs) if (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)]
    places, same = list[int](), list[torch.Tensor]()
    for positions, (a, b) in side_by_side([pairs[at] for at in alike]):
        places += [alike[at] for at in positions]
        same.append((a.view(torch.uint8) == b.view(torch.uint8)).all(1))
    left = sorted({*alike}.difference(places))
    same += [same_bits(*pairs[at]).reshape(1) for at in left]
    equal = torch.cat([each.to(same[0].device) for each in same]).tolist() if same else []
    unchanged = {at for at, whether in zip(places + left, equal, strict=True) if whether}
    return [at for at in range(len(pairs)) if at not in unchanged]


def _random(count: int, generator: torch.Generator) -> torch.Tensor:
    limits = torch.iinfo(torch.int64)
    return torch.randint(
        limits.min, limits.max, (count,), dtype=torch.int64, generator=generator, device=generator.device
    )


def _words(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor's bits as int32 words, and what is left of its bytes as uint8."""
    data = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if data.numel() and data.storage_offset() * data.element_size() % 4:
        data = data.clone()
    octets = data.view(torch.uint8)
    whole = octets.numel() // 4 * 4
    return octets[:whole].view(torch.int32), octets[whole:]
