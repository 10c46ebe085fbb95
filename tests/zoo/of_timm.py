"""Blocks of timm."""

from __future__ import annotations

from functools import partial

import torch

from tests.zoo.example import Builder, Example, example

WIDTH, HEADS, PATCHES, BATCH = 128, 4, 49, 2


def tokens(length: int = PATCHES, width: int = WIDTH) -> torch.Tensor:
    """Activations of patches: (BATCH, length, width)."""
    return torch.randn(BATCH, length, width)


def images(channels: int = 32, side: int = 14) -> torch.Tensor:
    """Activations of an image: (BATCH, channels, side, side)."""
    return torch.randn(BATCH, channels, side, side)


def vit_block() -> Example:
    """A block with layer scale and normalized queries."""
    from timm.models.vision_transformer import Block

    return example(Block(WIDTH, HEADS, qkv_bias=True, qk_norm=True, init_values=0.1), tokens())


def layer_scale() -> Example:
    """A factor for each channel."""
    from timm.models.vision_transformer import LayerScale

    return example(LayerScale(WIDTH, 0.1), tokens())


def swin_block() -> Example:
    """A block with shifted windows."""
    from timm.models.swin_transformer import SwinTransformerBlock

    return example(SwinTransformerBlock(32, (8, 8), HEADS, window_size=4, shift_size=2), torch.randn(BATCH, 8, 8, 32))


def convnext_block() -> Example:
    """A depthwise convolution of 7 by 7, a norm, an MLP."""
    from timm.models.convnext import ConvNeXtBlock

    return example(ConvNeXtBlock(32, ls_init_value=0.1), images())


def mixer_block() -> Example:
    """MLPs over patches, then over channels."""
    from timm.models.mlp_mixer import MixerBlock

    return example(MixerBlock(WIDTH, PATCHES), tokens())


def mbconv() -> Example:
    """An inverted residual with squeeze and excitation."""
    from timm.models._efficientnet_blocks import InvertedResidual, SqueezeExcite

    silu = torch.nn.SiLU
    module = InvertedResidual(32, 32, exp_ratio=4.0, act_layer=silu, se_layer=partial(SqueezeExcite, rd_ratio=0.25))
    return example(module, images())


def squeeze_excite() -> Example:
    """A gate for each channel from the mean of an image."""
    from timm.layers import SqueezeExcite

    return example(SqueezeExcite(32), images())


def resnet_bottleneck() -> Example:
    """A bottleneck with its residual."""
    from timm.models.resnet import Bottleneck

    return example(Bottleneck(64, 16), images(64))


def regnet_bottleneck() -> Example:
    """A bottleneck of grouped convolutions."""
    from timm.models.regnet import Bottleneck

    return example(Bottleneck(32, 32, group_size=8), images())


def maxvit_block() -> Example:
    """Convolution, attention in windows, attention over a grid."""
    from timm.models.maxxvit import MaxxVitBlock, MaxxVitTransformerCfg

    config = MaxxVitTransformerCfg(dim_head=8, window_size=(7, 7), grid_size=(7, 7))
    return example(MaxxVitBlock(32, 32, transformer_cfg=config), images())


def coatnet_block() -> Example:
    """Attention over an image with relative positions."""
    from timm.models.maxxvit import MaxxVitTransformerCfg, TransformerBlock2d

    return example(TransformerBlock2d(32, 32, cfg=MaxxVitTransformerCfg(dim_head=8)), images(side=7))


def eva_block() -> Example:
    """A block with rotary positions and a gated MLP."""
    from timm.models.eva import EvaBlock

    rope = torch.randn(PATCHES, 2 * WIDTH // HEADS)
    return example(EvaBlock(WIDTH, HEADS, swiglu_mlp=True, num_prefix_tokens=0), tokens(), rope=rope)


def dense_layer() -> Example:
    """Norms and convolutions over what earlier layers left."""
    from timm.models.densenet import DenseLayer

    return example(DenseLayer(32, 8, 4), [images(16), images(16)])


def ghost_module() -> Example:
    """Cheap channels beside dear ones."""
    from timm.models.ghostnet import GhostModule

    return example(GhostModule(32, 32), images())


def beit_block() -> Example:
    """A block with relative positions in its attention."""
    from timm.models.beit import Block

    return example(Block(WIDTH, HEADS, qkv_bias=True, init_values=0.1, window_size=(7, 7)), tokens(PATCHES + 1))


def metaformer_block() -> Example:
    """Pooling in the place of attention."""
    from timm.models.metaformer import MetaFormerBlock

    return example(MetaFormerBlock(32, layer_scale_init_value=0.1), images())


BUILDERS: dict[str, Builder] = {
    "timm ViT Block": vit_block,
    "timm LayerScale": layer_scale,
    "timm SwinTransformerBlock": swin_block,
    "timm ConvNeXtBlock": convnext_block,
    "timm MixerBlock": mixer_block,
    "timm InvertedResidual": mbconv,
    "timm SqueezeExcite": squeeze_excite,
    "timm ResNet Bottleneck": resnet_bottleneck,
    "timm RegNet Bottleneck": regnet_bottleneck,
    "timm MaxxVitBlock": maxvit_block,
    "timm CoAtNet TransformerBlock2d": coatnet_block,
    "timm EvaBlock": eva_block,
    "timm DenseLayer": dense_layer,
    "timm GhostModule": ghost_module,
    "timm BEiT Block": beit_block,
    "timm MetaFormerBlock": metaformer_block,
}
