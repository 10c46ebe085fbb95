"""scoring: how likely a language model is to give each of some answers (TWOSOME, arXiv 2401.14151).

    s(answer) = sum over its tokens of log p(token | prompt, tokens before it)

divided by the number of its tokens or words where it is normalized. The softmax of a version's scores is the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn import functional

from mtmc.agents.policies.learned.lm.packing import Pack, sheet_of
from mtmc.errors import ModelError

Precision = Literal["auto", "float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class Answered:
    """scores: [answers of all packs], float32. ends: [packs, width of the model], float32: the model's last hidden state of
    each prompt's last token."""

    scores: torch.Tensor
    ends: torch.Tensor


def answer_scores(model: Any, packs: Sequence[Pack], precision: Precision = "auto") -> Answered:
    """Joint log probabilities of all answers, in one run of the model. With gradients where they are on.

    model: of transformers, for causal language modelling, with or without an adapter of peft. precision: of everything but
    the last layer; "auto" is bfloat16 on a GPU.
    """
    device = next(model.parameters()).device
    sheet = sheet_of(packs)

    def tensor(values: Any) -> torch.Tensor:
        return torch.from_numpy(values).to(device)

    with _autocast(device, precision):
        hidden = model.get_decoder()(
            input_ids=tensor(sheet.tokens),
            attention_mask=tensor(sheet.seen),
            position_ids=tensor(sheet.positions),
            use_cache=False,
        ).last_hidden_state.float()
    ends = hidden[torch.arange(len(packs), device=device), tensor(sheet.last)]
    rows = hidden.flatten(0, 1)[tensor(sheet.rows)]
    logits = functional.linear(rows, model.get_output_embeddings().weight.float())
    edge_row = tensor(sheet.edge_row)
    edges = logits[edge_row, tensor(sheet.edge_token)] - logits.logsumexp(dim=-1)[edge_row]
    scores = torch.zeros(sheet.answers, device=device)
    return Answered(scores.index_add(0, tensor(sheet.path_answer), edges[tensor(sheet.path_edge)]), ends)


def check_model(model: Any) -> None:
    """Raises: ModelError for a model whose last layer is more than a product, which `answer_scores` would leave out."""
    config = model.config
    odd = [name for name in ("final_logit_softcapping", "logit_scale", "logits_scaling") if getattr(config, name, None)]
    if odd or getattr(model.get_output_embeddings(), "bias", None) is not None:
        raise ModelError(
            f"a model of type {config.model_type!r} cannot be scored ({', '.join(odd) or 'bias'}): use another"
        )


def _autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    if precision == "bfloat16" or (precision == "auto" and device.type == "cuda"):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()
