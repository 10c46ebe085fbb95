"""A language model of a few thousand random weights, with a tokenizer of byte pairs of a short text, as a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from mtmc.agents.policies.learned.lm.prompt import QUESTION

TEXT = """# GPU # Reference # Plan # Code # Steps # Now # Next optimization
import torch import triton import triton.language as tl
class ModelNew(nn.Module): def forward(self, x): return x
retile the linear kernel to 128x64 fuse relu and add lower sum to a Triton kernel stop: keep this version as it is
"""


def tiny_tokenizer(joins: bool = False, texts: Sequence[str] = (TEXT,), size: int = 400) -> PreTrainedTokenizerFast:
    """Byte pairs of some texts. joins: without any border between words or lines, and with pairs across them."""
    core = Tokenizer(models.BPE())
    core.decoder = decoders.ByteLevel()
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not joins)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([QUESTION + "fuse"] * 9 if joins else texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<end>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    return tokenizer


def tiny_model(seed: int = 0, vocabulary: int = 400) -> LlamaForCausalLM:
    """Two layers of width 32; weights large enough that scores differ."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def tiny_base(folder: Path, seed: int = 0, texts: Sequence[str] = (TEXT,)) -> Path:
    """A folder that `load_base` takes. texts: that its tokenizer knows; of any but `TEXT` it has more tokens."""
    size = 400 if texts == (TEXT,) else 2000
    tiny_model(seed, size).save_pretrained(folder)
    tiny_tokenizer(texts=texts, size=size).save_pretrained(folder)
    return folder
