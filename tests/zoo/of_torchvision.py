"""Blocks of torchvision."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from tests.zoo.example import Builder, Example, example

BATCH = 2


def images(channels: int = 32, side: int = 14) -> torch.Tensor:
    """Activations of an image: (BATCH, channels, side, side)."""
    return torch.randn(BATCH, channels, side, side)


def basic_block() -> Example:
    """Two convolutions and their residual."""
    from torchvision.models.resnet import BasicBlock

    return example(BasicBlock(32, 32), images())


def inverted_residual() -> Example:
    """The block of MobileNetV2."""
    from torchvision.models.mobilenetv2 import InvertedResidual

    return example(InvertedResidual(32, 32, 1, 4), images())


def encoder_block() -> Example:
    """The encoder block of its vision transformer."""
    from torchvision.models.vision_transformer import EncoderBlock

    return example(EncoderBlock(4, 128, 256, 0.0, 0.0), torch.randn(BATCH, 50, 128))


def convnext_block() -> Example:
    """The block of ConvNeXt, with permutes around its linear layers."""
    from torchvision.models.convnext import CNBlock

    return example(CNBlock(32, 0.1, 0.0), images())


def shuffle_unit() -> Example:
    """Half of the channels pass by, then all are shuffled."""
    from torchvision.models.shufflenetv2 import InvertedResidual

    return example(InvertedResidual(32, 32, 1), images())


def swin_block() -> Example:
    """A block with shifted windows."""
    from torchvision.models.swin_transformer import SwinTransformerBlock

    block = SwinTransformerBlock(32, 4, [4, 4], [2, 2], norm_layer=partial(nn.LayerNorm, eps=1e-5))
    return example(block, torch.randn(BATCH, 8, 8, 32))


BUILDERS: dict[str, Builder] = {
    "torchvision BasicBlock": basic_block,
    "torchvision InvertedResidual": inverted_residual,
    "torchvision EncoderBlock": encoder_block,
    "torchvision CNBlock": convnext_block,
    "torchvision ShuffleNet InvertedResidual": shuffle_unit,
    "torchvision SwinTransformerBlock": swin_block,
}
