"""The playbook: every kind has its page, every pair of versions does what its page says, every figure is on record.

Each pair goes through the whole lab (H100). What is asserted of it besides being right is stated with it in `CLAIMS`: the
estimate of the version after is lower by at least half, as a logarithm, of what was measured on an H100 between launches
like these (results/estimate_h100.json) or, where none were timed, of what the bytes say. What an estimate could show for
a wrong reason is also shown by its mechanism: in the metrics, or in the machine code.
"""

from __future__ import annotations

import ast
import json
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mtmc.action import STOP_KIND
from mtmc.agents.coders.playbook import EXAMPLES, TEXT_ONLY, hardware_page, kinds, page
from mtmc.errors import ConfigError
from mtmc.evaluate.estimates.estimate import Estimate, estimate
from mtmc.evaluate.estimates.resources import Resources, read_resources
from mtmc.evaluate.lab import LabEvaluator
from mtmc.hardware import HARDWARE
from mtmc.optimizations import KINDS
from mtmc.outcome import Outcome
from mtmc.protocols import EvaluationRequest
from mtmc.task import Task, load_task
from tests.breadth import share

RESULTS = Path(__file__).parents[2] / "results"
HEADINGS = ("## What it does", "## When it pays", "## When it harms")
PAIRS = tuple(kind for kind in KINDS if kind not in TEXT_ONLY)
EVALUATED = tuple(share(PAIRS, 5))
"""Whose pairs go through the lab here."""
DISASSEMBLED = ("precision", "tile", "pipeline", "vectorize", "descriptors")
LINEAR = "linear/2048x4096x2048"


@dataclass(frozen=True)
class Claim:
    """What the estimate must see.

    timed: cases of results/estimate_h100.json with the launches of before and after; or ratio: what to expect of
    after / before. share: of that gain, as a logarithm, that must be seen; 0: only that there is no loss.
    """

    timed: tuple[str, str] | None = None
    ratio: float = 1.0
    share: float = 0.5

    def expected(self) -> float:
        if self.timed is None:
            return self.ratio
        times = json.loads((RESULTS / "estimate_h100.json").read_text())["times"]
        return float(times[self.timed[1]] / times[self.timed[0]])


CLAIMS = {
    "fuse": Claim(ratio=3 / 5),  # of 2 + 1 + 1 + 1 tensors that are read and written, 2 + 1 remain
    "lower": Claim(ratio=0.0988 / 0.6249),  # logsumexp, results/on_gpu.md
    "precision": Claim((f"{LINEAR}/128x64x32/w4s4g8/ieee/float32", f"{LINEAR}/128x64x32/w4s4g8/tf32x3/float32")),
    "tile": Claim((f"{LINEAR}/32x32x32/w4s3g8/tf32x3/float32", f"{LINEAR}/128x128x32/w8s3g8/tf32x3/float32")),
    # What overlaps with what in a loop is the softest part of the estimate, and the gain is small: the copies are counted.
    "pipeline": Claim(
        (f"{LINEAR}/128x64x32/w4s1g8/tf32x3/float32", f"{LINEAR}/128x64x32/w4s4g8/tf32x3/float32"), share=0.0
    ),
    "reorder": Claim(("softmax_loop/1024/4", "softmax_one/4")),
    "vectorize": Claim(("gelu_bias/256/8", "gelu_bias/1024/4")),
    "split": Claim(("rowsum/1/1024/4", "rowsum/32/1024/4")),
    "symmetry": Claim(ratio=528 / 1024),  # of 32 x 32 tiles those on and above the diagonal
    "persist": Claim(ratio=144 / 132 / 2),  # of two waves of tiles, 1.09 are left
    "descriptors": Claim(ratio=0.85, share=0.0),  # nothing of it was timed: the copies are counted
    "layout": Claim(ratio=(2 * 0.453 + 0.148 + 0.1) / (2 * 0.750 + 0.1)),  # 3 x 3 on an H100; 0.1 for mish
    # The flops of 1024 x 8192 x 8192 at 67 TFLOP/s against the bytes of weights and rows at 0.87 of 3.35 TB/s.
    "algebra": Claim(ratio=(4 * (8192 + 1024) * 8192 / 2.9e12) / (2 * 1024 * 8192**2 / 67e12)),
    "pack": Claim(ratio=2 / (1 + 2 + 2 + 2 + 2)),  # bytes of each weight: converted, scaled and read by the product
    "join": Claim(ratio=2 / (2 + 2)),  # the scan reads and writes, and the call did so once more
    "direct_launch": Claim(share=0.0),  # it is the host that gains; the device does the same
    # Of sixteen launches half is saved; the graph's own and two copies are added.
    "cuda_graph": Claim(ratio=1 - (16 - 16 / 2 - 3) * 0.0035 / 0.108),
}


