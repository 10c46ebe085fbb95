"""Norms as their statistics and elementwise work, which what reduces the result takes in."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mtmc.evaluate.loading.modules import candidate_text, load_module
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from mtmc.task.constants import apply_constants
from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference
from tests.rewrite.stepping import actions_on, after, version

SIZES = {"n": (6, 3, 2), "c": (8, 4, 6), "m": (36, 12, 10)}
IMAGES = "torch.randn(n, c, m, m + 2)"
BATCH, GROUPS = "self.norm = nn.BatchNorm2d({0})", "self.norm = nn.GroupNorm(2, {0})"
LAYER, MOVED = "; self.layer = nn.Conv2d(c, c, 3)", "; self.moved = nn.Parameter(3.0 + torch.arange(c))"
INSTANCES = "self.norm = nn.InstanceNorm2d({0}, affine=True)"
PLAIN = "self.norm = nn.BatchNorm2d({0}, affine=False, track_running_stats=False)"
ALONE = "rewrite by algebra: {} is elementwise once its statistics are known, line"
WHOLE = "rewrite by algebra: {} is elementwise once its statistics are known, and fuse all"


def norm(result: str, layer: str, inputs: str = IMAGES, more: str = "") -> str:
    """A norm over the channels, of which there are another number in every set of sizes."""
    text = reference(result, inputs, layer.format("c") + more, SIZES)
    return text.replace("nn.Group", "torch.nn.Group")


FITS = {
    "pooled": (norm("F.max_pool2d(torch.tanh(self.norm(x)), 2)", BATCH), "batch_norm"),
    "softmax": (norm("torch.softmax(self.norm(x), -1)", BATCH), "batch_norm"),
    "mean": (norm("(self.norm(x) * 2).mean((2, 3))", BATCH), "batch_norm"),
    "less_its_mean": (norm("(lambda y: y - y.mean((2, 3), keepdim=True))(self.norm(x))", BATCH), "batch_norm"),
    "no_statistics_kept": (norm("F.avg_pool2d(self.norm(x), 3)", PLAIN), "batch_norm"),
    "rows": (
        norm("self.norm(x).logsumexp(1)", "self.norm = nn.BatchNorm1d({0})", "torch.randn(n * m, c)"),
        "batch_norm",
    ),
    "groups_pooled": (norm("F.max_pool2d(self.norm(x) * 0.5, 2).clamp(0, 1)", GROUPS), "group_norm"),
    "groups_summed": (norm("F.relu(self.norm(x)).sum(1)", GROUPS), "group_norm"),
    "instances": (
        norm("F.avg_pool2d(self.norm(x), 2)", INSTANCES),
        "instance_norm",
    ),
    "of_a_mean_far_off": (norm("F.max_pool2d(self.norm(x + 30), 2)", GROUPS), "group_norm"),
    "of_a_biased_convolution": (norm("F.max_pool2d(self.norm(self.layer(x)), 2)", BATCH, more=LAYER), "batch_norm"),
    "of_channels_moved": (
        norm("self.norm(x + self.moved.view(1, -1, 1, 1)).amax((2, 3))", BATCH, more=MOVED),
        "batch_norm",
    ),
    "of_instances_moved": (
        norm("F.avg_pool2d(self.norm(self.moved.view(-1, 1, 1) + x), 2)", INSTANCES, more=MOVED),
        "instance_norm",
    ),
}
BIASED = ("of_a_biased_convolution", "of_channels_moved", "of_instances_moved")
KEPT = {
    "read_by_nothing": norm("self.norm(x)", BATCH),
    "elementwise_alone": norm("torch.tanh(self.norm(x)) * 2", GROUPS),
    "read_by_the_library": norm("torch.fft.rfft(self.norm(x)).real", BATCH),
    "evaluated": norm("F.max_pool2d(self.norm(x), 2)", BATCH, more="; self.eval()"),
}


@pytest.mark.parametrize("name", share(list(FITS), 2))
def test_they_are_right_at_all_shapes(name: str) -> None:
    source, op = FITS[name]
    case = {"name": name, "source": source, "ways": [[WHOLE.format(op)], [ALONE.format(op), "lower", "fuse"]]}
    assert interpret([case]) == {name: None}


@pytest.mark.parametrize("name", FITS)
def test_they_leave_and_give_the_same_in_float64(name: str, tmp_path: Path) -> None:
    """Twice in a row: running statistics, and counters, are as they were."""
    source, op = FITS[name]
    task = task_from_source(source, name)
    text = print_plan(
        task, (at := after(version(task, root_plan(export_graph(task))), ALONE.format(op))[1]).graph, at.plan
    )
    for number, variant in enumerate((task.full, task.small, *task.held_out)):
        module = load_module(apply_constants(source, variant.constants), tmp_path / f"module_{number}.py")
        other = load_module(candidate_text(text.source, variant.constants), tmp_path / f"version_{number}.py")
        torch.manual_seed(0)
        models = [module.Model(*module.get_init_inputs()).double(), other.ModelNew(*module.get_init_inputs()).double()]
        models[1].load_state_dict(models[0].state_dict())
        for _ in range(2):
            [x] = (item.double() for item in module.get_inputs())
            with torch.no_grad():
                wanted, got = (model(x) for model in models)
            torch.testing.assert_close(got, wanted, rtol=1e-11, atol=1e-11)
        kept = [dict(model.named_buffers()) for model in models]
        for buffer, value in kept[0].items():
            torch.testing.assert_close(kept[1][buffer], value, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", BIASED)
def test_what_is_added_to_each_channel_before_is_left_out(name: str) -> None:
    """The mean that is kept has it, and nothing as large as what is normed."""
    text, op = FITS[name]
    task = task_from_source(text, name)
    graph = after(version(task, root_plan(export_graph(task))), ALONE.format(op))[1].graph
    sums = [graph.values[each.outputs[0]].shape for each in graph.ops if each.target == "aten.add.Tensor"]
    assert [shape for shape in sums if len(shape) == 4 and shape[2] != (1,) * len(shape[2])] == (
        [graph.values[graph.inputs[0]].shape] if "instances" in name else []  # which adds the norm's own bias
    )


@pytest.mark.parametrize("name", KEPT)
def test_norms_that_nothing_behind_reduces_are_left(name: str) -> None:
    task = task_from_source(KEPT[name], name)
    assert not [
        action for action in actions_on(version(task, root_plan(export_graph(task)))) if "known" in action.sentence
    ]
    assert apply_rules(export_graph(task), "statistics").sentences == ()


def test_what_is_between_a_norm_and_a_pool_is_not_written() -> None:
    task = task_from_source(FITS["pooled"][0], "pooled")
    at = after(version(task, root_plan(export_graph(task))), WHOLE.format("batch_norm"))[1]
    kernels = [stage for stage in at.plan.stages if not stage.is_torch]
    assert [stage.template for stage in kernels] == ["rowwise", "windows"]
    assert [op for stage in kernels for op in stage.ops if op == "tanh"] and "tanh" in kernels[1].ops


def test_the_variance_and_the_one_that_is_kept_are_summed_up_once() -> None:
    """Which have divisors n and n - 1."""
    task = task_from_source(FITS["mean"][0], "mean")
    at = after(version(task, root_plan(export_graph(task))), WHOLE.format("batch_norm"))[1]
    [statistics, *_] = (stage for stage in at.plan.stages if not stage.is_torch)
    body = at.body(statistics)
    assert body is not None
    assert [node.operation for node in body.nodes if node.kind == "reduce"] == ["sum", "deviations"]
