"""Layers of transformers, from small configurations."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf

from tests.zoo.example import Builder, Example, example

WIDTH, HEADS, LENGTH, BATCH = 128, 4, 64, 2
DECODER = {
    "hidden_size": WIDTH,
    "intermediate_size": 3 * WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": WIDTH // HEADS,
    "num_hidden_layers": 2,
    "vocab_size": 500,
}
"""What the configurations of most decoders call their sizes."""
ENCODER = {
    key: DECODER[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
}


def tokens(width: int = WIDTH) -> torch.Tensor:
    """Activations of a sequence: (BATCH, LENGTH, width)."""
    return torch.randn(BATCH, LENGTH, width)


def configured(config: Any, attention: str = "sdpa") -> Any:
    """A configuration whose layers know which attention to run."""
    config._attn_implementation = attention
    return config


def causal() -> torch.Tensor:
    """The additive mask of a causal decoder: (1, 1, LENGTH, LENGTH)."""
    return torch.full((LENGTH, LENGTH), torch.finfo(torch.bfloat16).min).triu(1)[None, None]


def positions(rotary: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines as a decoder hands them to its layers."""
    return rotary(tokens(), torch.arange(LENGTH)[None])


def llama() -> Any:
    """A small Llama."""
    return configured(hf.LlamaConfig(**DECODER, bos_token_id=1, eos_token_id=2))


def llama_layer() -> Example:
    """A whole decoder layer with grouped queries."""
    from transformers.models.llama import modeling_llama as m

    return example(
        m.LlamaDecoderLayer(llama(), 0), tokens(), position_embeddings=positions(m.LlamaRotaryEmbedding(llama()))
    )


def llama_attention() -> Example:
    """Its attention, written out, with an additive mask."""
    from transformers.models.llama import modeling_llama as m

    config = configured(hf.LlamaConfig(**DECODER), "eager")
    where = positions(m.LlamaRotaryEmbedding(config))
    return example(m.LlamaAttention(config, 0), tokens(), position_embeddings=where, attention_mask=causal())


def llama_mlp() -> Example:
    """Its gated MLP."""
    from transformers.models.llama.modeling_llama import LlamaMLP

    return example(LlamaMLP(llama()), tokens())


def llama_norm() -> Example:
    """Its RMSNorm."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return example(LlamaRMSNorm(WIDTH), tokens())


def llama_rotary() -> Example:
    """Its table of cosines and sines, in an autocast region of its own."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    return example(LlamaRotaryEmbedding(llama()), tokens(), torch.arange(LENGTH)[None])


def llama_model() -> Example:
    """Two layers with embeddings, norm and head."""
    return example(hf.LlamaForCausalLM(llama()), torch.randint(0, 500, (BATCH, LENGTH)), use_cache=False)


def mistral_layer() -> Example:
    """A decoder layer with a sliding window."""
    from transformers.models.mistral import modeling_mistral as m

    config = configured(hf.MistralConfig(**DECODER))
    return example(
        m.MistralDecoderLayer(config, 0), tokens(), position_embeddings=positions(m.MistralRotaryEmbedding(config))
    )


def qwen2_layer() -> Example:
    """A decoder layer with biases in its projections."""
    from transformers.models.qwen2 import modeling_qwen2 as m

    config = configured(hf.Qwen2Config(**{key: DECODER[key] for key in DECODER if key != "head_dim"}))
    return example(
        m.Qwen2DecoderLayer(config, 0), tokens(), position_embeddings=positions(m.Qwen2RotaryEmbedding(config))
    )


def qwen3_layer() -> Example:
    """A decoder layer that normalizes queries and keys."""
    from transformers.models.qwen3 import modeling_qwen3 as m

    config = configured(hf.Qwen3Config(**DECODER))
    return example(
        m.Qwen3DecoderLayer(config, 0), tokens(), position_embeddings=positions(m.Qwen3RotaryEmbedding(config))
    )


def phi3_layer() -> Example:
    """A decoder layer with fused projections."""
    from transformers.models.phi3 import modeling_phi3 as m

    sizes = {key: DECODER[key] for key in DECODER if key != "head_dim"}
    config = configured(hf.Phi3Config(**sizes, pad_token_id=0))
    return example(
        m.Phi3DecoderLayer(config, 0), tokens(), position_embeddings=positions(m.Phi3RotaryEmbedding(config))
    )


def gemma2_layer() -> Example:
    """A decoder layer with four norms and a soft cap on its scores."""
    from transformers.models.gemma2 import modeling_gemma2 as m

    config = configured(hf.Gemma2Config(**DECODER), "eager")
    where = positions(m.Gemma2RotaryEmbedding(config))
    return example(m.Gemma2DecoderLayer(config, 0), tokens(), position_embeddings=where, attention_mask=causal())