# --- pages -----------------------------------------------------------------------------------------------------------


def test_every_kind_has_a_page_with_three_headings_and_a_pair() -> None:
    assert kinds() == tuple(KINDS) and set(PAIRS) == set(CLAIMS) and TEXT_ONLY == (STOP_KIND, "specialize", "combine")
    for kind in kinds():
        found = page(kind)
        lines = found.text.splitlines()
        assert found.kind == kind and lines[0] == f"# {kind}" and found.text == KINDS[kind].page
        assert [line for line in lines if line.startswith("## ")] == list(HEADINGS), kind
        for heading in HEADINGS:
            assert len(lines[lines.index(heading) + 1]) > 20, f"{kind}: nothing stands under {heading}"
        assert len(lines) <= 40 and max(map(len, lines)) <= 120, f"{kind}: too long for a prompt"
        assert bool(found.before) == bool(found.after) == (kind not in TEXT_ONLY)


@pytest.mark.parametrize("kind", PAIRS)
def test_examples_are_candidates_short_enough_for_a_prompt(kind: str) -> None:
    found = page(kind)
    assert found.before != found.after
    for text in (found.before, found.after):
        assert len(text.splitlines()) <= 60
        tree = ast.parse(text)
        assert ast.get_docstring(tree), f"{kind}: an example says in its first line what it shows"
        assert "ModelNew" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {module.split(".")[0] for module in modules} <= {"torch", "triton"}


def test_no_example_without_a_kind() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")} - {"__init__"}
    assert names == {f"{kind}_{part}" for kind in PAIRS for part in ("task", "before", "after")}


