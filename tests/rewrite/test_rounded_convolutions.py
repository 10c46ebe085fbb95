"""Convolutions of operands that are rounded to TF32, once in memory where that can be: as exact as the library's are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mtmc.evaluate import LabSettings
from mtmc.hardware import hardware
from mtmc.optimizations import Version, legal_moves
from mtmc.protocols import EvaluationRequest
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.plan import root_plan
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.rewrite.interpreting import interpret
from tests.rewrite.printing import forward_of, kernel_of, text_of
from tests.rewrite.references import reference
from tests.rewrite.rounded_modules import ROUNDED, source
from tests.rewrite.stepping import actions_on, child_of, version

CASES: dict[str, tuple[str, str, int]] = {
    "plain": ("conv2d(rounded, weight)", "24, 16, 3, 3", 2),
    "strided": ("conv2d(rounded, weight, stride=2, padding=1)", "24, 16, 3, 3", 2),
    "transposed": ("conv_transpose2d(rounded, weight, stride=2)", "16, 24, 3, 3", 2),
    "volumes": ("conv3d(rounded, weight, padding=1)", "24, 16, 3, 3, 3", 3),
    "one_tap": ("conv2d(rounded, weight)", "24, 16, 1, 1", 2),
}


def convolved(
    text: str, precision: str = "tf32_rounded", layout: str = "channels_last", then: tuple[str, ...] = ()
) -> Version:
    """The version whose convolutions are kernels of their own, after all actions of some kinds."""
    task = task_from_source(text, "rounded")
    now = version(task, root_plan(export_graph(task)))
    for stage in now.plan.stages:
        if "conv" in stage.ops[0]:
            kernel = now.as_kernel(stage.ops, {})
            assert kernel is not None
            settings = {"precision": precision} | ({"layout": layout} if layout else {})
            now = version(task, now.plan.with_stage(stage, kernel.scheduled(settings)))
    for kind in then:
        while moves := [each for each in actions_on(now) if each.kind == kind]:
            now = version(task, child_of(now, moves[0]))
    return now


@pytest.mark.parametrize("then", [(), ("pack",)])
def test_they_are_as_exact_as_rounded_operands_are_and_cut_ones_are_not(then: tuple[str, ...]) -> None:
    cases = []
    for name, (call, sizes, rank) in CASES.items():
        reference = source(call, sizes, rank, ROUNDED)
        for way in ("tf32_rounded", "tf32"):
            text = text_of(convolved(source(call, sizes, rank), way, then=then))
            cases.append({"name": f"{name}-{way}", "source": reference, "candidate": text})
    found = interpret(cases)
    assert {name for name, problem in found.items() if problem is None} == {f"{name}-tf32_rounded" for name in CASES}
    assert all("off by" in str(problem) for name, problem in found.items() if name.endswith("-tf32"))


def test_they_are_rounded_once_and_not_in_the_kernel() -> None:
    for name, (call, sizes, rank) in CASES.items():
        text = text_of(convolved(source(call, sizes, rank)))
        kernel, forward = kernel_of(text, call.split("(")[0]), forward_of(text)
        cut = kernel_of(text_of(convolved(source(call, sizes, rank), "tf32")), call.split("(")[0])
        assert kernel == cut and "bitcast" not in kernel, name
        assert forward.count("x_rounded = launch_channels_last(x, rounded=True)") == 1, name
        assert forward.count("p_weight_rounded = ") + forward.count(" weight_rounded = ") == 1, name


def test_what_is_packed_is_rounded_there() -> None:
    for name, (call, sizes, rank) in CASES.items():
        text = text_of(convolved(source(call, sizes, rank), then=("pack",)))
        pack = text[text.index("def pack(self)") : text.rindex("def forward(")]
        assert pack.count("launch_tf32(self.") + pack.count("rounded=True") == 1, name
        assert forward_of(text).count("rounded=True") == 1 and "launch_tf32(" not in forward_of(text), name


def test_stages_that_need_it_as_it_is_get_it_so() -> None:
    after = "{conv}, torch.exp(x), torch.conv2d(rounded, weight, padding=1)"
    call, sizes, rank = CASES["plain"]
    made = convolved(source(call, sizes, rank, after=after), then=("lower",))
    text = text_of(made)
    assert len(made.kernels()) == 3 and forward_of(text).count("rounded=True") == 2  # of x and of the weight
    assert "launch_exp(x)" in text or "launch_exp(x_last)" in text
    reference = source(call, sizes, rank, ROUNDED, after)
    assert interpret([{"name": "beside", "source": reference, "candidate": text}]) == {"beside": None}


def test_what_lies_channels_last_already_is_rounded_in_that_order() -> None:
    given = "(torch.rand(batch, 16, size, size) + 1).to(memory_format=torch.channels_last)"
    call, sizes, rank = CASES["plain"]
    text = text_of(convolved(source(call, sizes, rank, given=given)))
    reference = source(call, sizes, rank, ROUNDED, given=given)
    assert interpret([{"name": "lying", "source": reference, "candidate": text}]) == {"lying": None}


def test_a_kernel_rounds_what_it_cannot_be_given_so() -> None:
    """Work before the convolution, a residual of its operand, and channels that lie first."""
    call, sizes = "conv2d(rounded, weight, padding=1)", "16, 16, 3, 3"
    texts = {
        "work_before": (
            source(call, sizes, before="rounded = torch.relu(x)"),
            source(call, sizes, before=ROUNDED),
        ),
        "a_residual": (
            source(call, sizes, after="{conv} + x"),
            source(call, sizes, before=ROUNDED, after="{conv} + x"),
        ),
        "first": (source(call, sizes), source(call, sizes, before=ROUNDED)),
    }
    cases = []
    for name, (text, wanted) in texts.items():
        task = task_from_source(text, "whole")
        start = version(task, root_plan(export_graph(task)))
        kernel = start.as_kernel(tuple(op.name for op in start.graph.ops), {})
        assert kernel is not None
        layout = {} if name == "first" else {"layout": "channels_last"}
        plan = type(start.plan)((kernel.scheduled({"precision": "tf32_rounded", **layout}),))
        made = print_plan(task, start.graph, plan).source
        assert made.count("bits = (b.to") == 1 and "bits = (a.to" not in made, name
        assert "x_rounded" not in made and "weight_rounded" in made, name
        cases.append({"name": name, "source": wanted, "candidate": made})
    assert interpret(cases) == dict.fromkeys(texts)


@pytest.mark.parametrize("then", [(), ("pack",)])
def test_infinities_and_nan_stay_what_they_are(then: tuple[str, ...]) -> None:
    odd = "torch.tensor([float('nan'), float('inf'), -float('inf'), -0.0, 1e-38])"
    given = f"torch.cat([{odd}, torch.arange(batch * 16 * size**2 - 5) % 9 + 1]).view(batch, 16, size, size)"
    weight = f"torch.cat([torch.arange(24 * 16 * 9 - 5) % 7 + 1, {odd}]).view(24, 16, 3, 3)"
    call, sizes, rank = CASES["plain"]
    text = source(call, sizes, rank, given=given, weight=weight)
    made = text_of(convolved(text, then=then))
    assert interpret([{"name": "odd", "source": text, "candidate": made, "same": True}]) == {"odd": None}


def test_the_lab_takes_them() -> None:
    """Of numbers that TF32 has they are as exact as fp32 is."""
    before = "rounded, weight = (torch.round(each.clamp(-1, 1) * 512) / 512 for each in (x, weight))"
    with LabSettings(workers=1, check_variants=1).open() as lab:
        for at, (name, (call, sizes, rank)) in enumerate(CASES.items()):
            given, weight = f"torch.randn(batch, 16, *[size] * {rank})", f"torch.randn({sizes}) * 0.1"
            text = source(call, sizes, rank, before, given=given, weight=weight)
            made = convolved(text, then=("pack",) if at % 2 else ())
            [outcome] = lab.evaluate([EvaluationRequest(made.task, text_of(made), 0, "screen")])
            assert outcome.ok, (name, outcome)


@pytest.mark.parametrize(
    ("before", "after", "given", "precision"),
    [
        ("rounded = x", "", "", "tf32_rounded"),
        ("rounded = x", "{conv}.amin(1)", "", "tf32_rounded"),
        ("rounded = torch.relu(x)", "", "", "tf32"),  # which is done in the kernel's loop
        ("rounded = torch.relu(x)", "{conv}.amin(1)", "", "tf32_rounded"),
        ("rounded = x", "{conv}", "torch.rand(batch, 3, size, size)", "tf32_rounded"),  # small beside the result
        ("rounded = x", "", "torch.rand(batch, 16, size, size).to(memory_format=torch.channels_last)", "tf32"),
    ],
)
def test_operands_that_are_turned_start_rounded(before: str, after: str, given: str, precision: str) -> None:
    call, sizes, rank = CASES["plain"]
    sizes = sizes.replace("16", "3") if ", 3," in given else sizes
    task = task_from_source(source(call, sizes, rank, before, after, given), "start")
    start = replace(version(task, root_plan(export_graph(task))), tf32_reference=True)
    kernel = start.as_kernel(tuple(op.name for op in start.graph.ops), {})
    assert kernel is not None and kernel.setting("precision") == precision


LAYERS = "self.layer, self.norm, self.kept = nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.BatchNorm2d(16).eval()"


def root_of(forward: str, layers: str, inputs: str, sizes: dict[str, tuple[int, ...]]) -> Version:
    """The root of a module on a GPU where the library may take TF32."""
    task = task_from_source(reference(forward, inputs, layers, sizes), "it")
    return Version.of(task, root_plan(export_graph(task)), hardware("H200"), True)


AVERAGED = {
    "self.norm(self.layer(x.sin()))": "tf32_rounded",
    "self.norm(self.layer(x.sin()).relu() * 2)": "tf32_rounded",
    "self.layer(x.sin()).sigmoid().mean((2, 3))": "tf32_rounded",
    "F.adaptive_avg_pool2d(self.layer(x.sin()), 1)": "tf32_rounded",
    "self.norm(torch.cat([x[:, :, 2:, 2:], self.layer(x.sin())], 1)[:, 8:24])": "tf32_rounded",
    "torch.stack([x[:, :, 2:, 2:], self.layer(x.sin())]).mean((3, 4))": "tf32_rounded",
    "self.norm(F.max_pool2d(self.layer(x.sin()), 2))": "tf32_rounded",
    "self.layer(self.layer(x.sin()))": "tf32",  # what another product makes of it is another matter
    "self.kept(self.layer(x.sin()))": "tf32",  # the statistics that are kept
    "self.layer(x.sin()).flatten(1) + 1": "tf32",
}


@pytest.mark.parametrize("forward", AVERAGED)
def test_operands_of_what_is_averaged_start_rounded(forward: str) -> None:
    """What is cut off does not average out. Statistics that are known already are another matter."""
    version = root_of(forward, LAYERS, "torch.randn(n, 16, m, m)", {"n": (4, 2, 3), "m": (12, 9, 7)})
    [move] = [move for move in legal_moves(version) if move.action.sentence.startswith("lower conv2d ")]
    assert move.child is not None
    [stage] = [stage for stage in move.child.stages if stage.template == "convolution"]
    assert dict(stage.schedule)["precision"] == AVERAGED[forward]


CUT = {
    "self.norm(self.layer(x.sin()).relu())": False,
    "self.layer(x.sin()).var((2, 3))": False,
    "self.layer(x.sin()).mean((2, 3))": True,
    "self.kept(self.layer(x.sin()))": True,
    "self.layer(x) + 1": True,
}


@pytest.mark.parametrize("forward", CUT)
def test_operands_of_what_a_variance_is_taken_of_are_not_cut_off(forward: str) -> None:
    """All of its products would be smaller: such kernels were refused for running statistics."""
    start = root_of(forward, LAYERS, "torch.randn(n, 16, m, m)", {"n": (4, 2, 3), "m": (12, 9, 7)})
    [conv] = [stage for stage in start.plan.stages if "conv" in stage.name]
    kernel = start.as_kernel(conv.ops, {})
    assert kernel is not None
    plan = start.plan.with_stage(conv, kernel.scheduled({"precision": "tf32_rounded"}))
    sentences = [move.action.sentence for move in legal_moves(Version.of(start.task, plan, hardware("H200"), True))]
    assert any("in one TF32 product, as the library's convolution does" in each for each in sentences) == CUT[forward]


NETWORK = {
    "stem": ("self.norm(self.first(x))", "nn.Conv2d(3, 16, 3)", "tf32x3"),
    "shortcut": ("self.norm(self.first(x))", "nn.Conv2d(3, 16, 1)", "tf32x3"),
    "long stem": ("self.first(x).relu()", "nn.Conv2d(3, 16, 7)", "tf32_rounded"),
    "averaged": ("self.norm(self.first(x))", "nn.Conv2d(3, 16, 7)", "tf32_rounded"),
}


@pytest.mark.parametrize("name", NETWORK)
@pytest.mark.parametrize("alone", [False, True])
def test_short_convolutions_of_a_network_start_exact(name: str, alone: bool) -> None:
    """That the library takes TF32 somewhere says nothing of three channels; where there is one convolution, it does."""
    first, layer, precision = NETWORK[name]
    init = f"self.first, self.norm, self.second = {layer}, nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3)"
    forward = first if alone else f"self.second({first}).relu()"
    sizes = {"n": (4, 2, 3), "m": (20, 13, 12)}
    version = root_of(forward, init, "torch.randn(n, 3, m, m)", sizes)
    move = next(each for each in legal_moves(version) if each.action.sentence.startswith("lower conv2d to"))
    assert move.child is not None
    [stage] = [stage for stage in move.child.stages if stage.template == "convolution"]
    assert dict(stage.schedule)["precision"] == ("tf32_rounded" if alone else precision)
