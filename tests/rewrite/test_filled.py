"""Convolutions in a form whose product fills tensor cores: transposed, in groups, over lines, of few channels."""

from __future__ import annotations

import pytest

from mtmc.optimizations.version import Version
from mtmc.rewrite.algebra import apply_rules
from mtmc.rewrite.exported import export_graph
from mtmc.rewrite.graph import Graph
from mtmc.rewrite.source import print_plan
from mtmc.task import task_from_source
from tests.breadth import share
from tests.rewrite.interpreting import interpret
from tests.rewrite.references import reference
from tests.rewrite.stepping import actions_on, child_of, version

LINE, MAP, VOLUME = ("torch.randn(2, {}, n)", "torch.randn(2, {}, n, 9)", "torch.randn(2, {}, 5, n, 7)")


def of(layer: str, inputs: str, channels: int, result: str = "self.f(x)", more: str = "") -> str:
    sizes = {"n": (40, 11, 17)}
    return reference(result, inputs.format(channels), f"self.f = nn.{layer}{more}", sizes=sizes)


TURNED, GROUPS, PLANE, ON_PLANE, TAPS = (
    "with its taps turned around",
    "is one of all channels, amid zeros",
    "over a plane of height 1",
    "done on a plane of height 1",
    "are channels",
)
CASES = {
    "turned_map": (of("ConvTranspose2d(16, 24, 3)", MAP, 16), [TURNED]),
    "turned_with_padding": (of("ConvTranspose2d(16, 24, (3, 5), padding=(2, 1), bias=False)", MAP, 16), [TURNED]),
    "turned_dilated": (of("ConvTranspose2d(16, 24, 3, dilation=(1, 3), padding=2)", MAP, 16, "self.f(x).relu()"), [TURNED]),
    "turned_volume": (of("ConvTranspose3d(16, 8, (2, 1, 3))", VOLUME, 16), [TURNED]),
    "turned_line": (of("ConvTranspose1d(16, 24, 4, padding=1)", LINE, 16), [TURNED, PLANE]),
    "line": (of("Conv1d(16, 24, 3)", LINE, 16), [PLANE]),
    "line_strided_and_dilated": (of("Conv1d(16, 24, 3, stride=3, dilation=4, padding=2)", LINE, 16), [PLANE]),
    "line_between_others": (
        of("Conv1d(16, 24, 3, padding=1)", LINE, 16, "torch.tanh(self.f(x.exp())) + 1"), [PLANE, ON_PLANE, ON_PLANE]
    ),
    "line_with_a_residual": (
        of("Conv1d(16, 16, 3, padding=1)", LINE, 16, "x + self.s[:, None] * F.gelu(self.f(x))",
           "\nself.s = nn.Parameter(torch.randn(16))"),
        [PLANE, ON_PLANE, ON_PLANE, ON_PLANE],
    ),
    "line_and_a_norm": (of("Conv1d(16, 24, 3)", LINE, 16, "F.layer_norm(self.f(x), (x.shape[-1] - 2,))"), [PLANE]),
    "line_spread": (of("ConvTranspose1d(16, 24, 3, stride=2, padding=1, dilation=2)", LINE, 16), [PLANE]),
    "groups": (of("Conv2d(16, 24, 3, groups=2, stride=2)", MAP, 16), [GROUPS]),
    "groups_turned": (of("ConvTranspose2d(16, 20, 3, groups=4, padding=1)", MAP, 16), [GROUPS, TURNED]),
    "groups_spread": (
        of("ConvTranspose3d(8, 16, (3, 2, 3), stride=2, padding=1, output_padding=(1, 0, 1), groups=2)", VOLUME, 8),
        [GROUPS],
    ),
    "groups_of_a_line": (of("Conv1d(16, 16, 3, groups=2, bias=False)", LINE, 16), [GROUPS, PLANE]),
    "taps_of_a_line_across": (of("Conv2d(3, 24, 7, stride=2, padding=3)", MAP, 3), [TAPS]),
    "taps_of_two_dimensions": (of("Conv3d(1, 24, (5, 4, 5), padding=(2, 1, 2), bias=False)", VOLUME, 1), [TAPS]),
    "taps_apart": (of("Conv2d(4, 24, (5, 4), dilation=(1, 2), padding=(2, 3), stride=(1, 2))", MAP, 4), [TAPS]),
    "taps_turned": (of("ConvTranspose2d(3, 16, 5)", MAP, 3), [TURNED, TAPS]),
    "work_around": (of("Conv2d(3, 24, 6, padding=3)", MAP, 3, "self.f(x * 2).relu() + 1"), [TAPS]),
    "halves": (of("Conv1d(16, 24, 3)", LINE + ".half()", 16, more="\nself.half()"), [PLANE]),
    "bfloat16": (
        of("ConvTranspose2d(16, 16, 3, groups=2)", MAP + ".bfloat16()", 16, more="\nself.bfloat16()"), [GROUPS, TURNED]
    ),
    "two_layers": (
        of("Conv1d(16, 24, 3)", LINE, 16, "self.g(self.f(x).relu())", "\nself.g = nn.ConvTranspose1d(24, 8, 3)"),
        [PLANE, ON_PLANE, TURNED, PLANE],
    ),
}  # fmt: skip
WIDTHS = {"c": (16, 4, 24), "o": (24, 4, 32), "n": (40, 11, 17)}
"""Channels that are others at other shapes, as held-out sizes of a task may have them."""
CASES |= {
    f"{name}_of_other_widths": (
        reference("self.f(x)", f"torch.randn(2, {inputs})", f"self.f = nn.{layer}", WIDTHS),
        words,
    )
    for name, inputs, layer, words in (
        ("groups", "c, n, 9", "Conv2d(c, o, 3, groups=2)", [GROUPS]),
        ("groups_turned", "c, n", "ConvTranspose1d(c, o, 3, groups=4, padding=1)", [GROUPS, TURNED, PLANE]),
        ("groups_spread", "c, n, 9", "ConvTranspose2d(c, o, 3, stride=2, groups=2, bias=False)", [GROUPS]),
        ("groups_of_one", "c, n, 9", "ConvTranspose2d(c, o, (3, 5), stride=(2, 3), groups=4)", [GROUPS]),
        ("volume", "c, 4, n, 9", "ConvTranspose3d(c, o, 3)", [TURNED]),
        ("line", "c, n", "Conv1d(c, o, 3, stride=2)", [PLANE]),
        ("taps", "3, n, 9", "Conv2d(3, o, 5)", [TAPS]),
    )
}
OTHERS = {
    "plain": of("Conv2d(16, 24, 3)", MAP, 16),
    "spread": of("ConvTranspose2d(16, 24, 3, stride=2)", MAP, 16),
    "more_padding_than_taps": of("ConvTranspose2d(16, 24, 3, padding=3)", MAP, 16),
    "depthwise": of("Conv2d(8, 8, 3, groups=8)", MAP, 8),
    "many_groups": of("Conv2d(64, 64, 3, groups=16)", MAP, 64),
    "wide_groups": of("Conv2d(64, 64, 3, groups=2)", MAP, 64),
    "few_taps": of("Conv2d(3, 24, 3)", MAP, 3),
    "line_of_few": of("Conv1d(3, 24, 3)", LINE, 3),
    "made_weights": of("Conv2d(3, 24, 7)", MAP, 3, "F.conv2d(x, self.f.weight * x.mean())"),
    "given_weights": reference("F.conv2d(x, y)", "torch.randn(2, 3, n, 9), torch.randn(8, 3, 5, 5)"),
    "unbatched": reference("self.f(x)", "torch.randn(16, n)", "self.f = nn.Conv1d(16, 24, 3)"),
}


