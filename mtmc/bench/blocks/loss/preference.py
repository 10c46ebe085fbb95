"""Direct preference optimization: log probabilities of chosen and rejected answers, gathered, masked, summed, compared.

Source: DPO (arXiv 2305.18290, equation 7), beta 0.1, the vocabulary of Llama 2 (arXiv 2307.09288). 2 pairs of 512
tokens in bf16; the sums under the fixed model are given.
"""

import torch
from torch import nn

pairs = 2
seq = 512
vocabulary = 32000

VARIANTS = {
    "small": {"pairs": 2, "seq": 8, "vocabulary": 160},
    "odd1": {"pairs": 1, "seq": 7, "vocabulary": 77},
    "odd2": {"pairs": 3, "seq": 5, "vocabulary": 51},
}


class Model(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, logits, tokens, mask, fixed):
        picked = logits.float().gather(2, tokens[..., None]).squeeze(2)
        sums = ((picked - torch.logsumexp(logits.float(), dim=2)) * mask).sum(1)
        chosen, rejected = (sums - fixed).chunk(2)
        margins = self.beta * (chosen - rejected)
        return -nn.functional.logsigmoid(margins), margins


def get_inputs():
    logits = torch.randn(2 * pairs, seq, vocabulary, dtype=torch.bfloat16)
    tokens = torch.randint(0, vocabulary, (2 * pairs, seq))
    mask = (torch.arange(seq) >= seq // 4).float().repeat(2 * pairs, 1)
    return [logits, tokens, mask, -8.0 * seq + torch.randn(2 * pairs)]


def get_init_inputs():
    return [0.1]
