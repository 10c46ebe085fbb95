"""What only convolutions of rounded operands read is rounded by the kernel that makes it, and by no pass behind that."""

from __future__ import annotations

import pytest

from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import Plan, root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import forward_of
from tests.rewrite.rounded_modules import source
from tests.rewrite.stepping import version

LAST = "(torch.rand(batch, 16, size, size) + 1).to(memory_format=torch.channels_last)"


def made(text: str, precision: str = "tf32_rounded", first: str = "channels_last", other: str = "") -> str:
    """The version of one kernel for each op. precision: of its convolutions. first: how the others lie. other: the precision
    of the first convolution, where that is another one."""
    task = task_from_source(text, "made")
    now = version(task, root_plan(export_graph(task)))
    stages = []
    for stage in now.plan.stages:
        kernel = now.as_kernel(stage.ops, {})
        if kernel is not None and "conv" in stage.name:
            way = other if other and stage.name == "conv2d" else precision
            kernel = kernel.scheduled({"layout": "channels_last", "precision": way})
        elif kernel is not None and first:
            kernel = kernel.scheduled({"layout": first})
        stages.append(kernel or stage)
    return print_plan(task, now.graph, Plan(tuple(stages))).source


CONV = "torch.conv2d(rounded, weight, padding=1)"
NEAR = "{0} = torch.ldexp(torch.round(torch.frexp({0})[0] * 2048) / 2048, torch.frexp({0})[1])"
"""The nearest numbers of TF32, which has 11 bits."""
MAKERS = {
    "elementwise": "torch.sin(x)",
    "pool": "torch.max_pool2d(x, 2)",
    "softmax": "torch.softmax(x, 1)",
    "convolution": "torch.conv2d(x, weight, stride=2)",
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_result_is_rounded_where_it_is_made(name: str) -> None:
    before = f"rounded = {MAKERS[name]}"
    text = made(source("", "16, 16, 3, 3", before=before, after=CONV, given=LAST))
    forward = forward_of(text)
    assert text.count("# to the nearest of TF32") == 1
    assert forward.count("rounded=True") == (2 if name == "convolution" else 1)  # x and the weight
    assert "_rounded = launch_channels_last(self.weight, rounded=True)" in forward
    near = "\n        ".join(map(NEAR.format, (["x"] if name == "convolution" else []) + ["weight"]))
    wanted = f"{near}\n        {before}\n        {NEAR.format('rounded')}"
    reference = source("", "16, 16, 3, 3", before=wanted, after=CONV, given=LAST)
    exact = source("", "16, 16, 3, 3", before=before, after=CONV, given=LAST)
    cases = [
        {"name": "near", "source": reference, "candidate": text},
        {"name": "exact", "source": exact, "candidate": text},
    ]
    found = interpret(cases)
    assert found["near"] is None and "off by" in str(found["exact"])


OTHERS = {
    "handed out": (f"{CONV}, rounded", "tf32_rounded", "channels_last"),
    "read by another kernel": (f"{CONV}, torch.exp(rounded)", "tf32_rounded", "channels_last"),
    "read by torch": (f"{CONV}, torch.linalg.vector_norm(rounded, 3.5)", "tf32_rounded", "channels_last"),
    "a view is read": (f"{CONV}, torch.linalg.vector_norm(rounded[:, 1:], 3.5)", "tf32_rounded", "channels_last"),
    "cut off": (CONV, "tf32", "channels_last"),
    "in another order": (CONV, "tf32_rounded", ""),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_others_read_stays_as_it_is(name: str) -> None:
    after, precision, first = OTHERS[name]
    given = "torch.rand(batch, 16, size, size) + 1" if not first else LAST
    text = made(
        source("", "16, 16, 3, 3", before="rounded = torch.relu(x)", after=after, given=given), precision, first
    )
    assert "# to the nearest of TF32" not in text
    assert forward_of(text).count("rounded=True") == (0 if precision == "tf32" else 2)


def test_infinities_and_nan_stay_what_they_are() -> None:
    odd = "torch.tensor([float('nan'), float('inf'), -float('inf'), -0.0, 1e-38])"
    given = f"torch.cat([{odd}, torch.arange(batch * 16 * size**2 - 5) % 9 + 1]).view(batch, size, size, 16)"
    text = source("", "16, 16, 3, 3", before="rounded = torch.neg(x)", after=CONV, given=f"{given}.permute(0, 3, 1, 2)")
    text = text.replace("torch.rand(16, 16, 3, 3) + 1", "torch.arange(16 * 16 * 9.0).view(16, 16, 3, 3) % 7 + 1")
    candidate = made(text)
    assert candidate.count("# to the nearest of TF32") == 1
    assert interpret([{"name": "odd", "source": text, "candidate": candidate, "same": True}]) == {"odd": None}


BESIDE = "torch.conv2d(x, weight), torch.conv2d(rounded, weight)"
FIRST = "torch.rand(batch, 16, size, size) + 1"


@pytest.mark.parametrize("precision", ["tf32_rounded", "tf32"])
def test_a_pool_for_a_convolution_picks_from_the_copy_that_is_rounded(precision: str) -> None:
    """That of the convolution beside it; the one behind it may cut off what it reads."""
    before = "rounded = torch.max_pool2d(x, 3, 1, 1)"
    text = made(source("", "16, 16, 3, 3", before=before, after=BESIDE, given=FIRST), precision, other="tf32_rounded")
    forward = forward_of(text)
    assert forward.count("launch_max_pool2d(x_rounded)") == 1 and "x_last" not in forward
    assert forward.count("(x, rounded=True)") == 1 and "# to the nearest of TF32" not in text
    near = "\n        ".join(map(NEAR.format, ["x", "weight"]))
    reference = source("", "16, 16, 3, 3", before=f"{near}\n        {before}", after=BESIDE, given=FIRST)
    found = interpret([{"name": "picked", "source": reference, "candidate": text}])
    assert found == {"picked": None} or (
        precision == "tf32" and "off by" in str(found["picked"])
    )  # its weight is cut off


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rounded = torch.max_pool2d(x, 3, 1, 1)", f"{BESIDE}, rounded"),
        ("rounded = torch.max_pool2d(x, 3, 1, 1)", f"{BESIDE}, rounded.sin()"),
        ("rounded = torch.max_pool2d(x, 3, 1, 1)", CONV),  # nothing beside it is given a rounded copy
        ("rounded = torch.nn.functional.avg_pool2d(x, 3, 1, 1)", BESIDE),
    ],
)
def test_other_pools_are_given_what_is_exact(before: str, after: str) -> None:
    forward = forward_of(made(source("", "16, 16, 3, 3", before=before, after=after, given=FIRST)))
    assert "pool2d(x_last)" in forward
