"""Knowledge over runs: its file, which entries are near, how it is made of runs, and that a search tells of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mtmc.agents.facts.harvest import DIFF_LINES, _entries, entries_of
from mtmc.cli import main
from mtmc.errors import ConfigError
from mtmc.fakes import FakeCoder, FakeEvaluator
from mtmc.knowledge import Entry, from_text, merged, nearest, to_text
from mtmc.outcome import speedup
from mtmc.search import AgentSettings, load, search
from mtmc.store import Store

ENTRY = Entry(
    task="gelu_linear", ops=("gelu", "linear"), shapes="64x48", dtype="float32", hardware="H100", kind="tile",
    params={"block_m": 64}, sentence="retile linear", gain=1.5, parent_ms=3.0, child_ms=2.0, runtime_kind="measured",
    gate="verify", parent="a", child="b", diff="-old\n+new",
)  # fmt: skip


def test_a_file_comes_back() -> None:
    entries = (ENTRY, replace(ENTRY, kind="fuse", params={"horizontal": True}, gain=2.0))
    assert from_text(to_text(entries), "file") == entries


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"format": 1}', '{"format": 1, "entries": [{}]}', '{"format": 2, "entries": []}',
        to_text([ENTRY]).replace("1.5", '"fast"'), to_text([ENTRY]).replace('"H100"', "7"), "\x00",
    ],
)  # fmt: skip
def test_a_file_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="mtmc knowledge"):
        from_text(text, "other.json")


def test_of_entries_that_say_the_same_the_greatest_gain_is_kept() -> None:
    other = replace(ENTRY, kind="fuse", gain=1.1)
    assert merged([ENTRY, replace(ENTRY, gain=1.2, child="c"), other, replace(ENTRY, gain=1.7, child="d")]) == (
        replace(ENTRY, gain=1.7, child="d"),
        other,
    )


def test_the_nearest_share_operators_dtype_and_gpu() -> None:
    half = replace(ENTRY, ops=("gelu", "linear", "softmax", "add"), child="half")  # 2 of 4 operators
    bf16 = replace(ENTRY, dtype="bfloat16", gain=9.0, child="bf16")  # 1/2
    other = replace(ENTRY, dtype="bfloat16", hardware="A100", gain=9.0, child="other")  # 1/4
    none = replace(ENTRY, ops=("conv2d",), gain=99.0, child="none")
    entries = [none, other, half, bf16, ENTRY]
    found = nearest(entries, ("linear", "gelu"), "float32", "H100", "tile", 9)
    assert [each.child for each in found] == ["b", "bf16", "half", "other"], "of equals the greater gain comes first"
    assert nearest(entries, ("linear", "gelu"), "float32", "H100", "fuse", 9) == []
    assert nearest(entries, (), None, "H100", None, 9) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of fakes."""
    folder = tmp_path_factory.mktemp("runs") / "fake"
    search(
        "softmax", coder=FakeCoder(), policy="uniform", evaluator=FakeEvaluator(), budget=24, out=folder, progress=False
    )
    return folder


def test_entries_are_pairs_of_right_versions_of_which_the_child_is_faster(run: Path) -> None:
    tree = load(run).tree
    found = entries_of(run)
    expected = {
        node.hash: gain
        for node in tree
        if node.id
        and node.outcome.ok
        and (gain := speedup(node.outcome, tree[node.parent_id].outcome))
        and gain >= 1.02
    }
    assert expected and {entry.child: entry.gain for entry in found} == expected
    entry = found[0]
    assert (entry.dtype, entry.hardware, entry.gate, entry.runtime_kind) == ("float32", "H100", "screen", "estimated")
    assert entry.ops == ("softmax",) and entry.shapes and entry.diff.count("\n") <= DIFF_LINES
    assert entry.gain == pytest.approx(entry.parent_ms / entry.child_ms)


def test_where_versions_are_verified_only_those_that_passed_are_taken(run: Path) -> None:
    store = Store.read(run)
    tree, task = store.tree(), store.task()
    store.close()
    passed = {tree.best.hash}
    assert {entry.child for entry in _entries(tree, task, "H100", passed)} == passed
    assert list(_entries(tree, task, "H100", set())) == []


def test_the_command_adds_to_its_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "knowledge.json"
    file.write_text(to_text([ENTRY]))
    assert main(["knowledge", str(run), str(run), "--out", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    entries = from_text(file.read_text(), "file")
    assert ENTRY in entries and len(entries) == answer["entries"] == len(merged(entries_of(run))) + 1
    assert answer["before"] == 1 and answer["runs"] == 2


def test_the_command_names_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["knowledge", str(tmp_path), "--out", str(tmp_path / "k.json")]) == 2
    assert "there is no run in" in capsys.readouterr().err and not (tmp_path / "k.json").exists()


def test_a_file_that_cannot_be_used_ends_a_search_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    for name in ("missing.json", "bad.json"):
        with pytest.raises(ConfigError, match=name):
            search(
                "softmax", agents=AgentSettings(knowledge=str(tmp_path / name)), out=tmp_path / "run", progress=False
            )
    assert not (tmp_path / "run").exists()
