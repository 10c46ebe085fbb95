"""Attention of N responses that share one prompt, forward and backward, with the prompt replicated.

What training on groups of responses computes (GRPO and its like): every sequence is the prompt and one response, and
scaled_dot_product_attention sees N of them. q, k, v are given for the prompt once and for each response, with the
gradients of what comes out at the prompt and at the responses; the results are both outputs and all six gradients.
"""

import torch
from torch import nn

responses = 32
prompt = 8192
response = 1024
heads = 8
kv_heads = 8
width = 128

VARIANTS = {
    "small": {"responses": 3, "prompt": 40, "response": 24, "heads": 2, "kv_heads": 2, "width": 16},
    "odd1": {"responses": 2, "prompt": 37, "response": 19, "heads": 4, "kv_heads": 2, "width": 32},
    "odd2": {"responses": 5, "prompt": 17, "response": 33, "heads": 3, "kv_heads": 1, "width": 16},
}


class Model(nn.Module):
    def forward(self, q_prompt, k_prompt, v_prompt, q, k, v, grad_prompt, grad):
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in (q_prompt, k_prompt, v_prompt, q, k, v)]
            n, length = q.shape[0], q_prompt.shape[2]
            whole = [
                torch.cat([a.expand(n, -1, -1, -1), b], dim=2) for a, b in zip(leaves[:3], leaves[3:], strict=True)
            ]
            out = nn.functional.scaled_dot_product_attention(*whole, is_causal=True, enable_gqa=True)
            out_prompt, out = out[:1, :, :length], out[:, :, length:]
            grads = torch.autograd.grad([out_prompt, out], leaves, [grad_prompt, grad])
        return out_prompt.detach(), out.detach(), *grads


def get_inputs():
    def draw(n, count, length):
        return torch.randn(n, count, length, width).to(torch.bfloat16)

    shapes = [(1, heads, prompt), (1, kv_heads, prompt), (1, kv_heads, prompt)]
    shapes += [(responses, heads, response), (responses, kv_heads, response), (responses, kv_heads, response)]
    shapes += [(1, heads, prompt), (responses, heads, response)]
    return [draw(*shape) for shape in shapes]


def get_init_inputs():
    return []
