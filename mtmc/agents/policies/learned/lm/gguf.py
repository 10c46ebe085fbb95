"""gguf: a model in one quantized file (GGUF) as a folder that transformers loads, made once and kept.

The weights are read by transformers, the tokenizer here where transformers' own reading is known to differ from the model's.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from mtmc.errors import ModelError

_log = logging.getLogger(__name__)

_CONTROL = 3
"""Type of a token that no text is read as."""
_CHUNK = 2**20


def converted(path: Path) -> Path:
    """The folder of a GGUF file, in the user's cache folder for mtmc; the first time it is made, which takes half a minute.

    The weights are kept in 16 bits, which is finer than they are quantized. Raises: ModelError where the file cannot be
    read, is of an architecture that transformers does not take, or the package gguf is missing.
    """
    folder = _cache() / f"{path.stem}-{_digest(path)[:12]}"
    if not (folder / "config.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".converting-") as temporary:
            made = Path(temporary, "model")
            _convert(path, made)
            _put(made, folder)
    return folder


def _put(made: Path, folder: Path) -> None:
    """Move a whole folder to its place; another process may have been there first."""
    try:
        os.replace(made, folder)
    except OSError:
        if not (folder / "config.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(made, folder)


def _convert(path: Path, folder: Path) -> None:
    try:
        import gguf
    except ImportError as error:
        raise ModelError(f"{path.name} needs the package gguf: pip install 'mtmc[lm]'") from error
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from mtmc.agents.policies.learned.lm.quiet import quiet

    _log.info("converting %s, once", path)
    where: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    try:
        with quiet():
            weights = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float32, **where).state_dict()
        config = AutoConfig.from_pretrained(path.parent, **where)
        tokenizer = _tokenizer(path, gguf.GGUFReader(path))
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path} cannot be read as a model in GGUF ({error}): give another file") from error
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # what is written is not quantized any more
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(weights)
    with quiet():
        model.to(torch.float16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(path: Path, reader: Any) -> Any:
    from transformers import AutoTokenizer

    if _field(reader, "model") == "gpt2" and _field(reader, "pre") == "smollm":
        return _smollm_tokenizer(reader)
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)


def _smollm_tokenizer(reader: Any) -> Any:
    """SmolLM's: each digit for itself, then GPT-2's byte pairs. transformers leaves the digits out when it reads GGUF."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens, kinds = _field(reader, "tokens"), _field(reader, "token_type")
    merges = [tuple(pair.split(" ")) for pair in _field(reader, "merges")]
    core = Tokenizer(models.BPE(vocab={token: at for at, token in enumerate(tokens)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [AddedToken(token, special=True) for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    )
    special = {
        f"{name}_token": tokens[_field(reader, f"{key}_token_id")]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False, **special)
    template = reader.fields.get("tokenizer.chat_template")
    tokenizer.chat_template = template.contents() if template is not None else None
    return tokenizer


def _field(reader: Any, name: str) -> Any:
    """What a file says of its tokenizer; None where it says nothing."""
    found = reader.fields.get(f"tokenizer.ggml.{name}")
    return None if found is None else found.contents()


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}): give another file") from error
    return found.hexdigest()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mtmc" / "base"
