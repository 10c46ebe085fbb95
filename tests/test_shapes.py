"""Deriving small and odd shapes by trial."""

from __future__ import annotations

import logging

import pytest
import torch

from mtmc.errors import TaskError
from mtmc.task import Task, Variant, load_task, task_from_source
from mtmc.task.reference import Limits, Meter, TooLargeError, held, instantiate, own_error, weigh
from mtmc.task.shapes import HELD_OUT_LARGE, derive_held_out, derive_small
from mtmc.task.trials import ACCEPTED, OWN_ERROR, PREFERRED


def file(constants: str, inputs: str, forward: str, init: str = "", constructor: str = "pass") -> str:
    """A task's file. init: the constructor's arguments, which are its parameters too."""
    return f"""import torch
from torch import nn
from torch.nn import functional as F
{constants}
class Model(nn.Module):
    def __init__(self{", " + init if init else ""}):
        super().__init__()
        {constructor}
    def forward(self, *args):
        {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return [{init}]
"""


GROUPS = file(
    "batch, channels, groups = 64, 512, 32\nside = 128",
    "torch.rand(batch, channels, side, side)",
    "return self.norm(args[0])",
    "groups, channels",
    "self.norm = nn.GroupNorm(groups, channels)",
)
HEADS = file(
    "batch = 32\nlength = 1024\ndim = 768\nheads = 12",
    "torch.rand(batch, length, dim)",
    "x = args[0]; b, n, d = x.shape; return x.view(b, n, self.heads, d // self.heads).softmax(-1)",
    "heads",
    "self.heads = heads",
)
RESIDUAL = file(
    "batch = 1024\nin_features = 2048\nout_features = 2048",
    "torch.rand(batch, in_features)",
    "return args[0] + self.linear(args[0])",
    "in_features, out_features",
    "self.linear = nn.Linear(in_features, out_features)",
)
DEEP_CONVOLUTION = file(
    "batch = 64\nchannels = 16\nside = 224",
    "torch.rand(batch, channels, side, side)",
    "x = args[0]\n        for _ in range(3): x = F.max_pool2d(self.conv(x), 2)\n        return x",
    "channels",
    "self.conv = nn.Conv2d(channels, channels, 5)",
)


def footprints(task: Task) -> list[tuple[int, int]]:
    return [
        (found.elements, found.macs)
        for variant in task.variants[1:]
        for found in [weigh(task.source, variant, task.name)]
    ]


@pytest.mark.parametrize("source", [GROUPS, HEADS, RESIDUAL, DEEP_CONVOLUTION])
def test_derived_shapes_run_are_small_and_are_three_different_odd_ones(source: str) -> None:
    task = task_from_source(source, "derived")
    assert len({variant.constants for variant in task.variants}) == 5
    for elements, macs in footprints(task):
        assert elements <= 2 * ACCEPTED[0] and macs <= 2 * ACCEPTED[1]
    for variant in task.held_out:
        sizes = dict(variant.constants)
        assert sum(size % 2 for size in sizes.values()) >= 2


def test_small_shapes_prefer_distinct_powers_of_two_under_the_preferred_limits() -> None:
    small = derive_small(HEADS, "heads")
    sizes = dict(small.constants)
    assert all(size & (size - 1) == 0 for size in sizes.values())
    assert sizes["dim"] % sizes["heads"] == 0
    assert weigh(HEADS, small, "heads").elements <= PREFERRED[0]


def test_sizes_that_divide_one_another_still_do_in_the_held_out_shapes() -> None:
    small = derive_small(GROUPS, "groups")
    for variant in derive_held_out(GROUPS, small, "groups"):
        sizes = dict(variant.constants)
        assert sizes["channels"] % sizes.get("groups", 32) == 0
        assert sizes["side"] % 2 == 1 and sizes["batch"] % 2 == 1
        assert sizes["batch"] != sizes["side"]


def test_sizes_that_must_be_equal_stay_equal() -> None:
    for variant in task_from_source(RESIDUAL, "residual").variants[1:]:
        sizes = dict(variant.constants)
        assert sizes["in_features"] == sizes["out_features"]


def test_deriving_is_deterministic_and_leaves_the_random_state_alone() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first = derive_small(DEEP_CONVOLUTION, "a"), derive_held_out(RESIDUAL, derive_small(RESIDUAL, "b"), "b")
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(4)
    assert first == (derive_small(DEEP_CONVOLUTION, "a"), derive_held_out(RESIDUAL, derive_small(RESIDUAL, "b"), "b"))


def test_small_integers_are_left_alone() -> None:
    source = file("rows = 4096\ndim = 1\nscale = 8", "torch.rand(rows, rows)", "return args[0].sum(dim) * scale")
    task = task_from_source(source, "kept")
    assert {name for variant in task.variants for name, _ in variant.constants} == {"rows"}


def test_numbers_that_are_no_sizes_are_not_varied_in_held_out_shapes() -> None:
    source = file("rows = 4096\nmargin = 100", "torch.rand(rows, rows)", "return args[0] * margin")
    task = task_from_source(source, "margin")
    small = dict(task.small.constants)
    assert all(dict(variant.constants)["margin"] == small["margin"] for variant in task.held_out)


