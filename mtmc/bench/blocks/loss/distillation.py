"""The divergence of a student from its teacher at a temperature, and the cosine distance of their hidden states.

Source: DistilBERT (arXiv 1910.01108): temperature 2, weights 5 and 1, vocabulary 30522, width 768. 2048 tokens in fp16.
"""

import torch
from torch import nn

tokens = 2048
vocabulary = 30522
width = 768

VARIANTS = {
    "small": {"tokens": 24, "vocabulary": 160, "width": 48},
    "odd1": {"tokens": 7, "vocabulary": 77, "width": 33},
    "odd2": {"tokens": 13, "vocabulary": 51, "width": 21},
}


class Model(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, student, teacher, student_states, teacher_states):
        logs = torch.log_softmax(student.float() / self.temperature, dim=-1)
        targets = torch.softmax(teacher.float() / self.temperature, dim=-1)
        divergence = nn.functional.kl_div(logs, targets, reduction="batchmean") * self.temperature**2
        near = nn.functional.cosine_similarity(student_states.float(), teacher_states.float(), dim=-1)
        return 5.0 * divergence + (1 - near).mean()


def get_inputs():
    logits = [torch.randn(tokens, vocabulary, dtype=torch.float16) for _ in range(2)]
    return [*logits, *(torch.randn(tokens, width, dtype=torch.float16) for _ in range(2))]


def get_init_inputs():
    return [2.0]
