"""The built-in tasks: every one runs at each of its shapes, is worth checking there, and follows the format."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from mtmc.task import builtin_names, integer_constants, load_task
from mtmc.task.reference import instantiate, weigh
from mtmc.task.tensors import flat_tensors
from mtmc.task.trials import PREFERRED

WANTED = {
    "elementwise_chain",
    "bias_gelu",
    "softmax",
    "softmax_gelu",
    "layernorm",
    "rmsnorm",
    "groupnorm",
    "row_sum",
    "row_mean_max_argmax",
    "logsumexp",
    "cross_entropy",
    "linear",
    "linear_gelu",
    "matmul_max",
    "batched_matmul",
    "mlp",
    "residual_norm",
    "transformer_block",
}
H100_BYTES = 80 * 2**30


def test_the_built_in_tasks_are_there() -> None:
    assert set(builtin_names()) == WANTED


@pytest.mark.parametrize("name", sorted(WANTED))
def test_every_shape_is_cheap_to_interpret_and_gives_outputs_worth_checking(name: str) -> None:
    task = load_task(name)
    assert [variant.label for variant in task.variants] == ["full", "small", "odd1", "odd2", "odd3"]
    shapes = set()
    for variant in task.variants[1:]:
        found = weigh(task.source, variant, name)
        assert found.elements <= PREFERRED[0] + 2**12 and found.macs <= PREFERRED[1]
        assert found.finite and not found.constant
        shapes.add(found.shapes)
    assert len(shapes) == 4


@pytest.mark.parametrize("name", sorted(WANTED))
def test_held_out_sizes_are_odd_and_unlike_one_another(name: str) -> None:
    task = load_task(name)
    constants = {each for each in integer_constants(task.source) if not each.startswith("get_")}
    for variant in task.held_out:
        sizes = dict(variant.constants)
        assert set(sizes) == constants
        assert all(size % 2 for size in sizes.values())
        tied = {"heads", "batch", "groups", "height"} & constants  # Small odd numbers run out.
        apart = [size for key, size in sizes.items() if key not in tied]
        assert len(set(apart)) == len(apart)


@pytest.mark.parametrize("name", sorted(WANTED))
def test_full_shapes_run_and_fit_a_gpu(name: str) -> None:
    task = load_task(name)
    found = weigh(task.source, task.full, name, device="meta")
    assert 2**20 <= found.elements * 4 <= H100_BYTES // 20
    assert sum(1 for shape in found.shapes for size in shape if size > 1) > 0


@pytest.mark.parametrize("name", sorted(WANTED))
def test_outputs_depend_on_every_input_and_every_weight(name: str) -> None:
    task = load_task(name)
    model, inputs = instantiate(task.source, task.small, name)
    floats = [x.requires_grad_() for x in inputs if x.is_floating_point()]
    out = next(out for out in flat_tensors(model(*inputs)) if out.requires_grad)
    weights = [*floats, *model.parameters()]
    for gradient in torch.autograd.grad((out * torch.randn_like(out)).sum(), weights):
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("name", sorted(WANTED))
def test_the_reference_runs_in_float64_and_gives_nearly_the_same(name: str) -> None:
    task = load_task(name)
    model, inputs = instantiate(task.source, task.small, name)
    with torch.no_grad():
        single = flat_tensors(model(*inputs))
        double = flat_tensors(model.double()(*[x.double() if x.is_floating_point() else x for x in inputs]))
    for low, high in zip(single, double, strict=True):
        assert torch.allclose(low.double(), high.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", sorted(WANTED))
def test_each_file_has_a_line_of_description_and_a_model_that_reads_no_constant(name: str) -> None:
    tree = ast.parse((Path(__file__).parents[1] / "mtmc" / "builtin_tasks" / f"{name}.py").read_text())
    docstring = ast.get_docstring(tree)
    assert docstring and "\n" not in docstring
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    for function in (node for node in model.body if isinstance(node, ast.FunctionDef)):
        local = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        local |= {argument.arg for argument in function.args.args}
        read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} - local
        assert not read & set(integer_constants(tree))


def test_softmax_gelu_is_what_it_says() -> None:
    task = load_task("softmax_gelu")
    model, (x,) = instantiate(task.source, task.small, task.name)
    gelu = 0.5 * x.double() * (1 + torch.erf(x.double() / 2**0.5))
    exponentials = (gelu - gelu.max(-1, keepdim=True).values).exp()
    assert torch.allclose(model(x).double(), exponentials / exponentials.sum(-1, keepdim=True), atol=1e-6)


def test_transformer_block_attends_over_heads() -> None:
    task = load_task("transformer_block")
    model, (x,) = instantiate(task.source, task.small, task.name)
    q, k, v = model.qkv(x).view(2, 24, 3, 4, 8).permute(2, 0, 3, 1, 4)
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    expected = model.proj(heads.transpose(1, 2).reshape(2, 24, 32))
    assert torch.allclose(model.attention(x), expected, atol=1e-5)
