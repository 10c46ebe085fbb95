"""adapter: a base model with LoRA (arXiv 2106.09685) through peft: made, written, read.

A folder of an adapter has adapter_config.json and adapter_model.safetensors, which peft reads, and lm.json: what the
adapter was trained for. Weights are written in 16 bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mtmc.agents.policies.learned.lm.base import Base, load_base
from mtmc.agents.policies.learned.lm.prompt import NORMALIZATIONS, Normalize, PromptSettings
from mtmc.agents.policies.learned.lm.quiet import quiet
from mtmc.errors import ConfigError, RunError
from mtmc.renamed import under_new_names
from mtmc.stamped import read_stamped

FORMAT, VERSION = "mtmc lm policy", 2
CONFIG, WEIGHTS, ABOUT = "adapter_config.json", "adapter_model.safetensors", "lm.json"


@dataclass(frozen=True)
class About:
    """What an adapter was trained for: it means something under the same weights, asked and scored in the same way.

    base: name of the base model. mark: of its weights (`base.Base`). prompt: what it was shown. normalize: of scores.
    scale: that scores are multiplied with. heuristic_weight: of the logarithm of the heuristic's prior, which is added to
    them: with 0 the model decides alone, with 1 it corrects the heuristic.
    """

    base: str
    mark: str
    prompt: PromptSettings = field(default_factory=PromptSettings)
    normalize: Normalize = "token"
    scale: float = 1.0
    heuristic_weight: float = 0.0


def check_scores(normalize: str, scale: float, heuristic_weight: float) -> None:
    """Raises: ConfigError for a normalization that there is none of, a scale not above 0, or a weight below 0."""
    if normalize not in NORMALIZATIONS:
        raise ConfigError(f"policy.normalize cannot be {normalize!r}: use one of {', '.join(NORMALIZATIONS)}")
    if not scale > 0:
        raise ConfigError(f"policy.scale cannot be {scale:g}: use a number above 0 (1 changes nothing)")
    if not heuristic_weight >= 0:
        hint = "use a number of 0 (the model alone) or more"
        raise ConfigError(f"policy.heuristic_weight cannot be {heuristic_weight:g}: {hint}")


def with_adapter(base: Base, rank: int, alpha: int, seed: int) -> Any:
    """The base model with a fresh adapter on all its products but the last layer's: it changes nothing before it is trained.

    The model's own layers are replaced in place; `model.disable_adapter()` is the base again. Raises: ModelError for a model
    that cannot be scored.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    from mtmc.agents.policies.learned.lm.scoring import check_model

    check_model(base.model)
    config = LoraConfig(
        r=rank, lora_alpha=alpha, target_modules="all-linear", lora_dropout=0.0, bias="none", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        return get_peft_model(base.model, config)


def adapter_weights(model: Any) -> dict[str, Any]:
    """The adapter's tensors by name, as peft writes them; not copied."""
    from peft import get_peft_model_state_dict

    found: dict[str, Any] = get_peft_model_state_dict(model)
    return found


def set_adapter_weights(model: Any, weights: Mapping[str, Any]) -> None:
    """The inverse. Raises: RunError where they are those of an adapter of another shape."""
    from peft import set_peft_model_state_dict

    known = {name: tuple(tensor.shape) for name, tensor in adapter_weights(model).items()}
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if known != given:
        odd = sorted(name for name in {*known, *given} if known.get(name) != given.get(name))
        raise RunError(
            f"these weights are of another adapter ({odd[0]} differs): use the base and rank it was made with"
        )
    set_peft_model_state_dict(model, dict(weights))


def write_adapter(model: Any, about: About, folder: Path) -> list[Path]:
    """Write an adapter into a folder that exists. Raises: OSError where a file cannot be written."""
    files = write_weights(model, about.base, folder)
    (folder / ABOUT).write_text(_json({"format": FORMAT, "version": VERSION, **asdict(about)}), encoding="utf-8")
    return [*files, folder / ABOUT]


def write_weights(model: Any, base: str, folder: Path) -> list[Path]:
    """What peft reads alone. base: name of the base model. Raises: OSError where a file cannot be written."""
    import torch
    from safetensors.torch import save_file

    weights = {
        name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in adapter_weights(model).items()
    }
    save_file(weights, folder / WEIGHTS)
    config = {name: value for name, value in model.peft_config["default"].to_dict().items() if value is not None}
    config |= {"base_model_name_or_path": base, "inference_mode": True}
    (folder / CONFIG).write_text(_json(config), encoding="utf-8")
    return [folder / WEIGHTS, folder / CONFIG]


def read_about(folder: Path) -> About:
    """What an adapter was trained for. Raises: RunError where there is none, or one of a newer format."""
    try:
        data = read_stamped(folder / ABOUT, FORMAT, VERSION)
        data = under_new_names("policy", data, [each.name for each in fields(About)])
        return About(**{**data, "prompt": PromptSettings(**data["prompt"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"there is no adapter in {folder} ({error}): name a folder that mtmc train policy=lm wrote"
        ) from error


def read_adapter(folder: Path, base: str = "") -> tuple[Base, Any, About]:
    """A base model, the same with its adapter, and what that was trained for. base: instead of the one it names, for a copy
    of the same weights that lies elsewhere.

    Raises: RunError where there is no adapter, or the base has other weights. ModelError as `load_base`.
    """
    about = read_about(folder)
    loaded = load_base(base or about.base)
    check_mark(about, folder, loaded.name, loaded.mark)
    return loaded, attached(loaded, folder), about


def check_mark(about: About, folder: Path, base: str, mark: str) -> None:
    """Raises: RunError where an adapter was trained on other weights than those of a base with this mark."""
    if mark != about.mark:
        raise RunError(
            f"the adapter in {folder} was trained on other weights than those of {base!r}: give those of "
            f"{about.base!r} (mark {about.mark}) as policy.base"
        )


def attached(base: Base, folder: Path) -> Any:
    """A base model with the adapter of a folder. Raises: RunError where it does not fit, ModelError as `with_adapter`."""
    from peft import LoraConfig, get_peft_model

    from mtmc.agents.policies.learned.lm.scoring import check_model

    check_model(base.model)
    try:
        config = LoraConfig.from_pretrained(str(folder))
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(folder, error) from error
    weights = read_weights(folder)
    config.base_model_name_or_path = None  # our name for it: peft would warn that transformers has another
    with quiet():
        model = get_peft_model(base.model, config)
    set_adapter_weights(model, weights)
    return model.eval().requires_grad_(False)


def read_weights(folder: Path) -> dict[str, Any]:
    """The tensors of an adapter's folder by name, as `adapter_weights` gives them. Raises: RunError where there are none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Any] = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise _unreadable(folder, error) from error
    return found


def _unreadable(folder: Path, error: Exception) -> RunError:
    return RunError(f"the adapter in {folder} cannot be read ({error}): train it again")


def _json(data: Mapping[str, Any]) -> str:
    def plain(value: Any) -> Any:
        return sorted(value) if isinstance(value, set | frozenset) else str(value)

    return json.dumps(data, indent=1, sort_keys=True, default=plain) + "\n"