def drawn(module: torch.nn.Module) -> torch.nn.Module:
    """The module with all parameters drawn: layers leave some as they find the memory, since a whole model draws them."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return module


def mixtral_experts() -> Example:
    """A sparse mixture of experts, as models are made: products for all tokens and their experts at once."""
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = hf.MixtralConfig(**DECODER, num_local_experts=4)
    config._experts_implementation = "batched_mm"
    return example(drawn(MixtralSparseMoeBlock(config)), tokens())


def mixtral_loop() -> Example:
    """The same in a loop over the experts that any token has chosen: which, only values tell."""
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = hf.MixtralConfig(**DECODER, num_local_experts=4)
    config._experts_implementation = "eager"
    return example(drawn(MixtralSparseMoeBlock(config)), tokens())


def gpt2_block() -> Example:
    """A block with Conv1D and tanh-gelu."""
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    return example(GPT2Block(configured(hf.GPT2Config(n_embd=WIDTH, n_head=HEADS, n_layer=2)), 0), tokens())


def neox_layer() -> Example:
    """A layer with a parallel residual."""
    from transformers.models.gpt_neox import modeling_gpt_neox as m

    config = configured(hf.GPTNeoXConfig(**ENCODER, vocab_size=500))
    return example(m.GPTNeoXLayer(config, 0), tokens(), position_embeddings=positions(m.GPTNeoXRotaryEmbedding(config)))


def falcon_layer() -> Example:
    """A decoder layer with one head for keys and values."""
    from transformers.models.falcon import modeling_falcon as m

    config = configured(hf.FalconConfig(hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=2))
    where = positions(m.FalconRotaryEmbedding(config))
    return example(m.FalconDecoderLayer(config, 0), tokens(), None, None, position_embeddings=where)


def opt_layer() -> Example:
    """A decoder layer with relu."""
    from transformers.models.opt.modeling_opt import OPTDecoderLayer

    config = hf.OPTConfig(hidden_size=WIDTH, ffn_dim=3 * WIDTH, num_attention_heads=HEADS, num_hidden_layers=2)
    return example(OPTDecoderLayer(configured(config), 0), tokens())


def bloom_block() -> Example:
    """A block with alibi."""
    from transformers.models.bloom import modeling_bloom as m

    config = hf.BloomConfig(hidden_size=WIDTH, n_head=HEADS, n_layer=2)
    alibi = m.build_alibi_tensor(torch.ones(BATCH, LENGTH, dtype=torch.int64), HEADS, torch.float32)
    return example(m.BloomBlock(config, 0), tokens(), alibi, causal())


def bert() -> Any:
    """A small BERT."""
    return configured(hf.BertConfig(**ENCODER))


def padding() -> torch.Tensor:
    """The additive mask of a batch whose second row ends early: (BATCH, 1, 1, LENGTH)."""
    mask = torch.zeros(BATCH, 1, 1, LENGTH)
    mask[1, ..., -5:] = torch.finfo(torch.bfloat16).min
    return mask


def bert_layer() -> Example:
    """An encoder layer with a padding mask."""
    from transformers.models.bert.modeling_bert import BertLayer

    return example(BertLayer(bert()), tokens(), attention_mask=padding())


def bert_attention() -> Example:
    """Its attention, written out."""
    from transformers.models.bert.modeling_bert import BertSelfAttention

    return example(BertSelfAttention(configured(hf.BertConfig(**ENCODER), "eager")), tokens(), attention_mask=padding())


def roberta_embeddings() -> Example:
    """Words, types, and positions that are counted past the padding."""
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    return example(
        RobertaEmbeddings(hf.RobertaConfig(**ENCODER, vocab_size=500)), torch.randint(0, 500, (BATCH, LENGTH))
    )


def t5() -> Any:
    """A small T5."""
    return configured(hf.T5Config(d_model=WIDTH, d_kv=WIDTH // HEADS, d_ff=3 * WIDTH, num_heads=HEADS, num_layers=2))


def t5_block() -> Example:
    """An encoder block with relative positions in buckets."""
    from transformers.models.t5.modeling_t5 import T5Block

    return example(T5Block(t5(), has_relative_attention_bias=True, layer_idx=0), tokens())


def t5_norm() -> Example:
    """Its norm, without a mean or a bias."""
    from transformers.models.t5.modeling_t5 import T5LayerNorm

    return example(T5LayerNorm(WIDTH), tokens())


def bart_layer() -> Example:
    """An encoder layer with norms after its residuals."""
    from transformers.models.bart.modeling_bart import BartEncoderLayer

    config = hf.BartConfig(d_model=WIDTH, encoder_attention_heads=HEADS, encoder_ffn_dim=3 * WIDTH, encoder_layers=2)
    return example(BartEncoderLayer(configured(config)), tokens(), None)


def whisper_layer() -> Example:
    """An encoder layer of speech."""
    from transformers.models.whisper.modeling_whisper import WhisperEncoderLayer

    config = hf.WhisperConfig(d_model=WIDTH, encoder_attention_heads=HEADS, encoder_ffn_dim=3 * WIDTH, encoder_layers=2)
    return example(WhisperEncoderLayer(configured(config)), tokens(), None)


def vit_layer() -> Example:
    """An encoder layer of patches."""
    from transformers.models.vit.modeling_vit import ViTLayer

    return example(ViTLayer(configured(hf.ViTConfig(**ENCODER))), tokens())


def clip_mlp() -> Example:
    """An MLP with the fast gelu."""
    from transformers.models.clip.modeling_clip import CLIPMLP

    return example(CLIPMLP(hf.CLIPVisionConfig(**ENCODER)), tokens())


def siglip_layer() -> Example:
    """An encoder layer with tanh-gelu."""
    from transformers.models.siglip.modeling_siglip import SiglipEncoderLayer

    return example(SiglipEncoderLayer(configured(hf.SiglipVisionConfig(**ENCODER))), tokens(), None)


def dinov2_layer() -> Example:
    """An encoder layer with layer scale."""
    from transformers.models.dinov2.modeling_dinov2 import Dinov2Layer

    config = hf.Dinov2Config(hidden_size=WIDTH, num_attention_heads=HEADS, num_hidden_layers=2)
    return example(Dinov2Layer(configured(config)), tokens())


def swin_layer() -> Example:
    """A layer with shifted windows."""
    from transformers.models.swin.modeling_swin import SwinLayer

    config = configured(hf.SwinConfig(embed_dim=32, depths=[2], num_heads=[4], window_size=4))
    return example(SwinLayer(config, 32, (8, 8), 4, shift_size=2), torch.randn(BATCH, 64, 32), (8, 8))


def convnext_layer() -> Example:
    """A depthwise convolution, a norm over channels, an MLP."""
    from transformers.models.convnext.modeling_convnext import ConvNextLayer

    return example(ConvNextLayer(hf.ConvNextConfig(), 32), torch.randn(BATCH, 32, 14, 14))


def mamba_mixer() -> Example:
    """A selective state space, in the path that needs no kernels of its own."""
    from transformers.models.mamba.modeling_mamba import MambaMixer

    config = hf.MambaConfig(hidden_size=32, state_size=8, num_hidden_layers=1, use_mambapy=False)
    return example(MambaMixer(config, 0), torch.randn(BATCH, 8, 32))


def rwkv_feed_forward() -> Example:
    """A channel mix with a shift in time."""
    from transformers.models.rwkv.modeling_rwkv import RwkvFeedForward

    return example(drawn(RwkvFeedForward(hf.RwkvConfig(hidden_size=WIDTH, num_hidden_layers=2))), tokens())


BUILDERS: dict[str, Builder] = {
    "LlamaDecoderLayer": llama_layer,
    "LlamaAttention": llama_attention,
    "LlamaMLP": llama_mlp,
    "LlamaRMSNorm": llama_norm,
    "LlamaRotaryEmbedding": llama_rotary,
    "LlamaForCausalLM": llama_model,
    "MistralDecoderLayer": mistral_layer,
    "Qwen2DecoderLayer": qwen2_layer,
    "Qwen3DecoderLayer": qwen3_layer,
    "Phi3DecoderLayer": phi3_layer,
    "Gemma2DecoderLayer": gemma2_layer,
    "MixtralSparseMoeBlock": mixtral_experts,
    "MixtralSparseMoeBlock eager": mixtral_loop,
    "GPT2Block": gpt2_block,
    "GPTNeoXLayer": neox_layer,
    "FalconDecoderLayer": falcon_layer,
    "OPTDecoderLayer": opt_layer,
    "BloomBlock": bloom_block,
    "BertLayer": bert_layer,
    "BertSelfAttention": bert_attention,
    "RobertaEmbeddings": roberta_embeddings,
    "T5Block": t5_block,
    "T5LayerNorm": t5_norm,
    "BartEncoderLayer": bart_layer,
    "WhisperEncoderLayer": whisper_layer,
    "ViTLayer": vit_layer,
    "CLIPMLP": clip_mlp,
    "SiglipEncoderLayer": siglip_layer,
    "Dinov2Layer": dinov2_layer,
    "SwinLayer": swin_layer,
    "ConvNextLayer": convnext_layer,
    "MambaMixer": mamba_mixer,
    "RwkvFeedForward": rwkv_feed_forward,
}