@pytest.mark.parametrize(("wrong", "near"), [("fuze", "fuse"), ("Tile", "tile"), ("vectorise", "vectorize")])
def test_unknown_kind_names_the_near_one(wrong: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{wrong}': did you mean [^?]*{near}"):
        page(wrong)


def test_unknown_kind_far_from_all_lists_them() -> None:
    with pytest.raises(ConfigError) as caught:
        page("xyzzy")
    assert "did you mean" not in str(caught.value) and all(kind in str(caught.value) for kind in KINDS)


def test_every_time_on_a_page_is_on_record() -> None:
    """Milliseconds are written with three decimals, and each was measured: on an H100 or H200."""
    times = [
        value
        for gpu in ("h100", "h200")
        for value in json.loads((RESULTS / f"estimate_{gpu}.json").read_text())["times"].values()
    ]
    times += [float(number) for number in re.findall(r"\d+\.\d{4}", (RESULTS / "on_gpu.md").read_text())]
    times += [
        time for row in json.loads((RESULTS / "long_rows.json").read_text())["rows"] for time in row["ms"].values()
    ]
    for run in json.loads((RESULTS / "schedules_h200.json").read_text())["runs"]:
        times += [row["ms"] for task in run["tasks"] for row in task["rows"] if "ms" in row]
    for group in json.loads((RESULTS / "hopper_h200.json").read_text())["rows"].values():
        times += [time for case in group.values() for time in case.values()]
    for name in ("blocks_h100", "blocks_h200"):
        for row in json.loads((RESULTS / name / "bench.json").read_text())["rows"]:
            times += [time for time in (row["best_ms"], *row["baselines_ms"].values()) if time is not None]
    texts = {**{kind: page(kind).text for kind in kinds()}, **{name: hardware_page(name) for name in ("H100", "H200")}}
    quoted = [(name, number) for name, text in texts.items() for number in re.findall(r"(?<![\d.])\d+\.\d{3}\b", text)]
    assert len(quoted) > 60
    assert not [(name, n) for name, n in quoted if not any(abs(float(n) - time) < 0.000501 for time in times)]


# --- hardware --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(HARDWARE))
def test_hardware_page_holds_the_record(name: str) -> None:
    gpu, text = HARDWARE[name], hardware_page(name.lower())
    lines, words = text.splitlines(), " ".join(text.split())
    assert lines[0] == f"# {name} ({gpu.target})" and len(lines) <= 40 and max(map(len, lines)) <= 120
    assert f"{gpu.sms} multiprocessors" in words and f"DRAM {gpu.dram_gbs:,.0f} GB/s" in words
    assert f"fp16 and bf16 {gpu.fp16_tflops:,g}, TF32 {gpu.tf32_tflops:,g}, plain fp32 {gpu.fp32_tflops:g}." in words
    assert f"{gpu.shared_per_block // 1024} KiB for one program" in words and gpu.source in words
    assert "Nothing is known here" not in words, "a target of the table without its notes"
    assert ("Nothing was timed" in words) == (name not in ("H100", "H200"))


def test_hardware_page_works_out_what_follows() -> None:
    """H100 by hand: 3350 GB/s x 600 ns = 2.01 MB; 989.4 / 3.35 = 295; 494.7 / 3 = 165; 227 / 24 = 9."""
    words = " ".join(hardware_page("H100").split())
    for figure in (
        "so 2.0 MB must be under way",
        "than 295 in fp16 products, 49 in fp32 products, 20 in other",
        "make 165",
    ):
        assert figure in words
    assert "24 KiB in fp32 and 12 KiB in fp16: at most 9 and 18 of them" in words and "as much as 12 MB" in words


def test_three_tf32_products_are_weighed_by_the_rates() -> None:
    worth = {
        name: " ".join(hardware_page(name).split()).split("Three TF32 products for one of fp32 ")[1]
        for name in HARDWARE
    }
    assert {name for name, text in worth.items() if ": more than plain fp32" in text} == {
        "A100",
        "H100",
        "H200",
        "B200",
    }
    assert {name for name, text in worth.items() if "not more than plain fp32" in text} == {"L4", "RTX4090"}
    assert worth["MI300X"].startswith("are not to be had")


def test_hardware_page_follows_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new GPU has a page at once, which says that nothing is known of its target."""
    monkeypatch.setitem(HARDWARE, "T4000", replace(HARDWARE["H100"], name="T4000", target="sm_75", sms=41))
    text = hardware_page("T4000")
    assert "41 multiprocessors" in text and "Nothing is known here of what sm_75 wants" in text


def test_unknown_gpu_names_the_near_one() -> None:
    with pytest.raises(ConfigError, match=r"'H10O'.*H100"):
        hardware_page("H10O")


# --- pairs -----------------------------------------------------------------------------------------------------------


def task_of(kind: str) -> Task:
    """By its text, so that kinds with the same task share it, and what the lab finds of it."""
    return load_task((EXAMPLES / f"{kind}_task.py").read_text())


class Evaluated(dict[str, Any]):
    """What is known of each kind; a test of one that is not evaluated in this run is skipped."""

    def __missing__(self, kind: str) -> Any:
        pytest.skip(f"{kind} is evaluated by make test-all")


Mixes = dict[str, tuple[Mapping[str, int], Mapping[str, int]]]
"""Of kinds: how often each instruction stands in the kernel of the version before, and of that after."""


@pytest.fixture(scope="module")
def found(lab: LabEvaluator) -> dict[str, list[tuple[Outcome, Sequence[Resources]]]]:
    """What the lab finds of each version of a pair, and of its kernels, which it disassembles for the estimate."""
    asked = threading.local()  # a version is estimated in the thread that asks for it

    def noting(records: Any, resources: Sequence[Resources], *others: Any) -> Estimate:
        asked.resources = resources
        return estimate(records, resources, *others)

    def disassembled(binary: bytes, target: str, shared: int, mix: bool, function: str | None = None) -> Resources:
        return read_resources(binary, target, shared, mix or asked.kind in DISASSEMBLED, function)

    def evaluated(kind: str, source: str) -> tuple[Outcome, Sequence[Resources]]:
        asked.kind, asked.resources = kind, ()
        [outcome] = lab.evaluate([EvaluationRequest(task_of(kind), source)])
        return outcome, asked.resources

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as threads:
        patch.setattr("mtmc.evaluate.lab.estimate", noting)
        patch.setattr("mtmc.evaluate.lab.read_resources", disassembled)
        versions = [(kind, text) for kind in EVALUATED for text in (page(kind).before, page(kind).after)]
        each = list(threads.map(lambda version: evaluated(*version), versions))
    return {kind: each[2 * i : 2 * i + 2] for i, kind in enumerate(EVALUATED)}


@pytest.fixture(scope="module")
def outcomes(found: dict[str, list[tuple[Outcome, Sequence[Resources]]]]) -> dict[str, tuple[Outcome, Outcome]]:
    """What the lab finds of each pair, for an H100."""
    return Evaluated({kind: (before, after) for kind, ((before, _), (after, _)) in found.items()})


@pytest.fixture(scope="module")
def mixes(found: dict[str, list[tuple[Outcome, Sequence[Resources]]]]) -> Mixes:
    """Instructions of the one kernel of each version, compiled for an H100."""
    return Evaluated(
        (kind, (before.instruction_mix, after.instruction_mix))
        for kind in DISASSEMBLED
        if kind in EVALUATED
        for (_, (before,)), (_, (after,)) in [found[kind]]
    )


@pytest.mark.parametrize("kind", EVALUATED)
def test_pair_is_right_and_its_gain_is_seen(kind: str, outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    before, after = outcomes[kind]
    assert before.ok and after.ok, (before, after)
    assert before.runtime_ms is not None and after.runtime_ms is not None
    expected = CLAIMS[kind].expected()
    assert expected < 0.9 or kind == "direct_launch", "the pair shows a gain that is worth a page"
    assert after.runtime_ms <= expected ** CLAIMS[kind].share * before.runtime_ms


def test_fuse_writes_nothing_between(outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    before, after = (outcome.metrics for outcome in outcomes["fuse"])
    assert (before["kernels"], after["kernels"]) == (2, 1)
    assert before["bytes_moved"] - after["bytes_moved"] == pytest.approx(2 * 4 * 16384 * 4096)
    assert after["bytes_moved"] == after["bytes_min"]


def test_lower_makes_one_kernel_of_several(outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    before, after = (outcome.metrics for outcome in outcomes["lower"])
    assert before["kernels"] > 4 and after["kernels"] == 1
    assert after["bytes_moved"] == pytest.approx(4 * 16384 * (4096 + 1))


def test_reorder_reads_each_row_once(outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    before, after = (outcome.metrics for outcome in outcomes["reorder"])
    assert before["bytes_dram"] > 1.5 * after["bytes_dram"] == 1.5 * after["bytes_min"]


def test_split_fills_the_chip(outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    before, after = (outcome.metrics for outcome in outcomes["split"])
    assert before["programs"] == 64 < HARDWARE["H100"].sms < after["programs"] == 2048
    assert (before["kernels"], after["kernels"]) == (1, 2)


def test_precision_moves_the_product_to_the_tensor_cores(mixes: Mixes) -> None:
    before, after = mixes["precision"]
    assert not before.keys() & {"HMMA", "HGMMA"} and before["FFMA"] > 1000
    assert after["HGMMA"] % 3 == 0 and after.get("FFMA", 0) < 1000


def test_precision_keeps_the_accuracy(outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    before, after = (outcome.metrics["error"] for outcome in outcomes["precision"])
    assert 0 < before < 1e-6 and 0 < after < 1e-6


def test_tile_is_large_enough_for_warp_groups(mixes: Mixes) -> None:
    before, after = mixes["tile"]
    assert "HMMA" in before and "HGMMA" not in before
    assert "HGMMA" in after and "HMMA" not in after


def test_pipeline_copies_asynchronously(mixes: Mixes, outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    before, after = mixes["pipeline"]
    assert not any(opcode.startswith("LDGSTS") for opcode in before)
    assert after["LDGSTS.128"] > 0
    held = [outcome.metrics["shared_memory"] for outcome in outcomes["pipeline"]]
    assert held[1] >= 3 * (128 + 64) * 32 * 4 > held[0]  # at least three slices of both operands


def test_descriptors_leave_copies_to_the_tensor_memory_accelerator(mixes: Mixes) -> None:
    before, after = mixes["descriptors"]
    assert before["LDGSTS.128"] > 0 and not any(opcode.startswith("UTMALDG") for opcode in before)
    assert after["UTMALDG"] > 0 and not any(opcode.startswith("LDGSTS") for opcode in after)


def test_capture_counts_the_copies_around_the_graph(outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    before, after = (outcome.metrics for outcome in outcomes["cuda_graph"])
    assert (before["kernels"], after["kernels"]) == (16, 18)
    assert after["bytes_moved"] - before["bytes_moved"] == 4 * 4 * 64 * 256
    assert after["bytes_min"] == before["bytes_min"]


def test_persist_keeps_all_multiprocessors_busy(outcomes: dict[str, tuple[Outcome, Outcome]]) -> None:
    before, after = (outcome.metrics for outcome in outcomes["persist"])
    assert (before["programs"], after["programs"]) == (144, 132)


def test_vectorize_loads_sixteen_bytes(mixes: Mixes) -> None:
    before, after = mixes["vectorize"]
    assert "LDG.128" not in before and before["LDG.32"] >= 1 and before["STG.32"] == 1
    assert after["LDG.128"] == 4 and after["STG.128"] == 2  # eight numbers a thread: of x and of the bias, and results