def test_literal_sizes_that_cannot_be_shrunk_say_how_to_add_small_inputs() -> None:
    source = file("batch = 64", "torch.rand(batch, 3, *[2500] * 2)", "return args[0].relu()")
    with pytest.raises(TaskError) as caught:
        task_from_source(source, "literal")
    for part in (
        "task literal",
        "batch",
        "a tensor of 18750000 elements",
        "get_small_inputs()",
        "get_small_init_inp",
    ):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    fixed = source + "\ndef get_small_inputs():\n    return [torch.rand(2, 3, 20, 20)]\n"
    assert task_from_source(fixed, "literal").small.inputs == "get_small_inputs"


def test_sizes_written_into_get_inputs_are_varied_too() -> None:
    source = file("batch = 64", "torch.rand(batch, 3, 500, 400)", "return args[0].relu()")
    task = task_from_source(source, "written")
    assert set(dict(task.small.constants)) == {"batch", "get_inputs[1]", "get_inputs[2]"}
    assert weigh(source, task.small, "written").elements <= PREFERRED[0]


def test_sizes_that_only_happen_to_be_equal_are_unlike_in_each_held_out_set() -> None:
    """A depthwise convolution's channels must agree with one another, not with its height."""
    source = file(
        "batch = 32\nins = 128\nouts = 128\nheight = 128\nwidth = 256",
        "torch.rand(batch, ins, height, width)",
        "return self.conv(args[0])",
        "ins, outs",
        "self.conv = nn.Conv2d(ins, outs, 3, groups=ins)",
    )
    for variant in task_from_source(source, "depthwise").held_out:
        sizes = dict(variant.constants)
        assert sizes["outs"] % sizes["ins"] == 0 and sizes["height"] not in (sizes["ins"], sizes["outs"])
        assert len({sizes["height"], sizes["width"], sizes["batch"]}) == 3


def test_weights_that_cannot_be_shrunk_and_numbers_of_layers_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    source = file(
        "batch = 64\nside = 224\ndepth = 12",
        "torch.rand(batch, 3, side, side)",
        "return self.convs(args[0])",
        "depth",
        "self.convs = nn.Sequential(nn.Conv2d(3, 600, 1), *(nn.Conv2d(600, 600, 1) for _ in range(depth)))",
    )
    with caplog.at_level(logging.WARNING):
        task = task_from_source(source, "deep")
    sizes = dict(task.small.constants)
    assert "depth" not in sizes and sizes["side"] <= 64
    assert len(task.held_out) == 2 and all(dict(variant.constants)["depth"] == 12 for variant in task.held_out)
    assert "slow to interpret" in caplog.text


def test_a_reference_that_never_runs_gives_its_reason_and_line() -> None:
    source = file("rows = 64", "torch.rand(rows, 4)", "return args[0] @ torch.ones(5, 5)")
    with pytest.raises(TaskError, match=r"^task broken: forward fails at line 10: RuntimeError: "):
        task_from_source(source, "broken")


def test_a_reference_that_gives_nan_at_small_shapes_is_not_accepted_there() -> None:
    source = file("rows = 4096", "torch.rand(rows, rows)", "x = args[0]; return x if len(x) > 40 else x * float('nan')")
    assert dict(derive_small(source, "nan").constants)["rows"] > 40


def test_shapes_with_constant_outputs_are_avoided_where_others_exist() -> None:
    source = file("rows = 4096", "torch.rand(rows, rows)", "x = args[0]; return x * (len(x) <= 40)")
    assert dict(derive_small(source, "constant").constants)["rows"] == 32
    always = file("rows = 4096", "torch.rand(rows, rows)", "return args[0] * 0")
    assert dict(derive_small(always, "constant").constants)["rows"] == 128


def test_a_value_dependent_reference_is_derived_on_the_cpu() -> None:
    source = file(
        "rows = 4096", "torch.rand(rows, rows)", "x = args[0]; return x * x.max().item() if x.sum() > 0 else x"
    )
    assert len(task_from_source(source, "item").held_out) == 3


def test_declared_shapes_that_are_large_are_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    source = file("rows = 4096", "torch.rand(rows, rows)", "return args[0].relu()")
    with caplog.at_level(logging.WARNING):
        task = task_from_source(source + '\nVARIANTS = {"small": {"rows": 1024}, "odd1": {"rows": 3}}\n', "large")
    assert task.small.constants == (("rows", 1024),)
    assert "small shapes are large (a tensor of 1048576 elements)" in caplog.text


def test_a_meter_counts_and_stops_before_memory_is_taken() -> None:
    source = file("rows = 8\ncols = 16", "torch.rand(rows, cols)", "return args[0] @ args[0].T")
    found = weigh(source, Variant("full"), "count")
    assert (found.elements, found.macs, found.shapes) == (128, 8 * 8 * 16, ((8, 16), (8, 8)))
    assert found.finite and not found.constant
    huge = file("rows = 1_000_000", "torch.empty(rows, rows)", "return args[0]")
    from mtmc.task.reference import Limits

    with pytest.raises(TooLargeError, match="1000000000000 elements"):
        weigh(huge, Variant("full"), "huge", meter=Meter(Limits(10**6, 10**6, 10**6)))
    assert weigh(huge, Variant("full"), "huge", device="meta").elements == 10**12


