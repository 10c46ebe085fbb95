"""channels_copy: the copy of a tensor with its channels last, for the library's convolutions.

Copied element by element, one side of such a copy is strided: neighbours in a warp are far apart. Here a program reads a
tile of channels and places along the places and writes it along the channels; the two orders meet in shared memory.
"""

from __future__ import annotations

LAUNCHER = "launch_channels_last"
TEXT = '''\
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
