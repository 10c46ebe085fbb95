"""channels_copy: copies of a tensor for convolutions: with its channels last, rounded to TF32, or both at once.

Copied element by element, one side of a copy with the channels last is strided: neighbours in a warp are far apart. Here a
program reads a tile of channels and places along the places and writes it along the channels; the two orders meet in shared
memory.
"""

from __future__ import annotations

LAUNCHER = "launch_channels_last"
ROUNDING = "launch_tf32"
_TURNING = '''\
@triton.jit
def channels_last_kernel(
    x_ptr,
    permuted_ptr,
    n_channels,
    n_places,
    WIDE: tl.constexpr,
    BLOCK_CHANNELS: tl.constexpr,
    BLOCK_PLACES: tl.constexpr,
):
    """A tile of channels and places a program, read along the places and written along the channels."""
    tile = tl.program_id(0)
    if WIDE:  # more elements than a 32-bit offset can reach
        tile = tile.to(tl.int64)
    along = tl.cdiv(n_places, BLOCK_PLACES)
    places = (tile % along * BLOCK_PLACES + tl.arange(0, BLOCK_PLACES))[None, :]
    tile = tile // along
    across = tl.cdiv(n_channels, BLOCK_CHANNELS)
    channels = (tile % across * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS))[:, None]
    mask = (channels < n_channels) & (places < n_places)
    image = tile // across * n_channels * n_places
    x = tl.load(x_ptr + image + channels * n_places + places, mask=mask, other=0.0)
    tl.store(permuted_ptr + image + places * n_channels + channels, x, mask=mask)


def launch_channels_last(x):
    """x with its channels last; x itself if they are."""
    memory = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    if x.is_contiguous(memory_format=memory):
        return x
    x = x.contiguous()
    permuted = torch.empty_like(x, memory_format=memory)
    places = x.shape[2:].numel()
    block = min(64, max(16, triton.next_power_of_2(x.shape[1])))
    tiles = x.shape[0] * triton.cdiv(x.shape[1], block) * triton.cdiv(places, 64)
    channels_last_kernel[(tiles,)](
        x,
        permuted,
        x.shape[1],
        places,
        WIDE=x.numel() >= 2**31,
        BLOCK_CHANNELS=block,
        BLOCK_PLACES=64,
        num_warps=8,
    )
    return permuted
'''
_TF32 = '''\
@triton.jit
def to_tf32(x):
    """The nearest number of TF32, as the library takes operands; tensor cores cut off what TF32 has no bits for. Numbers of
    TF32, infinities and NaN stay what they are."""
    bits = (x.to(tl.int32, bitcast=True) + 4096) & -8192
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def tf32_kernel(x_ptr, rounded_ptr, n_elements, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK elements a program."""
    program = tl.program_id(0)
    if WIDE:  # more elements than a 32-bit offset can reach
        program = program.to(tl.int64)
    offs = program * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_elements
    tl.store(rounded_ptr + offs, to_tf32(tl.load(x_ptr + offs, mask=mask, other=0.0)), mask=mask)


def launch_tf32(x, memory=torch.contiguous_format):
    """x rounded to TF32: once here, not for each tap and tile in the loop of a convolution."""
    x = x.contiguous(memory_format=memory)
    rounded = torch.empty_like(x)
    tf32_kernel[(triton.cdiv(x.numel(), 1024),)](x, rounded, x.numel(), WIDE=x.numel() >= 2**31, BLOCK=1024, num_warps=4)
    return rounded
'''
_WHERE_ROUNDED = (
    ("    BLOCK_PLACES: tl.constexpr,\n", "    BLOCK_PLACES: tl.constexpr,\n    ROUND: tl.constexpr,\n"),
    ("    tl.store(", "    if ROUND:\n        x = to_tf32(x)\n    tl.store("),
    ("launch_channels_last(x", "launch_channels_last(x, rounded=False"),
    ("x itself if they are.", "x itself if they are. rounded: to TF32."),
    ("return x\n", "return launch_tf32(x, memory) if rounded else x\n"),
    ("        BLOCK_PLACES=64,\n", "        BLOCK_PLACES=64,\n        ROUND=rounded,\n"),
)
_WHERE_GIVEN = (
    ('):\n    """x with', ', permuted=None):\n    """x with'),
    ('if they are."""', 'if they are. permuted: where that is put."""'),
    (
        "    if x.is_contiguous(memory_format=memory):\n",
        "    if permuted is not None and x.is_contiguous(memory_format=memory):\n        return permuted.copy_(x)\n"
        "    if x.is_contiguous(memory_format=memory):\n",
    ),
    (
        "    permuted = torch.empty_like(x, memory_format=memory)\n",
        "    permuted = torch.empty_like(x, memory_format=memory) if permuted is None else permuted\n",
    ),
)


def helpers(turning: bool, rounding: bool, given: bool = False) -> list[str]:
    """The texts of the kernels and launchers that are called. turning: whether channels are put last. rounding: whether
    tensors are rounded. given: whether a copy may be put where a tensor lies."""
    text = _TURNING
    for plain, other in (*(_WHERE_GIVEN if given else ()), *(_WHERE_ROUNDED if rounding else ())):
        text = text.replace(plain, other)
    return [each for each, needed in ((_TF32, rounding), (text, turning)) if needed]
