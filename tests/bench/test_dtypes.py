"""A task's text in another floating type: what is changed, and that it computes in it."""

from __future__ import annotations

import pytest

from mtmc.errors import ConfigError, TaskError
from mtmc.task import load_task
from mtmc.task.dtypes import in_dtype
from mtmc.task.reference import instantiate
from tests.bench.faults import TEXT


def test_fp32_is_the_text_as_it_is() -> None:
    assert in_dtype(TEXT, "fp32") == TEXT


def test_the_text_says_it_at_the_end_of_init_and_in_the_inputs() -> None:
    text = in_dtype(TEXT, "fp16")
    added = [line.strip() for line in text.splitlines() if line not in TEXT.splitlines()]
    assert added == [
        "for tensor in (*self.parameters(), *self.buffers()):",
        "if tensor.is_floating_point():",
        "tensor.data = tensor.data.to(torch.float16)",
        "return [each.to(torch.float16) if torch.is_tensor(each) and each.is_floating_point() else each "
        "for each in [torch.randn(rows, 8)]]",
    ]


@pytest.mark.parametrize(("dtype", "name"), [("fp16", "torch.float16"), ("bf16", "torch.bfloat16")])
def test_weights_inputs_and_result_are_in_it(dtype: str, name: str) -> None:
    task = load_task("linear_gelu")
    model, inputs = instantiate(in_dtype(task.source, dtype), task.small, task.name)
    assert {str(each.dtype) for each in (*model.parameters(), *inputs, model(*inputs))} == {name}


def test_integers_and_several_returns_are_kept() -> None:
    inner = "    def inner():\n        return rows\n\n"
    two = "    if rows > 3:\n        return torch.arange(8), torch.ones(8)\n    return []\n"
    text = TEXT.replace("    return [torch.randn(rows, 8)]\n", inner + two)
    _, inputs = instantiate(in_dtype(text, "fp16"), load_task("softmax").full, "task")
    assert [str(each.dtype) for each in inputs] == ["torch.int64", "torch.float16"]


def test_a_candidate_has_another_class() -> None:
    text = in_dtype(TEXT.replace("Model(", "ModelNew("), "bf16", "ModelNew")
    assert text.count("torch.bfloat16") == 2


def test_torch_is_imported_where_it_was_not() -> None:
    text = TEXT.replace("import torch\n", "from torch import nn, randn\n").replace("torch.nn", "nn")
    assert "import torch\nfrom torch import nn, randn\n" in in_dtype(text, "fp16")


@pytest.mark.parametrize(
    ("text", "dtype", "error", "said"),
    [
        (TEXT, "fp8", ConfigError, "dtype cannot be 'fp8': use one of fp32, fp16, bf16"),
        ("class Model(:\n", "fp16", TaskError, "it is no Python"),
        ("class Model:\n    def __init__(self): pass\n", "fp16", TaskError, "stands on one line"),
    ],
)
def test_what_cannot_be_put_into_it(text: str, dtype: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        in_dtype(text, dtype)
