"""The cache of winners: what it serves, to whom, and what it refuses."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mtmc.cache import (
    Asked,
    Entry,
    Key,
    Lookup,
    WinnerCache,
    mtmc_digest,
    private_folder,
    source_file,
)
from mtmc.cli import main
from mtmc.errors import ConfigError, RunError
from mtmc.evaluate import LabSettings
from mtmc.fakes import FakeEvaluator, FakePolicy
from mtmc.files import user_cache_folder
from mtmc.search import Budget
from mtmc.search.strategies import Greedy
from mtmc.task import Variant, capture_module
from mtmc.task.live_call import Call
from tests.extending.brevity import BrevitySettings

KEY = Key("class Model: ...", "x: float32[2, 3]", "H100", "lab", "mcts, rewriter", "torch 2.11")
SOURCE = "class ModelNew:\n    answer = 42\n"


def entry(evaluations: int = 8, task: str = "Block", winners: int = 1, complete: bool = False) -> Entry:
    sources = tuple(f"{SOURCE}# {n}\n" for n in range(winners))
    best = (2.5, 0.125, "estimated")
    reason = "" if winners else f"nothing faster in {evaluations} evaluations"
    budget, made = Budget(evaluations), "2026-01-31 12:00"
    shapes = (Variant("small", (("rows", 8),)), (Variant("odd1", (("rows", 7), ("n", 5))),))
    rest = (budget, evaluations, complete, made, "run", *shapes, {"eager": 0.5})
    return Entry(task, "H100", sources, reason, *best, *rest)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of each test's own, which is not there yet."""
    monkeypatch.setenv("MTMC_CACHE", str(tmp_path / "cache"))
    old = os.umask(0o022)
    yield tmp_path / "cache"
    os.umask(old)


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert user_cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("MTMC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert user_cache_folder() == tmp_path / "xdg" / "mtmc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_cache_folder() == tmp_path / "home" / ".cache" / "mtmc"
    monkeypatch.setenv("MTMC_CACHE", "~nobody-of-that-name/x")
    with pytest.raises(ConfigError, match="MTMC_CACHE"):
        user_cache_folder()


def test_what_is_added_is_found(folder: Path) -> None:
    assert WinnerCache().find(KEY, Budget(8)) is None
    assert not folder.exists(), "looking makes nothing"
    assert WinnerCache().add(KEY, entry())
    assert WinnerCache().find(KEY, Budget(8)) == entry()
    assert (folder / "winners").stat().st_mode & 0o777 == 0o700
    WinnerCache().forget(KEY)
    assert WinnerCache().find(KEY, Budget(8)) is None


@pytest.mark.parametrize("part", [each.name for each in fields(Key)])
def test_each_part_of_a_key_counts(part: str) -> None:
    WinnerCache().add(KEY, entry())
    assert WinnerCache().find(replace(KEY, **{part: "another"}), Budget(8)) is None


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    first, second = replace(KEY, hardware="H1", evaluator="00lab"), replace(KEY, hardware="H100", evaluator="lab")
    assert first.digest != second.digest


def test_the_digest_of_mtmc_is_of_its_files() -> None:
    code = "import mtmc.cache; print(mtmc.cache.mtmc_digest())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == mtmc_digest()


@pytest.mark.parametrize(
    ("had", "asked", "serves"),
    [
        (Budget(8), Budget(8), True),
        (Budget(8), Budget(4), True),
        (Budget(8), Budget(9), False),
        (Budget(8), Budget(8, wall_seconds=5.0), True),
        (Budget(8, wall_seconds=5.0), Budget(8), False),
        (Budget(8, wall_seconds=5.0), Budget(4, wall_seconds=5.0), True),
        (Budget(8, wall_seconds=5.0), Budget(4, wall_seconds=6.0), False),
        (Budget(8, roofline=0.5), Budget(8, roofline=0.9), False),
        (Budget(8, roofline=0.9), Budget(8, roofline=0.5), True),
        (Budget(8, depth=3), Budget(8), False),
        (Budget(8, usd=1.0), Budget(8, usd=2.0), False),
        (Budget(8, usd=0.0), Budget(8, usd=0.0), True),
    ],
)
def test_a_budget_serves_a_smaller_one(had: Budget, asked: Budget, serves: bool) -> None:
    kept = replace(entry(), budget=had)
    WinnerCache().add(KEY, kept)
    assert WinnerCache().find(KEY, asked) == (kept if serves else None)


def test_where_nothing_was_left_a_larger_budget_finds_no_more() -> None:
    WinnerCache().add(KEY, entry(complete=True))
    assert WinnerCache().find(KEY, Budget(800)) is not None
    assert WinnerCache().find(KEY, Budget(800, depth=9)) is None


def test_a_smaller_search_does_not_replace_a_larger_one() -> None:
    for evaluations, kept in ((8, 8), (4, 8), (16, 16), (8, 16)):
        WinnerCache().add(KEY, entry(evaluations))
        found = WinnerCache().find(KEY, Budget(1))
        assert found is not None and found.evaluations == kept
    WinnerCache().add(KEY, entry(16, task="again"))
    assert WinnerCache().find(KEY, Budget(1)) == entry(16, task="again")


def test_that_nothing_is_faster_is_kept_too() -> None:
    WinnerCache().add(KEY, entry(winners=0))
    found = WinnerCache().find(KEY, Budget(8))
    assert found is not None and found.sources == () and found.reason == "nothing faster in 8 evaluations"


def damaged(content: str) -> list[str]:
    whole = json.loads(content)
    whole["entry"]["sources"][0] += "import os\n"
    newer = {**json.loads(content), "format": 2}
    return ["", "{", "[]", "null", content[: len(content) // 2], json.dumps(whole), json.dumps(newer)]


@pytest.mark.parametrize("number", range(7))
def test_a_damaged_entry_is_told_of_and_replaced(number: int, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    WinnerCache().add(KEY, entry())
    path = folder / "winners" / f"{KEY.digest}.json"
    path.write_text(damaged(path.read_text())[number])
    with caplog.at_level(logging.WARNING, "mtmc"):
        assert WinnerCache().find(KEY, Budget(8)) is None
        assert WinnerCache().entries() == []
    assert str(path) in caplog.text and "replaces it" in caplog.text
    WinnerCache().add(KEY, entry())
    assert WinnerCache().find(KEY, Budget(8)) == entry()


def test_a_file_of_others_is_not_used(folder: Path, tmp_path: Path) -> None:
    WinnerCache().add(KEY, entry())
    path = folder / "winners" / f"{KEY.digest}.json"
    path.chmod(0o666)
    assert WinnerCache().find(KEY, Budget(8)) is None
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert WinnerCache().find(KEY, Budget(8)) is None
    WinnerCache().add(KEY, entry())
    assert WinnerCache().find(KEY, Budget(8)) == entry() and not path.is_symlink()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(mode: int, folder: Path) -> None:
    WinnerCache().add(KEY, entry())
    (folder / "winners").chmod(mode)
    for use in (
        lambda: WinnerCache().find(KEY, Budget(8)),
        lambda: WinnerCache().add(KEY, entry()),
        WinnerCache().entries,
        WinnerCache().clear,
        WinnerCache().check,
    ):
        with pytest.raises(RunError, match=f"mode {mode:o}.*chmod go-w"):
            use()


def test_a_folder_of_somebody_else_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    WinnerCache().add(KEY, entry())
    source_file(SOURCE)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(RunError, match=f"belongs to user {owner}, not to you"):
        WinnerCache().find(KEY, Budget(8))
    with caplog.at_level(logging.WARNING, "mtmc"):
        path = source_file(SOURCE)
    assert folder not in path.parents and path.read_text() == SOURCE and "belongs to user" in caplog.text
    path.unlink()


def test_a_folder_that_is_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (tmp_path / "theirs").mkdir(mode=0o700)
    (folder / "winners").symlink_to(tmp_path / "theirs")
    with pytest.raises(RunError, match="is a link"):
        WinnerCache().find(KEY, Budget(8))


def test_without_a_folder_nothing_is_kept(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.write_text("a file in the way")
    with caplog.at_level(logging.WARNING, "mtmc"):
        assert not WinnerCache().add(KEY, entry())
    assert "the winner of Block is not kept" in caplog.text and "MTMC_CACHE" in caplog.text
    assert WinnerCache().find(KEY, Budget(8)) is None


def test_many_write_at_the_same_time() -> None:
    """Processes in spirit: each thread opens its own cache, and the lock is on a handle of its own."""
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for evaluations in range(1, 9):
                WinnerCache().add(KEY, entry(evaluations))
                WinnerCache().add(replace(KEY, hardware=str(number)), entry(evaluations))
                found = WinnerCache().find(KEY, Budget(evaluations))
                assert found is not None and found.evaluations >= evaluations
                assert source_file(SOURCE).read_text() == SOURCE
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert {each.entry.evaluations for each in WinnerCache().entries()} == {8} and len(WinnerCache().entries()) == 5


def test_what_was_not_used_for_long_goes_first(folder: Path) -> None:
    keys = [replace(KEY, hardware=str(number)) for number in range(4)]
    for number, key in enumerate(keys[:3]):
        WinnerCache().add(key, entry())
        os.utime(folder / "winners" / f"{key.digest}.json", (number, number))
    source = source_file(SOURCE)
    os.utime(source, (3, 3))
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert WinnerCache().find(keys[0], Budget(8)) is not None, "now it is the last that was used"
    WinnerCache(limit_bytes=total).add(keys[3], entry())
    assert [number for number, key in enumerate(keys) if WinnerCache().find(key, Budget(8))] == [0, 2, 3]
    WinnerCache(limit_bytes=1).add(keys[1], entry())
    assert WinnerCache().entries() == [] and not source.exists()


def test_a_source_has_one_file(folder: Path) -> None:
    path = source_file(SOURCE)
    assert path.parent == folder / "sources" and path.read_text() == SOURCE and path.stem.isidentifier()
    assert source_file(SOURCE) == path != source_file(SOURCE + "#")
    path.write_text("import os")
    assert source_file(SOURCE) == path and path.read_text() == SOURCE
    path.chmod(0o666)
    assert source_file(SOURCE) == path and path.stat().st_mode & 0o777 == 0o600
    private_folder("sources").chmod(0o777)
    with pytest.raises(RunError):
        private_folder("sources")


def test_where_it_cannot_be_kept_its_file_lasts_as_long_as_the_process(tmp_path: Path) -> None:
    code = (
        "import os\nfrom mtmc.cache import source_file\n"
        "path = source_file('x = 1')\nchild = os.fork()\nif not child: raise SystemExit\n"
        "os.waitpid(child, 0)\nassert path.read_text() == 'x = 1'\nprint(path)"
    )
    (tmp_path / "temporary").mkdir()
    (tmp_path / "file").touch()
    environment = {**os.environ, "MTMC_CACHE": str(tmp_path / "file" / "x"), "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(str(tmp_path / "temporary")), done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_command_lists_and_clears(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        assert main(["cache", *arguments]) == 0
        return capsys.readouterr().out

    assert said("list") == f"no winners are kept in {folder}/winners\n"
    assert said("clear") == f"removed 0 entries, 0 B, from {folder}/winners\n"
    assert said("path") == f"{folder}\n" and not folder.exists()
    WinnerCache().add(KEY, entry(winners=2))
    WinnerCache().add(replace(KEY, hardware="A100"), replace(entry(winners=0, task="Other"), hardware="A100"))
    os.utime(folder / "winners" / f"{KEY.digest}.json", (1, 1))
    mine, others = source_file(f"{SOURCE}# 0\n"), source_file("x = 1")
    head, first, second = said("list").splitlines()
    assert head.split() == ["task", "hardware", "speedup", "evaluations", "date", "size"]
    assert first.split()[:6] == ["Other", "A100", "none", "8", "2026-01-31", "12:00"] and first.endswith("B")
    assert second.split()[:5] == ["Block", "H100", "2.50x", "estimated", "8"]
    assert said("clear", "Block").startswith("removed 1 entry, ")
    assert [each.entry.task for each in WinnerCache().entries()] == ["Other"]
    assert not mine.exists() and others.exists()
    (folder / "winners" / ".writing-abc").mkdir()
    assert said("clear").startswith("removed 1 entry, ") and not others.exists()
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [".lock"]
    assert not (folder / "winners" / ".writing-abc").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["clear", "Nothing"], "no winner of a task 'Nothing': it has Block"),
        (["list", "Block"], "mtmc cache clear Block"),
        (["lst"], "lst"),
        ([], "mtmc cache --help"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    WinnerCache().add(KEY, entry())
    assert main(["cache", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_listing_loads_no_torch_and_executes_nothing(tmp_path: Path) -> None:
    WinnerCache().add(KEY, replace(entry(), sources=("raise SystemExit(7)",)))
    code = "import sys; from mtmc.cli import main; main(['cache', 'list']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "2.50x" in done.stdout, done.stderr


@dataclass(frozen=True)
class Odd(FakePolicy):
    """A policy whose setting is no plain data."""

    path: Any = Path("x")


def asked(**settings: Any) -> Asked:
    found = Asked.of({"evaluator": "lab", "budget": 8, **settings})
    assert isinstance(found, Asked), found
    return found


def test_what_is_asked_of_a_search_counts() -> None:
    usual = asked()
    assert (usual.hardware, usual.evaluator, usual.budget) == ("H100", "lab", Budget(8))
    assert usual == asked(budget=Budget(8), strategy="mcts", progress=print, dumps=False, out="x")
    assert asked(evaluator=LabSettings(target="sm_80", workers=1)) == replace(usual, hardware="A100")
    assert asked(evaluator=FakeEvaluator(hardware="H200")).hardware == "H200"
    others = ({"seed": 1}, {"policy": "uniform"}, {"policy": FakePolicy()}, {"policy": FakePolicy(stop=0.5)},
              {"coder": "llm", "model": "a/b"}, {"coder": "llm", "model": "a/c"}, {"repairs": 0}, {"batch": 2},
              {"strategy": "greedy"}, {"strategy": Greedy()})  # fmt: skip
    assert len({asked(**each).search for each in ({}, *others)}) == len(others) + 1
    assert asked(policy=FakePolicy(stop=0.5)) == asked(policy=FakePolicy(stop=0.5))


def test_nothing_is_kept_of_a_search_that_cannot_be_told_from_others() -> None:
    assert "settings of the policy" in str(Asked.of({"policy": Odd()}))
    assert "known only when it is open" in str(Asked.of({"evaluator": BrevitySettings()}))
    with pytest.raises(ConfigError, match="there is no evaluator 'lap'"):
        Asked.of({"evaluator": "lap"})


def looked_up(text: str = "class Model: ...", call: Call | None = None, weight: torch.Tensor | None = None) -> Lookup:
    call = call or Call((torch.zeros(2, 3), None), {"scale": 2.0}, ("x", "mask"))
    lookup = Lookup(asked(), WinnerCache())
    lookup.shapes(text, call, {"weight": torch.ones(3, 4) if weight is None else weight})
    return lookup


def test_values_of_tensors_do_not_count_but_what_they_are_like_does() -> None:
    x = torch.zeros(2, 3)
    looked_up().keep(entry(8))
    again = looked_up(call=Call((x + 1, None), {"scale": 2.0}, ("x", "mask")), weight=torch.randn(3, 4))
    assert again.entry == entry(8)
    for call in (
        Call((x.double(), None), {"scale": 2.0}, ("x", "mask")),
        Call((torch.zeros(3, 2).T, None), {"scale": 2.0}, ("x", "mask")),
        Call((torch.zeros(2, 4), None), {"scale": 2.0}, ("x", "mask")),
        Call((x, x), {"scale": 2.0}, ("x", "mask")),
        Call((x, None), {"scale": 3.0}, ("x", "mask")),
        Call((x, None), {"scale": True}, ("x", "mask")),
        Call((x, None), {}, ("x", "mask")),
        Call((x.to("meta"), None), {"scale": 2.0}, ("x", "mask")),
    ):
        assert looked_up(call=call).entry is None
    for weight in (torch.ones(4, 3).T, torch.ones(3, 4).half(), torch.ones(4, 4)):
        assert looked_up(weight=weight).entry is None
    assert looked_up("class Model: layers = 2").entry is None
    drawn = "class Model: ...\n\ndef get_inputs():\n    x = {}\n    return [x]\n\n\nn = {}\n"
    looked_up(drawn.format("1", 3)).keep(entry())
    assert looked_up(drawn.format("2", 4)).entry is None
    assert looked_up(drawn.format("2\n    x += 1", 3)).entry is not None, (
        "what is drawn for a search depends on the example's values"
    )


def test_an_entry_that_does_not_hold_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    looked_up().keep(entry())
    found = looked_up()
    with caplog.at_level(logging.WARNING, "mtmc"):
        found.refuse("it is off by 2.0")
    assert found.entry is None and "off by 2.0" in caplog.text and looked_up().entry is None


def test_where_the_shapes_are_known_none_are_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    def module() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()

    x = torch.randn(4, 8)
    first = Lookup(asked(), WinnerCache())
    captured = capture_module(module(), x, known=first.shapes)
    first.keep(replace(entry(task="Sequential"), small=captured.task.small, held_out=captured.task.held_out))
    monkeypatch.setattr("mtmc.task.live._shapes", None)
    second = Lookup(asked(), WinnerCache())
    again = capture_module(module(), x, known=second.shapes)
    assert second.entry is not None and second.key == first.key
    assert replace(again.task, state=None) == replace(captured.task, state=None)
    assert again.task.state != captured.task.state, "each has its own weights"
