"""Blocks of diffusers."""

from __future__ import annotations

import torch
from torch import nn

from tests.zoo.example import Builder, Example, example

WIDTH, HEADS, LENGTH, BATCH, TIME = 128, 4, 64, 2, 64


def tokens(length: int = LENGTH, width: int = WIDTH) -> torch.Tensor:
    """Activations of a sequence: (BATCH, length, width)."""
    return torch.randn(BATCH, length, width)


def images(channels: int = 32, side: int = 16) -> torch.Tensor:
    """Activations of an image: (BATCH, channels, side, side)."""
    return torch.randn(BATCH, channels, side, side)


def resnet_block() -> Example:
    """Group norms and convolutions with an embedding of the time."""
    from diffusers.models.resnet import ResnetBlock2D

    return example(
        ResnetBlock2D(in_channels=32, out_channels=64, temb_channels=TIME, groups=8), images(), torch.randn(BATCH, TIME)
    )


def transformer_block() -> Example:
    """Self-attention, cross-attention, a gated MLP."""
    from diffusers.models.attention import BasicTransformerBlock

    block = BasicTransformerBlock(WIDTH, HEADS, WIDTH // HEADS, cross_attention_dim=96)
    return example(block, tokens(), encoder_hidden_states=tokens(20, 96))


def attention() -> Example:
    """Self-attention as UNets have it."""
    from diffusers.models.attention_processor import Attention

    return example(Attention(WIDTH, heads=HEADS, dim_head=WIDTH // HEADS), tokens())


def feed_forward() -> Example:
    """An MLP gated by a gelu."""
    from diffusers.models.attention import FeedForward

    return example(FeedForward(WIDTH, activation_fn="geglu"), tokens())


def ada_norm() -> Example:
    """A norm with scale and shift from the time step."""
    from diffusers.models.normalization import AdaLayerNorm

    return example(AdaLayerNorm(WIDTH, num_embeddings=100), tokens(), torch.tensor(7))


def ada_norm_zero() -> Example:
    """A norm that also gives gates."""
    from diffusers.models.normalization import AdaLayerNormZero

    return example(AdaLayerNormZero(WIDTH), tokens(), emb=torch.randn(BATCH, WIDTH))


def downsample() -> Example:
    """A convolution of stride 2."""
    from diffusers.models.downsampling import Downsample2D

    return example(Downsample2D(32, use_conv=True), images())


def upsample() -> Example:
    """Nearest neighbours, then a convolution."""
    from diffusers.models.upsampling import Upsample2D

    return example(Upsample2D(32, use_conv=True), images())


def flux_block() -> Example:
    """Joint attention over text and image, each with its own norms."""
    from diffusers.models.transformers.transformer_flux import FluxTransformerBlock

    head = WIDTH // HEADS
    rotary = (torch.randn(LENGTH + 16, head), torch.randn(LENGTH + 16, head))
    block = FluxTransformerBlock(WIDTH, HEADS, head)
    return example(block, tokens(), tokens(16), torch.randn(BATCH, WIDTH), image_rotary_emb=rotary)


def flux_single_block() -> Example:
    """Attention and MLP side by side over text and image together."""
    from diffusers.models.transformers.transformer_flux import FluxSingleTransformerBlock

    head = WIDTH // HEADS
    rotary = (torch.randn(LENGTH + 16, head), torch.randn(LENGTH + 16, head))
    block = FluxSingleTransformerBlock(WIDTH, HEADS, head)
    return example(block, tokens(), tokens(16), torch.randn(BATCH, WIDTH), image_rotary_emb=rotary)


def joint_block() -> Example:
    """The block of Stable Diffusion 3."""
    from diffusers.models.attention import JointTransformerBlock

    return example(JointTransformerBlock(WIDTH, HEADS, WIDTH // HEADS), tokens(), tokens(16), torch.randn(BATCH, WIDTH))


def unet_block() -> Example:
    """A stage of a UNet on its way down."""
    from diffusers.models.unets.unet_2d_blocks import CrossAttnDownBlock2D

    block = CrossAttnDownBlock2D(
        32, 32, TIME, num_layers=1, resnet_groups=8, num_attention_heads=HEADS, cross_attention_dim=96
    )
    return example(block, images(), torch.randn(BATCH, TIME), encoder_hidden_states=tokens(20, 96))


class TimeEmbedding(nn.Module):
    """As a UNet begins: sines of the time step in fp32, then an MLP in the dtype of its weights."""

    def __init__(self) -> None:
        from diffusers.models.embeddings import TimestepEmbedding, Timesteps

        super().__init__()
        self.sines = Timesteps(64, True, 0)
        self.mlp = TimestepEmbedding(64, WIDTH)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        return self.mlp(self.sines(steps).to(self.mlp.linear_1.weight.dtype))


def norm_activation() -> Example:
    """What stands before most convolutions of a UNet."""
    return example(nn.Sequential(nn.GroupNorm(8, 32), nn.SiLU()), images())


BUILDERS: dict[str, Builder] = {
    "ResnetBlock2D": resnet_block,
    "BasicTransformerBlock": transformer_block,
    "diffusers Attention": attention,
    "diffusers FeedForward": feed_forward,
    "AdaLayerNorm": ada_norm,
    "AdaLayerNormZero": ada_norm_zero,
    "Downsample2D": downsample,
    "Upsample2D": upsample,
    "FluxTransformerBlock": flux_block,
    "FluxSingleTransformerBlock": flux_single_block,
    "JointTransformerBlock": joint_block,
    "CrossAttnDownBlock2D": unet_block,
    "TimestepEmbedding": lambda: example(TimeEmbedding(), torch.tensor([3, 700])),
    "GroupNormSiLU": norm_activation,
}