def test_instantiate_draws_weights_and_inputs_from_the_seed() -> None:
    task = load_task("linear")
    one, again, other = (instantiate(task.source, task.small, task.name, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one[1][0], again[1][0]) and torch.equal(one[0].linear.weight, again[0].linear.weight)
    assert not torch.equal(one[1][0], other[1][0])


def test_a_file_with_a_dataclass_can_be_loaded() -> None:
    source = file(
        "from dataclasses import dataclass\nrows = 4096", "torch.rand(rows, rows)", "return args[0] * Two().x"
    )
    source = "from __future__ import annotations\n" + source + "\n@dataclass\nclass Two:\n    x: int = 2\n"
    assert task_from_source(source, "dataclass").small.constants == (("rows", 128),)


def test_a_batch_too_small_for_its_norms_is_raised_and_held_out_shapes_are_as_exact() -> None:
    layers = "nn.Linear(520, 520), nn.BatchNorm1d(520), nn.ReLU(), " * 5 + "nn.Linear(520, outs)"
    source = file(
        "batch, outs = 2, 64",
        "torch.rand(batch, 520)",
        "return self.layers(args[0])",
        "outs",
        f"self.layers = nn.Sequential({layers})",
    )
    small = derive_small(source, "norms")
    assert dict(small.constants)["batch"] == 8
    held_out = derive_held_out(source, small, "norms")
    assert len(held_out) == HELD_OUT_LARGE and all(dict(each.constants)["batch"] % 2 for each in held_out)
    assert own_error(source, Variant("declared"), "norms") > OWN_ERROR
    assert all(10 * own_error(source, each, "norms", seed=5) < OWN_ERROR for each in (small, *held_out))


HELD = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn((3000, 2000)))
        self.turned = torch.nn.Parameter(torch.randn((6, 5)).t())
        self.register_buffer("count", torch.zeros((1,)))
    def forward(self, x):
        self.count.add_(1)
        return x + self.weight.sum() + self.turned.sum() + self.count
def get_inputs():
    return [torch.randn((4, 4))]
def get_init_inputs():
    return []
"""


def test_a_module_with_a_state_draws_no_weights_and_leaves_the_state_alone() -> None:
    tensors = {"weight": torch.ones(3000, 2000), "turned": torch.arange(30.0).view(5, 6), "count": torch.tensor([5.0])}
    state = held(HELD, Variant("full"), "held", tensors)
    for device in ("cpu", "meta"):
        meter = Meter()
        found = weigh(HELD, Variant("full"), "held", state=state, device=device, meter=meter)
        assert meter.effort < 100 and found.elements == 6_000_000
        assert found.shapes == ((4, 4), (3000, 2000), (5, 6), (1,), (4, 4))
    with pytest.raises(TooLargeError):
        weigh(HELD, Variant("full"), "held", state=state, meter=Meter(Limits(1000, 1000, 1000)))
    model, (x,) = instantiate(HELD, Variant("full"), "held", state)
    assert torch.equal(model(x), x + tensors["weight"].sum() + tensors["turned"].sum() + 6)
    assert tensors["count"].item() == 5 and model.count.item() == 6
    assert model.weight.data_ptr() == tensors["weight"].data_ptr()
    assert model.turned.stride() == (1, 5) and isinstance(model.turned, torch.nn.Parameter)
    for wrong in (
        {"weight": tensors["weight"]},
        {**tensors, "more": torch.ones(1)},
        {**tensors, "count": torch.ones(2)},
    ):
        with pytest.raises(TaskError, match="its state is not that of its Model"):
            held(HELD, Variant("full"), "held", wrong)


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(
    ("shape", "dtype", "order"),
    [
        ((2, 3, 4, 5), torch.float32, torch.contiguous_format),
        ((2, 3, 4, 5), torch.float16, torch.channels_last),
        ((4, 7), torch.bfloat16, torch.contiguous_format),
        ((2, 3, 4, 5, 6), torch.float64, torch.channels_last_3d),
    ],
)
def test_a_batch_norm_without_data_has_the_shapes_that_torch_gives_it(
    shape: tuple[int, ...], dtype: torch.dtype, order: torch.memory_format, trains: bool
) -> None:
    x = torch.empty(shape, dtype=dtype, device="meta").contiguous(memory_format=order)
    each = [torch.empty(shape[1], dtype=dtype, device="meta") for _ in range(4)]
    wanted = torch.ops.aten.native_batch_norm.default(x, *each, trains, 0.1, 1e-5)
    with Meter() as meter:
        found = torch.ops.aten.native_batch_norm.default(x, *each, trains, 0.1, 1e-5)
    assert meter.ops == 1
    for mine, torchs in zip(found, wanted, strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (torchs.shape, torchs.dtype, torchs.stride())