def after(source: str) -> tuple[Graph, tuple[str, ...]]:
    found = apply_rules(export_graph(task_from_source(source, "filled")), "filled")
    return found.graph, found.sentences


@pytest.mark.parametrize("name", CASES)
def test_what_is_rewritten(name: str) -> None:
    source, expected = CASES[name]
    sentences = after(source)[1]
    assert len(sentences) == len(expected)
    assert all(part in sentence for part, sentence in zip(expected, sentences, strict=True))


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    assert not after(OTHERS[name])[1]


def more(words: list[str]) -> str:
    """How a sentence goes on after the first of several."""
    return f", and {len(words) - 1} more" if len(words) > 1 else ""


def made(name: str) -> Version:
    """The version after the one action that algebra offers."""
    root = version(task_from_source(CASES[name][0], name))
    [action] = [each for each in actions_on(root, "algebra") if "make kernels of that" in each.sentence]
    return version(root.task, child_of(root, action))


@pytest.mark.parametrize("name", ["turned_line", "groups_spread", "taps_of_two_dimensions", "work_around"])
def test_all_of_it_are_kernels_at_once(name: str) -> None:
    child = made(name)
    convolutions = [stage for stage in child.kernels() if stage.template == "convolution"]
    assert [dict(stage.schedule)["layout"] for stage in convolutions] == ["channels_last"]
    working = [stage for stage in child.working() if stage not in child.kept()]
    assert not any(stage.is_torch for stage in working)
    assert len(working) == (2 if dict(CASES)[name][1][-1] == TAPS else 1)


def test_gathered_taps_are_rounded_where_they_are_made() -> None:
    child = made("taps_of_a_line_across")
    [stage] = [stage for stage in child.kernels() if stage.template == "convolution"]
    plan = child.plan.with_stage(stage, stage.scheduled({"precision": "tf32_rounded"}))
    text = print_plan(child.task, child.graph, plan).source
    forward = text.split("def forward")[1]
    assert "rounded" not in forward.replace("weight_rounded", "") and "near" in text.split("def launch_")[0]


def test_what_the_library_does_lies_as_the_graph_says() -> None:
    """Where taps are channels the channels lie last, and a result by the library would: so that is for kernels alone."""
    offered = {}
    for name in ("turned_line", "groups_spread", "taps_turned", "work_around"):
        root = version(task_from_source(CASES[name][0], name))
        offered[name] = [each for each in actions_on(root, "algebra") if "by the library" in each.sentence]
    assert {name: len(actions) for name, actions in offered.items()} == {
        "turned_line": 1, "groups_spread": 1, "taps_turned": 0, "work_around": 0,
    }  # fmt: skip


def test_all_are_right() -> None:
    cases = []
    for name, (text, words) in share(list(CASES.items()), 3):
        first = f"rewrite by algebra: {after(text)[1][0]}"
        kernels = first if words[-1] == TAPS else f"{first}{more(words)}, and make kernels of that"
        ways = [[first, "lower"], [kernels, "tile"], [kernels, "reorder", "pipeline"]]
        cases.append({"name": name, "source": text, "ways": ways})
    assert interpret(cases) == {case["name"]: None for case in cases}
